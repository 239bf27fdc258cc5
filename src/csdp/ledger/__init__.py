"""The ledger: durable, append-only, reserve -> commit. No mathematics.

`docs/ledger-format.md` specifies what is written, when, and what a crash leaves behind.
"""

from __future__ import annotations

from csdp.ledger.ledger import Ledger
from csdp.ledger.records import (
    Admission,
    Admit,
    AdmitChange,
    Charge,
    DatasetState,
    EarlierPlans,
    Entry,
    LedgerProblem,
    LedgerSummary,
    PrivacyLimits,
    Published,
    RecordedDataset,
    Refused,
    Request,
    Reserved,
    Terms,
    TickGrid,
)

__all__ = [
    "Admission",
    "Admit",
    "AdmitChange",
    "Charge",
    "DatasetState",
    "EarlierPlans",
    "Entry",
    "Ledger",
    "LedgerProblem",
    "LedgerSummary",
    "PrivacyLimits",
    "Published",
    "RecordedDataset",
    "Refused",
    "Request",
    "Reserved",
    "Terms",
    "TickGrid",
]
