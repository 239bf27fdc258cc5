"""The likelihood of outputs under the mechanism that was declared, given two presents: the sharpest score for it.

One release at any ages, or several successive ones at one common age, of a query plus noise of scale
`Delta_f / epsilon_c`. A mechanism that does something else is still audited with it: the score only chooses an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from csdp.aging import AgedLaw, index_parts
from csdp.auditing.events import Score
from csdp.chain import Model
from csdp.errors import CsdpError

if TYPE_CHECKING:
    from csdp.plan import Plan

Floats = npt.NDArray[np.float64]

#: Joint states up to which the likelihood is worked out.
DECLARED_STATES = 256
#: Numbers that are held at once.
_BLOCK = 4_000_000


def declared_score(
    plan: Plan, model: Model, presents: Sequence[Sequence[int]], *, releases: int, outputs: int
) -> Score | None:
    """The log likelihood ratio of the declared mechanism as a score; None where it is not worked out."""
    if model.size > DECLARED_STATES or (releases > 1 and len(set(plan.ages)) > 1):
        return None
    states = np.array(np.unravel_index(np.arange(model.size), (model.states,) * model.sequences)).T
    answers = plan.query.evaluate(states, model.value_table)
    if answers.shape[1] != outputs:
        return None
    rate = plan.epsilon_c / plan.sensitivity
    try:
        if releases == 1:
            ratio = _OneRelease(plan, model, presents, answers, rate).ratio
        else:
            ratio = _History(plan, model, presents, answers, rate, releases).ratio
    except CsdpError:  # for example no single stationary law of the whole: the learned scores remain
        return None

    def blockwise(given: Floats) -> Floats:
        rows = max(1, _BLOCK // model.size)
        return np.concatenate([ratio(given[at : at + rows]) for at in range(0, given.shape[0], rows)])

    def words(threshold: float, forward: bool) -> str:
        return f"log likelihood ratio of the declared mechanism {'at least' if forward else 'at most'} {threshold:.4g}"

    return Score(blockwise, words)


def present_weights(law: Floats, present: Sequence[int], model: Model) -> Floats:
    """`Pr(present snapshot | what is known) / Pr(present snapshot)`: turns joint laws into conditional ones."""
    states = np.array(np.unravel_index(np.arange(model.size), (model.states,) * model.sequences)).T
    known = np.asarray(present)
    fits = ((known < 0) | (states == known)).all(axis=1) & (law > 0)
    return np.asarray(fits / law[fits].sum())


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _weights(outputs: Floats, answers: Floats, rate: float) -> Floats:
    """Density (n, answers) of every output, up to a factor of its own."""
    far = np.zeros((outputs.shape[0], answers.shape[0]))
    for column in range(answers.shape[1]):
        far += np.abs(outputs[:, column, None] - answers[None, :, column])
    return np.asarray(np.exp(-rate * (far - far.min(axis=1, keepdims=True))))


class _OneRelease:
    def __init__(
        self, plan: Plan, model: Model, presents: Sequence[Sequence[int]], answers: Floats, rate: float
    ) -> None:
        aged = AgedLaw(model, index_parts(model.sequences, model.states), ages=plan.ages).mass
        self._read = [present_weights(aged.law, present, model) @ aged.measure for present in presents]
        self._answers, self._rate = answers, rate

    def ratio(self, outputs: Floats) -> Floats:
        weights = _weights(outputs[:, 0], self._answers, self._rate)
        return _difference(weights @ self._read[0], weights @ self._read[1])


class _History:
    """Forward over the slices that were read, then on to the present."""

    def __init__(
        self,
        plan: Plan,
        model: Model,
        presents: Sequence[Sequence[int]],
        answers: Floats,
        rate: float,
        releases: int,
    ) -> None:
        self._model, self._age, self._answers, self._rate = model, plan.ages[0], answers, rate
        self._start = model.oldest_law()[0]
        law = self._start[:, None]
        for _ in range(releases - 1 + self._age):
            law = model.step.push(law)
        self._given = [present_weights(law[:, 0], present, model) for present in presents]

    def ratio(self, outputs: Floats) -> Floats:
        measure = np.repeat(self._start[:, None], outputs.shape[0], axis=1)
        for release in range(outputs.shape[1]):
            if release:
                measure = self._model.step.push(measure)
            measure = measure * _weights(outputs[:, release], self._answers, self._rate).T
            measure /= measure.sum(axis=0)
        for _ in range(self._age):
            measure = self._model.step.push(measure)
        return _difference(self._given[0] @ measure, self._given[1] @ measure)


def _difference(one: Floats, two: Floats) -> Floats:
    """`ln one - ln two`; what neither present can produce tells nothing."""
    neither = (one <= 0) & (two <= 0)
    with np.errstate(invalid="ignore"):
        ratio = np.where(neither, 0.0, np.clip(_log(one) - _log(two), -1e6, 1e6))
    # Beyond the largest answer the ratio is constant; what rounding adds there would be an event of its own, made of
    # the low bits of the outputs, which `low_bits` looks at and this score does not.
    return np.asarray(np.round(ratio, 9))
