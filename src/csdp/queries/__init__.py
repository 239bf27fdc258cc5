"""Queries: what is asked of a snapshot, and how far one record (or k of them) can move the answer."""

from csdp.queries.custom import Custom, all_snapshots, is_enumerable, largest_change
from csdp.queries.folds import Count, Histogram, Identity, Linear, Max, Mean, Min, Sum
from csdp.queries.protocol import (
    BlockQuery,
    Fold,
    FoldQuery,
    Query,
    ReadingsQuery,
    check_snapshots,
    d,
    level_spread,
    reading_range,
)
from csdp.queries.text import parse_query, to_query, with_readings

__all__ = [
    "BlockQuery",
    "Count",
    "Custom",
    "Fold",
    "FoldQuery",
    "Histogram",
    "Identity",
    "Linear",
    "Max",
    "Mean",
    "Min",
    "Query",
    "ReadingsQuery",
    "Sum",
    "all_snapshots",
    "check_snapshots",
    "d",
    "is_enumerable",
    "largest_change",
    "level_spread",
    "parse_query",
    "reading_range",
    "to_query",
    "with_readings",
]
