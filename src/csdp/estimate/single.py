"""Estimates from one release: the best linear one from the moments of a model, and the posterior mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats
from csdp.chain import Model
from csdp.computation import FoldComputation, verify_query
from csdp.errors import InputError
from csdp.estimate.posterior import PosteriorMean
from csdp.estimate.protocol import LEVEL, Bounds, Estimated, Observation, standard_errors_of, with_band
from csdp.estimate.result import About, Error
from csdp.estimate.second_order import Moments, moments
from csdp.queries import Query


@dataclass(frozen=True, eq=False)
class LinearEstimator:
    """The best linear estimate from the newest release: for ages that differ, or a law that changes.

    `known`: moments of what is read and of the answer that is estimated.
    """

    known: Moments
    ages: tuple[int, ...]
    about: About = "now"
    level: float = LEVEL
    bounds: Bounds | None = None
    kind: str = "linear"
    memory: int = 1

    def check(self, ages: Sequence[int], outputs: int) -> None:
        """Refuse releases of other ages, or with another number of outputs."""
        _check_plan(self.ages, self.known.mean_now.size, ages, outputs)

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The estimate from the newest release."""
        newest = releases[-1]
        _, gain, error = self._weights(newest.noise)
        aged, now = (table[newest.tick % len(table)] for table in self.known.usual)
        return with_band(
            now + gain @ (np.asarray(newest.values) - aged),
            error,
            factor=standard_errors_of(self.level),
            bounds=self.bounds,
            no_data=float(np.trace(self.known.cov_now)),
        )

    def usual_at(self, ticks: npt.ArrayLike) -> Floats:
        """The mean at some ticks, that of their phase under a clock, (n, d)."""
        usual = self.known.usual[1]
        return np.asarray(usual[np.atleast_1d(np.asarray(ticks)) % len(usual)])

    @cached_property
    def _by_noise(self) -> dict[float, tuple[Floats, Floats, Floats]]:
        return {}

    def _weights(self, noise: float) -> tuple[Floats, Floats, Floats]:
        """Offset, gain and standard error under noise of a variance, which mostly stays the same."""
        if noise not in self._by_noise:
            self._by_noise.clear()
            self._by_noise[noise] = self.known.linear_estimate(noise)
        return self._by_noise[noise]

    def expected(self, noise: float) -> Error:
        """The error of an estimate from one release."""
        known = self.known
        value = float((self._weights(noise)[2] ** 2).sum())
        total = noise * known.mean_now.size
        return Error(value, known.aging, total, float(np.trace(known.cov_now)), self.kind, known.how, None, self.about)


def linear_estimator(
    model: Model,
    query: Query | str,
    *,
    ages: Sequence[int],
    about: About = "now",
    level: float = LEVEL,
    bounds: Bounds | None = None,
) -> LinearEstimator:
    """The best linear estimate from one release, by the moments of a model."""
    known = moments(model, query, ages=ages)
    return LinearEstimator(known if about == "now" else known.of_time_read(), tuple(ages), about, level, bounds)


class PosteriorEstimator:
    """The posterior mean given one release of one output, of systems whose joint law is known.

    >>> from csdp import CoupledChain, Mean
    >>> chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
    >>> estimator = PosteriorEstimator(chain, Mean(), ages=[0], bounds=(0.0, 1.0))
    >>> noise = 0.5 / math.sinh(0.5) ** 2  # epsilon_c 1
    >>> round(estimator.of([Observation(3, (1.0,), age=0, noise=noise)]).estimate[0], 4)
    0.7311
    """

    kind, memory = "posterior", 1

    def __init__(
        self,
        model: Model,
        query: Query | str,
        *,
        ages: Sequence[int],
        about: About = "now",
        level: float = LEVEL,
        bounds: Bounds | None = None,
    ) -> None:
        self.about: About = about
        self.level = level
        self._model, self._ages, self._bounds = model, tuple(ages), bounds
        computation = verify_query(query, model)
        if not isinstance(computation, FoldComputation):
            raise InputError(f"estimate='posterior' needs a query made of parts; {computation.name} is a function")
        self._query = computation
        self._at_level: dict[float, PosteriorMean] = {}

    def check(self, ages: Sequence[int], outputs: int) -> None:
        """Refuse releases of other ages, or with several outputs."""
        _check_plan(self._ages, 1, ages, outputs)

    def of(self, releases: Sequence[Observation]) -> Estimated:
        """The posterior mean given the newest release, with a band of posterior standard deviations."""
        newest = releases[-1]
        posterior = self._posterior(newest.noise)
        mean, deviation = posterior.estimate(newest.values[0]), posterior.deviation(newest.values[0])
        factor = standard_errors_of(self.level)
        return with_band(
            np.array([mean]), np.array([deviation]), factor=factor, bounds=self._bounds, no_data=self._no_data
        )

    def expected(self, noise: float) -> Error:
        """The error of the posterior mean."""
        value = self._posterior(noise).mse
        return Error(value, 0.0, noise, self._no_data, self.kind, "joint law", None, self.about)

    @cached_property
    def _no_data(self) -> float:
        known = moments(self._model, self._query, ages=self._ages)
        return float(np.trace(known.cov_now if self.about == "now" else known.cov_aged))

    def _posterior(self, noise: float) -> PosteriorMean:
        """The posterior under noise of a variance, `2 (g/D)^2 q / (1 - q)^2` with q = e^-rate."""
        if noise not in self._at_level:
            query = self._query
            rate = 2 * math.asinh(query.spacing / query.denominator / math.sqrt(2 * noise))
            level = rate * query.undivided_sensitivity(1) / query.spacing
            self._at_level[noise] = PosteriorMean(
                self._model, query, ages=self._ages, epsilon_c=level, then=self.about == "then"
            )
        return self._at_level[noise]


def _check_plan(own: Sequence[int], size: int, ages: Sequence[int], outputs: int) -> None:
    if tuple(ages) != tuple(own):
        raise InputError("estimator: made for other ages than the plan has; make it for the plan's ages")
    if outputs != size:
        raise InputError(f"estimator: made for {size} outputs, but the plan's query has {outputs}")
