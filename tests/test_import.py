"""What `import csdp` offers, and what it costs."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import csdp

HEAVY = ("scipy.stats", "matplotlib", "numba", "sqlalchemy", "typer", "pyarrow", "rich")


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_all_is_sorted_and_without_repetition():
    assert csdp.__all__ == sorted(csdp.__all__)
    assert len(set(csdp.__all__)) == len(csdp.__all__)


@pytest.mark.parametrize("name", csdp.__all__)
def test_every_public_name_exists_and_is_documented(name):
    found = getattr(csdp, name)
    own = inspect.getdoc(found) if not inspect.isclass(found) else found.__doc__
    assert own, f"csdp.{name} has no docstring"
    assert not own.startswith(f"{name}("), f"csdp.{name} has only the docstring that dataclasses make up"
    assert name in dir(csdp)


@pytest.mark.parametrize("name", [name for name in csdp.__all__ if inspect.isclass(getattr(csdp, name))])
def test_every_public_method_is_documented(name):
    found = getattr(csdp, name)
    bare = [
        key
        for key, member in inspect.getmembers(found)
        if not key.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property))
        and not inspect.getdoc(member)
    ]
    assert not bare


def test_nothing_public_is_left_out_of_all():
    own = {n for n, v in vars(csdp).items() if n[0] != "_" and getattr(v, "__module__", "").startswith("csdp")}
    assert own <= set(csdp.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        csdp.no_such_name  # noqa: B018


def test_star_import_gives_exactly_all():
    code = "from csdp import *\nprint([name for name in dir() if name[0] != '_'])"
    names = python(code).strip()
    assert names == str(csdp.__all__)


def test_heavy_modules_load_only_when_used():
    loaded = set(json.loads(python("import csdp, sys, json; print(json.dumps(list(sys.modules)))")))
    assert not loaded & set(HEAVY)
