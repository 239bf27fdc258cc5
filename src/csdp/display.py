"""Results in a notebook: as a table, a picture, and a short page.

Rooms return records and draw nothing. A result that is `Displayed` hands itself to the backend, which lies above all
rooms and is loaded by its name when it is first asked for, as pandas loads the backend of its plots.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from csdp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The module that knows how every result looks.
_BACKEND = "csdp.report.notebook"


class Displayed:
    """A result that shows itself in a notebook, and becomes a table of pandas or polars or a picture.

    >>> from csdp import CoupledChain, leakage
    >>> answer = leakage(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), "mean", ages=1, epsilon_c=1.0)
    >>> answer.to_polars()["bound"].to_list(), answer._repr_html_().startswith("<div")
    (['exact'], True)
    """

    __slots__ = ()

    def to_pandas(self) -> Any:
        """The content as a table of pandas."""
        return import_module(_BACKEND).to_frame(self, "pandas")

    def to_polars(self) -> Any:
        """The content as a table of polars."""
        return import_module(_BACKEND).to_frame(self, "polars")

    def plot(self) -> Figure:
        """The content as a figure of matplotlib, which a notebook shows and `savefig` writes."""
        figure: Figure = import_module(_BACKEND).to_figure(self)
        return figure

    def _repr_html_(self) -> str:
        return str(import_module(_BACKEND).to_html(self))


def import_package(module: str, *, package: str) -> Any:
    """Import a module of an optional package; raise InputError with the command that installs it.

    >>> import_package("nowhere_to_be_found", package="nowhere")
    Traceback (most recent call last):
    csdp.errors.InputError: this needs the package nowhere, which is not installed: pip install nowhere
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in {module, module.partition(".")[0]}:
            raise
        raise InputError(f"this needs the package {package}, which is not installed: pip install {package}") from None
