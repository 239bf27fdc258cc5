"""States at rest: what a release at every tick, for ever, does not raise.

Let F(b) be the state after one more release. F is monotone and every history starts at 0, so any state with F(b) <= b
lies above the state of every history, however it was found: one step proves it. That step is computed by the same
rounded-up rule as every other. Extrapolation and acceleration only find the guess, and need no proof of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from csdp.arrays import Floats

#: The state seen from the next slice.
Advance = Callable[[Floats], Floats]

#: Releases at consecutive ticks after which looking for a state at rest is given up.
_LONGEST = 5000
#: Relative distance to rest at which a state from above is good enough.
_CLOSE = 1e-9
#: Steps that are accelerated, earlier steps that each rests on, and the relative movement at which it has arrived.
_ACCELERATED, _MEMORY, _STILL = 60, 3, 1e-6
#: How far above the state that hardly moves a guess lies, as shares of its largest entry, one after the other.
_EXCESSES = (1e-6, 1e-5, 1e-4, 1e-3)


def follow_to_rest(advance: Advance, cost: Floats, off_diagonal: Floats) -> Floats | None:
    """A state that `cost` at every step does not raise, close to the least one; None where none is found.

    Follows the rule until the remaining way can be extrapolated, checks the guess from above, and comes down again.
    """
    state, before = cost, np.inf
    for _ in range(_LONGEST):
        following = cost + advance(state)
        if not np.isfinite(following).all():
            return np.asarray(np.where(off_diagonal > 0, np.inf, 0.0) + np.zeros_like(state))  # nothing raises it
        moved = float((following - state).max())
        rate = moved / before if before > 0 else 0.0
        guess = following + (following - state) * (min(rate, 0.999) / (1 - min(rate, 0.999)) * 1.1 + 1e-9)
        guess = guess + 1e-12 * float(guess.max()) * off_diagonal
        if rate < 0.999 and (cost + advance(guess) <= guess).all():
            return _descend(advance, cost, guess)
        if moved == 0:
            return state
        state, before = following, moved
    return None


def _descend(advance: Advance, cost: Floats, state: Floats) -> Floats:
    """From a state that a release does not raise down to rest."""
    for _ in range(_LONGEST):
        following = np.minimum(cost + advance(state), state)
        if float((state - following).max()) <= _CLOSE * float(state.max()):
            return following
        state = following
    return state


def accelerate_to_rest(advance: Advance, cost: Floats, off_diagonal: Floats, start: Floats) -> Floats | None:
    """The same where a step is costly: Anderson acceleration, then one checked step; None where it does not arrive.

    A chain that forgets slowly takes hundreds of ticks to come to rest, and about twenty of these steps.
    """
    state, states, moves, last = start, list[Floats](), list[Floats](), np.inf
    for _ in range(_ACCELERATED):
        following = cost + advance(state)
        if not np.isfinite(following).all():
            return None
        if not following.max() > 0:
            return following  # nothing is ever told
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
    return np.asarray(np.where(np.isfinite(mixed), mixed, states[-1]))


def _raise_to_rest(advance: Advance, cost: Floats, state: Floats, off_diagonal: Floats) -> Floats | None:
    """A little more between any two snapshots, until one more release does not raise it: the proof."""
    for excess in _EXCESSES:
        above = state + excess * float(state.max()) * off_diagonal
        following = cost + advance(above)
        if (following <= above).all():
            return np.minimum(following, above)
    return None
