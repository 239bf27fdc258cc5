"""Random histories as plain data: models, plans and what happens tick by tick. Imports nothing of the library.

A case is a function of its seed. It holds more than the library needs to know, so that the truth can be computed from
the description alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attacks.truth import closed_classes, connected, coupled_kernel, factorises

Array = NDArray[np.float64]
Random = np.random.Generator

LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0)
ADVERSARIES = ("informed", "informed", "uninformed", "any")
SIZES = ((1, 2), (1, 3), (1, 4), (1, 6), (2, 2), (2, 2), (2, 2), (2, 2), (2, 3), (3, 2), (3, 2))
BUILT_IN = ("mean", "sum", "max", "min", "count", "histogram", "identity", "linear", "custom")
STRANGERS = ("above", "weighted", "average", "gap")
#: Kinds that the library takes long for are drawn less often.
KINDS = (
    *("smooth",) * 5,
    *("gentle",) * 3,
    *("skewed", "zeros", "reducible") * 3,
    *("persistent", "deterministic") * 2,
    "periodic",
)
SHAPES = ("dense", "dense", "equal", "follow", "chain", "hub", "parts", "apart", "weak", "nearly")


@dataclass(frozen=True, eq=False)
class Spec:
    """A model: a coupled chain, or a joint one where `coupling` is None."""

    s: int
    m: int
    kernel: Array
    coupling: Array | None
    transitions: Array | None
    values: Array
    kind: str
    initial: Array | None = None
    fit: float | None = None  #: epsilon of the private fit that it came from

    @property
    def parts(self) -> list[list[int]]:
        """Sequences that the model ties together: by couplings, or by an initial law that is no product over them."""
        if self.coupling is None:
            return [list(range(self.s))]
        parts = connected(self.coupling)
        apart = self.initial is None or factorises(self.initial, parts, self.s, self.m)
        return parts if apart else [list(range(self.s))]

    def __repr__(self) -> str:
        law = f"kernel={self.kernel.tolist()}" if self.coupling is None else ""
        law = law or f"coupling={self.coupling.tolist()}, transitions={self.transitions.tolist()}"  # type: ignore
        more = "" if self.initial is None else f", initial={self.initial.tolist()}"
        more += "" if self.fit is None else f", private fit {self.fit}"
        return f"{self.kind}({law}, values={self.values.tolist()}{more})"


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
    adversary: str
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
    together: bool = False  #: the plans are queries of one release, for the accountant alone
    state: str = "auto"

    @property
    def s(self) -> int:
        return self.plans[0].models[0].s

    @property
    def m(self) -> int:
        return self.plans[0].models[0].m


# ---- models ----------------------------------------------------------------------------------------------------------


def _row(rng: Random, kind: str, m: int) -> Array:
    if kind == "deterministic":
        return np.eye(m)[rng.integers(m)]
    if kind == "skewed":
        weights = 10.0 ** -rng.integers(0, 4, m).astype(float)
    elif kind == "zeros":
        weights = rng.integers(0, 3, m) + np.eye(m)[rng.integers(m)]
    else:
        weights = rng.integers(1, 11, m).astype(float)
    return np.asarray(weights / weights.sum())


def _transitions(rng: Random, kind: str, m: int) -> Array:
    if kind == "periodic":
        return np.roll(np.eye(m), 1, axis=1)
    if kind == "reducible":
        return np.vstack([np.eye(m)[0], *(_row(rng, "smooth", m) for _ in range(m - 1))])
    if kind == "gentle":  # little is remembered, so that little crosses a cut
        keep = float(rng.choice([0.05, 0.2, 0.4]))
        usual = _row(rng, "smooth", m)
        return (1 - keep) * usual + keep * np.array([_row(rng, "smooth", m) for _ in range(m)])
    if kind == "persistent":
        move = float(rng.choice([0.01, 0.03, 0.1]))
        return (1 - move) * np.eye(m) + move * np.array([_row(rng, "smooth", m) for _ in range(m)])
    return np.array([_row(rng, kind, m) for _ in range(m)])


def _coupling(rng: Random, shape: str, s: int) -> Array:
    own = float(rng.choice([0.5, 0.75, 0.9, 1 - 1e-3, 1 - 1e-6]))
    eye = np.eye(s)
    if s == 1 or shape == "apart":
        return eye
    weights = rng.integers(1, 10, (s, s)).astype(float)
    weak = float(rng.choice([1e-2, 1e-4, 1e-6]))
    two = eye.copy()
    two[:2, :2] = [[own, 1 - own], [1 - own, own]]
    shapes = {
        "dense": weights / weights.sum(axis=1, keepdims=True),
        "equal": np.where(eye > 0, own, (1 - own) / (s - 1)),
        "follow": np.vstack([eye[0], *(own * eye[i] + (1 - own) * eye[i - 1] for i in range(1, s))]),  # never back
        "chain": eye[[0, *range(s - 1)]],
        "hub": 0.5 * eye[[0] * s] + 0.5 * eye,
        "parts": two if s > 2 else eye,
        "weak": np.where(eye > 0, 1 - weak, weak / (s - 1)),
        "nearly": (1 - weak) * two + weak * eye[[*range(1, s), 0]],  # two of them closely, the rest hardly tied
    }
    return np.asarray(shapes[shape])


def _values(rng: Random, s: int, m: int) -> Array:
    kind = rng.integers(4)
    if kind == 0 and s > 1:  # values per sequence
        rows = [np.sort(rng.choice(6, size=m, replace=False)).astype(float) for _ in range(s)]
        return np.array(rows)
    if kind == 1:
        return np.sort(rng.choice([-2.0, -1.0, -0.5, 0.0, 1.0, 2.5, 3.0, 5.0], size=m, replace=False))
    return np.arange(m, dtype=float)


def random_spec(rng: Random, s: int, m: int, *, values: Array | None = None, fits: bool = True) -> Spec:
    """A model with one stationary law, or with a law to begin with."""
    kind, other = str(rng.choice(KINDS)), str(rng.choice(KINDS))
    given = _values(rng, s, m) if values is None else values
    if s > 1 and rng.random() < 0.15:  # a joint chain: sequences move together
        coupling = transitions = None
        kernel = np.array([_row(rng, "zeros" if kind == "zeros" else "smooth", m**s) for _ in range(m**s)])
        label = "joint"
    else:
        label = str(rng.choice(SHAPES))
        coupling = _coupling(rng, label, s)
        first = _transitions(rng, kind, m)
        same = rng.random() < 0.5
        transitions = np.array(
            [[first if j == k or same else _transitions(rng, other, m) for k in range(s)] for j in range(s)]
        )
        if rng.random() < 0.3:  # a law of its own for every sequence
            for j in range(s):
                transitions[j, j] = _transitions(rng, kind, m)
        kernel = coupled_kernel(coupling, transitions)
        label = f"{kind} {label}" if s > 1 else kind
    initial = None
    if len(closed_classes(kernel)) > 1 or rng.random() < 0.06:
        initial = _row(rng, str(rng.choice(["smooth", "zeros", "deterministic"])), m**s)
    fit = float(rng.choice([0.25, 0.5, 1.0])) if fits and rng.random() < 0.12 else None
    return Spec(s, m, kernel, coupling, transitions, given, label, initial, fit)


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
        return Ask(str(rng.choice(STRANGERS)), state, weights)
    return Ask(str(rng.choice(BUILT_IN)), state, weights)


def _ages(rng: Random, s: int, m: int) -> tuple[int, ...]:
    oldest = 4 if m**s <= 8 else 2
    if rng.random() < 0.6 or s == 1:
        return (int(rng.integers(0, oldest + 1)),) * s
    return tuple(int(a) for a in rng.integers(0, oldest + 1, s))


def random_plan(rng: Random, s: int, m: int, models: tuple[Spec, ...], adversary: str | None = None) -> PlanSpec:
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
        adversary or str(rng.choice(ADVERSARIES)),
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
    rng = np.random.default_rng([14, seed])
    s, m = SIZES[int(rng.integers(len(SIZES)))]
    if rng.random() < 0.08:
        return _together(rng, seed, s, m)
    plans = [random_plan(rng, s, m, _models(rng, s, m))]
    while len(plans) < 3 and rng.random() < 0.35:
        before = plans[-1]
        if len(plans) == 2 and rng.random() < 0.3:
            plans.append(plans[0])  # and back again
            continue
        adversary = before.adversary if rng.random() < 0.7 else None
        following = random_plan(rng, s, m, _next_models(rng, before, s, m), adversary)
        if before.ask.groups and rng.random() < 0.5:  # the same question of other groups
            following = replace(following, ask=replace(before.ask, groups=_groups(rng, s)))
        plans.append(following)
    limits: dict[str, float | None] = {"budget": None, "event_limit": None, "lifetime_limit": None}
    if rng.random() < 0.3:
        limits["budget"] = float(rng.choice([0.2, 0.5, 1.0, 2.0, 4.0]))
    if rng.random() < 0.15:
        limits["event_limit"] = float(rng.choice([0.5, 1.0, 2.0, 4.0]))
    if rng.random() < 0.1:
        limits["lifetime_limit"] = float(rng.choice([1.0, 2.0, 5.0, 10.0]))
    ticks = int(rng.integers(6, 16)) + 3 * (len(plans) - 1)
    steps = _steps(rng, len(plans), s, ticks, simple=rng.random() < 0.3)
    return Case(seed, tuple(replace(plan, large=seed % 3 == 0) for plan in plans), steps, limits)


def _together(rng: Random, seed: int, s: int, m: int) -> Case:
    """Several queries released at the same ticks: known to the accountant, which a publisher asks for one."""
    models = _models(rng, s, m)
    first = random_plan(rng, s, m, models)
    plans = [first]
    for _ in range(int(rng.integers(0, 3))):
        plans.append(random_plan(rng, s, m, models, first.adversary))
    plain = tuple(PlanSpec(p.models, p.ask, p.ages, p.epsilon_c, p.adversary, first.stale_limit, ()) for p in plans)
    state = str(rng.choice(["auto", "auto", "metric", "scalar", "vector"]))
    return Case(seed, plain, _steps(rng, 1, s, int(rng.integers(6, 14)), simple=True), {}, True, state)
