"""States at rest: states that a release at every tick, continually, does not raise.

Let F(b) be the state after one more release. F is monotone and every history starts at 0, so any state with F(b) <= b
lies above the state of every history, however it was found: one step proves it. That step is computed by the same
rounded-up rule as every other. Extrapolation and acceleration only find the guess, and need no proof of their own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from csdp.accountant.record import State
from csdp.numbers import Floats

#: The state seen from the next slice.
Advance = Callable[[Floats], Floats]

#: Releases at consecutive ticks after which looking for a state at rest is given up.
_LONGEST = 5000
#: Releases in a row after each of which a state has moved as far as before, so that it is not going to rest.
_GROWING = 200
#: Relative distance to rest at which a state from above is good enough.
_CLOSE = 1e-9
#: Steps that are accelerated, earlier steps that each rests on, and the relative movement at which it has arrived.
_ACCELERATED, _MEMORY, _STILL = 60, 3, 1e-6
#: How far above the state that hardly moves a guess lies, as shares of its largest entry, one after the other.
_EXCESSES = (1e-6, 1e-5, 1e-4, 1e-3)
#: Ticks for which a number is followed one by one, doublings of the step beyond them, halvings of what is left.
_FOLLOWED, _DOUBLINGS, _HALVINGS = 60, 40, 36
#: Ticks without coming closer to rest after which it is the solver's noise that moves a state.
_STALLED = 16


def follow_to_rest(advance: Advance, cost: Floats, off_diagonal: Floats) -> Floats | None:
    """A state that `cost` at every step does not raise, close to the least one; None if none is found."""
    return rest_of(lambda state: cost + advance(state), cost, off_diagonal)


def rest_of(step: Advance, start: Floats, off_diagonal: Floats) -> Floats | None:
    """A state that a step, one more release with it, does not raise, close to the least one; None if none is found.

    Follows the rule until the remaining way can be extrapolated, checks the guess from above, and comes down again.
    """
    state = start
    before = np.inf
    growing = 0
    for _ in range(_LONGEST):
        following = step(state)
        if not np.isfinite(following).all():
            return np.asarray(np.where(off_diagonal > 0, np.inf, 0.0) + np.zeros_like(state))  # nothing raises it
        moved = float((following - state).max())
        rate = moved / before if before > 0 else 0.0
        guess = following + (following - state) * (min(rate, 0.999) / (1 - min(rate, 0.999)) * 1.1 + 1e-9)
        guess = guess + 1e-12 * float(guess.max()) * off_diagonal
        if rate < 0.999 and (step(guess) <= guess).all():
            return _descend(step, guess)
        if moved == 0:
            return state
        growing = growing + 1 if rate > 1.0 - 1e-9 else 0
        if growing == _GROWING:
            return None
        state, before = following, moved
    return None


def _descend(step: Advance, state: Floats) -> Floats:
    """From a state that a release does not raise down to rest."""
    for _ in range(_LONGEST):
        following = np.minimum(step(state), state)
        if float((state - following).max()) <= _CLOSE * float(state.max()):
            return following
        state = following
    return state


def accelerate_to_rest(advance: Advance, cost: Floats, off_diagonal: Floats, start: Floats) -> Floats | None:
    """The same for a costly step: Anderson acceleration, then one checked step; None if it does not arrive.

    A chain that forgets slowly takes hundreds of ticks to come to rest, and about twenty of these steps.
    """
    state = start
    states: list[Floats] = []
    moves: list[Floats] = []
    last = np.inf
    for _ in range(_ACCELERATED):
        following = cost + advance(state)
        if not np.isfinite(following).all():
            return None
        if not following.max() > 0:
            return following  # nothing is ever revealed
        move = following - state
        moved = float(np.abs(move).max()) / float(following.max())
        if moved <= _STILL:
            return _raise_to_rest(advance, cost, np.maximum(following, state), off_diagonal)
        if moved > last:  # what was learned of the rule farther away does not hold here
            states, moves = [], []
        last = moved
        states, moves = [*states[-_MEMORY:], following], [*moves[-_MEMORY:], move]
        mixed = _mix(states, moves)
        state = np.where(mixed > cost, mixed, following) * off_diagonal  # no state at rest lies below one release
    return None


def _mix(states: list[Floats], moves: list[Floats]) -> Floats:
    """The combination of the last states, with weights that sum to 1, whose movements nearly cancel."""
    if len(states) == 1:
        return states[0]
    differences = np.stack([(later - earlier).ravel() for earlier, later in pairwise(moves)], axis=1)
    weights = np.linalg.lstsq(differences, moves[-1].ravel(), rcond=1e-10)[0]
    mixed = states[-1].copy()
    for weight, (earlier, later) in zip(weights, pairwise(states), strict=True):
        mixed -= weight * (later - earlier)
    return mixed


def _raise_to_rest(advance: Advance, cost: Floats, state: Floats, off_diagonal: Floats) -> Floats | None:
    """A little more between any two snapshots, until one more release does not raise it: the proof."""
    for excess in _EXCESSES:
        above = state + excess * float(state.max()) * off_diagonal
        following = cost + advance(above)
        if (following <= above).all():
            return np.minimum(following, above)
    return None


def fixed_point_above(rule: Callable[[float], float], start: float, *, ticks: int) -> float:
    """The limit of b <- rule(b), from above: a value that the rule does not raise; infinite if there is none.

    A monotone rule keeps everything that starts below such a value there, so any one will do; the interval between it
    and the value that is reached after some ticks is halved as long as its middle is one too.
    """
    b = start
    for _ in range(min(ticks, _FOLLOWED)):
        following = rule(b)
        if following <= b * (1 + 1e-12):
            return _raise_slightly(rule, b)
        b = following
    above, apart = b, rule(b) - b
    for _ in range(_DOUBLINGS):
        above, apart = above + apart, 2 * apart
        if rule(above) <= above:
            break
    else:
        return math.inf
    for _ in range(_HALVINGS):
        middle = 0.5 * (b + above)
        if rule(middle) <= middle:
            above = middle
        else:
            b = middle
    return above


def _raise_slightly(rule: Callable[[float], float], b: float) -> float:
    """A value a little above one that hardly moves, which the rule does not raise; infinite if there is none."""
    for excess in (1e-11, 1e-9, 1e-7, 1e-5, 1e-3, 1e-1):
        above = b * (1 + excess)
        if rule(above) <= above:
            return above
    return math.inf


class Consecutive:
    """The states after 0, 1, 2, ... releases at consecutive ticks, all as planned, up to a state at rest.

    A state at rest is one that a further release does not raise; it lies above the state of every longer history.
    Several threads may ask at once: one of them extends it, so that each state follows the one before it.

    Args:
        start: the state before any release.
        release: the state after one more release at the next tick.
        find_rest: a state at rest if one is known without following the history, else None.
        oldest: the oldest age of the plan; younger histories do not count as settled.
        followed: releases after which the state at rest stands for all longer histories, if it is found: one more
            would cost more work than it is sharper.
    """

    def __init__(
        self,
        start: State,
        release: Callable[[State], State],
        find_rest: Callable[[], State | None],
        *,
        oldest: int,
        followed: int,
    ) -> None:
        self.states = [start]
        self._release = release
        self._find_rest = find_rest
        self._oldest = oldest
        self._followed = max(followed, oldest + 2)
        self._moves: list[float] = []
        self._turn = threading.Lock()
        self.at_rest = False

    def extend(self, releases: int) -> int:
        """The place of the state after n releases, computed if it is not known yet; that at rest for larger n."""
        with self._turn:
            while len(self.states) <= releases and not self.at_rest:
                self._follow_one_more()
            return min(releases, len(self.states) - 1)

    def _follow_one_more(self) -> None:
        last = self.states[-1]
        following = self._release(last)
        n = len(self.states)
        self.states.append(replace(following, consecutive=n))
        moved = _movement(last.slices, following.slices)
        self._moves.append(moved)
        if n <= 1 + self._oldest:
            return
        if moved < _STILL or (n >= self._followed and self._find_rest() is not None):
            self._settle(self.states[-1], moved)
        # An exact rule would move the state less at every tick; a solver's noise does not shrink.
        stalled = len(self._moves) > 2 * _STALLED and min(self._moves) == min(self._moves[:-_STALLED])
        if not self.at_rest and stalled:
            self._settle_above_noise()

    def place(self, releases: int) -> int:
        """The place whose state is looked at for n releases: up to 64 their own, then one of 32 for every doubling.

        Every release raises a state, so that of a few more releases is a bound.
        """
        apart = 1 << max(releases.bit_length() - 6, 0)
        return self.extend(-(-releases // apart) * apart)

    def _settle(self, base: State, moved: float) -> None:
        """Once the state hardly moves: raise it to one that a further release does not raise at all."""
        at_rest = self._find_rest()
        if at_rest is not None:  # above every history, and what plans are held against
            self.states.append(at_rest)
            self.at_rest = True
            return
        for factor in (4, 32, 256, 2048):
            excess = max(moved, 1e-11) * factor
            above = replace(base, slices=tuple(_raise(s, excess) for s in base.slices), consecutive=None)
            following = self._release(above)
            if all((f <= a).all() for f, a in zip(following.slices, above.slices, strict=True)):
                self.states.append(above)
                self.at_rest = True
                return

    def _settle_above_noise(self) -> None:
        """As `_settle`, from the least of the last states (noise only adds), then down as far as the rule leads.

        Whatever lies above the state of every history still does so after one more release of each.
        """
        recent = self.states[-_STALLED:]
        noise = max(_STILL, float(np.median(self._moves[-_STALLED:])))  # one that repeats itself shows in no movement
        least = tuple(np.minimum.reduce(slices) for slices in zip(*(state.slices for state in recent), strict=True))
        self._moves.clear()
        self._settle(replace(recent[-1], slices=least), noise)
        for _ in range(_STALLED if self.at_rest else 0):
            above = self.states[-1]
            lower = tuple(map(np.minimum, above.slices, self._release(above).slices))
            self.states[-1] = replace(above, slices=lower)
            if _movement(above.slices, lower) < noise:
                return


def _raise(state: Floats, excess: float) -> Floats:
    """A little more everywhere: what a step in time surely shrinks (a factor on each number it may not)."""
    return np.asarray(state + excess * _largest_finite(state))


def _movement(before: Sequence[Floats], after: Sequence[Floats]) -> float:
    """Largest change of a state, relative to its largest entry."""
    # Equal entries may be infinite: a component that nothing bounds has not moved.
    far = (np.abs(np.subtract(a, b, out=np.zeros_like(a), where=a != b)) for a, b in zip(before, after, strict=True))
    return max(float(d.max() / max(_largest_finite(b), 1e-300)) for d, b in zip(far, after, strict=True))


def _largest_finite(state: Floats) -> float:
    """What is infinite stays so, and says nothing of how far the rest has moved."""
    return float(np.max(state, where=np.isfinite(state), initial=0.0))
