"""What goes into the ledger and what comes out of it: plain frozen records, one JSON form, one hash rule."""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from csdp.errors import BudgetExceeded, InputError, LedgerCorruptError

JSONObject = dict[str, Any]
Kind = Literal["open", "change", "reserve", "commit", "refuse"]

GENESIS = "0" * 64  # the "previous hash" of the first entry of every dataset
NAME_LIMIT = 200  # keeps every index row far below what PostgreSQL accepts
TICK_LIMIT = 2**63 - 1


@dataclass(frozen=True)
class Request:
    """One wish to publish: a tick and a query key; `detail` reaches `admit` and is never stored.

    `terms` are set by the ledger, inside the transaction: what is recorded at that moment, whoever changed it last.
    """

    tick: int
    query: str
    detail: Any = field(default=None, compare=False)
    terms: Terms | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tick", checked_tick(self.tick))
        checked_name(self.query, "a query key")


@dataclass(frozen=True)
class Change:
    """An explicit change of plan, as the `admit` rule of `Ledger.change_plan` sees it."""

    from_tick: int
    rule: str
    old: Terms
    new: Terms


@dataclass(frozen=True)
class Admission:
    """What an `admit` rule grants: the accountant's state after the release, and the figures charged."""

    state: JSONObject
    charge: JSONObject


Admit = Callable[[JSONObject | None, int | None, Request], Admission]
AdmitChange = Callable[[JSONObject | None, int | None, Change], Admission]


@dataclass(frozen=True)
class Reserved:
    """A charge that is on record and durable; only its holder may draw noise for it, and then commit."""

    dataset: str
    tick: int
    query: str
    seq: int
    hash: str
    state: JSONObject
    charge: JSONObject


@dataclass(frozen=True)
class Published:
    """A recorded output. Asking for it again draws no noise and costs nothing."""

    dataset: str
    tick: int
    query: str
    seq: int
    plan_digest: str
    time: str
    output: JSONObject


@dataclass(frozen=True)
class Refused:
    """Nothing may be published. `why` is one of

    - "limit": the admissibility rule said no; `error` is its `BudgetExceeded`, and the refusal is on record;
    - "lost": reserved before (`since`), not committed: charged, and never to be published by anyone but its holder,
      who may still be at work;
    - "order": older than the newest charged tick, or before the live plan; nothing is recorded.
    """

    dataset: str
    tick: int
    query: str
    why: Literal["limit", "lost", "order"]
    reason: str
    error: BudgetExceeded | None = None
    since: str | None = None


@dataclass(frozen=True)
class Terms:
    """What a dataset is published under: limits, chain, plan, guarantee. Number 1 is the first."""

    number: int
    plan_digest: str
    plan_json: str
    chain_digest: str
    limits: JSONObject
    guarantee: JSONObject
    fit_cost: JSONObject | None
    from_tick: int | None
    rule: str | None

    def digest(self) -> str:
        """SHA-256 of everything above; `open` and `change` entries carry it, so the hash chain covers it."""
        return sha256(encode(self.__dict__, "the terms of a dataset"))


@dataclass(frozen=True)
class Dataset:
    """A dataset as recorded: the live terms, and the head of its hash chain."""

    name: str
    created: str
    terms: Terms
    head_seq: int
    head_hash: str


@dataclass(frozen=True)
class Entry:
    """One line of the log."""

    dataset: str
    seq: int
    kind: str
    tick: int | None
    query: str | None
    plan: str
    time: str
    payload: str
    previous: str
    hash: str

    def data(self) -> JSONObject:
        """The payload, decoded."""
        return decode(self.payload)

    def computed_hash(self) -> str:
        """What `hash` must be; see `entry_hash`."""
        return entry_hash(self.previous, self.__dict__)


@dataclass(frozen=True)
class Summary:
    """Counts of a dataset. `lost` counts reservations without a commit: charged, never published."""

    dataset: str
    reserved: int
    committed: int
    lost: int
    refused: int
    changes: int
    newest_tick: int | None
    state: JSONObject | None
    head_seq: int
    head_hash: str
    terms: Terms


@dataclass(frozen=True)
class Problem:
    """Something `verify` found; `dataset` and `seq` are None where the problem is not in one entry."""

    dataset: str | None
    seq: int | None
    what: str

    def __str__(self) -> str:
        where = "" if self.dataset is None else f"dataset {self.dataset!r}: "
        return where + ("" if self.seq is None else f"entry {self.seq}: ") + self.what


def sha256(text: str) -> str:
    """The hexadecimal SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def encode(value: Any, what: str) -> str:
    """The one JSON form: sorted keys, no spaces, ASCII; every float survives exactly, inf and nan too.

    >>> encode({"b": 0.1, "a": float("inf")}, "a state")
    '{"a":{"$float":"inf"},"b":0.1}'
    >>> decode(encode({"b": 0.1, "a": float("inf")}, "a state"))
    {'a': inf, 'b': 0.1}
    """
    try:
        try:
            return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except ValueError:  # inf or nan somewhere; rare, so only then the whole value is walked
            return json.dumps(_tag_floats(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{what} must be plain JSON (dict with text keys, list, text, number, bool, None): {error}"
        raise InputError(message) from None


def decode(text: str) -> JSONObject:
    """The inverse of `encode`."""
    try:
        result: JSONObject = json.loads(text, object_hook=_untag_float)
    except (ValueError, RecursionError):
        raise LedgerCorruptError("a record of the ledger cannot be read; `csdp ledger verify` finds it") from None
    return result


def entry_hash(previous: str, row: Mapping[str, Any]) -> str:
    """SHA-256 over the previous entry's hash and this entry's columns, the payload as its exact text."""
    columns = ("dataset", "seq", "kind", "tick", "query", "plan", "time", "payload")
    return sha256(previous + "\n" + encode([row[name] for name in columns], "an entry"))


def count_values(value: Any) -> int:
    """How many single values a JSON value holds.

    >>> count_values({"values": [1.0, 2.0, [3.0]], "age": 2})
    4
    """
    if isinstance(value, Mapping):
        return sum(map(count_values, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(count_values, value))
    return 1


def checked_tick(tick: int) -> int:
    """A tick as a plain int that both databases can hold."""
    try:
        if isinstance(tick, bool):
            raise TypeError
        plain = operator.index(tick)
    except TypeError:
        raise InputError(f"a tick must be an integer, not {type(tick).__name__}") from None
    if abs(plain) > TICK_LIMIT:
        raise InputError("a tick must fit in 64 bits")
    return plain


def checked_name(name: str, what: str) -> str:
    """A dataset name or query key: 1 to 200 printable characters."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LIMIT or not name.isprintable():
        raise InputError(f"{what} must be a text of 1 to {NAME_LIMIT} printable characters")
    return name


def refusal_payload(error: BudgetExceeded) -> JSONObject:
    """The reason and the figures of a refusal."""
    return {
        "reason": str(error),
        "limit": error.limit_name,
        "spent": error.spent,
        "requested": error.requested,
        "remaining": error.remaining,
        "fits": error.fits,
        "affordable_from": error.affordable_from,
    }


def refusal_error(payload: JSONObject) -> BudgetExceeded:
    """The error that a recorded refusal came from."""
    return BudgetExceeded(
        payload["reason"],
        limit_name=payload["limit"],
        spent=payload["spent"],
        requested=payload["requested"],
        remaining=payload["remaining"],
        fits=payload["fits"],
        affordable_from=payload["affordable_from"],
    )


def _tag_floats(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        return {key: _tag_floats(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_tag_floats(inner) for inner in value]
    return value


def _untag_float(value: JSONObject) -> Any:
    if len(value) == 1 and value.get("$float") in ("inf", "-inf", "nan"):
        return float(value["$float"])
    return value
