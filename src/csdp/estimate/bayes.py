"""The Bayes filter: the best estimate of the present answer from the whole released history, for small models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.queries import Query

Floats = npt.NDArray[np.float64]

#: Joint states up to which the filter keeps its belief.
FILTER_STATES = 4096


@dataclass(frozen=True, eq=False)
class FilterState:
    """The belief about the newest aged snapshot, given everything released so far."""

    belief: Floats  # (N,)


class BayesFilter:
    """Posterior mean and standard error of the present answer from all releases at one common age.

    Post-processing of what is published: it costs no privacy. `init`, then `step(state, output)` at every tick, or
    `step(state, None)` where nothing was released.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> observer = BayesFilter(chain, Mean(), age=1, scale=0.5)
    >>> state, estimate, error = observer.step(observer.init(), [1.0])
    >>> round(float(estimate[0]), 3), round(float(error[0]), 3)
    (0.652, 0.476)
    """

    def __init__(self, model: Model, query: Query, *, age: int, scale: float) -> None:
        if model.size > FILTER_STATES:
            raise TooLargeError(
                f"filter: {model.states}**{model.sequences} joint states; at most {FILTER_STATES:,}. "
                "Use estimate='linear'",
                needed=float(min(model.size, 10**300)),
                limit=FILTER_STATES,
            )
        if age < 0 or not scale > 0:
            raise InputError(f"filter: age {age}, scale {scale} given; an age of 0 or more and a positive noise scale")
        self._model = model
        self._age = age
        self._scale = scale
        states = np.array(np.unravel_index(np.arange(model.size), (model.states,) * model.sequences)).T
        self._answers = query.evaluate(states, model.value_table)  # (N, d)

    def init(self) -> FilterState:
        """The belief before any release."""
        return FilterState(self._model.oldest_law()[0])

    def step(self, state: FilterState, output: Sequence[float] | Floats | None) -> tuple[FilterState, Floats, Floats]:
        """One tick later: take in an output (or none), and estimate the present answer with its standard error."""
        belief = self._model.step.push(state.belief[:, None])[:, 0]
        if output is not None:
            far = np.abs(self._answers - np.asarray(output, dtype=np.float64)).sum(axis=1) / self._scale
            belief = belief * np.exp(far.min() - far)
        belief = belief / belief.sum()
        now = belief[:, None]
        for _ in range(self._age):
            now = self._model.step.push(now)
        mean = now[:, 0] @ self._answers
        spread = now[:, 0] @ (self._answers - mean) ** 2
        return FilterState(belief), mean, np.sqrt(spread)
