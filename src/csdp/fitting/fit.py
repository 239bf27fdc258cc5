"""csdp.fit: from readings to a chain with the record of its fit, the family of plausible chains, and its verdict."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import (
    UNPAID_FIT,
    CoupledChain,
    EnvironmentChain,
    Evidence,
    Family,
    FitRecord,
    JointChain,
)
from csdp.chain.model import Direction
from csdp.errors import CsdpWarning, InputError, PrivacyLeakWarning

if TYPE_CHECKING:
    from csdp.fitting.em import PointEstimate
    from csdp.fitting.grow import Grown
    from csdp.fitting.sample import Chain, Neighbours, Progress, Sample

Method = Literal["em", "joint"]
EnvironmentName = Literal["clock", "hidden"]
#: Further chains in the family of a paid fit.
NOISED = 20


def fit(
    data: Any,
    *,
    method: Method = "em",
    states: int | None = None,
    neighbours: Neighbours = None,
    public: bool = False,
    epsilon: float | None = None,
    direction: Direction = "forward",
    environment: EnvironmentName | None = None,
    environments: int | Sequence[int] | None = None,
    progress: Progress | None = None,
) -> CoupledChain | JointChain | EnvironmentChain:
    """Fit a chain; it carries the record of the fit, the class of processes that is certified, and a verdict.

    `chain.fitted` is the record. Fitted to public readings, `chain.family` is an `InfluenceGraph`: a class that is
    grown on the first part of the readings until their tests accept it, within limits that hold together with 99 %
    confidence, and with an allowance for slow levels. Certificates hold for every process in it. It is judged once on a
    later part; `chain.verdict` says whether that accepts it, and travels with every number.

    "em" maximises `sum_t ln sum_k coupling[j][k] transitions[j][k][x_k(t)][x_j(t+1)]`, with half a pseudo-count per
    cell, over coupling and transitions together, for every target j. The objective is concave in their product, so
    every start leads to the same kernel. "joint" counts joint transitions.

    Args:
        data: a Panel, or a (T, s) array of whole numbers; -1 is a missing reading. Transitions with a missing end or
            source are left out.
        method: "em" or "joint".
        states: number of states m; default: that of the panel's values, else the largest seen.
        neighbours: others that each may follow: a number (those of largest lag-1 mutual information), "all", or
            pairs (target, source) known beforehand. Default: all up to 8 sequences, else 8.
        public: the data is public.
        epsilon: the data is private, and this much may be spent on the chain.
        direction: "forward", or "backward" (the chain gives the past from the present, so that `influence` counts the
            noise at any size). Joint chains are forward.
        environment: None, "clock" (a public clock) or "hidden" (an unobserved Markov environment). Needs method "em"
            and public readings; members follow themselves only unless `neighbours` is given. The answer is an
            EnvironmentChain; `fitted.gains` shows what was compared on the last 30 % after a fit on the rest.
        environments: their number. By the clock, also the environment of each of its phases (tick mod length); default:
            a panel's times of day, in at most 8 classes. Default of the hidden ones: chosen on the last 30 %.
        progress: called with (what, done, total).

    Formal guarantee, with epsilon: the chain, its record and its family are epsilon-differentially private for one
    reading (event level). All counts that are used get exact two-sided geometric noise from secure randomness, of scale
    sensitivity / epsilon, and nothing else of the readings is looked at: a panel whose discretiser was learned from
    private readings is refused. The sensitivity of all lag-1 pair counts is 4 s. Likelihoods cannot be had from pair
    counts: "em" then becomes "moments", and the family is 20 more chains fitted to simulated readings and noise. Number
    of ticks, names and what is missing are taken as public. The cost is `chain.fit_cost`.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> fitted = fit(chain.simulate(2000, seed=1), public=True)
    >>> bool(abs(fitted.kernel() - chain.kernel()).max() < 0.03), fitted.verdict.status
    (True, 'accepted')
    """
    # Here and not above: reading tables and drawing noise bring in what `import csdp` should not wait for.
    from csdp.chain.evidence import count_lags
    from csdp.fitting.sample import check_source, ignore_progress, read_sample

    check.choice("method", method, get_args(Method))
    epsilon = _check_privacy(epsilon, public)
    if method == "joint" and epsilon is not None:
        raise InputError("method: 'joint' given with epsilon; private fits use pair counts alone: leave method= out")
    check_source(data, public=public, epsilon=epsilon)
    check.choice("direction", direction, get_args(Direction))
    if direction != "forward" and method == "joint":
        raise InputError("direction: a joint chain is the same process in both directions; leave direction= out")
    _check_environment(environment, environments, method, epsilon)
    natural = read_sample(data, states=states, private=epsilon is not None)
    if environment == "hidden" and natural.sequences == 1:
        raise InputError(
            "environment: 'hidden' given for one sequence. What is hidden would be a fact about that sequence, and "
            "certificates given the environment protect no such fact; leave environment= out, or use 'clock'"
        )
    report = progress or ignore_progress
    if environment is None:
        estimate = _fit_point(natural.in_direction(direction), method, neighbours, epsilon, report)
    else:
        estimate = _fit_environment(natural, data, environment, environments, neighbours, direction, report)
    record = replace(
        estimate.record,
        public=public,
        warnings=_warnings(natural, estimate.record) if epsilon is None else estimate.record.warnings,
        step=_step_of(data),
        readings_check=_check_readings(data, natural.m, estimate.chain) if public else None,
    )
    if not record.converged:
        warnings.warn(record.warnings[0], CsdpWarning, stacklevel=2)
    cost = estimate.cost if public or epsilon is not None else UNPAID_FIT
    if not public:
        evidence = Evidence("untested", "fitted to private readings, which may not be used to test it")
        if epsilon is not None:
            record = replace(record, ensemble=NOISED, ensemble_method="parametric")
        point = estimate.chain.carrying(fitted=record, fit_cost=cost, evidence=evidence)
        if epsilon is None:
            return point
        family = _noised_family(point, estimate, report)
        return point.carrying(fitted=record, fit_cost=cost, evidence=evidence, family=family)
    grown = _grow(natural, estimate.chain, data, report)
    record = replace(
        record,
        confidence=None if grown.graph is None else grown.graph.confidence,
        ensemble_method=None if grown.graph is None else "limits",
        assumes=grown.assumes,
        growing=grown.path,
        power=grown.power,
    )
    evidence = Evidence(grown.status, grown.reason, *count_lags(natural.states, natural.m))
    point = estimate.chain.carrying(fitted=record, fit_cost=cost, evidence=evidence)
    if grown.graph is None:
        return point
    return point.carrying(fitted=record, fit_cost=cost, evidence=evidence, family=grown.graph.with_point(point))


def _grow(sample: Sample, chain: Chain, data: Any, report: Progress) -> Grown:
    """The class of processes that public readings leave."""
    from csdp.fitting.grow import grow

    hidden = len(chain.environments) if isinstance(chain, EnvironmentChain) and chain.cycle is None else 0
    return grow(sample, chain, hidden=hidden, clock=_read_phases(chain, data, len(sample.states)), progress=report)


def _read_phases(chain: Chain, data: Any, ticks: int) -> tuple[npt.NDArray[np.intp], int] | None:
    """The phase of the clock at every tick, and their number: that of the chain, or the panel's time of day."""
    from csdp.fitting.checks import known_environments
    from csdp.fitting.environment import has_clock, read_clock
    from csdp.panel import Panel

    if isinstance(chain, EnvironmentChain) and chain.cycle is not None:
        labels = known_environments(chain, data.ticks if isinstance(data, Panel) else np.arange(ticks))
        assert labels is not None
        return labels, len(chain.environments)
    if not has_clock(data):
        return None
    try:
        clock = read_clock(None, data, ticks)
    except InputError:  # times of day in no fixed order are no clock
        return None
    return clock.labels, clock.count


def _noised_family(point: Chain, estimate: PointEstimate, progress: Progress) -> Family:
    """A chain from noised counts and others like it, which cost what it cost."""
    assert estimate.draw is not None
    others = []
    for n in range(NOISED):
        other = estimate.draw(np.random.default_rng([0, 1, n]))
        others.append(other.carrying(fit_cost=point.fit_cost, evidence=point.part_evidence([])))
        progress("ensemble", n + 1, NOISED)
    return Family([point, *others])


def refit(chain: Chain, past: Sample, report: Progress) -> Any:
    """A chain fitted in the same way on other readings; None if it was not fitted, or cannot be fitted again."""
    from csdp.fitting.em import Effort
    from csdp.fitting.environment import ChainCandidate, Clock, fit_candidate, members_of
    from csdp.fitting.sample import join_graphs

    record = chain.fitted
    if record is None or record.epsilon is not None or record.method not in get_args(Method):
        return None
    neighbours: Any = record.neighbours
    if not record.screened and not isinstance(chain, JointChain):
        neighbours = join_graphs(members_of(chain)).pairs
    sample = past.in_direction(chain.direction)
    if not isinstance(chain, EnvironmentChain):
        return _fit_point(sample, record.method, neighbours, None, report).chain
    count = len(chain.environments)
    if chain.cycle is None:
        candidate = ChainCandidate("hidden", neighbours, count=count, shrinkage=record.shrinkage)
    else:
        assert past.environments is not None
        clock = Clock(past.environments, count, chain.cycle)
        candidate = ChainCandidate("clock", neighbours, clock, shrinkage=record.shrinkage)
    return fit_candidate(candidate, sample, effort=Effort(), progress=report).chain


def _check_readings(data: Any, states: int, chain: Chain) -> str | None:
    """What public readings behind the states of a panel show, for the record."""
    from csdp.fitting.checks import check_readings, known_environments
    from csdp.panel import Panel

    if not isinstance(data, Panel) or data.readings is None:
        return None
    return check_readings(data, states=states, environments=known_environments(chain, data.ticks)).verdict


def _step_of(data: object) -> int | None:
    """Seconds from one tick to the next, if the readings have timestamps."""
    from csdp.panel import Panel
    from csdp.panel.times import tick_seconds

    return tick_seconds(data.times, data.step, data.ticks) if isinstance(data, Panel) else None


def _check_privacy(epsilon: float | None, public: bool) -> float | None:
    """The checked epsilon; a warning if the readings are neither public nor paid for."""
    if epsilon is not None and public:
        raise InputError("epsilon: given for data that is declared public; give one of the two")
    if epsilon is not None:
        return check.number("epsilon", epsilon, above=0)
    if not public:
        warnings.warn(
            "the chain is fitted on readings that are not declared public, and reveals them without limit: it costs an "
            "infinite epsilon. Fit public readings (public=True), or pay for it (epsilon=)",
            PrivacyLeakWarning,
            stacklevel=3,
        )
    return None


def _fit_point(
    readings: Sample, method: str, neighbours: Any, epsilon: float | None, report: Progress
) -> PointEstimate:
    """A chain without environments."""
    from csdp.fitting import em, private

    if epsilon is not None:
        return private.fit_private(readings, neighbours, epsilon)
    if method == "joint":
        return em.fit_joint(readings, effort=em.Effort(), progress=report)
    return em.fit_em(readings, neighbours, effort=em.Effort(), progress=report)


def _fit_environment(
    readings: Sample,
    data: Any,
    environment: EnvironmentName,
    environments: int | Sequence[int] | None,
    neighbours: Any,
    direction: Direction,
    report: Progress,
) -> PointEstimate:
    """A chain with environments."""
    from csdp.fitting.em import Effort
    from csdp.fitting.environment import fit_environments, read_clock

    clock, count = None, None
    if environment == "clock":
        clock = read_clock(environments, data, len(readings.states))
    elif environments is not None:
        count = check.whole("environments", environments, least=2)
    effort = Effort()
    return fit_environments(
        readings, direction, clock=clock, count=count, neighbours=neighbours, effort=effort, progress=report
    )


def _warnings(readings: Sample, record: FitRecord) -> tuple[str, ...]:
    """Warnings for the record, from public readings."""
    notes = []
    if not record.converged:
        notes.append(f"EM did not settle in {record.iterations} iterations; fit on fewer sequences or more ticks")
    seen = np.array([np.bincount(column[column >= 0], minlength=readings.m) for column in readings.states.T])
    constant = [name for name, row in zip(readings.labels, seen, strict=True) if (row > 0).sum() <= 1]
    if constant:
        notes.append(f"{_list_names(constant)} never leave one state here: that they cannot move is smoothing's guess")
    unseen = [name for name, row in zip(readings.labels, seen, strict=True) if 1 < (row > 0).sum() < readings.m]
    if unseen:
        notes.append(
            f"{_list_names(unseen)} do not visit every state here: what follows those states is smoothing's guess"
        )
    if record.observations < 10 * record.parameters:
        notes.append(
            f"{record.observations:,} transitions for {record.parameters:,} parameters: the fit is uncertain; "
            "lower neighbours or states, or fit on more ticks"
        )
    return tuple(notes)


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _check_environment(environment: object, environments: object, method: str, epsilon: float | None) -> None:
    """Refuse what a fit with environments cannot do."""
    if environment is None:
        if environments is not None:
            raise InputError("environments: given without environment=; use it with 'clock' or 'hidden'")
        return
    check.choice("environment", environment, get_args(EnvironmentName))
    if method != "em":
        raise InputError(f"environment: needs the likelihood of the readings; use method='em', not {method!r}")
    if epsilon is not None:
        raise InputError(
            "environment: it is chosen and fitted on the readings themselves, not on noised counts; fit private "
            "readings without environment=, or fit on public ones (public=True)"
        )
