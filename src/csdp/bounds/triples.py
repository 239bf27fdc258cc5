"""Windows of three sequences: sharper than single sequences for what was read some steps ago.

For backward chains of two states. `influence` adds up what a sequence reveals of each of its children, though noise
hides neighbouring children together. For the last steps, keep for every window B of three neighbouring sequences

    beta_B(z, z') >= ln F(z', rest) / F(z, rest)    for every rest, z and z' of 2^3.

One step towards the present: only the children of the sequences that change have another law. Split them into pieces
that lie inside windows, and replace the laws of one piece after the other. With all others integrated out, F is a
function g of the piece within the betas of its window, so

    beta_B(x, x') <- least over partitions of the sum over pieces of the largest over parents outside B of
                     ln sum Pr(w | x') g(w) / sum Pr(w | x) g(w),

where the largest over all g is the metric programme. The sum of what single sequences reveal bounds the same ratio, so
that the smaller of both counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from csdp.bounds.influence import Recursion, influence_rule
from csdp.bounds.metric import FlowSolver, LawPairs
from csdp.chain import CoupledChain, Model, is_graph
from csdp.chain.graph import Mixture
from csdp.chain.steps import METRIC_STATES
from csdp.numbers import UNIT, Floats

#: Different programmes of one step up to which windows are followed (10 microseconds each), and windows.
WINDOW_PROGRAMMES, MOST_WINDOWS = 8_000, 32
#: Partitions of the children of a change that are tried.
_PARTITIONS = 6
#: Children of a window that are split into pieces, and parents outside it whose values are tried.
_CHILDREN, _OUTSIDE = 7, 5
#: Betas are rounded up to a multiple of this, so that windows that are alike stay alike and are solved once.
_GRAIN = 2.0**-32

Members = tuple[int, ...]
#: Pairs of values of a window.
_ONE, _OTHER = np.triu_indices(8, 1)


@dataclass(frozen=True)
class _Move:
    """All changes of the same sequences of a window: their bits, and the partitions of their children.

    Each partition lists pieces and the numbers of their laws.
    """

    window: int
    mask: int
    partitions: list[list[tuple[Members, int]]]


def windows_of(model: Model) -> Windows | None:
    """The windows of a coupled backward chain of two states, too large for the joint state; None if they are dear."""
    # Connected sequences have nearly as many windows.
    if model.states != 2 or model.phases > 1 or model.sequences > MOST_WINDOWS + 2 or model.size <= METRIC_STATES:
        return None
    law: CoupledChain | Mixture
    if is_graph(model):
        (first, *others) = [window for windows in model.worlds for window in windows]
        if others or not isinstance(first, Mixture) or (first.edge_lags != 1).any():
            return None
        law = first
    elif model.direction == "backward" and len(model.step_chains) == 1:
        (law,) = model.step_chains
    else:
        return None
    try:
        return Windows(law, influence_rule(model))
    except OverflowError:
        return None


class Windows(Recursion):
    """The recursion by windows of three sequences.

    A state is (n, 2, 2): that of single sequences, then for every window the pairs {z, z'} of its values, the first bit
    for its first sequence, with beta(z, z') and beta(z', z) beside the diagonal.

    Args:
        law: a chain read backwards; OverflowError if it is not connected, or a step would take too many programmes.
        rule: its recursion by single sequences.
    """

    def __init__(self, law: CoupledChain | Mixture, rule: Recursion) -> None:
        self._rule = rule
        table, which = law.transition_table
        shares = law.edge_weights[:, None, None] * table[which]
        s = law.sequences
        self._shares: list[dict[int, Floats]] = [{} for _ in range(s)]
        self._children: list[set[int]] = [set() for _ in range(s)]
        for k, i, share in zip(law.edge_targets.tolist(), law.edge_sources.tolist(), shares, strict=True):
            self._shares[k][i] = share
            self._children[i].add(k)
        self.windows = self._list_windows()
        #: for every piece, in the order of its first window, the windows that it lies in and its places there
        self._homes: dict[Members, list[tuple[int, Members]]] = {}
        self._order: dict[frozenset[int], Members] = {}
        for number, window in enumerate(self.windows):
            for places in (p for n in (1, 2, 3) for p in itertools.combinations(range(3), n)):
                piece = tuple(window[place] for place in places)
                piece = self._order.setdefault(frozenset(piece), piece)
                self._homes.setdefault(piece, []).append((number, tuple(window.index(k) for k in piece)))
        self._laws: list[LawPairs] = []
        self._numbers: dict[bytes, int] = {}
        self._programmes = 0
        self._last: tuple[bytes, list[Floats]] = (b"", [])
        self._moves = [self._move(number, mask) for number in range(len(self.windows)) for mask in range(1, 8)]

    def _list_windows(self) -> list[Members]:
        """Every sequence with any two others that follow it or that it follows; all of a ring in the same order."""
        s, windows = len(self._shares), dict[frozenset[int], Members]()
        for i in range(s):
            near = sorted((self._children[i] | set(self._shares[i])) - {i}, key=lambda k: -((k - i) % s))
            if len(near) > _CHILDREN:
                raise OverflowError
            for a, b in itertools.combinations(near, 2):
                windows.setdefault(frozenset((a, i, b)), (a, i, b))
            if len(windows) > MOST_WINDOWS:
                raise OverflowError
        if len(set().union(*windows)) < s:  # two sequences alone
            raise OverflowError
        return list(windows.values())

    def _move(self, number: int, mask: int) -> _Move:
        window = self.windows[number]
        children = set().union(*(self._children[k] for j, k in enumerate(window) if mask >> j & 1))
        if len(children) > _CHILDREN:
            raise OverflowError
        found = list(self._partitions(sorted(children)))
        fewest = min(map(len, found))
        best = [pieces for pieces in found if len(pieces) == fewest][:_PARTITIONS]
        return _Move(number, mask, [[(piece, self._law(window, mask, piece)) for piece in pieces] for pieces in best])

    def _partitions(self, members: Sequence[int]) -> Iterator[list[Members]]:
        """All partitions into pieces that lie inside windows."""
        if not members:
            yield []
            return
        first, *rest = members
        for size in range(3):
            for more in itertools.combinations(rest, size):
                piece = self._order.get(frozenset((first, *more)))
                if piece is not None:
                    for others in self._partitions([k for k in rest if k not in more]):
                        yield [piece, *others]

    def _law(self, window: Members, mask: int, piece: Members) -> int:
        """The number of the laws of a piece before and after a change, by values of outer parents and of the window."""
        outside = sorted(set().union(*(self._shares[k] for k in piece)) - set(window))
        if len(outside) > _OUTSIDE:
            raise OverflowError
        laws = np.ones((2,) * (3 + len(outside)) + (1,))
        names = (*window[::-1], *outside)  # the first of a window is its last bit
        for k in piece:
            law = np.zeros((2,) * len(names) + (2,))
            for i, share in self._shares[k].items():
                law += share.reshape(*(2 if name == i else 1 for name in names), 2)
            laws = np.concatenate([laws * law[..., :1], laws * law[..., 1:]], axis=-1)
        laws = laws.reshape(8, -1, 1 << len(piece))
        first, second = laws[np.arange(8) ^ mask].reshape(-1, laws.shape[2]), laws.reshape(-1, laws.shape[2])
        key = first.tobytes() + second.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self._laws)
            self._programmes += len(first)
            if self._programmes > WINDOW_PROGRAMMES:
                raise OverflowError
            error = np.full(laws.shape[2], 64.0 * UNIT)
            self._laws.append(LawPairs(first, second, first - second, error, 0))
        return self._numbers[key]

    # ---- following a history -----------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and states."""
        return self._rule.shape

    def of_singles(self, state: Floats) -> Floats:
        """The state of windows, from one of single sequences."""
        return self._join(state, np.array([_sum_singles(state, window) for window in self.windows]))

    def _join(self, singles: Floats, windows: Floats) -> Floats:
        packed = np.zeros((len(windows), _ONE.size, 2, 2))
        packed[:, :, 0, 1], packed[:, :, 1, 0] = windows[:, _ONE, _OTHER], windows[:, _OTHER, _ONE]
        return np.concatenate([singles, packed.reshape(-1, 2, 2)])

    def _split(self, state: Floats) -> tuple[Floats, Floats]:
        s = self.shape[0]
        packed, windows = state[s:].reshape(-1, _ONE.size, 2, 2), np.zeros((len(self.windows), 8, 8))
        windows[:, _ONE, _OTHER], windows[:, _OTHER, _ONE] = packed[:, :, 0, 1], packed[:, :, 1, 0]
        return state[:s], windows

    def _step(self, state: Floats) -> Floats:
        before, known = self._split(state)
        singles = self._rule.advance(before)
        windows = np.array([_sum_singles(singles, window) for window in self.windows])
        metrics = {piece: self._metric(known, piece) for piece in self._homes}
        solvers: dict[bytes, FlowSolver] = {}
        solved: dict[tuple[bytes, int], Floats] = {}

        def reveals(piece: Members, law: int) -> Floats:
            metric = metrics[piece]
            key = metric.tobytes()
            if (key, law) not in solved:
                if np.isfinite(metric).all() and key not in solvers:
                    solvers[key] = FlowSolver(metric.T)
                found = _largest(self._laws[law], solvers.get(key))
                solved[key, law] = found.reshape(8, -1).max(axis=1)
            return solved[key, law]

        values = np.arange(8)
        for move in self._moves:
            found = [np.sum([reveals(*part) for part in pieces], axis=0) for pieces in move.partitions]
            least = np.ceil(np.minimum.reduce(found) * (1.0 / _GRAIN)) * _GRAIN
            row = windows[move.window]
            row[values, values ^ move.mask] = np.minimum(row[values, values ^ move.mask], least)
        return self._join(singles, windows)

    def _metric(self, windows: Floats, piece: Members) -> Floats:
        """What a history reveals of a piece: the least over its windows, the largest over their other values."""
        best = np.full((1 << len(piece),) * 2, np.inf)
        for number, places in self._homes[piece]:
            others = [place for place in range(3) if place not in places]
            values = np.arange(1 << len(piece))
            inside = np.bitwise_or.reduce([(values >> bit & 1) << place for bit, place in enumerate(places)])
            worst = np.zeros_like(best)
            for rest in itertools.product(range(2), repeat=len(others)):
                at = inside + int(sum(value << place for value, place in zip(rest, others, strict=True)))
                worst = np.maximum(worst, windows[number][np.ix_(at, at)])
            best = np.minimum(best, worst)
        return best

    def present(self, state: Floats) -> Floats:
        """What the history reveals of the values at the newest slice, (s, 2, 2)."""
        singles, windows = self._split(state)
        return np.array([np.minimum(single, self._metric(windows, (k,))) for k, single in enumerate(singles)])

    def follow(self, state: Floats, steps: int) -> list[Floats]:
        """From a state of single sequences, the states of windows 0, 1, ... `steps` slices later."""
        key, (last, followed) = state.tobytes(), self._last  # read once: several threads may ask
        followed = list(followed) if key == last else [self.of_singles(state)]
        while len(followed) <= steps:
            followed.append(self.advance(followed[-1]))
        self._last = key, followed  # the peak is asked for after the leakage
        return followed[: steps + 1]


def _largest(pairs: LawPairs, solver: FlowSolver | None) -> Floats:
    """The largest log ratios of means of a likelihood; without limits on it if there is no solver."""
    if solver is not None:
        return solver.bounds(pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(pairs.first > 0, pairs.first / pairs.second, 0.0)
    return np.asarray(np.log(ratios.max(axis=1)) + 64.0 * UNIT)


def _sum_singles(state: Floats, window: Members) -> Floats:
    """(8, 8), the sum of what single sequences reveal."""
    bits = np.arange(8)[:, None] >> np.arange(3) & 1
    out = np.zeros((8, 8))
    for k, value in zip(window, bits.T, strict=True):
        out += state[k][value[:, None], value]
    return np.asarray(out * (1.0 + 8.0 * UNIT))
