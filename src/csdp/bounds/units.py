"""Units: sequences that belong to one person, whose states are one secret.

A certificate of a unit compares presents that differ anywhere inside it. Bounds that hold for every combination of the
other values (influence, slice) are added up over its sequences. Joint laws compare the presents themselves: a present
between them may be impossible, so that single sequences reveal nothing and the unit everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from csdp.errors import InputError
from csdp.numbers import Floats

#: Sequence numbers by unit; those of two sequences and more.
Units = tuple[tuple[int, ...], ...]


def read_units(units: Sequence[Sequence[str | int]] | None, names: Sequence[str]) -> Units:
    """Units by sequence number, in order; they are given by names or numbers, and share no sequence.

    >>> read_units([["b", "a"], [2]], ["a", "b", "c"])
    ((0, 1),)
    """
    place = {name: n for n, name in enumerate(names)}
    found, seen = [], set[int]()
    for unit in units or ():
        if isinstance(unit, str):
            raise InputError(f"units: {unit!r} given; a list of lists of names is allowed, one for each unit")
        numbers = [place.get(each, -1) if isinstance(each, str) else int(each) for each in unit]
        if not all(0 <= number < len(names) for number in numbers):
            raise InputError(f"units: {list(unit)[:8]} given; names of sequences are allowed: {', '.join(names[:8])}")
        if len(set(numbers)) < len(numbers) or seen & set(numbers):
            raise InputError(f"units: {list(unit)[:8]} repeats a sequence; each belongs to one unit at most")
        seen |= set(numbers)
        found.append(tuple(sorted(numbers)))
    return tuple(sorted(unit for unit in found if len(unit) > 1))


def tie(components: Sequence[tuple[int, ...]], units: Units) -> list[tuple[int, ...]]:
    """Components, joined where a unit has sequences in several.

    >>> tie([(0, 1), (2,), (3,)], ((1, 2),))
    [(0, 1, 2), (3,)]
    """
    tied = [set(component) for component in components]
    for unit in units:
        touched = [component for component in tied if component & set(unit)]
        tied = [component for component in tied if not component & set(unit)]
        tied.append(set().union(*touched))
    return sorted(tuple(sorted(component)) for component in tied)


def blocks_of(members: Sequence[int], units: Units) -> Units:
    """The places, among some members, of every unit; a sequence of no unit is one by itself. Empty without units.

    >>> blocks_of((4, 5, 6), ((4, 6), (8, 9)))
    ((0, 2), (1,))
    """
    if not units:
        return ()
    unit_of = {number: unit for unit in units for number in unit}
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, member in enumerate(members):
        groups.setdefault(unit_of.get(member, (member,)), []).append(place)
    return tuple(tuple(places) for places in groups.values())


def largest_of(revealed: Floats, blocks: Units) -> float:
    """The largest sum over the sequences of a unit of what is revealed of each, (s,) or a block of s for each phase."""
    if not blocks:
        return float(revealed.max())
    each = revealed.reshape(-1, sum(map(len, blocks)))
    singles = [block[0] for block in blocks if len(block) == 1]
    found = [float(each[:, singles].max())] if singles else []
    for block in blocks:
        if len(block) > 1:
            found.append(float(each[:, list(block)].sum(axis=1).max()) * (1 + 1e-15 * len(block)))
    return max(found)
