"""Influence: leakage that counts the noise at any size, for graphs of memory one and chains read backwards.

Previous states are independent given the present snapshot (`csdp.bounds.graph` has longer memory, and edges inside a
tick). The state of the recursion is
`b_k(c, c')` for every sequence: how much the log likelihood of everything published can change when sequence k alone
goes from c to c' in the newest slice that was read, all others fixed. A release adds what it reveals of each reading; a
step towards the present replaces b by

    b_i(a, a') = sum over k of max over sets S of ln(1 + (delta_S)_+ E_k / (1 + base_S E_k)),    E_k = e^(max b_k) - 1,

with delta_S how much likelier the change a -> a' of i makes "the previous state of k lies in S", and base_S its least
probability over all snapshots with x_i = a. No joint state appears anywhere. The informed adversary only. The proof is
in docs/proofs.md. Every number is rounded up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.chain import CoupledChain, Model, is_graph
from csdp.chain.graph import Limits, Mixture, Odds, Window
from csdp.errors import InputError, TooLargeError
from csdp.numbers import UNIT, Bools, Floats, Indices
from csdp.query import QueryTable
from csdp.query_table import FoldTable

#: States up to which all sets of them are searched; beyond, prefixes with the sum of single bases.
ALL_SETS_STATES = 8
#: States of a sequence that are handled.
MAX_STATES = 32


def require_backward(name: str, model: Model) -> tuple[CoupledChain, ...]:
    """The backward chains one of which every step follows, or why the bound does not hold for the model."""
    if model.direction != "backward" or not model.step_chains:
        raise InputError(
            f"{name}: needs a CoupledChain with direction='backward', whose previous states are independent given the "
            "present; use auto, exact or slice for other models"
        )
    if model.states > MAX_STATES:
        raise TooLargeError(
            f"{name}: {model.states} states a sequence given; at most {MAX_STATES}. Use fewer states",
            needed=model.states,
            limit=MAX_STATES,
        )
    return model.step_chains


def require_informed(adversary: str) -> None:
    """Refuse the adversaries for whom the recursion is not proven."""
    if adversary != "informed":
        raise InputError(
            f"influence: adversary {adversary!r} given; it holds for 'informed' only. Use exact or freshness for others"
        )


class Recursion:
    """What all recursions have in common; here, of memory one without edges inside a tick, states are (s, m, m)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and states."""
        raise NotImplementedError

    def _step(self, state: Floats) -> Floats:
        """The state seen from the next slice."""
        raise NotImplementedError

    @property
    def memory(self) -> int:
        """Slices over which a value depends on newer ones."""
        return 1

    def start(self) -> Floats:
        """The state before any release."""
        s, m = self.shape
        return np.zeros((s, m, m))

    def add(self, state: Floats, cost: Floats) -> Floats:
        """Add costs (s, m, m) of the values at the newest slice."""
        return np.asarray(state + cost)

    def add_before(self, state: Floats, cost: Floats, behind: int) -> Floats | None:
        """Add costs of values `behind` slices before the newest one; None if these are finished."""
        return None

    def add_everywhere(self, state: Floats, level: float) -> Floats:
        """Add what is revealed of whatever is read, at the newest slice or before."""
        return np.asarray(state + level * (1.0 - np.eye(self.shape[1])))

    def present(self, state: Floats) -> Floats:
        """What the history reveals of the values at the newest slice, (s, m, m)."""
        return state

    def reduced(self, state: Floats) -> tuple[Recursion, Floats, Indices | None]:
        """A rule and a state with fewer sequences, and what to expand it with; itself if nothing can be left out."""
        return self, state, None

    def advance(self, state: Floats, steps: int = 1) -> Floats:
        """The state seen from later slices, one step after the other; stops at a fixed point."""
        rule, state, kind = self.reduced(state)
        state = rule._advance(state, steps)
        return state if kind is None else state[kind]

    def _advance(self, state: Floats, steps: int) -> Floats:
        for _ in range(steps):
            following = self._step(state)
            if np.array_equal(following, state):
                break
            state = following
        return state

    def cap(self, age: int) -> Floats:
        """An upper limit for any number of releases if all that was read is at least `age` old, 1 or more."""
        return self.present(self.advance(self.unbounded(), age))

    def unbounded(self) -> Floats:
        """The state if everything at the newest slice and before is known."""
        state = np.full_like(self.start(), np.inf)
        m = self.shape[1]
        state[:, np.arange(m), np.arange(m)] = 0.0
        return state


def influence_rule(model: Model) -> Recursion:
    """The recursion of one backward chain, of the worst environment at every step, or of a graph.

    Under a clock the states have a block of sequences for every phase of the newest slice.
    """
    if is_graph(model):
        return graph_rule(model.worlds)
    return worst_rule([InfluenceRule(chain) for chain in require_backward("influence", model)])


def worst_rule(rules: Sequence[Recursion]) -> Recursion:
    """The recursion if each step may follow any of some laws."""
    return rules[0] if len(rules) == 1 else WorstRule(rules)


def add_swing(model: Model, revealed: Floats) -> Floats:
    """What is revealed of values, (s, m, m), with what slow levels add."""
    return revealed if not is_graph(model) or model.swing is None else np.asarray(revealed + model.swing)


def graph_rule(worlds: Sequence[Sequence[Window]]) -> Recursion:
    """The recursion of a graph; `worlds`: by environment, the windows from the present on."""
    windows = [window for each in worlds for window in each]
    if len(windows) == len(worlds) and not any((window.edge_lags != 1).any() for window in windows):
        return worst_rule([rule_of(window, window) for window in windows])
    from csdp.bounds.blocks import BlockRule, has_blocks
    from csdp.bounds.graph import GraphRule

    return BlockRule(worlds) if has_blocks(worlds) else GraphRule(worlds)


def rule_of(edges: Window, window: Window) -> Recursion:
    """What some edges of a window pass from the children to their parents."""
    if isinstance(edges, Mixture):
        assert isinstance(window, Mixture)
        return InfluenceRule(edges, window)
    if isinstance(edges, Odds):
        return OddsRule(edges)
    assert isinstance(window, Limits)
    return LimitsRule(edges, window)


def has_influence(model: Model) -> bool:
    """Whether it is a graph, or previous states are independent given the present."""
    return is_graph(model) or (model.direction == "backward" and bool(model.step_chains))


class InfluenceRule(Recursion):
    """The recursion of one backward chain. States are arrays (s, m, m): b_k(c, c'), zero on the diagonal.

    Args:
        chain: the chain, or the edges of one lag of a window.
        window: the window that they are part of.

    >>> ring = {(i, (i + d) % 6): w for i in range(6) for d, w in ((0, 0.8), (1, 0.1), (5, 0.1))}
    >>> rule = InfluenceRule(CoupledChain(ring, [[0.7, 0.3], [0.3, 0.7]], direction="backward"))
    >>> released = 0.1 * (1 - np.eye(2)) + np.zeros((6, 1, 1))
    >>> round(float(rule.advance(released).max()), 6)
    0.040244
    """

    def __init__(self, chain: CoupledChain | Mixture, window: CoupledChain | Mixture | None = None) -> None:
        self.chain = chain
        self._window = chain if window is None else window  # with the edges of all lags
        self._kinds: tuple[Indices, Indices] | None = None  # of a rule for one sequence of each kind

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and states."""
        return self.chain.sequences, self.chain.states

    @cached_property
    def _by_source(self) -> tuple[Any, Any, Any]:
        """Edges sorted by their source: the first place of each source, the order, and the targets."""
        sources = self.chain.edge_sources
        order = np.argsort(sources, kind="stable")
        starts = np.searchsorted(sources[order], np.arange(self.chain.sequences + 1))
        return starts, order, self.chain.edge_targets[order].astype(np.int32)

    @cached_property
    def _degree(self) -> int:
        chain = self._window
        inward = int(np.bincount(chain.edge_targets, minlength=1).max())
        return max(inward, int(np.bincount(chain.edge_sources, minlength=1).max()))

    @cached_property
    def _slack(self) -> float:
        """A factor that covers the rounding of sums over the edges of a sequence and over its states."""
        return 8.0 * UNIT * (self._degree + 2 * self.chain.states + 16)

    def _least_sums(self, per_table: Floats) -> Floats:
        """(s, ...) the least of a sum over the edges of every target, each at its own least; rounded down."""
        chain = self._window
        which, out = chain.transition_table[1], np.empty((chain.sequences, per_table.shape[1]))
        for column, per_state in enumerate(per_table.T):
            parts = chain.edge_weights * per_state[which]
            out[:, column] = np.bincount(chain.edge_targets, weights=parts, minlength=chain.sequences)
        out *= 1.0 - self._slack
        if self._kinds is None:
            return out
        first, kind = self._kinds
        least = out[first]
        np.minimum.at(least, kind, out)
        return least

    @cached_property
    def kinds(self) -> tuple[Indices, Indices] | None:
        """The first sequence of each kind, and the kind of every sequence; None if most are of their own kind.

        Sequences of one kind have the same couplings and transitions to sequences of the same kinds. If a state is
        the same for all sequences of each kind, it stays so, and following one of each is enough (`reduced`).
        """
        s, (starts, order, targets) = self.chain.sequences, self._by_source
        table, which = self.chain.transition_table
        edge = _number([self.chain.edge_weights[order], which[order]])
        degree, grain = np.diff(starts), np.floor(self._least_sums(table.min(axis=1)) * 2.0**40)
        kind = _number([degree, *grain.T])
        while True:
            keys = _number([edge, kind[targets]])
            sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(_scramble(keys), dtype=np.uint64)])
            refined = _number([kind, np.diff(sums[starts])])
            if refined.max() + 1 > s // 2:
                return None
            if refined.max() == kind.max():
                break
            kind = refined
        first = np.empty(kind.max() + 1, dtype=np.intp)
        first[kind[::-1]] = np.arange(s)[::-1]
        rows = np.repeat(np.arange(s), degree) * (int(keys.max()) + 1)
        ordered = np.sort(rows + keys) - rows  # the keys of every sequence, in order
        same = np.repeat(starts[first[kind]] - starts[:-1], degree) + np.arange(ordered.size)
        return (first, kind) if (ordered == ordered[same]).all() else None  # scrambled sums may agree by chance

    def reduced(self, state: Floats) -> tuple[InfluenceRule, Floats, Indices | None]:
        """A rule and a state with one sequence of each kind, and the kind of every sequence to expand it with.

        The rule and the state themselves, and None, if sequences of one kind have different states.
        """
        if self._kinds is not None or self.kinds is None:
            return self, state, None
        first, kind = self.kinds
        return (self, state, None) if (state != state[first][kind]).any() else (self._one_of_each, state[first], kind)

    @cached_property
    def _one_of_each(self) -> InfluenceRule:
        assert self.kinds is not None
        first, kind = self.kinds
        starts, order, targets = self._by_source
        rule = InfluenceRule(self.chain, self._window)
        rule._kinds = self.kinds
        counts = np.diff(starts)[first]
        begins = np.concatenate([[0], np.cumsum(counts)])
        edges = np.repeat(starts[first] - begins[:-1], counts) + np.arange(begins[-1])
        rule._by_source = (begins.astype(starts.dtype), order[edges], kind[targets[edges]].astype(np.int32))
        return rule

    @cached_property
    def _two_states(self) -> tuple[Floats, npt.NDArray[np.int8], Floats]:
        """Gain and direction of every edge by source, and the least probability of every previous state."""
        table, which = self.chain.transition_table
        order = self._by_source[1]
        # What one state gains the other loses; next to 1 only the other one shows a tiny change.
        changes = np.stack([table[:, 0, 0] - table[:, 1, 0], table[:, 1, 1] - table[:, 0, 1]])
        rarer = (table[:, :, 1].max(axis=1) <= table[:, :, 0].max(axis=1)).astype(np.intp)
        ups = changes[rarer, np.arange(len(table))] > 0
        gains = self.chain.edge_weights[order] * np.abs(changes).max(axis=0)[which[order]] * (1.0 + 8.0 * UNIT)
        return gains, ups.astype(np.int8)[which[order]], self._least_sums(table.min(axis=1))

    @cached_property
    def _sets(self) -> tuple[Floats, Bools, Floats, Floats]:
        """For every matrix and set of states: its probability, whether no state gains, the least probability."""
        table, m = self.chain.transition_table[0], self.chain.states
        members = np.array(list(itertools.product((False, True), repeat=m)))
        sums = table @ members.T.astype(np.float64)
        gaining = (table[:, None, :, :] > table[:, :, None, :]).astype(np.float64)  # (t, a, a', c)
        never = gaining @ members.T.astype(np.float64) == 0
        least = sums.min(axis=1)
        return sums, never, least, self._least_sums(least * (1.0 - 16.0 * UNIT))

    @cached_property
    def _two_state_loop(self) -> Callable[[int, Floats], Floats]:
        return _two_state_loop((self,))

    def _advance(self, state: Floats, steps: int) -> Floats:
        return self._two_state_loop(steps, state) if self.chain.states == 2 else super()._advance(state, steps)

    def _step(self, state: Floats) -> Floats:
        """The state seen from the next slice, for three states or more."""
        from csdp.bounds import loops

        if not state.any():
            return state
        chain, (starts, order, targets) = self.chain, self._by_source
        out = np.zeros_like(state)
        table, which = chain.transition_table
        levels = _inverse(state.max(axis=(1, 2)))
        weights, chosen = chain.edge_weights[order], which[order]
        if chain.states <= ALL_SETS_STATES:
            sums, never, least, lows = self._sets
            loops.step_all_sets(
                starts, targets, weights, chosen, sums, never, least, lows, levels, self._slack, UNIT, out
            )
        else:
            least = table.min(axis=1)
            lows = self._least_sums(least)
            loops.step_prefixes(starts, targets, weights, chosen, table, least, lows, levels, self._slack, UNIT, out)
        return np.asarray(out * (1.0 + self._slack))


class LimitsRule(Recursion):
    """The recursion of all processes within limits: gains for delta, sums of single bases for base.

    A set S gains at most the sum of its states' gains, at most what the other states lose, and at most `most`.

    >>> from csdp import CoupledChain, InfluenceGraph
    >>> chain = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    >>> released = 0.1 * (1 - np.eye(2)) + np.zeros((2, 1, 1))
    >>> [round(float(influence_rule(each).advance(released).max()), 6)
    ...  for each in (chain, InfluenceGraph.around(chain, 0), InfluenceGraph.around(chain, 0.02))]
    [0.040228, 0.040228, 0.04431]
    """

    def __init__(self, limits: Limits, window: Limits | None = None) -> None:
        self._shown = limits.sequences, limits.states
        order = np.argsort(limits.edge_sources, kind="stable")
        starts = np.searchsorted(limits.edge_sources[order], np.arange(limits.sequences + 1))
        self._edges = starts, limits.edge_targets[order], limits.gains[order], limits.bases[order], limits.most[order]
        whole = limits if window is None else window
        degree = int(np.bincount(whole.edge_sources, minlength=1).max())
        self._slack = 8.0 * UNIT * (degree + 2 * limits.states + 16)

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and states."""
        return self._shown

    def _step(self, state: Floats) -> Floats:
        from csdp.bounds import loops

        if not state.any():
            return state
        m, out = self.shape[1], np.zeros_like(state)
        if m > ALL_SETS_STATES:
            self._step_of_many(_inverse(state.max(axis=(1, 2))), out)
            return np.asarray(out * (1.0 + self._slack))
        levels = np.repeat(_inverse(state.max(axis=(1, 2)))[:, None], 1 << m, axis=1)
        if m == 2:  # only one entry leads into the set of one state
            levels[:, 1], levels[:, 2] = _inverse(state[:, 1, 0]), _inverse(state[:, 0, 1])
        loops.step_limits(*self._edges, levels, UNIT, out)
        return np.asarray(out * (1.0 + self._slack))

    def _step_of_many(self, levels: Floats, out: Floats) -> None:
        """Add what each edge passes on, for more states than sets are searched of: the largest change of any set."""
        starts, targets, gains, bases, most = self._edges
        rises = np.maximum(gains, 0.0)
        change = np.minimum(np.minimum(rises.sum(axis=3), rises.sum(axis=3).swapaxes(1, 2)), most[:, None, None])
        least = np.where(gains > 0, bases[:, :, None, :], np.inf).min(axis=3)
        below = levels[targets][:, None, None] + least * (1.0 - 16.0 * UNIT)
        with np.errstate(divide="ignore", invalid="ignore"):
            passed = np.log1p(np.where(change > 0, (change + 16.0 * UNIT) / below, 0.0))
        sources = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        np.add.at(out, sources, passed)


class OddsRule(Recursion):
    """The recursion of all processes in which a parent moves the odds of its children within limits.

    A parent that moves the odds of a child by at most e^t changes the mean of a function of it of log range b by at
    most a factor e^r, tanh(r / 4) = tanh(t / 4) tanh(b / 4), whatever the level of the child is (Birkhoff 1957).

    >>> from csdp.numbers import freeze
    >>> own = freeze(np.zeros(1, dtype=np.intp))
    >>> rule = OddsRule(Odds(1, 2, own, own, own + 1, freeze(np.array([2 * np.log(7 / 3)]))))  # 0.3 to 0.7
    >>> released = 0.1 * (1 - np.eye(2))[None]
    >>> round(float(rule.advance(released).max()), 6)
    0.039993
    """

    def __init__(self, odds: Odds) -> None:
        self._shown = odds.sequences, odds.states
        order = np.argsort(odds.edge_sources, kind="stable")
        starts = np.searchsorted(odds.edge_sources[order], np.arange(odds.sequences + 1))
        limits = odds.odds[order]
        self._edges = starts, odds.edge_targets[order].astype(np.int32), limits, np.tanh(limits / 4.0)
        degree = int(np.diff(starts).max())
        self._factor = 1.0 + 16.0 * UNIT * (degree + 32)

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and states."""
        return self._shown

    def _step(self, state: Floats) -> Floats:
        from csdp.bounds import loops

        out = np.empty_like(state)
        loops.step_odds(*self._edges, self._factor, np.ascontiguousarray(state), out)
        return out


class WorstRule(Recursion):
    """The recursion if each step may follow any of several laws: at every step the worst of them."""

    def __init__(self, rules: Sequence[Recursion]) -> None:
        self._rules = tuple(rules)

    @property
    def shape(self) -> tuple[int, int]:
        """Sequences and states."""
        return self._rules[0].shape

    @cached_property
    def _loop(self) -> Callable[[int, Floats], Floats] | None:
        mixtures = [rule for rule in self._rules if isinstance(rule, InfluenceRule)]
        fits = self.shape[1] == 2 and len(mixtures) == len(self._rules)
        return _two_state_loop(mixtures) if fits else None

    def _advance(self, state: Floats, steps: int) -> Floats:
        return super()._advance(state, steps) if self._loop is None else self._loop(steps, state)

    def _step(self, state: Floats) -> Floats:
        """The state seen from the next slice, entry by entry the worst of the laws."""
        return np.asarray(np.maximum.reduce([rule.advance(state) for rule in self._rules]))


def _two_state_loop(rules: Sequence[InfluenceRule]) -> Callable[[int, Floats], Floats]:
    """The compiled loop over some chains of two states, their edges in one list: it takes steps and a state."""
    from csdp.bounds import loops

    edges = [rule._by_source for rule in rules]
    begins = np.concatenate([[0], np.cumsum([targets.size for _, _, targets in edges])])
    starts = np.array([begin + each for begin, (each, _, _) in zip(begins[:-1], edges, strict=True)])
    gains, ups, lows = zip(*(rule._two_states for rule in rules), strict=True)
    targets = np.concatenate([each for _, _, each in edges])
    factors = np.array([1.0 + rule._slack for rule in rules])
    sums = np.concatenate(gains), np.concatenate(ups), np.array(lows), factors, 1.0 - 8.0 * UNIT
    return lambda steps, state: loops.advance_two_states(starts, targets, *sums, steps, np.ascontiguousarray(state))


def _number(columns: Iterable[npt.NDArray[Any]]) -> Indices:
    """Equal rows of some columns get equal numbers, 0, 1, ...; sorting values is much faster than sorting places."""
    number: Indices | None = None
    for column in columns:
        distinct = np.unique(column)
        place = np.searchsorted(distinct, column)
        both = place if number is None else number * distinct.size + place
        number = np.searchsorted(np.unique(both), both)
    assert number is not None
    return number


def _scramble(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Numbers whose sums differ for different collections of keys, but for chance (the finaliser of SplitMix64)."""
    mixed = keys.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _inverse(ratios: Floats) -> Floats:
    """1 / (e^b - 1), rounded down; infinite if b is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.where(ratios > 0, (1.0 - 8.0 * UNIT) / np.expm1(ratios), np.inf))


def costs_by_age(
    query: QueryTable, members: Sequence[int], *, ages: Sequence[int], epsilon_c: float
) -> dict[int, Floats]:
    """What one release reveals of every reading, (members, m, m), by the age at which the reading is taken.

    `epsilon_c |contribution(c) - contribution(c')|_1 / Delta_f` for queries that are sums of contributions, epsilon_c
    for all others.
    """
    m, inside = query.table.shape[1], np.asarray(members, dtype=np.intp)
    costs = np.full((inside.size, m, m), epsilon_c) * (1.0 - np.eye(m))
    if isinstance(query, FoldTable) and query.fold == "sum":
        rate = epsilon_c / query.undivided_sensitivity(1) * (1.0 + 16.0 * UNIT)
        own = query.own[inside]
        for a, b in itertools.combinations(range(m), 2):
            far = rate * np.abs(own[:, a] - own[:, b]).sum(axis=1)
            costs[:, a, b] = costs[:, b, a] = np.minimum(far, epsilon_c)
    old, out = np.asarray(ages), dict[int, Floats]()
    for age in np.unique(old):
        out[int(age)] = np.where((old == age)[:, None, None], costs, 0.0)
    return out


def influence_of_release(chain: Model, costs: Mapping[int, Floats]) -> tuple[Floats, Indices]:
    """What one release reveals of every sequence's present (s,), and its two most distinguishable states (s, 2).

    Formal guarantee: for the informed adversary, under the chain. `costs[age]` (s, m, m): what the release reveals of
    the readings taken at that age.

    Under a clock the answer has a block of sequences for every phase of the present.
    """
    rule = influence_rule(chain)
    costs = {age: np.tile(cost, (chain.phases, 1, 1)) for age, cost in costs.items()}
    ages = sorted(costs, reverse=True)
    history = rule.start()
    for age, following in zip(ages, [*ages[1:], 0], strict=True):
        history = rule.advance(rule.add(history, costs[age]), age - following)
    state = add_swing(chain, rule.present(history))
    s, m = state.shape[:2]
    at = state.reshape(s, -1).argmax(axis=1)
    return state.reshape(s, -1)[np.arange(s), at], np.stack([at // m, at % m], axis=1)
