"""Plan: what will be published, how old and how noisy, and the leakage that this certifies."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, check_ages, check_epsilon
from csdp.chain import Family, Model, certified_model
from csdp.chain.files import model_from_dict
from csdp.errors import InputError, TooLargeError
from csdp.json_text import parse_json
from csdp.lattice import common_unit, fine_unit
from csdp.leakage import Leakage, leakage, shown
from csdp.noise import lattice_step
from csdp.queries import (
    ENUMERATION_STATES,
    Count,
    Custom,
    FoldQuery,
    Histogram,
    Linear,
    Mean,
    Query,
    Sum,
    parse_query,
)
from csdp.segments import PerGroup

Floats = npt.NDArray[np.float64]

#: Raised whenever a certified number could change; a ledger names the version that it was charged with.
ALGORITHM: Final = 1
SCHEMA: Final = "csdp/plan/1"
#: Steps by which a reading may be older than planned, at most; far beyond it a sequence counts as never read.
MAX_STALE: Final = 10_000
#: Lattice steps that a float counts exactly.
EXACT_STEPS: Final = 2**53
#: Noise beyond this many scales has a probability below 2^-140.
_FARTHEST: Final = 100.0
#: Scale of the noise in lattice steps that can be drawn.
SCALES: Final = (1e-9, 1e9)


@dataclass(frozen=True)
class Schedule:
    """Noise levels tick by tick, from `start` on: a function of time alone. 0 publishes nothing at that tick.

    `then` is the level at every tick after the last one that is listed; 0 where the schedule ends there.

    >>> Schedule((0.5, 0.2), start=10, then=0.1).level(11), Schedule((0.5, 0.2)).level(2)
    (0.2, 0.0)
    """

    levels: tuple[float, ...]
    start: int = 0
    then: float = 0.0

    def __post_init__(self) -> None:
        if not self.levels or not all(math.isfinite(e) and e >= 0 for e in (*self.levels, self.then)):
            raise InputError("schedule: every level must be a number, 0 or more, and at least one must be given")
        if self.largest <= 0:
            raise InputError("schedule: every level is 0, so nothing would ever be published")

    @property
    def largest(self) -> float:
        """The least noise that any tick has."""
        return max(*self.levels, self.then)

    def level(self, tick: int) -> float:
        """epsilon_c at a tick; 0 where nothing is published."""
        if tick < self.start:
            return 0.0
        place = tick - self.start
        return self.levels[place] if place < len(self.levels) else self.then


@dataclass(frozen=True, eq=False)
class Plan:
    """One kind of release: query, ages, noise level, and the leakage of the present that a single one certifies.

    Frozen; `digest` names its content together with the version of the algorithm. The certificate is for the
    mechanism as it runs: answers on a lattice, two-sided geometric noise of scale exactly Delta_f / epsilon_c.

    Args:
        chain: the model, or a Family of models (the largest leakage counts). A fitted chain stands for its family.
        query: what is asked. A custom query is rounded to a lattice, and its sensitivity grows by that rounding.
        ages: one age for all sequences, or one each.
        epsilon_c: noise level.
        adversary, bound: as for `csdp.leakage`. A plan whose bound is not sound cannot publish.
        stale_limit: how many steps older than planned a reading may be before a tick is left out.
        schedule: noise levels tick by tick, none above epsilon_c, which then is what one release tells at most.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=2, epsilon_c=1)
    >>> plan
    Plan(mean, ages 2, epsilon_c 1, certified 0.153046)
    """

    chain: Model | Family
    query: Query
    ages: tuple[int, ...]
    epsilon_c: float
    adversary: Adversary = "informed"
    bound: str = "auto"
    stale_limit: int = 0
    schedule: Schedule | None = None
    model: Model = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        chain: Model | Family,
        query: Query,
        ages: Any,
        epsilon_c: float,
        *,
        adversary: Adversary = "informed",
        bound: str = "auto",
        stale_limit: int = 0,
        schedule: Schedule | None = None,
    ) -> None:
        if not isinstance(chain, Model | Family):
            raise InputError(f"chain: {type(chain).__name__} given; CoupledChain, JointChain or Family expected")
        if not isinstance(query, Query):
            raise InputError(f"query: {type(query).__name__} given; a query expected, such as csdp.Mean()")
        chain = certified_model(chain)
        model = chain.members[0] if isinstance(chain, Family) else chain
        if isinstance(query, Custom) and not isinstance(query, LatticeQuery):
            query = LatticeQuery.around(query, model)
        if isinstance(stale_limit, bool) or not isinstance(stale_limit, int) or not 0 <= stale_limit <= MAX_STALE:
            raise InputError(f"stale_limit: {stale_limit!r} given; a whole number of steps, 0 to {MAX_STALE:,}")
        if schedule is not None and not schedule.largest <= epsilon_c:
            raise InputError(f"schedule: level {schedule.largest:g} is above epsilon_c {epsilon_c:g} of the plan")
        values: dict[str, Any] = {
            "chain": chain,
            "query": query,
            "ages": check_ages(ages, model.sequences),
            "epsilon_c": check_epsilon(epsilon_c),
            "adversary": adversary,
            "bound": bound,
            "stale_limit": stale_limit,
            "schedule": schedule,
            "model": model,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def certified(self) -> Leakage:
        """The leakage of the present after one release."""
        return leakage(
            self.chain,
            self.query,
            ages=self.ages,
            epsilon_c=self.epsilon_c,
            bound=self.bound,
            adversary=self.adversary,
        )

    @cached_property
    def min_age(self) -> int:
        """The newest reading that a release touches."""
        return min(self.ages)

    @cached_property
    def max_age(self) -> int:
        """The oldest reading that a planned release touches."""
        return max(self.ages)

    # ---- the mechanism as it runs ------------------------------------------------------------------------------------

    @cached_property
    def sensitivity(self) -> float:
        """Delta_f: the largest l1 change of the answer when one record changes."""
        return self.query.sensitivity(1, self.model.value_table)

    @cached_property
    def divisor(self) -> float:
        """What the answer on the lattice is divided by in the end."""
        return self.query.divisor(self.model.value_table) if isinstance(self.query, FoldQuery) else 1.0

    @cached_property
    def lattice_sensitivity(self) -> float:
        """Delta_f before the division, exact: a quotient would be rounded, perhaps down."""
        query = Sum() if isinstance(self.query, Mean) else self.query
        return query.sensitivity(1, self.model.value_table)

    @cached_property
    def unit(self) -> float:
        """The lattice on which answers lie, before the division."""
        if isinstance(self.query, LatticeQuery):
            return self.query.step
        assert isinstance(self.query, FoldQuery)
        table = self.model.value_table
        # An identity has s x m x s parts, all of them values.
        parts = table if self.query.name == "identity" else self.query.parts(table)
        return common_unit(parts)

    @cached_property
    def step(self) -> float:
        """The lattice on which noise lies: `unit / 2^k`, about a thousandth of the noise scale."""
        return lattice_step(self.unit, self.lattice_sensitivity / self.epsilon_c)

    @cached_property
    def scale(self) -> Fraction:
        """Scale of the noise in lattice steps, exactly Delta_f / epsilon_c."""
        return Fraction(self.lattice_sensitivity) / (Fraction(self.step) * Fraction(self.epsilon_c))

    def level(self, tick: int) -> float:
        """epsilon_c at a tick; 0 where the schedule publishes nothing."""
        return self.epsilon_c if self.schedule is None else self.schedule.level(tick)

    def at(self, epsilon_c: float) -> Plan:
        """The same plan with one constant noise level."""
        if epsilon_c == self.epsilon_c and self.schedule is None:
            return self
        return Plan(
            self.chain,
            self.query,
            self.ages,
            epsilon_c,
            adversary=self.adversary,
            bound=self.bound,
            stale_limit=self.stale_limit,
        )

    def check_noise(self) -> None:
        """Refuse a plan whose noise cannot be drawn, before anything is charged for it."""
        if self.schedule is not None:
            levels = [e for e in (*self.schedule.levels, self.schedule.then) if e > 0]
            for level in {min(levels), max(levels)}:
                self.at(level).check_noise()
            return
        low, high = SCALES
        if not low <= self.scale <= high:
            raise InputError(
                f"plan: noise {float(self.scale):.3g} lattice steps wide; {low:g} to {high:g} steps can be drawn. "
                "Use a larger epsilon_c, or values and weights with fewer binary digits (such as multiples of 1/8)"
            )
        self.check_exact()

    def check_exact(self) -> None:
        """Refuse a plan whose noisy answers could pass what a float holds exactly: they would leave their lattice."""
        if not isinstance(self.query, FoldQuery):
            return
        table = self.model.value_table
        if self.query.fold != "sum" or self.query.name == "identity":
            largest = float(np.abs(table).max())
        else:
            inner = self.query.query if isinstance(self.query, PerGroup) else self.query
            largest = float(np.abs(inner.parts(table)).max(axis=(1, 2)).sum())
        steps = largest / self.step + _FARTHEST * float(self.scale)
        if not steps < EXACT_STEPS:
            raise TooLargeError(
                f"query {self.query.name}: answers of {steps:.3g} lattice steps are not exact; give values and weights "
                "with fewer binary digits (such as multiples of 1/8), or a smaller epsilon_c",
                needed=steps,
                limit=float(EXACT_STEPS),
            )

    # ---- identity ----------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content and the version of the algorithm."""
        return hashlib.sha256(json.dumps(self._content(chain=False), sort_keys=True).encode()).hexdigest()

    def _content(self, *, chain: bool) -> dict[str, Any]:
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "algorithm": ALGORITHM,
            "chain_digest": self.chain.digest,
            "query": _query_text(self.query),
            "ages": self.ages[0] if len(set(self.ages)) == 1 else list(self.ages),
            "epsilon_c": self.epsilon_c,
            "adversary": self.adversary,
            "bound": self.bound,
            "stale_limit": self.stale_limit,
        }
        if self.schedule is not None:
            content["schedule"] = asdict(self.schedule)
        if isinstance(self.query, PerGroup):
            content["groups"] = [list(group) for group in self.query.groups]
        if isinstance(self.query, LatticeQuery):
            content["custom"] = self.query.fingerprint(self.model.value_table)
        if chain:
            members = self.chain.members if isinstance(self.chain, Family) else (self.chain,)
            content["chain"] = [member.to_dict() for member in members]
        return content

    def record(self) -> dict[str, Any]:
        """The content as plain data for a ledger; of a custom query only the name."""
        return self._content(chain=True)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, the chain included."""
        if isinstance(self.query, LatticeQuery):
            raise InputError("a plan with a custom query holds a Python function and cannot be written as JSON")
        return self._content(chain=True)

    def to_json(self, *, indent: int | None = None) -> str:
        """The content as JSON text with a versioned schema."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Rebuild a plan from `to_json`."""
        content = parse_json("plan", text)
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise InputError(f"plan: this version reads schema {SCHEMA!r}; write plans with Plan.to_json")
        try:
            models = [model_from_dict(item) for item in content["chain"]]
            return cls(
                models[0] if len(models) == 1 else Family(models),
                _query(content),
                content["ages"],
                content["epsilon_c"],
                adversary=content["adversary"],
                bound=content["bound"],
                stale_limit=content["stale_limit"],
                schedule=_schedule(content.get("schedule")),
            )
        except InputError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"plan: the JSON lacks or garbles {error}; write plans with Plan.to_json") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and other.digest == self.digest and other.query == self.query

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        ages = str(self.ages[0]) if len(set(self.ages)) == 1 else ",".join(map(str, self.ages[:8]))
        certified = f"certified {shown(self.certified.epsilon)}"
        return f"Plan({self.query.name}, ages {ages}, epsilon_c {self.epsilon_c:g}, {certified})"


class LatticeQuery(Custom):
    """A custom query whose answers are rounded to a lattice, so that exact noise can be added.

    Rounding moves each of d outputs by half a step at most, so s_k grows by at most d steps; leakage is computed
    for the rounded function.
    """

    step: float

    @classmethod
    def around(cls, query: Custom, model: Model) -> LatticeQuery:
        """Round a custom query to about 2^-20 of its sensitivity."""
        table = model.value_table
        plain = query.sensitivity(1, table)
        step = fine_unit(plain)
        outputs = len(query.output_names(model.names, table))

        def rounded(values: Floats) -> Floats:
            return np.asarray(
                np.round(np.atleast_1d(np.asarray(query.function(values), dtype=np.float64)) / step) * step
            )

        def grown(k: int) -> float:
            return query.sensitivity(k, table) + outputs * step

        made = cls(rounded, grown, name=query.name)
        object.__setattr__(made, "step", step)
        return made

    def fingerprint(self, table: Floats) -> str:
        """SHA-256 of the answers and the sensitivity: two functions of one name must not pass for one another.

        All snapshots where they are few, else a sample of them that is always the same.
        """
        s, m = table.shape
        if m**s <= ENUMERATION_STATES:
            states = np.array(np.unravel_index(np.arange(m**s), (m,) * s)).T
        else:
            place = np.arange(64)[:, None] * 7919 + np.arange(s)[None, :] * (np.arange(64)[:, None] + 1)
            states = place // 3 % m
        content = np.append(self.evaluate(states, table).ravel(), [self.sensitivity(k, table) for k in (1, s)])
        return hashlib.sha256(np.ascontiguousarray(content + 0.0, dtype="<f8").tobytes()).hexdigest()


def _schedule(content: Mapping[str, Any] | None) -> Schedule | None:
    if content is None:
        return None
    return Schedule(tuple(map(float, content["levels"])), int(content["start"]), float(content["then"]))


def _query(content: Mapping[str, Any]) -> Query:
    query = parse_query(content["query"])
    if "groups" not in content:
        return query
    if not isinstance(query, Sum | Count | Histogram):
        raise InputError(f"plan: groups of a {query.name}; sum, count or histogram")
    return PerGroup(query, tuple(tuple(group) for group in content["groups"]))


def _query_text(query: Query) -> str:
    """A query as `parse_query` reads it; the name of a weighted sum shows only the first weights, to six digits."""
    if isinstance(query, PerGroup):
        return query.query.name
    return f"linear:{','.join(map(repr, query.weights))}" if isinstance(query, Linear) else query.name
