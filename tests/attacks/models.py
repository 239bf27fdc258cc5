"""Random models as plain data, and the laws that they stand for. Imports nothing of the library."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attacks.processes import Limits, ahead, back, backward_world, coupled_laws, periodic_world, product_kernel
from oracle import Edge, Law, Rooted, World, closed_classes, connected, joint_kernel, mixture_law

Array = NDArray[np.float64]
Random = np.random.Generator

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
    """A model: a coupled chain, or a joint one where `coupling` is None.

    `direction` "backward": the same numbers say what came before. `margin`: all backward processes whose influences are
    at most so much worse than those of this chain. `environments`: one chain for each environment; `how` it comes
    about, "clock" (`cycle`) or "hidden" (`switching`), and `seed` of the paths that are tried. `windows`: a graph of
    mixtures instead, by distance from the present, and its `ahead`, the edges of later values. `levels`: the logs of
    their matrices are what parents add to log odds instead, at levels of this seed, others at every tick.
    """

    s: int
    m: int
    kernel: Array
    coupling: Array | None
    transitions: Array | None
    values: Array
    kind: str
    fit: float | None = None  #: epsilon of the private fit that it came from
    direction: str = "forward"
    margin: float | None = None
    environments: tuple[Spec, ...] = ()
    how: str = ""
    cycle: tuple[int, ...] = ()
    switching: Array | None = None
    seed: int = 0
    windows: tuple[tuple[Edge, ...], ...] = ()
    ahead: tuple[Edge, ...] = ()
    levels: int | None = None

    @property
    def parts(self) -> list[list[int]]:
        """Sequences that the model ties together: by couplings, or by an environment that nobody sees."""
        if self.windows:
            ties = np.zeros((self.s, self.s))
            for child, parent, *_ in (edge for edges in (*self.windows, self.ahead) for edge in edges):
                ties[child, parent] = 1
            return connected(ties)
        if self.coupling is None or self.how == "hidden":
            return [list(range(self.s))]
        return connected(self.coupling)

    def __repr__(self) -> str:
        law = f"kernel={self.kernel.tolist()}" if self.coupling is None else ""
        law = law or f"coupling={self.coupling.tolist()}, transitions={self.transitions.tolist()}"  # type: ignore
        more = "" if self.fit is None else f", private fit {self.fit}"
        more += "" if self.direction == "forward" else ", backward"
        if self.windows:
            law = f"windows {self.windows}, ahead {self.ahead}"
            more += "" if self.levels is None else f", log odds at levels {self.levels}"
        more += "" if self.margin is None else f", all within {self.margin}, seed {self.seed}"
        if self.environments:
            law = f"{self.how} {self.cycle or ''} {'' if self.switching is None else self.switching.tolist()}"
            law += f", seed {self.seed}, {self.environments}"
        return f"{self.kind}({law}, values={self.values.tolist()}{more})"


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
    """A model with one stationary law."""
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
        kernel = joint_kernel(coupling, transitions)
        label = f"{kind} {label}" if s > 1 else kind
    if len(closed_classes(kernel)) > 1 or rng.random() < 0.06:  # every snapshot may lead to the same few
        restart = _row(rng, str(rng.choice(["smooth", "zeros", "deterministic"])), m**s)
        if coupling is None or transitions is None:
            kernel = 0.9 * kernel + 0.1 * restart
        else:
            transitions = 0.9 * transitions + 0.1 * restart.reshape(m, -1).sum(axis=1)
            kernel = joint_kernel(coupling, transitions)
    fit = float(rng.choice([0.25, 0.5, 1.0])) if fits and rng.random() < 0.12 else None
    return Spec(s, m, kernel, coupling, transitions, given, label, fit)


# ---- backward chains, families at once, environments -----------------------------------------------------------------


def other_spec(rng: Random, given: Spec) -> Spec:
    """Another kind of model with the values of a given one: backward, a family at once, or under environments."""
    drawn = rng.random()
    if drawn < 0.1:
        return given
    if drawn < 0.45:
        return replace(_apart_from_start(rng, given), direction="backward")
    if drawn < 0.65:
        margin = float(rng.choice([0.0, 0.005, 0.02, 0.1, 0.3]))
        return replace(
            _apart_from_start(rng, given), direction="backward", margin=margin, seed=int(rng.integers(2**31))
        )
    return _under_environments(rng, given)


def _apart_from_start(rng: Random, given: Spec) -> Spec:
    """A coupled chain with one stationary law: the given one, or the first of others that is."""
    spec = given
    while spec.coupling is None or len(closed_classes(spec.kernel)) > 1:
        spec = random_spec(rng, given.s, given.m, values=given.values)
    return replace(spec, fit=given.fit)


def _under_environments(rng: Random, given: Spec) -> Spec:
    """Two or three chains under a clock or an environment that nobody sees."""
    direction, how = str(rng.choice(["forward", "backward"])), str(rng.choice(["clock", "hidden"]))
    count = int(rng.integers(2, 4)) if given.m**given.s < 8 else 2
    cycle, switching = (), None
    if how == "clock":
        cycle = tuple(
            int(e) for e in rng.permutation([*range(count), *rng.integers(0, count, int(rng.integers(0, 2)))])
        )
    elif how == "hidden":
        switching = np.array([_row(rng, "smooth", count) for _ in range(count)])
    while True:
        members = [_apart_from_start(rng, given)]
        while len(members) < count:
            drawn = random_spec(rng, given.s, given.m, values=given.values)
            members.append(replace(_apart_from_start(rng, drawn), values=given.values))
        kernels = [members[e].kernel for e in cycle] or [member.kernel for member in members]
        rounds = [kernels[n:] + kernels[:n] for n in range(len(kernels))]
        if how != "clock" or all(len(closed_classes(np.linalg.multi_dot(one))) == 1 for one in rounds):
            break
    environments = tuple(replace(member, direction=direction, fit=None) for member in members)
    return replace(
        members[0],
        coupling=np.mean([member.coupling for member in members], axis=0),
        kind=f"{how} {direction}",
        fit=given.fit,
        direction=direction,
        environments=environments,
        how=how,
        cycle=cycle,
        switching=switching,
        seed=int(rng.integers(2**31)),
    )


# ---- graphs ----------------------------------------------------------------------------------------------------------


def graph_or_other_spec(rng: Random, given: Spec) -> Spec:
    """A graph of mixtures with the values of a given model, mostly of memory two, or another kind of model."""
    if rng.random() < 0.25:
        return other_spec(rng, given)
    windows = tuple(_edges(rng, given, lag) for lag in range(1, 1 + int(rng.choice([1, 2, 2, 2, 3]))))
    ahead = _edges(rng, given, int(rng.choice([1, 2])))
    return replace(given, kind="graph", direction="backward", windows=windows, ahead=ahead)


def odds_or_other_spec(rng: Random, given: Spec) -> Spec:
    """A graph of limits of odds, or another model."""
    spec = graph_or_other_spec(rng, given)
    if not spec.windows or rng.random() < 0.3:
        return spec
    return replace(spec, kind="odds", levels=int(rng.integers(2**31)))


def added(edge: Edge) -> Array:
    """What a parent adds to the log odds of a child, by its state."""
    return np.asarray(6.0 * edge[3] * np.log(np.asarray(edge[4]) + 0.03))


def odds_law(spec: Spec) -> Law:
    """Log odds that add up, at levels that are anything at every tick."""

    @lru_cache(maxsize=4096)
    def law(i: int, tick: int) -> tuple[list[tuple[int, int]], Array]:
        if tick == 0:
            return [], np.full(spec.m, 1 / spec.m)
        edges = spec.ahead if tick > 0 else spec.windows[min(-tick, len(spec.windows)) - 1]
        own = [edge for edge in edges if edge[0] == i]
        rng = np.random.default_rng([19, spec.levels, i, tick + 1000])
        logs = np.zeros((spec.m,) * (len(own) + 1)) + rng.choice([0.0, 1.0, 4.0]) * rng.normal(size=spec.m)
        for n, edge in enumerate(own):
            logs = logs + added(edge).reshape((spec.m,) + (1,) * (len(own) - 1 - n) + (spec.m,))
        table = np.exp(logs - logs.max(axis=-1, keepdims=True))
        ends = [(k, tick - lag if tick > 0 else tick + lag) for _, k, lag, *_ in own]
        return ends, table / table.sum(axis=-1, keepdims=True)

    return law


def _edges(rng: Random, given: Spec, longest: int) -> tuple[Edge, ...]:
    """Every sequence follows itself and others: ticks that are next to its own, and those before it in its tick."""
    edges: list[Edge] = []
    for child in range(given.s):
        others = [(k, lag) for k in range(given.s) for lag in range(1, longest + 1) if (k, lag) != (child, longest)]
        others += [(k, 0) for k in range(child)]
        taken = rng.permutation(len(others))[: int(rng.integers(0, 3))]
        parents = [(child, longest), *(others[n] for n in taken)]
        shares = rng.integers(1, 10, len(parents)).astype(float)
        for (parent, lag), weight in zip(parents, shares / shares.sum(), strict=True):
            edges.append((child, parent, lag, float(weight), _transitions(rng, str(rng.choice(KINDS)), given.m)))
    return tuple(edges)


# ---- the laws that a model stands for --------------------------------------------------------------------------------

#: Slices that laws which change from tick to tick are made for.
FIRST, LAST = -8, 48
#: Kernels of a family from which a member takes one at every tick.
KERNELS = 3


@lru_cache(maxsize=64)
def worlds_of(spec: Spec) -> tuple[World | Rooted, ...]:
    """Laws under each of which what is certified must hold: all of them, or some that are drawn from the model's seed.

    Of a clock every phase that the first tick may have; of other environments some paths; of a family at once some
    members. Where the law of a first or last slice is anybody's, it is one under which sequences are independent.
    """
    if spec.windows:
        mixtures = spec.levels is None
        law = mixture_law(spec.windows, spec.m, spec.ahead) if mixtures else odds_law(spec)
        return (Rooted(law, spec.s, spec.m),)
    rng, whole = np.random.default_rng([17, spec.seed]), (FIRST, LAST, spec.s, spec.m)
    if spec.how == "clock":
        kernels = [spec.environments[e].kernel for e in spec.cycle]
        rounds = [kernels[n:] + kernels[:n] for n in range(len(kernels))]
        backward = spec.direction == "backward"
        return tuple(
            periodic_world(one, backward=backward, first=FIRST, last=LAST, s=spec.s, m=spec.m) for one in rounds
        )
    if spec.how:
        paths = _paths(rng, len(spec.environments))
        turn = ahead if spec.direction == "forward" else back
        return tuple(
            turn(lambda n, path=path: spec.environments[path[n - FIRST]].kernel, _independent(rng, spec), *whole)  # type: ignore[misc]
            for path in paths
        )
    if spec.margin is not None:
        assert spec.coupling is not None
        assert spec.transitions is not None
        limits = Limits(coupled_laws(spec.coupling, spec.transitions), spec.coupling > 0, spec.margin)
        members = [product_kernel(limits.member(rng)) for _ in range(KERNELS)]
        worlds = [
            back(lambda n, path=path: members[path[n - FIRST]], _independent(rng, spec), *whole)  # type: ignore[misc]
            for path in _paths(rng, KERNELS)
        ]
        return (back(lambda n: spec.kernel, _independent(rng, spec), *whole), *worlds)
    if spec.direction == "backward":
        return (backward_world(spec.kernel, spec.s, spec.m),)
    return (World(spec.kernel, spec.s, spec.m),)


def _paths(rng: Random, count: int) -> list[NDArray[np.intp]]:
    """Paths of environments: one that changes at random, one that takes turns, one that stays."""
    ticks = LAST - FIRST + 1
    return [
        rng.integers(0, count, ticks),
        (np.arange(ticks) + int(rng.integers(count))) % count,
        np.full(ticks, int(rng.integers(count)), dtype=np.intp),
    ]


def _independent(rng: Random, spec: Spec) -> Array:
    """A law of snapshots, all of them possible, under which the sequences are independent."""
    law = np.ones(1)
    for _ in range(spec.s):
        law = np.kron(law, _row(rng, "smooth", spec.m))
    return law
