"""What a chain with environments predicts for readings, step by step.

Where the environment is known (a clock, a public series) the law of a step is that of its member. Where it is hidden,
`Pr(e_t | all before)` is filtered from the readings, and what the sequences of a tick do tells of e_t for those that
come after them in the same tick: law j is given the past and the sequences before j. The product over j is then the
law of the whole snapshot, and residuals have mean zero given everything before them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Bools, Floats, Indices
from csdp.chain import EnvironmentChain
from csdp.errors import InputError
from csdp.fitting.environment_em import filter_scores, pick_classes, spread_classes, step_scores
from csdp.fitting.sample import Chain, Prediction, Sample, law_residuals, score_law
from csdp.fitting.scores import join_graphs, mix_members

#: Stands for the logarithm of a step that no environment allows.
_IMPOSSIBLE = -1e6


def known_environments(chain: EnvironmentChain, ticks: npt.NDArray[Any], series: Any) -> Indices | None:
    """The environment (T,) of every tick by the clock or the given series; None where it is hidden.

    Of a clock beside a hidden environment: the class of every tick.
    """
    if series is not None and chain.kind != "series":
        raise InputError(
            f"environment: a series given, but the environment of this chain is its {chain.kind}; leave it out"
        )
    classes: Any = None
    if chain.cycle is not None:
        classes = np.asarray(chain.cycle, dtype=np.intp)[np.asarray(ticks) % len(chain.cycle)]
    if chain.kind != "series":
        return None if classes is None else np.asarray(classes)
    path = np.asarray([] if series is None else series)
    number = chain.regimes
    if path.shape != ticks.shape or not np.issubdtype(path.dtype, np.integer) or path.min() < 0 or path.max() >= number:
        raise InputError(
            f"environment: the chain follows the public series {chain.series!r}; give environment= a whole number from "
            f"0 to {number - 1} for each of the {ticks.size} ticks"
        )
    return path.astype(np.intp) + (0 if classes is None else classes * number)


def start_cycle(chain: EnvironmentChain, classes: Indices) -> tuple[int, ...]:
    """The cycle of a clock for readings that are counted from 0, given the class of each of them."""
    cycle = np.asarray(chain.cycle, dtype=np.intp)
    turned = (np.roll(cycle, -first) for first in range(cycle.size))
    here = np.arange(classes.size) % cycle.size
    return tuple(next(each for each in turned if (each[here] == classes).all()).tolist())


def add_environments(chain: Chain, sample: Sample, ticks: npt.NDArray[Any], series: Any) -> Sample:
    """The readings with the environment of every tick, where the chain knows it."""
    if isinstance(chain, EnvironmentChain):
        return replace(sample, environments=known_environments(chain, ticks, series))
    if series is not None:
        raise InputError("environment: a series given, but the chain has no environments; leave it out")
    return sample


def predict(chain: Chain, readings: Sample) -> Prediction | EnvironmentPrediction:
    """What a chain predicts for the readings."""
    return (
        EnvironmentPrediction(chain, readings) if isinstance(chain, EnvironmentChain) else Prediction(chain, readings)
    )


class EnvironmentPrediction:
    """Laws of next states under a chain with environments; ask for targets in their order, which is quick."""

    def __init__(self, chain: EnvironmentChain, readings: Sample) -> None:
        self.chain = chain
        self.sample = readings.in_direction(chain.direction)
        self._members = [Prediction(member, self.sample) for member in chain.environments]
        self._cursor, self._scores_so_far = 0, self._before.copy()

    def law(self, target: int) -> tuple[Floats, Bools]:
        """`Pr(next_target = b | past, next states of the targets before)` (steps, m), and where it is known."""
        laws = [member.law(target) for member in self._members]
        weights = self._weights(target)
        law = sum(weights[:, e, None] * laws[e][0] for e in range(len(laws)))
        return np.asarray(law), np.logical_and.reduce([known for _, known in laws])

    def scores(self, target: int) -> tuple[Floats, Bools]:
        """Log-probability of the next state of a target given the targets before it, 0 where unknown."""
        return score_law(*self.law(target), self.sample.states[1:, target])

    def residuals(self, target: int) -> tuple[Floats, Floats]:
        """Residuals of a target and their variances, as `law_residuals` has them."""
        return law_residuals(*self.law(target), self.sample.states[1:, target])

    def _weights(self, target: int) -> Floats:
        """`Pr(e_t | past, next states of the targets before)` (steps, E)."""
        if target < self._cursor:
            self._cursor, self._scores_so_far = 0, self._before.copy()
        while self._cursor < target:
            self._scores_so_far += np.column_stack([member.scores(self._cursor)[0] for member in self._members])
            self._cursor += 1
        return shares_of_logs(self._scores_so_far)

    @cached_property
    def _before(self) -> Floats:
        """ln Pr(e_t | past) (steps, E)."""
        path, members, labels = self.sample.environments, len(self._members), None
        if path is not None:
            # In time the step between two ticks is under the environment of the later one.
            labels = path[1:] if self.sample.direction == "forward" else path[:-1]
        if self.chain.switching is None:
            shares = spread_classes(np.ones((self.sample.transitions, 1)), labels, members)
        else:
            start, switching = np.asarray(self.chain.environment_law), np.ascontiguousarray(self.chain.own_switching)
            graph = join_graphs(self.chain.environments)
            scores = step_scores(self.sample, graph, mix_members(self.chain.environments, graph))
            picked = pick_classes(np.maximum(scores, _IMPOSSIBLE), labels, self.chain.regimes)
            after = filter_scores(picked, start, switching)[0]
            shares = spread_classes(np.vstack([start, after[:-1] @ switching]), labels, members)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(shares))


def shares_of_logs(logs: Floats) -> Floats:
    """Probabilities from logarithms, along the last axis; equal ones where all are impossible."""
    top = logs.max(axis=-1, keepdims=True)
    raised = np.exp(logs - np.where(np.isfinite(top), top, 0.0))
    whole = raised.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(whole > 0, raised / np.where(whole > 0, whole, 1.0), 1.0 / logs.shape[-1]))
