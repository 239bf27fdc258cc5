"""Queries as text: on the command line, in plan files and in requests."""

from __future__ import annotations

from collections.abc import Callable

from csdp.errors import InputError
from csdp.queries.folds import Count, Histogram, Identity, Linear, Max, Mean, Min, Sum
from csdp.queries.protocol import Query
from csdp.reading_range import ReadingRange

#: Between a query and the range of the readings that it is of.
OF_READINGS = " of readings "
#: The queries without arguments, by name.
_WHOLE: dict[str, Callable[[], Query]] = {
    "mean": Mean,
    "sum": Sum,
    "max": Max,
    "min": Min,
    "histogram": Histogram,
    "identity": Identity,
}


def parse_query(text: str) -> Query:
    """The query of a text: mean, sum, max, min, count:STATE, histogram, identity, linear:W1,W2,...

    Of readings, clipped to a range: mean, sum, linear:W1,W2,..., count:FROM..BELOW or histogram:EDGE1,EDGE2,...,
    followed by `of readings LOW..HIGH by RESOLUTION`.

    >>> parse_query("count:1"), parse_query("mean of readings 0..1 by 0.01")
    (Count(state=1), Mean(of=ReadingRange(low=0.0, high=1.0, resolution=0.01)))
    """
    plain, separator, declared = text.strip().lower().partition(OF_READINGS)
    if separator:
        return with_readings(plain, ReadingRange.parse(declared))
    head, _, tail = plain.partition(":")
    if head in _WHOLE and not tail:
        return _WHOLE[head]()
    try:
        if head == "count":
            return Count(int(tail))
        if head == "linear":
            return Linear([float(w) for w in tail.split(",")])
    except ValueError:
        pass
    raise InputError(
        f"query: {text!r} given; use mean, sum, max, min, histogram, identity, count:STATE or linear:W1,W2,..."
    )


def to_query(query: Query | str) -> Query:
    """A query as it is, or the one of a text, as on the command line: every function that takes a query starts here.

    >>> to_query("mean"), to_query(Mean())
    (Mean(), Mean())
    """
    return parse_query(query) if isinstance(query, str) else query


def with_readings(text: str, of: ReadingRange) -> Query:
    """The query of a text, of readings in a range.

    >>> with_readings("count:0.5..", ReadingRange(0, 1, 0.1)).text
    'count:0.5.. of readings 0..1 by 0.1'
    """
    head, _, tail = text.strip().lower().partition(":")
    try:
        if head == "mean" and not tail:
            return Mean(of=of)
        if head == "sum" and not tail:
            return Sum(of=of)
        if head == "linear":
            return Linear([float(w) for w in tail.split(",")], of=of)
        if head == "histogram":
            return Histogram(edges=tuple(float(edge) for edge in tail.split(",")), of=of)
        if head == "count" and ".." in tail:
            first, _, last = tail.partition("..")
            return Count(at_least=_bound(first), below=_bound(last), of=of)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
    raise InputError(
        f"query: {text!r} of readings given; use mean, sum, linear:W1,W2,..., count:FROM..BELOW (either may be left "
        "out) or histogram:EDGE1,EDGE2,..."
    )


def _bound(text: str) -> float | None:
    return float(text) if text.strip() else None
