"""The forward-backward attacker: Bayesian inference from the outputs by someone who knows model, plan and noise.

Forward: the law of the slices that releases read, tick by tick, and from its newest slice that of the present.
Backward: the law of the states at every tick given all outputs. The leakage of the present bounds the first; it does
not protect the second, which is why old readings need noise (any moment, event).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats
from csdp.plan import Plan

States = npt.NDArray[Any]

#: Largest number of states of a window: joint states to the power of its number of slices.
ATTACK_STATES = 4096


@dataclass(frozen=True, eq=False)
class Attack:
    """The attacker's beliefs, tick by tick.

    `posterior` (T, s, m): the law of each sequence's present state given the outputs up to that tick (and, for an
    informed attacker, every other present state); `prior`: the same without any output. `hindsight` (T, s, m): the law
    of the state at that tick given all outputs, later ones too, and no other state. `swing` (T,): the largest change of
    the log odds between two present states of one sequence, which the leakage of the present bounds.
    """

    posterior: Floats
    prior: Floats
    hindsight: Floats
    swing: Floats

    def __repr__(self) -> str:
        ticks, most = self.posterior.shape[0], float(self.swing.max(initial=0.0))
        return f"Attack({ticks} ticks, largest change of log odds {most:.4g})"


def attack(
    plan: Plan,
    outputs: Sequence[Sequence[float] | float | None] | npt.ArrayLike,
    *,
    truth: npt.ArrayLike | None = None,
    first_tick: int = 0,
) -> Attack:
    """Compute the posterior of every present state from published outputs, for a known model and noise.

    `Pr(x_t | y_1..y_t)` by the forward recursion over the slices that releases read, `Pr(x_n | y_1..y_T)` by the
    backward one (Baum et al. 1970). The density of an output is `exp(-|y - f(z)|_1 epsilon_c / Delta_f)`.

    Args:
        plan: the plan that was published.
        outputs: one row (d,) for every successive tick, None or NaN if nothing was published. Readings
            older than planned are not modelled.
        truth: the true state numbers (T, s). The attacker is then informed, and knows every present state but the one
            that is guessed, as certificates assume; without it, the attacker knows the model alone.
        first_tick: the tick of the first row, which matters to a plan with a schedule of noise levels.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> belief = attack(plan, [2.0, None])
    >>> belief.posterior[:, 0, 1].round(3).tolist(), bool(belief.swing[0] <= plan.certified.epsilon)
    ([0.592, 0.537], True)
    """
    if len(plan.chain.members) > 1:
        raise InputError("attack: the plan has a family of chains; attack under one of them")
    model = plan.model
    rows = _output_rows(plan, outputs)
    states = _check_truth(plan, truth, rows.shape[0])
    window = _Window(plan, first_tick)
    filtered = window.forward(rows)
    smoothed = window.backward(rows, filtered)
    posteriors: list[Floats] = []
    priors: list[Floats] = []
    law = window.start
    for tick in range(rows.shape[0]):
        law = window.advance(law) if tick else law
        for laws, belief in ((posteriors, filtered[tick]), (priors, law)):
            laws.append(_present_laws(window.present(belief), model.sequences, model.states, states, tick))
    posterior, prior = np.array(posteriors), np.array(priors)
    hindsight = window.hindsight(smoothed, filtered[-1], rows.shape[0])
    return Attack(posterior, prior, hindsight, _swing(posterior, prior))


class _Window:
    """The slices from the oldest to the newest age as one Markov chain: (N,) * width, oldest first."""

    def __init__(self, plan: Plan, first_tick: int) -> None:
        model = plan.model
        self._plan, self._first = plan, first_tick
        self.width = plan.max_age - plan.min_age + 1
        size = float(model.size) ** self.width
        if size > ATTACK_STATES:
            raise TooLargeError(
                f"attack: {self.width} slices of {model.states}**{model.sequences} joint states; beliefs are kept for "
                f"at most {ATTACK_STATES:,}. Use a smaller chain, or ages that are equal",
                needed=size,
                limit=ATTACK_STATES,
            )
        self._model, self._age = model, plan.min_age
        model.require_one_kernel()
        self._kernel = model.kernel()
        start = model.stationary()
        for _ in range(self.width - 1):
            start = start[..., None] * self._kernel
        self.start = start
        digits = np.array(np.unravel_index(np.arange(model.size), (model.states,) * model.sequences)).T
        places = np.array(np.unravel_index(np.arange(int(size)), (model.size,) * self.width)).T
        aged = np.empty((int(size), model.sequences), dtype=np.int16)
        for i, age in enumerate(plan.ages):
            aged[:, i] = digits[places[:, plan.max_age - age], i]
        self._answers = plan.query.lattice_answers(aged) / plan.divisor

    def advance(self, belief: Floats) -> Floats:
        """Move the window one tick on: add a new slice, sum over the oldest."""
        if self.width == 1:
            return belief @ self._kernel
        return np.asarray(belief.sum(axis=0)[..., None] * self._kernel)

    def density(self, row: Floats, tick: int) -> Floats:
        """Density of an output given every window, up to a factor; 1 if nothing was published."""
        shape = (self._model.size,) * self.width
        if np.isnan(row).any():
            return np.ones(shape)
        rate = self._plan.level(self._first + tick) / self._plan.sensitivity
        far = np.abs(self._answers - row).sum(axis=1) * rate
        return np.asarray(np.exp(far.min() - far)).reshape(shape)

    def forward(self, rows: Floats) -> list[Floats]:
        """Beliefs about every tick's window given the outputs up to it."""
        belief, beliefs = self.start, []
        for tick, row in enumerate(rows):
            belief = (self.advance(belief) if tick else belief) * self.density(row, tick)
            belief = belief / belief.sum()
            beliefs.append(belief)
        return beliefs

    def backward(self, rows: Floats, filtered: Sequence[Floats]) -> list[Floats]:
        """Beliefs about every tick's window given all outputs."""
        later = np.ones_like(self.start)
        smoothed = [filtered[-1]]
        for tick in range(len(rows) - 2, -1, -1):
            seen = self.density(rows[tick + 1], tick + 1) * later
            if self.width > 1:
                later = np.broadcast_to((self._kernel * seen).sum(axis=-1)[None], self.start.shape)
            else:
                later = self._kernel @ seen
            later = later / later.max()
            belief = filtered[tick] * later
            smoothed.insert(0, belief / belief.sum())
        return smoothed

    def _newest(self, belief: Floats) -> Floats:
        return np.asarray(belief.sum(axis=tuple(range(self.width - 1))))

    def present(self, belief: Floats) -> Floats:
        """The law of the present snapshot, from the newest slice that is read."""
        law = self._newest(belief)
        for _ in range(self._age):
            law = law @ self._kernel
        return law

    def hindsight(self, smoothed: Sequence[Floats], last: Floats, ticks: int) -> Floats:
        """The law of every tick's states given all outputs; states that no release reads yet are predicted."""
        s, m = self._model.sequences, self._model.states
        out = np.empty((ticks, s, m))
        for tick in range(ticks):
            read = tick + self._age  # the tick whose window has this slice as its newest
            if read < ticks:
                law = self._newest(smoothed[read])
            else:
                law = self._newest(last)
                for _ in range(tick - (ticks - 1 - self._age)):
                    law = law @ self._kernel
            out[tick] = _sequence_laws(law, s, m)
        return out


def _sequence_laws(law: Floats, sequences: int, states: int) -> Floats:
    cube = law.reshape((states,) * sequences)
    axes = range(sequences)
    return np.array([cube.sum(axis=tuple(a for a in axes if a != i)) for i in axes])


def _present_laws(law: Floats, sequences: int, states: int, truth: States | None, tick: int) -> Floats:
    """The law of each sequence's present state: marginal, or given the true presents of all others."""
    if truth is None:
        return _sequence_laws(law, sequences, states)
    cube = law.reshape((states,) * sequences)
    known = [int(state) for state in truth[tick]]
    places: list[tuple[Any, ...]] = [(*known[:i], slice(None), *known[i + 1 :]) for i in range(sequences)]
    rows = [np.asarray(cube[place]) for place in places]
    if min(row.sum() for row in rows) <= 0:
        raise InputError(f"truth: the states of tick {tick} never occur together under the model")
    return np.array([row / row.sum() for row in rows])


def _swing(posterior: Floats, prior: Floats) -> Floats:
    """Largest change of the log odds between two states that may occur, at every tick."""
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(prior > 0, np.log(posterior) - np.log(prior), np.nan)
    return np.asarray(np.nanmax(np.nanmax(moved, axis=2) - np.nanmin(moved, axis=2), axis=1))


def _output_rows(plan: Plan, outputs: Any) -> Floats:
    """Outputs (T, d), NaN if nothing was published."""
    width = len(plan.query.outputs)
    missing = np.full(width, np.nan)
    try:
        rows = [missing if row is None else np.atleast_1d(np.asarray(row, dtype=np.float64)) for row in outputs]
    except (TypeError, ValueError):
        raise InputError("outputs: rows of numbers expected, None if nothing was published") from None
    if not rows or any(row.shape != (width,) for row in rows):
        raise InputError(f"outputs: one row of {width} numbers for every tick expected, None if there was none")
    table = np.array(rows)
    if np.isinf(table).any():
        raise InputError("outputs: infinite numbers given; None or NaN if nothing was published")
    return table


def _check_truth(plan: Plan, truth: npt.ArrayLike | None, ticks: int) -> States | None:
    if truth is None:
        return None
    states = np.asarray(truth)
    model = plan.model
    whole = states.shape == (ticks, model.sequences) and np.issubdtype(states.dtype, np.integer)
    if not whole or states.min() < 0 or states.max() >= model.states:
        raise InputError(
            f"truth: state numbers 0..{model.states - 1} of shape ({ticks}, {model.sequences}) expected, one row a tick"
        )
    return states
