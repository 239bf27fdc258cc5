"""Slice: a bound for one giant component that decays with age, for every adversary and any number of releases.

For every sequence i, whatever others the adversary knows of the present, and for every two pasts z, z', it bounds the
log-odds range of `Pr(x_t^(i) | x_t^(others), x_{t-A} = z)`. Everything published depends on the present only through
data at least A old, so no query, noise or number of releases reveals more. Needs independent picks (CoupledChain);
holds for any law of the past. The proof is in docs/proofs-networks.md.

It walks over the slices t-A+1, ..., t. Within a slice it keeps, for every sequence given all others of the slice: an
interval for its law, how far a change of the past moves that law, and how far a change of another sequence does.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from csdp.aging import Progress
from csdp.bounds.dependence import (
    SORTED_PAIRS,
    Boxes,
    Form,
    LocalNumbers,
    MatrixForm,
    RowSumForm,
    SharedForm,
    distance,
    first_boxes,
    hull,
    next_boxes,
)
from csdp.chain import CoupledChain, Model
from csdp.errors import InputError
from csdp.numbers import UNIT, Floats, Indices

#: Sequences times states up to which the fractional programme of one step is solved; intervals beyond.
EXACT_SIZE = 256
#: Ranges below this come from differences between pasts, larger ones from the laws themselves.
_TINY_RANGE = 1e-4
#: Sequences up to which every target has its own matrix.
MATRIX_SEQUENCES = 160
#: Sequences up to which one sparse matrix serves all targets; row sums beyond.
SHARED_SEQUENCES = 10_000

FORMS: dict[str, type[MatrixForm] | type[SharedForm] | type[RowSumForm]] = {
    "matrix": MatrixForm,
    "shared": SharedForm,
    "row-sum": RowSumForm,
}


def has_slice(model: Model) -> bool:
    """Whether next states are independent given the present, as `slice` needs."""
    return model.direction == "forward" and bool(model.step_chains)


def require_forward(model: Model) -> tuple[CoupledChain, ...]:
    """The forward coupled chains one of which every step follows, or why the bound does not hold for the model."""
    if not has_slice(model):
        kind = "a backward chain" if model.direction == "backward" else type(model).__name__
        raise InputError(
            "slice: needs a CoupledChain with direction='forward', whose next states are independent given the "
            f"present; {kind} given. Use influence for a backward chain; exact or freshness for a joint one"
        )
    return model.step_chains


@dataclass(frozen=True)
class Slice:
    """Log-odds range of every sequence's present given any knowledge of the others, and the form that gave it."""

    ranges: Floats  # (s,) rho_A of every sequence
    pairs: Indices  # (s, 2) the two most distinguishable states
    form: str  # "one-step", "matrix", "shared" or "row-sum"
    curve: Floats  # (age,) the largest over the sequences at ages 1, 2, ..., age


def slice_bound(model: Model, age: int, *, form: str = "auto", progress: Progress | None = None) -> Slice:
    """The range over all pasts of the log odds of each sequence's present, given all others, `age` steps later.

    Formal guarantee: never below the truth, for any adversary, query, noise and number of releases. Never above the
    value at age 1, exact for one binary sequence; never grows with age.

    Args:
        model: a forward chain, or one under environments that are known: the worst of them at every step. Under a clock
            there is a block of ranges for every phase of the present.
        age: steps between the past and the present.
        form: "matrix", "shared" or "row-sum", from sharp to cheap, each never below the one before; "auto" by size.
        progress: called with a stage, what is done and what there is to do.

    >>> pair = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> slice_bound(pair, 6).curve.round(4).tolist()
    [1.6946, 0.6702, 0.2982, 0.1349, 0.0613, 0.0279]
    """
    chains = require_forward(model)
    if age == 0:
        s = chains[0].sequences
        return Slice(np.full(s, math.inf), np.broadcast_to(np.array([0, 1]), (s, 2)), "one-step", np.zeros(0))
    if age == 1:
        ranges, pairs = one_step(model)
        return Slice(ranges, pairs, "one-step", np.array([ranges.max()]))
    curve = []
    for n, reached in enumerate(_walk(chains, age, form), start=1):
        curve.append(float(reached.ranges.max()))
        if progress is not None and n > 1:
            progress("slice", n, age)
    return Slice(reached.ranges, reached.pairs, reached.forms[0].name, np.array(curve))


@dataclass(frozen=True)
class _SliceState:
    """What is known of one slice under any of the chains, given all others in it and a snapshot before it."""

    locals: tuple[LocalNumbers, ...]  # of each chain that the next step may follow
    ranges: Floats  # (s,) over the snapshots that may lie before
    pairs: Indices
    boxes: Boxes
    forms: tuple[Form, ...]

    def carry(self, leakage: Floats) -> Floats:
        """What a history reveals of the next slice, (s,), if it reveals `leakage` of this one.

        The law of this slice is tilted by the history: its distance from the untilted one follows from the dependence
        within the slice, and its box is wider by the tilt.
        """
        moved = []
        for local, form in zip(self.locals, self.forms, strict=True):
            cells = replace(form.cells, tilt=form.cells.tilt + leakage[form.cells.source])
            moved.append(next_boxes(local, cells, self.boxes).spread(form.shift(distance(leakage))))
        return np.asarray(np.maximum.reduce(moved))


def _walk(chains: Sequence[CoupledChain], slices: int | None, form: str) -> Iterator[_SliceState]:
    """The slices after a snapshot, under the worst of the chains at each step; unlimited if `slices` is None."""
    if form != "auto" and form not in FORMS:
        raise InputError(f"form: {form!r} given; use auto, {', '.join(FORMS)}")
    locals_ = tuple(LocalNumbers.of(chain) for chain in chains)
    first = [one_step(chain) for chain in chains]
    # One step has the exact range of p_i; its box may be wider for many states.
    each = [np.minimum(first_boxes(at).spread(at.width), wide) for at, (wide, _) in zip(locals_, first, strict=True)]
    ranges, pairs = _widest(each, [states for _, states in first])
    boxes = hull([first_boxes(local) for local in locals_])
    kind = max((choose_form(local) for local in locals_), key=list(FORMS).index) if form == "auto" else form
    forms: tuple[Form, ...] = tuple(FORMS[kind](local) for local in locals_)
    for n in itertools.count(1):
        yield _SliceState(locals_, ranges, pairs, boxes, tuple(copy(carried) for carried in forms))
        if n == slices:
            return
        following = [next_boxes(at, carried.cells, boxes) for at, carried in zip(locals_, forms, strict=True)]
        moved = [carried.step(ranges, box) for carried, box in zip(forms, following, strict=True)]
        worst = [box.worst_states(far) for box, far in zip(following, moved, strict=True)]
        fresh, states = _widest([box.spread(far) for box, far in zip(following, moved, strict=True)], worst)
        pairs = np.where((fresh < ranges)[:, None], states, pairs)
        # Older data reveal less: the range at a greater age is a mixture of those at a smaller one.
        ranges, boxes = np.minimum(fresh, ranges), hull(following)
        if len(forms) > 1:
            known = tuple(copy(carried) for carried in forms)
            for carried in forms:
                carried.take_worst(known)


def _widest(ranges: Sequence[Floats], pairs: Sequence[Indices]) -> tuple[Floats, Indices]:
    """The widest range of every sequence, and its pair of states."""
    every, place = np.array(ranges), np.arange(len(ranges[0]))
    at = every.argmax(axis=0)
    return every[at, place], np.array(pairs)[at, place]


class SliceHistory:
    """What a history of releases reveals of every sequence's present, to the informed adversary; forward chains.

    Formal guarantee of `leakage`: for every depth N of a snapshot z that is taken as known, leakage <= b_N + rho_N,
    with b from the history since z and rho the range over z; the least over N counts. Never above `slice_bound`.
    Proof in docs/proofs.md.

    >>> ring = {(i, (i + d) % 12): w for i in range(12) for d, w in ((0, 0.8), (1, 0.1), (11, 0.1))}
    >>> history = SliceHistory(CoupledChain(ring, [[0.7, 0.3], [0.3, 0.7]]))
    >>> round(float(history.leakage(1, [np.full(12, 0.1)] * 16).max()), 4)
    0.086
    """

    def __init__(self, model: Model, *, form: str = "auto") -> None:
        chains = require_forward(model)
        self.sequences = chains[0].sequences  #: a block for every phase under a clock
        self._walk = _walk(chains, None, form)
        self._steps: list[_SliceState] = []
        self._turn = threading.Lock()  # several threads may ask at once

    def _slice_state(self, slices: int) -> _SliceState:
        """What is known of the slice that lies so many after the known snapshot."""
        with self._turn:
            while len(self._steps) < slices:
                self._steps.append(next(self._walk))
        return self._steps[slices - 1]

    def leakage(self, age: int, costs: Sequence[Floats | None]) -> Floats:
        """(s,) the leakage `age` after the newest slice that any of the releases read.

        `costs[n]` (s,) is what they reveal, at most, of the readings taken n slices before that one; None if nothing
        was read. Whatever was published before the last of these slices is covered by the range over pasts.
        """
        best = np.full(self.sequences, np.inf)
        for reach in _depths(max(age, 1), len(costs) + age):  # z lies `reach` slices before the present
            leakage = np.zeros(self.sequences)
            for n in range(1, reach + 1):
                leakage = self._slice_state(n - 1).carry(leakage) if leakage.any() else leakage
                ago = reach - n - age  # slices before the newest that was read
                cost = costs[ago] if 0 <= ago < len(costs) else None
                leakage = leakage if cost is None else leakage + cost
            best = np.minimum(best, leakage + self._slice_state(reach).ranges)
        return np.asarray(best * (1 + 1e-12))


def _depths(least: int, most: int) -> list[int]:
    """Depths at which the past is taken as known: further and further apart, the largest included."""
    depths = [least]
    while depths[-1] < most:
        depths.append(min(most, least + max(1, 2 * (depths[-1] - least))))
    return depths


def choose_form(local: LocalNumbers) -> str:
    """The sharpest form whose cost a chain of this size allows."""
    if local.chain.sequences <= MATRIX_SEQUENCES:
        return "matrix"
    small = local.chain.sequences <= SHARED_SEQUENCES and local.pair_count <= SORTED_PAIRS
    return "shared" if small else "row-sum"


# ---- one step --------------------------------------------------------------------------------------------------------


def one_step(model: Model) -> tuple[Floats, Indices]:
    """The range over all pasts of the log odds of each sequence's present one step later, (s,), and its states (s, 2).

    Formal guarantee: no adversary learns more of the present from data at least one step old, whatever is published of
    it and whatever is known of the others, because given x_{t-1} the sequences are independent. Exact (Dinkelbach's
    fractional programme) for few sequences, else by intervals. Under environments the worst of them.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> one_step(chain)[0].round(4).tolist()
    [1.6946, 1.6946]
    """
    each = [
        _exact_step(chain) if chain.sequences * chain.states <= EXACT_SIZE else _interval_step(chain)
        for chain in require_forward(model)
    ]
    return _widest([ranges for ranges, _ in each], [pairs for _, pairs in each])


def _exact_step(chain: CoupledChain) -> tuple[Floats, Indices]:
    s, m = chain.sequences, chain.states
    rounding = 8.0 * UNIT * (m + int(np.max(np.diff(chain.edge_starts))) + s)
    widest = []
    for sources, matrices in zip(chain.local.sources, chain.local.matrices, strict=True):
        # whole[k, c, a]: the part of Pr(x = a) that the past state c of k contributes, never negative;
        # change[k, c, a]: what c instead of state 0 adds to it, accurate when tiny.
        whole, change, law = np.zeros((s, m, m)), np.zeros((s, m, m)), np.zeros(m)
        for source, matrix in zip(sources, matrices, strict=True):
            whole[source] = matrix
            change[source] = matrix - matrix[0]
            law += matrix[0]
        law /= law.sum()
        change = change - change.sum(axis=2, keepdims=True) * law
        widest.append(_widest_pair(law, change, whole, rounding))
    ranges = np.array([value for value, *_ in widest]) * (1.0 + rounding)
    return ranges, np.array([pair for _, *pair in widest])


def _widest_pair(law: Floats, change: Floats, whole: Floats, rounding: float) -> tuple[float, int, int]:
    """Largest range of ln Pr(a|z)/Pr(b|z) over z, for one sequence: law (m,), change and whole (s, m, m)."""
    best = (0.0, 1, 0)
    possible = whole.max(axis=1).sum(axis=0) > 0  # a state that occurs from no past is no secret
    for a, b in itertools.combinations(range(law.size - 1, -1, -1), 2):
        if not (possible[a] and possible[b]):
            continue
        if _excludes(whole, a, b) or _excludes(whole, b, a):
            return math.inf, a, b
        value = max(_log_odds(whole, a, b) + _log_odds(whole, b, a), 0.0) + rounding
        if value < _TINY_RANGE and min(law[a], law[b]) > 0:
            value = _range_of_changes(law, change, a, b)
        if value > best[0]:
            best = (value, a, b)
    return best


def _excludes(whole: Floats, a: int, b: int) -> bool:
    """Whether some past leads to b but never to a."""
    without = whole[:, :, a] == 0
    return bool(without.any(axis=1).all() and np.where(without, whole[:, :, b], 0.0).max() > 0)


def _log_odds(whole: Floats, a: int, b: int) -> float:
    """Largest ln Pr(a|z)/Pr(b|z) over the pasts that lead to either (Dinkelbach)."""
    up, down = whole[:, :, a], whole[:, :, b]
    rows = np.arange(whole.shape[0])
    ratio = 0.0
    for _ in range(200):
        pick = np.argmax(up - ratio * down, axis=1)
        over, under = float(up[rows, pick].sum()), float(down[rows, pick].sum())
        if over <= 0 or over / under <= ratio * (1 + 1e-15):
            break
        ratio = over / under
    return math.log(ratio)


def _range_of_changes(law: Floats, change: Floats, a: int, b: int) -> float:
    """The range from differences between pasts, for ranges so small that the laws themselves hide them."""
    high = _extreme(law, change, a, b)
    low = _extreme(law, change, b, a)
    gap = high - low
    bottom = law + low
    return float(np.log1p(gap[a] / bottom[a]) - np.log1p(gap[b] / bottom[b]))


def _extreme(law: Floats, change: Floats, a: int, b: int) -> Floats:
    """Change of the law at the past that makes Pr(a|z)/Pr(b|z) largest (Dinkelbach)."""
    up, down = change[:, :, a], change[:, :, b]
    ratio = law[a] / law[b]
    picked = np.zeros_like(law)
    for _ in range(100):
        pick = np.argmax(up - ratio * down, axis=1)
        picked = np.asarray(change[np.arange(change.shape[0]), pick].sum(axis=0))
        over, under = law[a] + picked[a], law[b] + picked[b]
        if over / under <= ratio * (1 + 1e-15):
            return picked
        ratio = over / under
    return picked


def _interval_step(chain: CoupledChain) -> tuple[Floats, Indices]:
    """Boxes around the law of every sequence that hold whatever the past was; O(edges * m^2)."""
    boxes = first_boxes(LocalNumbers.of(chain))
    return boxes.spread(boxes.width), boxes.worst_states(boxes.width)
