"""Names of sequences: the one rule by which data meets a chain, whatever door it comes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError

#: Names that a message lists.
_LISTED = 8


def number_names(sequences: int) -> tuple[str, ...]:
    """x1, x2, ...: what sequences without names are called."""
    return tuple(f"x{i + 1}" for i in range(sequences))


def check_distinct(names: Sequence[str], what: str) -> None:
    """Refuse names that appear twice: a column could not be told from the other."""
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    raise InputError(f"{what}: {twice!r} appears twice; names must be distinct")


def match_names(
    given: Sequence[str], expected: Sequence[str], *, what: str, hint: str, rename: bool = False
) -> npt.NDArray[np.intp] | None:
    """The place of every expected sequence among the given ones; None where they stand in that order already.

    The same names, in whatever order, are matched by name; spaces around them do not count. Sequences without names
    (x1, x2, ...), on either side, are matched by their place, unless some name is on both sides: then it is not clear
    what is meant. Everything else is refused. With `rename` the given names are a declared list of other names, in the
    order of the expected ones: matched by place as well, where no name is on both sides.

    >>> match_names(["b", "a"], ["a", "b"], what="panel", hint="").tolist()
    [1, 0]
    >>> match_names(["hall", "kitchen"], ["x1", "x2"], what="panel", hint="") is None
    True
    >>> match_names(["hall", "x1"], ["x1", "x2"], what="panel", hint="read it with names=")
    Traceback (most recent call last):
    csdp.errors.InputError: panel: sequences hall, x1 given; the chain has x1, x2. read it with names=
    """
    mine, theirs = (tuple(name.strip() for name in names) for names in (given, expected))
    check_distinct(mine, what)
    if mine == theirs:
        return None
    if len(mine) == len(theirs):
        if set(mine) == set(theirs):
            place = {name: i for i, name in enumerate(mine)}
            return np.array([place[name] for name in theirs], dtype=np.intp)
        unnamed = number_names(len(mine)) in (mine, theirs)
        if (unnamed or rename) and not set(mine) & set(theirs):
            return None
    counts = f"{len(mine):,} " if len(mine) != len(theirs) else ""
    of = f"{len(theirs):,}: " if len(mine) != len(theirs) else ""
    raise InputError(
        f"{what}: {counts}sequences {_list_names(mine, theirs)} given; the chain has {of}{_list_names(theirs, mine)}. {hint}"
    )


def arrange_names(given: Sequence[str], expected: Sequence[str]) -> tuple[str, ...]:
    """What the sequences of a chain are called in messages, in the chain's order.

    The chain's own names in any order, or as many other ones, which stand for them place by place.

    >>> arrange_names(["b", "a"], ["a", "b"]), arrange_names(["s-1", "s-2"], ["a", "b"])
    (('a', 'b'), ('s-1', 's-2'))
    """
    hint = "Give the chain's names in any order, or other names for all of them, in the chain's order"
    place = match_names(given, expected, what="names", hint=hint, rename=True)
    names = tuple(name.strip() for name in given)
    return names if place is None else tuple(names[i] for i in place)


def read_labels(snapshot: Any) -> Mapping[str, Any] | None:
    """A snapshot that names its sequences, as a mapping: a dict, or a pandas Series with words as its index.

    >>> read_labels({"a": 1}), read_labels([1, 2])
    ({'a': 1}, None)
    """
    if isinstance(snapshot, Mapping):
        return snapshot
    index = getattr(snapshot, "index", None)
    if index is None or callable(index):  # a list has a method of that name
        return None
    labels = list(index)
    if not all(isinstance(label, str) for label in labels):
        return None
    check_distinct(labels, "snapshot")
    return dict(zip(labels, list(snapshot), strict=True))


def place_states(snapshot: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The states of named sequences in the order of a chain's names; a sequence that is not named is missing (-1).

    >>> place_states({"b": 1}, ["a", "b"])
    [-1, 1]
    """
    known = set(names)
    unknown = [name for name in snapshot if name not in known]
    if unknown:
        raise InputError(
            f"snapshot: unknown sequence {unknown[0]!r}; the chain has {_list_names(tuple(names), tuple(snapshot))}. "
            "Name the sequences as the chain does, or give a list in its order"
        )
    return [snapshot.get(name, -1) for name in names]


def _list_names(names: tuple[str, ...], others: tuple[str, ...]) -> str:
    """Some of the names, those first that the other side does not have."""
    if len(names) <= _LISTED:
        return ", ".join(names)
    known = set(others)
    ordered = sorted(names, key=lambda name: name in known)
    return ", ".join(ordered[:_LISTED]) + ", ..."
