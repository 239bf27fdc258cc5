"""The ledger: durable, append-only, reserve -> commit. No mathematics.

`docs/ledger-format.md` specifies what is written, when, and what a crash leaves behind.
"""

from __future__ import annotations

from csdp.ledger.book import Ledger
from csdp.ledger.records import (
    Admission,
    Admit,
    AdmitChange,
    Charge,
    Dataset,
    DatasetState,
    EarlierPlans,
    Entry,
    Limits,
    Problem,
    Published,
    Refused,
    Request,
    Reserved,
    Summary,
    Terms,
    TickGrid,
)

__all__ = [
    "Admission",
    "Admit",
    "AdmitChange",
    "Charge",
    "Dataset",
    "DatasetState",
    "EarlierPlans",
    "Entry",
    "Ledger",
    "Limits",
    "Problem",
    "Published",
    "Refused",
    "Request",
    "Reserved",
    "Summary",
    "Terms",
    "TickGrid",
]
