"""Random histories as plain data: models, plans and what happens tick by tick. Imports nothing of the library.

A case is a function of its seed. It holds more than the library needs to know, so that the truth can be computed from
the description alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attacks.models import Spec, graph_or_other_spec, odds_or_other_spec, other_spec, random_spec

Array = NDArray[np.float64]
Random = np.random.Generator

LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0)
SIZES = ((1, 2), (1, 3), (1, 4), (1, 6), (2, 2), (2, 2), (2, 2), (2, 2), (2, 3), (3, 2), (3, 2))
BUILT_IN = ("mean", "sum", "max", "min", "count", "histogram", "identity", "linear", "custom")
TABLES = ("above", "weighted", "average", "gap")
#: Seeds from here on draw backward chains, families at once and environments, too; those below stay what they were.
OTHER_MODELS = 1_000_000
#: From here on most models are graphs.
GRAPHS = 2_000_000
#: From here on most graphs are limits of odds.
ODDS = 3_000_000


@dataclass(frozen=True, eq=False)
class Ask:
    """A query in plain words; `groups` for one answer per group."""

    name: str
    state: int = 0
    weights: tuple[float, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class PlanSpec:
    """A plan: one model, or a family of them."""

    models: tuple[Spec, ...]
    ask: Ask
    ages: tuple[int, ...]
    epsilon_c: float
    stale_limit: int = 0
    levels: tuple[float, ...] = ()  #: a schedule from tick 0 on, the last level for ever
    large: bool = False  #: followed sequence by sequence, as a large component is, however small it is


@dataclass(frozen=True, eq=False)
class Step:
    """What happens at one tick.

    `action`: push, batch, crash, skip, restart, open, change, tighten or intrude; `who` does it, `plan` is the plan
    that it concerns.
    """

    tick: int
    action: str
    who: int = 0
    missing: tuple[int, ...] = ()
    plan: int = 0
    refill: bool = True


@dataclass(frozen=True, eq=False)
class Case:
    """A whole history."""

    seed: int
    plans: tuple[PlanSpec, ...]
    steps: tuple[Step, ...]
    limits: dict[str, float | None] = field(default_factory=dict)
    alone: bool = False  #: one plan, for the accountant alone
    state: str = "auto"

    @property
    def s(self) -> int:
        return self.plans[0].models[0].s

    @property
    def m(self) -> int:
        return self.plans[0].models[0].m


# ---- plans -----------------------------------------------------------------------------------------------------------


def _groups(rng: Random, s: int) -> tuple[tuple[int, ...], ...]:
    labels = rng.integers(0, 2, s) if s > 2 else np.arange(s) * (rng.random() < 0.7)
    if rng.random() < 0.3:
        labels = np.arange(s)
    return tuple(tuple(np.flatnonzero(labels == g).tolist()) for g in np.unique(labels))


def random_ask(rng: Random, s: int, m: int) -> Ask:
    """What is asked: a built-in, somebody's own query, or one per group."""
    drawn = rng.random()
    weights = tuple(float(w) for w in rng.choice([-1.0, 0.5, 1.0, 2.0, 4.0], size=s))
    state = int(rng.integers(m))
    if s > 1 and drawn < 0.25:
        return Ask(str(rng.choice(["sum", "count", "histogram"])), state, groups=_groups(rng, s))
    if drawn < 0.4:
        return Ask(str(rng.choice(TABLES)), state, weights)
    return Ask(str(rng.choice(BUILT_IN)), state, weights)


def _ages(rng: Random, s: int, m: int) -> tuple[int, ...]:
    oldest = 4 if m**s <= 8 else 2
    if rng.random() < 0.6 or s == 1:
        return (int(rng.integers(0, oldest + 1)),) * s
    return tuple(int(a) for a in rng.integers(0, oldest + 1, s))


def random_plan(rng: Random, s: int, m: int, models: tuple[Spec, ...]) -> PlanSpec:
    """A plan for some models."""
    ask = random_ask(rng, s, m)
    level = float(rng.choice(LEVELS))
    levels: tuple[float, ...] = ()
    if rng.random() < 0.2:
        levels = tuple(float(e) * level for e in rng.choice([0.0, 0.25, 0.5, 1.0], size=int(rng.integers(3, 12))))
        levels = (*levels, level)
    return PlanSpec(
        models,
        ask,
        _ages(rng, s, m),
        level,
        stale_limit=int(rng.choice([0, 0, 1, 2, 3])),
        levels=levels,
    )


def _models(rng: Random, s: int, m: int, values: Array | None = None) -> tuple[Spec, ...]:
    first = random_spec(rng, s, m, values=values)
    if rng.random() < 0.8:
        return (first,)
    return (first, *(random_spec(rng, s, m, values=first.values) for _ in range(int(rng.integers(1, 3)))))


def _next_models(rng: Random, before: PlanSpec, s: int, m: int) -> tuple[Spec, ...]:
    """The models after a change of plan: the same, or others."""
    if rng.random() < 0.6:
        return before.models
    values = before.models[0].values if rng.random() < 0.8 else None
    return _models(rng, s, m, values)


# ---- histories -------------------------------------------------------------------------------------------------------


def _steps(rng: Random, plans: int, s: int, ticks: int, *, simple: bool) -> tuple[Step, ...]:
    """What happens, tick by tick."""
    gaps, lost = rng.choice([0.0, 0.15, 0.4]), rng.choice([0.0, 0.0, 0.2, 0.5])
    trouble = 0.0 if simple else float(rng.choice([0.0, 0.1, 0.3]))
    steps, tick, used = [], 0, 0
    crowd = 0.0 if simple else float(rng.choice([0.0, 0.0, 0.5]))
    changes = sorted(rng.choice(np.arange(3, ticks), size=plans - 1, replace=False).tolist())
    while tick < ticks:
        if changes and tick >= changes[0]:
            changes.pop(0)
            used += 1
            steps.append(Step(tick, "change", plan=used))
        if rng.random() < trouble:
            action = str(rng.choice(["restart", "open", "crash", "tighten", "intrude"]))
            if action == "intrude":
                steps.append(Step(tick, action, plan=int(rng.integers(plans))))
            elif action != "crash":
                steps.append(Step(tick, action, who=int(rng.integers(2)), refill=bool(rng.random() < 0.8)))
        if rng.random() >= gaps:
            missing = tuple(i for i in range(s) if rng.random() < lost)
            who = int(rng.random() < crowd)
            kind = "push" if rng.random() < 0.8 else "batch"
            if rng.random() < trouble / 4:
                kind = "crash"
            steps.append(Step(tick, kind, who=who, missing=missing))
        tick += 1
    return tuple(steps)


def random_case(seed: int) -> Case:
    """The history of a seed."""
    if seed < OTHER_MODELS:
        return _forward_case(seed)
    rng = np.random.default_rng([16, seed])
    if seed % 4 < 2:
        return _with_other_models(rng, _forward_case(seed))
    # Every other history asks the accountant alone, which takes a fraction of the time.
    return _with_other_models(rng, _alone(rng, seed, *SIZES[int(rng.integers(len(SIZES)))]))


def _with_other_models(rng: Random, case: Case) -> Case:
    """The same history with models of other kinds, and states that change from plan to plan."""
    draw = graph_or_other_spec if case.seed >= GRAPHS else other_spec
    draw = odds_or_other_spec if case.seed >= ODDS else draw
    made: dict[int, Spec] = {}
    plans = []
    for plan in case.plans:
        for spec in plan.models:
            made.setdefault(id(spec), draw(rng, spec))
        models = tuple(made[id(spec)] for spec in plan.models)
        backward = any(spec.direction == "backward" for spec in models)
        known = any(spec.direction == "backward" and spec.how == "hidden" for spec in models)
        large = bool(rng.random() < (0.5 if backward else 0.04))  # a forward one takes a hundred times as long
        large = large or (known and case.m**case.s >= 8)  # as do all pairs of snapshots under every path
        plans.append(replace(plan, models=models, large=large))
    if case.alone:
        return replace(case, plans=tuple(plans), state=_state(rng, plans[0]))
    return replace(case, plans=tuple(plans))


def _state(rng: Random, plan: PlanSpec) -> str:
    """A state that the accountant can keep for all models of a plan."""
    limits = any(spec.margin is not None or spec.windows for spec in plan.models)
    states = ["auto"] if limits else ["auto", "metric", "scalar"]
    alone = all(spec.coupling is not None or spec.windows for spec in plan.models)
    return str(rng.choice([*states, *["vector"] * 3 * alone]))


def _forward_case(seed: int) -> Case:
    rng = np.random.default_rng([14, seed])
    s, m = SIZES[int(rng.integers(len(SIZES)))]
    if rng.random() < 0.08:
        return _alone(rng, seed, s, m)
    plans = [random_plan(rng, s, m, _models(rng, s, m))]
    while len(plans) < 3 and rng.random() < 0.35:
        before = plans[-1]
        if len(plans) == 2 and rng.random() < 0.3:
            plans.append(plans[0])  # and back again
            continue
        following = random_plan(rng, s, m, _next_models(rng, before, s, m))
        if before.ask.groups and rng.random() < 0.5:  # the same question of other groups
            following = replace(following, ask=replace(before.ask, groups=_groups(rng, s)))
        plans.append(following)
    limits: dict[str, float | None] = {"budget": None, "event_limit": None, "moment_limit": None}
    if rng.random() < 0.3:
        limits["budget"] = float(rng.choice([0.2, 0.5, 1.0, 2.0, 4.0]))
    if rng.random() < 0.15:
        limits["event_limit"] = float(rng.choice([0.5, 1.0, 2.0, 4.0]))
    if rng.random() < 0.1:
        limits["moment_limit"] = float(rng.choice([1.0, 2.0, 5.0, 10.0]))
    limits["window"] = 1 + seed % 5
    limits["window_limit"] = 3.0 if seed % 7 == 2 else None
    ticks = int(rng.integers(6, 16)) + 3 * (len(plans) - 1)
    steps = _steps(rng, len(plans), s, ticks, simple=rng.random() < 0.3)
    return Case(seed, tuple(replace(plan, large=seed % 3 == 0) for plan in plans), steps, limits)


def _alone(rng: Random, seed: int, s: int, m: int) -> Case:
    """One plan and a state of the accountant, which a publisher does not ask for."""
    plan = replace(random_plan(rng, s, m, _models(rng, s, m)), levels=())
    state = str(rng.choice(["auto", "auto", "metric", "scalar", "vector"]))
    return Case(seed, (plan,), _steps(rng, 1, s, int(rng.integers(6, 14)), simple=True), {}, True, state)
