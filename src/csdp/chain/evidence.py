"""What a fit leaves with a model: its record, and the verdict that travels with every number computed under it.

A model that a fit made carries its `Evidence`: what its public past showed, and how often each state followed each
other one after 1, 2, ... ticks. A plan compares these counts with what it certifies at its own ages. A model written by
hand carries none, and counts as declared by the user.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError
from csdp.numbers import freeze

Status = Literal["accepted", "rejected", "untested", "declared", "none"]
Counts = npt.NDArray[np.int64]

_WORDS: Final[dict[str, str]] = {
    "accepted": "Model accepted by the tests on its public past",
    "rejected": "MODEL REJECTED by its public past",
    "untested": "MODEL NOT TESTED",
    "declared": "Model declared, not tested",
    "none": "No model: plain differential privacy only",
}
#: From good to bad: the verdict of several models is the worst of theirs.
_ORDER: Final = ("declared", "accepted", "none", "untested", "rejected")

#: Longest lag that is counted, and how many counts a model carries at most.
_LONGEST, _MOST_COUNTS = 96, 250_000
#: Sequences beyond which only some, evenly spaced, are counted; and steps of counting that are made at most.
_MOST_SEQUENCES, _MOST_STEPS = 1000, 100_000_000


@dataclass(frozen=True)
class Verdict:
    """Whether the data accept a model, and why not.

    >>> Verdict("rejected", "the state before the present one reveals more (p < 1e-12)").words
    'MODEL REJECTED by its public past: the state before the present one reveals more (p < 1e-12).'
    >>> Verdict("declared").reliable, Verdict("untested").reliable
    (True, False)
    """

    status: Status
    reason: str = ""

    @property
    def reliable(self) -> bool:
        """Whether numbers may be published without an explicit override: the model stands, or nothing rests on one."""
        return self.status in {"accepted", "declared", "none"}

    @property
    def brief(self) -> str:
        """The verdict without its reason."""
        return _WORDS[self.status]

    @property
    def words(self) -> str:
        """One sentence for every output that shows a leakage."""
        return f"{self.brief}{': ' if self.reason else ''}{self.reason.rstrip('.')}."

    def __str__(self) -> str:
        return self.words

    def to_dict(self) -> dict[str, str]:
        """The content as plain data, with its sentence."""
        return {"status": self.status, "reason": self.reason, "words": self.words}


#: Of a model that was written by hand.
DECLARED: Final = Verdict("declared")


def worst_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict that speaks most against its model; the first of equals.

    >>> worst_verdict([Verdict("accepted"), Verdict("rejected", "order"), Verdict("declared")]).reason
    'order'
    """
    return max(verdicts, key=lambda verdict: _ORDER.index(verdict.status))


@dataclass(frozen=True, eq=False)
class Evidence:
    """What public readings show of a model.

    Args:
        status: whether the tests accept the model; "untested" if they could not be made.
        reason: why not.
        sequences: the sequences whose transitions were counted, in order.
        counts: (lags, sequences, m, m): ticks at which a sequence was in state a, and in state c `lag` ticks before.
    """

    status: Literal["accepted", "rejected", "untested"]
    reason: str = ""
    sequences: tuple[int, ...] = ()
    counts: Counts = field(default_factory=lambda: np.zeros((0, 0, 1, 1), dtype=np.int64), repr=False)

    def __post_init__(self) -> None:
        if self.status not in get_args(Status)[:3]:
            raise InputError(f"evidence: status {self.status!r} given; accepted, rejected or untested expected")
        counts = np.array(self.counts if len(self.sequences) else np.zeros((0, 0, 1, 1)), dtype=np.int64)
        shape = counts.shape
        if counts.ndim != 4 or shape[1] != len(self.sequences) or shape[2] != shape[3] or (counts < 0).any():
            raise InputError(
                f"evidence: counts of shape {shape} given for {len(self.sequences)} sequences; whole numbers of shape "
                "(lags, sequences, states, states) expected"
            )
        object.__setattr__(self, "sequences", tuple(int(i) for i in self.sequences))
        object.__setattr__(self, "counts", freeze(counts))

    @property
    def verdict(self) -> Verdict:
        """The verdict on the model, before any plan asks for its ages."""
        return Verdict(self.status, self.reason)

    def part(self, members: Sequence[int]) -> Evidence:
        """The evidence on some sequences, numbered anew in this order.

        >>> Evidence("accepted", "", (0, 2), np.zeros((1, 2, 2, 2))).part([2, 1]).sequences
        (0,)
        """
        places = self._places
        rows = [places[member] for member in members if member in places]
        kept = [number for number, member in enumerate(members) if member in places]
        return Evidence(self.status, self.reason, tuple(kept), self.counts[:, rows])

    @cached_property
    def _places(self) -> dict[int, int]:
        return {sequence: row for row, sequence in enumerate(self.sequences)}

    @property
    def lags(self) -> int:
        """The longest lag that was counted."""
        return int(self.counts.shape[0])

    def digest(self) -> str:
        """SHA-256 of the content."""
        seal = hashlib.sha256(repr((self.status, self.reason, self.sequences, self.counts.shape)).encode())
        seal.update(self.counts.astype("<i8").tobytes())
        return seal.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Evidence) and other.digest() == self.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        content: dict[str, Any] = {"status": self.status, "reason": self.reason}
        if self.sequences:
            content |= {"sequences": list(self.sequences), "counts": self.counts.tolist()}
        return content

    @classmethod
    def from_dict(cls, content: Any) -> Evidence:
        """Rebuild from `to_dict`.

        >>> Evidence.from_dict(Evidence("rejected", "order").to_dict()).verdict.status
        'rejected'
        """
        if not isinstance(content, Mapping) or not isinstance(content.get("reason"), str):
            raise InputError("chain: its evidence is garbled; write it with to_json, or test the model again")
        given = {key: content[key] for key in ("sequences", "counts") if key in content}
        try:
            return cls(content["status"], content["reason"], **given)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"chain: its evidence is garbled ({error}); write it with to_json") from None


@dataclass(frozen=True)
class FitRecord:
    """How a chain was fitted: the settings, the result, and warnings.

    `observations` counts the transitions that were used, over all sequences; `log_likelihood` is theirs under the
    chain (None if only noised counts were seen). `neighbours` is the largest number of other sequences that one may
    follow, `screened` whether they were chosen from the data. `parameters` counts the free numbers of the model.
    `confidence` is that of the limits of a family at once (`ensemble_method` "limits", no further chains). `shrinkage`
    says how many transitions of the common chain each environment got; `gains` are (chain, nats per tick that it gained
    over independent chains on readings that were set aside, standard error) for every chain that was compared.
    `readings_check` says what the readings behind the states showed (`check_readings`; None if they were not public or
    not given). `step` is the time from one tick to the next in seconds, if the readings had timestamps: a publisher
    whose ticks are of another length is refused. `assumes` says in words what the class assumes that a fit to public
    readings grew, `growing` how it grew, and `power` what its tests would have noticed. A record of a private fit holds
    nothing else but what the noised counts gave.
    """

    method: str
    observations: int
    log_likelihood: float | None = None
    iterations: int = 0
    converged: bool = True
    neighbours: int = 0
    screened: bool = False
    parameters: int = 0
    epsilon: float | None = None
    public: bool = False
    ensemble: int = 0
    ensemble_method: str | None = None
    warnings: tuple[str, ...] = ()
    confidence: float | None = None
    shrinkage: float = 0.0
    gains: tuple[tuple[str, float, float], ...] = ()
    readings_check: str | None = None
    step: int | None = None
    assumes: str = ""
    growing: tuple[str, ...] = ()
    power: str = ""

    def __repr__(self) -> str:
        return f"FitRecord({self.method}, {self.observations:,} transitions, {len(self.warnings)} warnings)"

    @property
    def unpaid(self) -> bool:
        """Whether private readings were used without noise, so that the chain limits nothing it reveals of them."""
        return not self.public and self.epsilon is None

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        content = asdict(self)
        content["warnings"], content["gains"] = list(self.warnings), [list(each) for each in self.gains]
        content["growing"] = list(self.growing)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitRecord:
        """Rebuild from `to_dict`; unknown keys are refused."""
        values = {key: value for key, value in content.items() if key not in _RETIRED}
        unknown = sorted(set(values) - {each.name for each in fields(cls)})
        if unknown or not {"method", "observations"} <= set(values):
            reason = f"unknown {unknown[0]!r}" if unknown else "no method or observations"
            raise InputError(f"chain: the record of its fit is garbled ({reason}); write it with to_json")
        values["gains"] = tuple((str(name), _finite(gain), _finite(se)) for name, gain, se in values.get("gains", ()))
        values["warnings"] = tuple(str(text) for text in values.get("warnings", ()))
        values["growing"] = tuple(str(text) for text in values.get("growing", ()))
        return cls(**values)


#: Fields of csdp 0.2 that are ignored: nothing that is certified depends on them.
_RETIRED = frozenset(
    {
        "direction",
        "environment",
        "environments",
        "finer_states",
        "held_out",
        "kernel",
        "path",
        "restarts",
        "seed",
        "smoothing",
        "states",
    }
)


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise InputError("chain: the record of its fit holds a number that is not finite")
    return number


def count_lags(states: npt.NDArray[Any], m: int) -> tuple[tuple[int, ...], Counts]:
    """The k-step transitions of sequences, for k = 1, 2, ...: (lags, sequences, present state, state k ticks before).

    Missing states are below 0 and left out. Of very many sequences some are counted, evenly spaced.

    >>> sequences, counts = count_lags(np.array([[0], [0], [1], [1], [0]] * 8), 2)
    >>> sequences, counts[0, 0].tolist()
    ((0,), [[15, 8], [8, 8]])
    """
    length, s = states.shape
    lags = max(1, min(_LONGEST, length // 20))
    most = max(1, min(_MOST_SEQUENCES, _MOST_COUNTS // (lags * m * m), _MOST_STEPS // (lags * length)))
    chosen = np.arange(s) if s <= most else np.unique(np.linspace(0, s - 1, most).astype(np.intp))
    part = states[:, chosen]
    return tuple(chosen.tolist()), np.stack([count_lag(part, m, lag) for lag in range(1, lags + 1)])


def count_lag(states: npt.NDArray[Any], m: int, lag: int) -> Counts:
    """The transitions of sequences over one lag: (sequences, present state, state `lag` ticks before)."""
    counts = np.zeros((states.shape[1], m, m), dtype=np.int64)
    for row, column in zip(counts, states.T, strict=True):  # one by one: a table of cells would be large
        known = column.astype(np.intp)
        now, before = known[lag:], known[:-lag]
        cells = (now * m + before)[(now >= 0) & (before >= 0)]
        row[...] = np.bincount(cells, minlength=m * m).reshape(m, m)
    return counts
