"""Fits of environment chains: by a clock, a public series, hidden, or both, compared on readings that were set aside.

Members of a known environment are shrunk towards the chain common to all of them: each gets `shrinkage` transitions of
the common chain besides its own, a number chosen on the readings set aside unless it is given. Members of a hidden
environment get `HIDDEN_SHRINKAGE` of them. Where a hidden environment stands beside a clock, the members of its classes
are shrunk towards those of the hidden environment alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.chain import CoupledChain, EnvironmentChain
from csdp.chain.model import Direction
from csdp.chain.stationary import reverse_kernel
from csdp.errors import InputError
from csdp.fitting import environment_em as em
from csdp.fitting import methods
from csdp.fitting.em import Effort, fit_all
from csdp.fitting.environment_source import KnownEnvironment
from csdp.fitting.ordinal import kernel_parameters, read_kernel
from csdp.fitting.sample import Progress, Sample
from csdp.fitting.scores import count_complete, held_out_gain, order_labels

#: Share of the readings that is set aside where the data chooses.
HELD_OUT = 0.3
#: Fewest ticks on either side of the split.
FEWEST = 20
#: Numbers of hidden environments that are tried.
COUNTS = (2, 3, 4, 5, 6, 7, 8)
#: Weights of the common chain, in transitions, that are tried for a known environment.
SHRINKAGES = (2.0, 10.0, 50.0, 250.0, 1000.0)
#: Weight of the common chain in every hidden environment, in transitions.
HIDDEN_SHRINKAGE = 5.0
#: Iterations, and gain per transition that stops, of a fit that is repeated for the family from where the first ended.
_AGAIN, _AGAIN_TOLERANCE = 60, 1e-6


@dataclass(frozen=True, eq=False)
class EnvironmentSettings:
    """What all fits that are compared have in common."""

    environment: str | None  # "clock", "series", "hidden", "both", "auto", or None for a chain without
    known: KnownEnvironment | None
    count: int | None
    neighbours: Any
    smoothing: float
    shrinkage: float | None
    kernel: str
    effort: Effort
    report: Progress


@dataclass(frozen=True)
class ChainCandidate:
    """One kind of chain that might be fitted; `count` hidden environments, or 0; both where some are `known` too."""

    name: str
    neighbours: Any
    known: bool = False
    count: int = 0
    shrinkage: float = HIDDEN_SHRINKAGE


@dataclass(frozen=True)
class Gain:
    """Nats per tick that a candidate gains over independent chains on readings that were set aside."""

    candidate: ChainCandidate
    direction: Direction
    gain: float
    error: float

    @property
    def label(self) -> str:
        """The name of the candidate and its direction."""
        return f"{self.candidate.name}, {self.direction}"


def fit_best(
    readings: Sample, settings: EnvironmentSettings, directions: Sequence[Direction]
) -> tuple[methods.PointEstimate, Direction, dict[str, Any]]:
    """Compare what the settings leave open on readings set aside, then fit the best on all of them.

    Returns the estimate, its direction, and what the record says of the comparison. The gain of the best is the largest
    of those tried: with few candidates and many ticks that flatters it little.
    """
    gains: list[Gain] = []
    for direction in directions:
        gains += _compare(readings, settings, direction)
    best = max(gains, key=lambda each: each.gain)
    chosen = best.candidate
    estimate = fit_candidate(chosen, readings.in_direction(best.direction), settings)
    known = settings.known if chosen.known else None
    kind = None if known is None else known.kind
    record = {
        "environment": kind if not chosen.count else "hidden" if known is None else "both",
        "environments": chosen.count if chosen.count or known is None else known.count,
        "shrinkage": chosen.shrinkage if chosen.count or known is not None else 0.0,
        "kernel": settings.kernel,
        "gains": tuple((each.label, each.gain, each.error) for each in gains),
    }
    return estimate, best.direction, record


def _compare(readings: Sample, settings: EnvironmentSettings, direction: Direction) -> list[Gain]:
    """Gains of all candidates in one direction; shrinkage chosen for each, numbers of environments one by one."""
    split = _Split(readings, settings, direction)
    if settings.environment is None:
        return [split.gain(ChainCandidate(settings.kernel, settings.neighbours))]
    members = 0 if settings.neighbours is None else settings.neighbours
    gains = []
    if settings.environment == "auto":
        gains += [
            split.gain(ChainCandidate("independent", 0)),
            split.gain(ChainCandidate("coupled", settings.neighbours)),
        ]
    if settings.known is not None and settings.environment != "both":
        gains.append(split.best_shrinkage(ChainCandidate(settings.known.kind, members, known=True)))
    if settings.environment in {"clock", "series"}:
        return gains
    tried = split.growing_counts(ChainCandidate("hidden", members))
    best = max(tried, key=lambda each: each.gain).candidate
    if settings.environment != "both":
        gains += tried
    if settings.environment == "auto" and settings.neighbours is None:
        coupled = replace(best, name=f"{best.name}, coupled", neighbours=None)
        gains.append(split.gain(coupled))
    if settings.known is not None:
        gains.append(split.best_shrinkage(replace(best, name=f"clock and {best.name}", known=True)))
    return gains


class _Split:
    """Readings before and after a cut, in one direction, with independent chains fitted before it."""

    def __init__(self, readings: Sample, settings: EnvironmentSettings, direction: Direction) -> None:
        ticks = readings.states.shape[0]
        cut = round(ticks * (1 - HELD_OUT))
        if min(cut, ticks - cut) < FEWEST:
            raise InputError(
                f"environment: {ticks} ticks are too few to set {HELD_OUT:.0%} aside; at least {FEWEST} on either side "
                "are needed to compare chains. Fit on more ticks, or without environment= and kernel="
            )
        self.past = readings.between(0, cut).in_direction(direction)
        self.future = readings.between(cut - 1, ticks)
        known = settings.known
        self.settings = (
            settings if known is None else replace(settings, known=replace(known, labels=known.labels[:cut]))
        )
        self.labels = None if known is None else known.labels[cut - 1 :]
        free = replace(self.settings, kernel="free")
        self.independent = fit_candidate(ChainCandidate("independent", 0), self.past, free).chain
        self._hidden: dict[int, em.EnvironmentFit] = {}

    def gain(self, candidate: ChainCandidate) -> Gain:
        """The gain of a candidate after a fit on the readings before the cut."""
        chain: Any = fit_candidate(candidate, self.past, self.settings, hidden=self._hidden).chain
        assert isinstance(self.independent, CoupledChain)
        labels = self.labels if candidate.known else None
        return Gain(candidate, self.past.direction, *held_out_gain(chain, self.independent, self.future, labels))

    def best_shrinkage(self, candidate: ChainCandidate) -> Gain:
        """The gain with the best shrinkage of those tried, or with the one given."""
        given = self.settings.shrinkage
        tried = SHRINKAGES if given is None else (given,)
        return max((self.gain(replace(candidate, shrinkage=each)) for each in tried), key=lambda each: each.gain)

    def growing_counts(self, candidate: ChainCandidate) -> list[Gain]:
        """Gains with more and more hidden environments, until one more gains nothing."""
        given, weight = self.settings.count, self.settings.shrinkage
        gains: list[Gain] = []
        for count in COUNTS if given is None else (given,):
            named = replace(candidate, name=f"{candidate.name} {count}", count=count)
            gains.append(self.gain(named if weight is None else replace(named, shrinkage=weight)))
            if len(gains) > 1 and gains[-1].gain <= gains[-2].gain:
                break
        return gains


def fit_candidate(
    candidate: ChainCandidate,
    readings: Sample,
    settings: EnvironmentSettings,
    *,
    hidden: dict[int, em.EnvironmentFit] | None = None,
) -> methods.PointEstimate:
    """Fit one candidate on readings, in their direction.

    `hidden` keeps fits of hidden environments alone, by their number, that those with a clock beside them start from.
    """
    if not candidate.known and not candidate.count and settings.kernel == "free":
        return methods.fit_em(
            readings,
            candidate.neighbours,
            smoothing=settings.smoothing,
            effort=settings.effort,
            progress=settings.report,
            fixed=False,
        )
    return _EnvironmentProblem(candidate, readings, settings, {} if hidden is None else hidden).estimate()


class _EnvironmentProblem:
    """Readings, graph and settings of one fit, and how to make a chain of its outcome."""

    def __init__(
        self,
        candidate: ChainCandidate,
        readings: Sample,
        settings: EnvironmentSettings,
        hidden: dict[int, em.EnvironmentFit],
    ) -> None:
        self.readings, self.settings, self.candidate, self.hidden = readings, settings, candidate, hidden
        self.graph, self.screened = methods.choose_graph(readings, candidate.neighbours, settings.report)
        self.kernel = read_kernel(settings.kernel)
        self.effort = em.EnvironmentEffort(
            starts=max(settings.effort.restarts, em.EnvironmentEffort.starts),
            iterations=settings.effort.iterations,
            tolerance=settings.effort.tolerance,
            seed=settings.effort.seed,
        )

    def estimate(self) -> methods.PointEstimate:
        """The fit as a point estimate with its draws."""
        known = self.settings.known if self.candidate.known else None
        if self.candidate.count:
            fitted, draws = self._fit_hidden() if known is None else self._fit_both(known)
        else:
            fitted, draws = self._fit_plain() if known is None else self._fit_known(known)
        m, count, regimes = self.readings.m, fitted.environments, self.candidate.count
        each = methods.parameters(self.graph, m) if self.settings.kernel == "free" else kernel_parameters(self.graph, m)
        return methods.PointEstimate(
            self.make_chain(fitted),
            draws,
            "em",
            observations=count_complete(self.readings, self.graph),
            parameters=count * each + regimes * max(regimes - 1, 0),
            neighbours=self.graph.degree,
            log_likelihood=fitted.log_likelihood,
            path=fitted.path,
            iterations=len(fitted.path),
            converged=fitted.converged,
            screened=self.screened,
        )

    def _fit_plain(self) -> tuple[em.EnvironmentFit, dict[str, methods.Draw]]:
        """A chain that knows no environment, with parametric matrices."""
        m, degrees = self.readings.m, np.diff(self.graph.indptr)
        degree = np.repeat(degrees, degrees)[:, None, None]
        start = np.full((self.graph.sources.size, m, m), 1.0)
        # Parametric matrices have few numbers, so that few pseudo-transitions do.
        prior = np.broadcast_to(self.settings.smoothing / degree / m, start.shape)[..., None]
        return self._fit_labels(np.zeros(self.readings.transitions, dtype=np.intp), 1, start, prior)

    def _fit_known(self, known: KnownEnvironment) -> tuple[em.EnvironmentFit, dict[str, methods.Draw]]:
        """Members of environments that are known."""
        common = self._common()
        prior = self._shrink(common[..., None], self.candidate.shrinkage)
        return self._fit_labels(order_labels(known.labels, self.readings.direction), known.count, common, prior)

    def _fit_labels(
        self, labels: Indices, count: int, common: Floats, prior: Floats
    ) -> tuple[em.EnvironmentFit, dict[str, methods.Draw]]:
        """Members given the environment of every step; repeated on blocks of steps drawn with replacement."""

        def fit(often: Floats | None) -> em.EnvironmentFit:
            weights = em.label_weights(labels, count) * (1.0 if often is None else often[:, None])
            first = em.begin(self.graph, weights, common=common, hidden=False)
            return em.climb(
                self.readings,
                first,
                prior,
                self.kernel,
                iterations=self.effort.iterations,
                tolerance=max(self.effort.tolerance, self.effort.known_tolerance),
            )

        fitted = fit(None)

        def refit(random: np.random.Generator) -> methods.Chain:
            return self.make_chain(fit(methods.draw_blocks(self.readings.transitions, random)))

        def draw(random: np.random.Generator) -> methods.Chain:
            return self.make_chain(_draw_members(fitted, random))

        bootstrap: dict[str, methods.Draw] = {"bootstrap": refit}
        return fitted, bootstrap | ({"posterior": draw} if self.settings.kernel == "free" else {})

    def _fit_hidden(self) -> tuple[em.EnvironmentFit, dict[str, methods.Draw]]:
        """Hidden environments; repeated on readings simulated from the fit, starting there."""
        common = self._common()
        prior = self._shrink(common[..., None], self.candidate.shrinkage)
        fitted = self._find_hidden(common, prior)
        return fitted, {"parametric": self._draw_parametric(fitted, prior)}

    def _fit_both(self, known: KnownEnvironment) -> tuple[em.EnvironmentFit, dict[str, methods.Draw]]:
        """Hidden environments whose members depend on the clock, from a fit of hidden ones alone."""
        count = self.candidate.count
        if count not in self.hidden:
            common = self._common()
            self.hidden[count] = self._find_hidden(common, self._shrink(common[..., None], HIDDEN_SHRINKAGE))
        alone = self.hidden[count]
        prior = np.tile(self._shrink(alone.expected, self.candidate.shrinkage), known.count)
        first = em.divide_classes(alone, order_labels(known.labels, self.readings.direction), known.count)
        fitted = em.climb(
            self.readings,
            first,
            prior,
            self.kernel,
            iterations=self.effort.iterations,
            tolerance=self.effort.tolerance,
        )
        return fitted, {"parametric": self._draw_parametric(fitted, prior, known)}

    def _find_hidden(self, common: Floats, prior: Floats) -> em.EnvironmentFit:
        return em.fit_hidden(
            self.readings,
            self.graph,
            self.candidate.count,
            common=common,
            prior=prior,
            kernel=self.kernel,
            effort=self.effort,
            progress=self.settings.report,
        )

    def _draw_parametric(
        self, fitted: em.EnvironmentFit, prior: Floats, known: KnownEnvironment | None = None
    ) -> methods.Draw:
        """Fits on readings simulated from a fit, starting there."""
        point, classes = self.make_chain(fitted), None if known is None else known.labels

        def simulate(random: np.random.Generator) -> methods.Chain:
            again = methods.simulate_sample(point, self.readings, random, classes)
            first, tolerance = em.reweigh(again, fitted), max(self.effort.tolerance, _AGAIN_TOLERANCE)
            return self.make_chain(em.climb(again, first, prior, self.kernel, iterations=_AGAIN, tolerance=tolerance))

        return simulate

    def _common(self) -> Floats:
        """Expected transitions (edges, m, m) of the chain that knows no environment, its smoothing included."""
        if self.settings.kernel != "free":
            return self._fit_plain()[0].expected[..., 0]
        fitted = fit_all(
            self.readings,
            self.graph,
            smoothing=self.settings.smoothing,
            effort=self.settings.effort,
            progress=self.settings.report,
        )
        return np.concatenate([target.expected for target in fitted.targets])

    def _shrink(self, counts: Floats, weight: float) -> Floats:
        """Pseudo-transitions of every environment: `weight` of those counted (edges, m, m, ...), for each target."""
        whole = np.add.reduceat(counts.sum(axis=(1, 2)), self.graph.indptr[:-1], axis=0)
        return np.asarray(weight * counts / np.repeat(whole, np.diff(self.graph.indptr), axis=0)[:, None, None])

    def make_chain(self, fitted: em.EnvironmentFit) -> CoupledChain | EnvironmentChain:
        """The chain of a fit; the switching of a backward one is turned to lead forward in time."""
        members = [
            methods.make_chain(self.readings, self.graph, fitted.shares[:, e], fitted.moves[..., e])
            for e in range(fitted.environments)
        ]
        known = self.settings.known if self.candidate.known else None
        if fitted.switching is not None:
            cycle = None if known is None else known.cycle
            chain = EnvironmentChain(members, cycle=cycle, switching=fitted.switching)
            if self.readings.direction == "forward":
                return chain
            ahead = reverse_kernel(fitted.switching, chain.environment_law)
            return EnvironmentChain(members, cycle=cycle, switching=ahead)
        if known is None:
            return members[0]
        return EnvironmentChain(members, cycle=known.cycle, series=known.series)


def _draw_members(fitted: em.EnvironmentFit, random: np.random.Generator) -> em.EnvironmentFit:
    """Rows and coupling drawn from their Dirichlet laws, given the transitions laid to each edge and environment."""
    moves = np.moveaxis(methods.draw_dirichlet(np.moveaxis(fitted.expected, 2, -1), random), -1, 2)
    mass = random.standard_gamma(np.maximum(fitted.expected.sum(axis=(1, 2)), 1e-9))
    shares = em.share_rows(np.maximum(mass, 1e-300)[:, None, None, :], fitted.graph)
    return replace(fitted, moves=moves, shares=shares)
