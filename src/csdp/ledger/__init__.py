"""The ledger: durable, append-only, reserve -> commit. No mathematics.

`docs/ledger-format.md` specifies what is written, when, and what a crash leaves behind.
"""

from __future__ import annotations

from csdp.ledger.book import Ledger
from csdp.ledger.records import (
    Admission,
    Admit,
    AdmitChange,
    Change,
    Dataset,
    Entry,
    Problem,
    Published,
    Refused,
    Request,
    Reserved,
    Summary,
    Terms,
)

__all__ = [
    "Admission",
    "Admit",
    "AdmitChange",
    "Change",
    "Dataset",
    "Entry",
    "Ledger",
    "Problem",
    "Published",
    "Refused",
    "Request",
    "Reserved",
    "Summary",
    "Terms",
]
