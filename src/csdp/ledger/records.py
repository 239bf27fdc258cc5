"""What goes into the ledger and what comes out of it: frozen records, their JSON form, and the rule of the hashes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

from csdp import check
from csdp.errors import BudgetExceeded, InputError, LedgerCorruptError

JSONObject = dict[str, Any]
Kind = Literal["open", "change", "reserve", "commit", "refuse"]

GENESIS = "0" * 64  # the "previous hash" of the first entry of every dataset
TICK_LIMIT = 2**62


class TickGrid(NamedTuple):
    """The grid of ticks: time from one tick to the next (None: the caller counts ticks), and where tick 0 begins."""

    step: int | None = None
    origin: int = 0


@dataclass(frozen=True)
class PrivacyLimits:
    """What a dataset may spend, None for no limit; `window`: the length, in ticks, of the window that `window_limit`
    limits. `csdp.Publisher` says what each one limits.
    """

    budget: float | None = None
    moment_limit: float | None = None
    event_limit: float | None = None
    window: int | None = None
    window_limit: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """The limits by name."""
        return dict(vars(self))


@dataclass(frozen=True)
class Terms:
    """What a dataset is published under: plan, chain, limits, grid of ticks and guarantee.

    Args:
        plan_digest: identifies the plan.
        plan_json: the plan as JSON text, recorded byte for byte.
        chain_digest: identifies the chain.
        limits: what may be spent.
        grid: the grid of ticks.
        guarantee: what is promised, in words and numbers.
        fit_cost: what a private fit of the plan's chain cost.
        from_tick: for a change of plan, the first tick under these terms.
        rule: for a change of plan, how the accountant's state is carried over, in words.
        number: 1 for the first terms of a dataset; set by the ledger.
        further: recorded beside the limits, but not known to this version.
    """

    plan_digest: str
    plan_json: str
    chain_digest: str
    limits: PrivacyLimits = PrivacyLimits()
    grid: TickGrid = field(default_factory=TickGrid)
    guarantee: JSONObject = field(default_factory=dict)
    fit_cost: JSONObject | None = None
    from_tick: int | None = None
    rule: str | None = None
    number: int = 1
    further: JSONObject = field(default_factory=dict)

    def recorded_limits(self) -> JSONObject:
        """Limits and grid in one object, as the ledger keeps them."""
        step, origin = self.grid
        return {
            **self.limits.to_dict(),
            **({"time_step": step} if step is not None else {}),
            **({"time_origin": origin} if origin else {}),
            **self.further,
        }

    def to_record(self) -> JSONObject:
        """The form that is recorded, and that `terms_digest` covers."""
        return {
            "number": self.number,
            "plan_digest": self.plan_digest,
            "plan_json": self.plan_json,
            "chain_digest": self.chain_digest,
            "limits": self.recorded_limits(),
            "guarantee": self.guarantee,
            "fit_cost": self.fit_cost,
            "from_tick": self.from_tick,
            "rule": self.rule,
        }

    @classmethod
    def from_record(cls, record: JSONObject) -> Terms:
        """The terms in their recorded form."""
        limits = dict(record["limits"])
        if "lifetime_limit" in limits and "moment_limit" not in limits:
            limits["moment_limit"] = limits.pop("lifetime_limit")  # its name until 0.2
        return cls(
            **{
                **record,
                "limits": PrivacyLimits(**{each.name: limits.pop(each.name, None) for each in fields(PrivacyLimits)}),
                "grid": TickGrid(limits.pop("time_step", None), limits.pop("time_origin", 0)),
                "further": limits,
            }
        )


@dataclass(frozen=True)
class EarlierPlans:
    """What releases under earlier plans still cost under the present one.

    Attributes: `releases` made; plain epsilon-DP of one record (`event`) and of all records of tied sequences
    (`group`); what they reveal of one slice under the present chain (`slice`) and under any model (`slice_any`); the
    `newest` tick that they read; `overlap`, whether the present plan reads records that they read too; plain epsilon-DP
    of all records of one sequence (`total`); the largest noise level of one release (`level`), and the `youngest` and
    `oldest` age at which they read, None if they are not known.
    """

    releases: int
    event: float
    group: float
    slice: float
    slice_any: float
    newest: int
    overlap: bool
    total: float
    level: float
    youngest: int | None = None
    oldest: int | None = None

    @classmethod
    def from_record(cls, record: JSONObject) -> EarlierPlans:
        """From the recorded form; until 0.2 it had no total and no ages: every release cost at most `event` then."""
        return cls(**{"total": record["releases"] * record["event"], "level": record["event"]} | record)

    def window(self, length: int) -> float:
        """Plain epsilon-DP of `length` consecutive records of one sequence, see `csdp.Accountant.window_level`."""
        if self.youngest is None or self.oldest is None:
            return self.total
        return min(self.total, self.level * (length + self.oldest - self.youngest))


@dataclass(frozen=True)
class DatasetState:
    """What a dataset goes on from after its newest charge.

    Attributes: the `accountant`'s state; `releases` under the present plan, and how `stale` the oldest reading of them
    was; the `cost` of the whole history at group level; what the `times` of the releases were ("wall", "data" or
    "ticks"); private `fits` of plans that came and went; costs of `earlier` plans.
    """

    accountant: JSONObject = field(default_factory=dict)
    releases: int = 0
    stale: int = 0
    cost: float = 0.0
    times: tuple[str, ...] = ()
    fits: Mapping[str, float] = field(default_factory=dict)
    earlier: EarlierPlans | None = None

    def to_record(self) -> JSONObject:
        """The form that is recorded: what is empty is left out."""
        optional = {
            "times": list(self.times),
            "fits": dict(self.fits),
            "earlier": None if self.earlier is None else vars(self.earlier),
        }
        return {
            "accountant": self.accountant,
            "releases": self.releases,
            "stale": self.stale,
            "cost": self.cost,
            **{name: value for name, value in optional.items() if value},
        }

    @classmethod
    def from_record(cls, record: JSONObject) -> DatasetState:
        """The state in its recorded form.

        Releases from before `times` was recorded count as "ticks": the caller answered for their age.
        """
        try:
            earlier = EarlierPlans.from_record(record["earlier"]) if record.get("earlier") else None
            released = record["releases"] or earlier is not None
            return cls(
                accountant=record["accountant"],
                releases=record["releases"],
                stale=record["stale"],
                cost=record["cost"],
                times=tuple(record.get("times", ("ticks",) if released else ())),
                fits=record.get("fits", {}),
                earlier=earlier,
            )
        except (KeyError, TypeError, AttributeError):
            raise LedgerCorruptError(
                "the recorded state of a dataset cannot be read; `csdp ledger verify` finds what was altered"
            ) from None


@dataclass(frozen=True)
class Charge:
    """The figures of a charge, None if one was not recorded.

    Attributes: leakage of the `present` at the tick; its `peak` while nothing more is published, which is compared with
    the budget; what everything published reveals of the state of a sequence at any one tick (`every_moment`); plain
    epsilon-DP of one record (`event`) and of a `window` of them, if one is named; noise level `epsilon_c`, if the plan
    has a schedule; version of the `algorithm`; which sequences were read `late`, by the steps of their delay, if that
    was counted one by one (`csdp.accountant.Lateness`).
    """

    present: float
    peak: float | None = None
    every_moment: float | None = None
    event: float | None = None
    window: float | None = None
    epsilon_c: float | None = None
    algorithm: int | None = None
    late: JSONObject | None = None

    def to_record(self) -> JSONObject:
        """The form that is recorded: without figures that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_record(cls, record: JSONObject) -> Charge:
        """The charge in its recorded form; figures that this version does not know are left out."""
        old = {"every_moment": record["lifetime"]} if "lifetime" in record else {}  # its name until 0.2
        return cls(**old | {figure.name: record[figure.name] for figure in fields(cls) if figure.name in record})


@dataclass(frozen=True)
class Request:
    """One wish to publish: a tick and a query key; `detail` reaches `admit` and is never stored.

    `terms` are set by the ledger, inside the transaction: those recorded at that moment.
    """

    tick: int
    query: str
    detail: Any = field(default=None, compare=False)
    terms: Terms | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tick", check_tick(self.tick))
        check.text("query", self.query)


@dataclass(frozen=True)
class Admission:
    """What an `admit` rule grants: the state after the release, and the figures charged."""

    state: DatasetState
    charge: Charge

    def to_record(self) -> JSONObject:
        """The form that is recorded."""
        return {"state": self.state.to_record(), "charge": self.charge.to_record()}


#: (last state, last tick, request) -> admission. The terms that bind are those of the request.
Admit = Callable[[DatasetState | None, int | None, Request], Admission]
#: (last state, last tick, terms recorded until now) -> admission of the change.
AdmitChange = Callable[[DatasetState | None, int | None, Terms], Admission]


@dataclass(frozen=True)
class Reserved:
    """A charge that is on record; only its holder may draw noise for it, and then commit."""

    dataset: str
    tick: int
    query: str
    seq: int
    hash: str
    state: DatasetState
    charge: Charge


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

    - "limit": the admissibility rule refused; `error` is its `BudgetExceeded`, and the refusal is on record;
    - "lost": reserved before, not committed: charged, and never to be published by anyone but its holder, who may
      still be at work;
    - "order": older than the newest charged tick, or before the live plan; nothing is recorded.
    """

    dataset: str
    tick: int
    query: str
    why: Literal["limit", "lost", "order"]
    reason: str
    error: BudgetExceeded | None = None


@dataclass(frozen=True)
class RecordedDataset:
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

    def state(self) -> DatasetState:
        """The state after a "reserve" or "change" entry."""
        return DatasetState.from_record(self.data()["state"])

    def computed_hash(self) -> str:
        """What `hash` must be; see `entry_hash`."""
        return entry_hash(self.previous, self.__dict__)


@dataclass(frozen=True)
class LedgerSummary:
    """Counts of a dataset. `lost` counts reservations without a commit: charged, never published."""

    dataset: str
    reserved: int
    committed: int
    lost: int
    refused: int
    changes: int
    newest_tick: int | None
    state: DatasetState | None
    head_seq: int
    head_hash: str
    terms: Terms


@dataclass(frozen=True)
class LedgerProblem:
    """Something `verify` found; `dataset` and `seq` are None if the problem is not in one entry."""

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
        result: JSONObject = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise LedgerCorruptError("a record of the ledger cannot be read; `csdp ledger verify` finds it") from None
    return result


def terms_digest(record: JSONObject) -> str:
    """SHA-256 of recorded terms; `open` and `change` entries carry it, so the hash chain covers them."""
    return sha256(encode(record, "the terms of a dataset"))


def entry_hash(previous: str, row: Mapping[str, Any]) -> str:
    """SHA-256 over the previous entry's hash and this entry's columns, the payload as its exact text."""
    columns = ("dataset", "seq", "kind", "tick", "query", "plan", "time", "payload")
    return sha256(previous + "\n" + encode([row[name] for name in columns], "an entry"))


def check_tick(tick: int) -> int:
    """A tick as a plain int that both databases can hold."""
    return check.whole("tick", tick, least=-TICK_LIMIT, most=TICK_LIMIT)


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


_DECODER = json.JSONDecoder(object_hook=_untag_float)  # making one takes as long as reading a small record
