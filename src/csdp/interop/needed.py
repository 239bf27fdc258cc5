"""Packages of the neighbourhood: they are no dependency, and load when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from csdp.errors import InputError


def needed(module: str, *, package: str) -> Any:
    """The module, or what to install.

    >>> needed("nowhere_to_be_found", package="nowhere")
    Traceback (most recent call last):
    csdp.errors.InputError: this needs the package nowhere, which is not installed: pip install nowhere
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in {module, module.partition(".")[0]}:
            raise
        raise InputError(f"this needs the package {package}, which is not installed: pip install {package}") from None
