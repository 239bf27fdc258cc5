"""csdp.fit: from readings to a chain with the record of its fit and the family of plausible chains."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from csdp.chain import (
    UNPAID_FIT,
    CoupledChain,
    EnvironmentChain,
    Evidence,
    Family,
    FitRecord,
    InfluenceFamily,
    JointChain,
)
from csdp.chain.model import Direction
from csdp.errors import CsdpWarning, InputError, PrivacyLeakWarning
from csdp.fitting.progress import show_progress

if TYPE_CHECKING:
    from csdp.fitting import methods
    from csdp.fitting.em import Effort
    from csdp.fitting.pairs import Neighbours
    from csdp.fitting.sample import Progress, Sample

Method = Literal["em", "ching", "counts", "moments", "joint"]
EnvironmentName = Literal["clock", "hidden", "both", "auto"]
KernelName = Literal["free", "ordinal"]
METHODS = ("em", "ching", "counts", "moments", "joint")
EnsembleMethod = Literal["auto", "bootstrap", "posterior", "limits"]
ENSEMBLES = get_args(EnsembleMethod)
#: Share of the readings that is set aside where the data chooses the direction.
HELD_OUT = 0.3


def fit(
    data: Any,
    *,
    method: Method = "em",
    states: int | None = None,
    neighbours: Neighbours = None,
    smoothing: float = 0.5,
    public: bool = False,
    epsilon: float | None = None,
    restarts: int = 1,
    max_iterations: int = 2000,
    tolerance: float = 1e-8,
    ensemble: int = 20,
    ensemble_method: EnsembleMethod = "auto",
    confidence: float = 0.95,
    seed: int = 0,
    direction: Direction | Literal["auto"] = "forward",
    environment: Any = None,
    cycle: int | Sequence[int] | None = None,
    environments: int | None = None,
    shrinkage: float | None = None,
    kernel: KernelName = "free",
    progress: Progress | bool | None = None,
) -> CoupledChain | JointChain | EnvironmentChain:
    """Fit a chain; it carries the record of the fit, the chains that the data leaves possible, and a verdict.

    `chain.fitted` is the record, `chain.family` the chains. A chain fitted to public readings is tested on them:
    `chain.verdict` says whether they accept it, and travels with every number (`csdp.check_model`).

    "em" maximises `sum_t ln sum_k coupling[j][k] transitions[j][k][x_k(t)][x_j(t+1)]`, with pseudo-counts, over
    coupling and transitions together, for every target j. The objective is concave in their product, so every
    start leads to the same kernel. "counts" plugs counted transitions into that likelihood; "ching" is the estimator
    of Ching, Fung and Ng (2002), for comparison; "moments" uses pair counts alone; "joint" counts joint transitions.

    Args:
        data: a Panel, a (T, s) array of whole numbers, or a dataframe of them; -1 or null is a missing reading.
            Transitions with a missing end or source are left out.
        states: number of states m; default: that of the panel's values, else the largest seen.
        neighbours: others that each may follow: a number (those of largest lag-1 mutual information), "all", or
            pairs (target, source) known beforehand. Default: all up to 8 sequences, else 8.
        smoothing: pseudo-counts in each cell of a transition matrix, shared by those a target may follow.
        public: the data is public. epsilon: it is private, and this much may be spent on the chain.
        restarts, max_iterations, tolerance: of EM; tolerance is a gain per transition.
        ensemble: further plausible chains in the family; 0 for no family.
        ensemble_method: "bootstrap", "posterior", or "limits": instead of some chains, every process within limits that
            hold together with `confidence` (`InfluenceFamily`; backward chains). "auto": limits for a backward chain
            beyond 32 joint states, where only `influence` certifies; else bootstrap.
        confidence: with which all limits hold together, exactly, if one chain on the graph made the readings.
        seed: of restarts and ensemble; noise never comes from it.
        direction: "forward", "backward" (the chain gives the past from the present, so that `influence` counts the
            noise at any size), or "auto": whichever explains the last 30 % better after a fit on the rest; the record
            shows both. Joint chains are forward.
        environment: None; "clock" (a public clock), an array with the environment of every tick (a public series),
            "hidden" (an unobserved Markov environment), "both" (a hidden one whose members depend on the clock),
            or "auto": independent, coupled, by the clock where there is one, hidden, hidden with coupled members, and
            both, whichever gains most on the last 30 % after a fit on the rest; `fitted.gains` shows all that were
            compared. Needs method "em" and public readings; members follow themselves only unless `neighbours` is
            given. The answer is an EnvironmentChain.
        cycle: with "clock", "both" or "auto", the number of ticks after which the clock repeats, or the environment of
            each of its phases (tick mod length). Default: a panel's times of day, in at most 8 classes.
        environments: number of hidden environments; default: chosen on the last 30 %.
        shrinkage: transitions of the common chain that every environment gets besides its own; default: chosen on the
            last 30 % for known environments, 5 for hidden ones. With "both", transitions of the hidden environment
            over all classes of the clock, that each of its classes gets.
        kernel: "free" transition matrices, or "ordinal": `Pr(next <= b | a) = logistic(cut_b - place_a)`, with 2 (m-1)
            numbers instead of m (m-1), for many ordered states.
        progress: called with (what, done, total); default a bar on a terminal.

    Formal guarantee, with epsilon: the chain, its record and its family are epsilon-differentially private for one
    reading (event level). All counts that are used get exact two-sided geometric noise from secure randomness, of
    scale sensitivity / epsilon, and nothing else of the readings is looked at: a panel whose discretiser was learned
    from private readings is refused. The sensitivity of all lag-1 pair counts is 4 s. Likelihoods cannot be had from
    pair counts: "em" and "counts" then become "moments". Number of ticks, names and what is missing are taken as
    public. The cost is `chain.fit_cost`.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> fitted = fit(chain.simulate(2000, seed=1), public=True)
    >>> bool(abs(fitted.kernel() - chain.kernel()).max() < 0.03), len(fitted.family), fitted.fitted.converged
    (True, 21, True)
    """
    # Here and not above: reading tables and drawing noise bring in what `import csdp` should not wait for.
    from csdp.fitting import families
    from csdp.fitting.em import Effort
    from csdp.fitting.environment_source import read_environment
    from csdp.fitting.environments import EnvironmentSettings, fit_best
    from csdp.fitting.sample import check_source, read_sample

    _check_settings(method, smoothing, restarts, max_iterations, tolerance, ensemble, ensemble_method, seed)
    _check_confidence(confidence)
    epsilon = _check_privacy(epsilon, public)
    check_source(data, public=public, epsilon=epsilon)
    _check_direction(direction, method, epsilon)
    _check_environment(environment, kernel, method, epsilon, smoothing, environments, shrinkage)
    readings = read_sample(data, states=states, private=epsilon is not None)
    natural = readings
    effort = Effort(restarts, max_iterations, tolerance, seed)
    kind, known = read_environment(environment, cycle, data, len(readings.states))
    limits = None
    with show_progress(progress) as report:
        ways: tuple[Direction, ...] = get_args(Direction) if direction == "auto" else (direction,)
        if kind is None and kernel == "free":
            direction, held_out = _choose_direction(readings, method, neighbours, ways, smoothing, effort, report)
            compared: dict[str, Any] = {"held_out": held_out}
            readings = readings.in_direction(direction)
            if ensemble:
                limits = families.choose_limits(
                    readings, neighbours, kind=ensemble_method, method=method, epsilon=epsilon, progress=report
                )
            estimate = _fit_point(
                readings,
                method,
                neighbours if limits is None else limits[0].pairs,
                smoothing=smoothing,
                epsilon=epsilon,
                effort=effort,
                report=report,
            )
        else:
            settings = EnvironmentSettings(
                kind, known, environments, neighbours, float(smoothing), shrinkage, kernel, effort, report
            )
            estimate, direction, compared = fit_best(readings, settings, ways)
        notes = _notes(readings, estimate, smoothing, method) if epsilon is None else _private_notes(estimate, method)
        for note in notes:
            if note.startswith(("EM did not", "zero")):
                warnings.warn(note, CsdpWarning, stacklevel=2)
    record = FitRecord(
        method=estimate.method,
        observations=estimate.observations,
        log_likelihood=estimate.log_likelihood,
        path=estimate.path,
        iterations=estimate.iterations,
        converged=estimate.converged,
        restarts=restarts,
        smoothing=float(smoothing),
        neighbours=estimate.neighbours,
        screened=estimate.screened or (limits is not None and limits[1]),
        parameters=estimate.parameters,
        states=readings.m,
        epsilon=epsilon,
        public=public,
        ensemble=ensemble if limits is None else 0,
        ensemble_method=_family_method(ensemble, ensemble_method, estimate, limits=limits is not None),
        seed=seed,
        warnings=tuple(notes),
        direction=direction,
        confidence=None if limits is None else float(confidence),
        step=_step_of(data),
        **compared,
        **_check_readings(data, readings.m, estimate.chain, environment, public=public),
    )
    carried: dict[str, Any] = {
        "fitted": record,
        "fit_cost": estimate.cost if public or epsilon is not None else UNPAID_FIT,
        "evidence": _find_evidence(estimate.chain, natural, data, environment, public=public),
    }
    point = estimate.chain.carrying(**carried)
    if not ensemble:
        return point
    with show_progress(progress) as report:
        family: Family | InfluenceFamily
        if limits is None:
            family = families.ensemble_family(
                point, estimate, count=ensemble, kind=ensemble_method, seed=seed, progress=report
            )
        else:
            assert isinstance(point, CoupledChain)
            family = families.limits_family(
                readings,
                point,
                limits[0],
                screened=limits[1],
                confidence=confidence,
                smoothing=smoothing,
                progress=report,
            )
    return point.carrying(**carried, family=family)


def _find_evidence(
    chain: CoupledChain | JointChain | EnvironmentChain, sample: Sample, data: Any, environment: Any, *, public: bool
) -> Evidence:
    """What public readings show of the chain that was fitted to them; private ones may not be asked."""
    from csdp.fitting.evidence import find_evidence
    from csdp.panel import Panel

    if not public:
        return Evidence("untested", "fitted to private readings, which may not be used to test it")
    series = environment if isinstance(chain, EnvironmentChain) and chain.kind == "series" else None
    return find_evidence(chain, sample, data.ticks if isinstance(data, Panel) else None, series)


def _check_readings(
    data: Any, states: int, chain: CoupledChain | JointChain | EnvironmentChain, environment: Any, *, public: bool
) -> dict[str, Any]:
    """What public readings behind the states of a panel show, for the record."""
    from csdp.fitting.emissions import check_readings
    from csdp.fitting.environment_prediction import known_environments
    from csdp.panel import Panel

    if not public or not isinstance(data, Panel) or data.readings is None:
        return {}
    known = None
    if isinstance(chain, EnvironmentChain):
        series = environment if chain.kind == "series" else None
        known = known_environments(chain, data.ticks, series)
    check = check_readings(data, states=states, environments=known)
    return {"readings_check": check.verdict, "finer_states": check.finer_states or 0}


def _step_of(data: object) -> int | None:
    """Seconds from one tick to the next, where the readings have timestamps."""
    from csdp.panel import Panel
    from csdp.panel.grid import tick_seconds

    return tick_seconds(data.times, data.step, data.ticks) if isinstance(data, Panel) else None


def _family_method(ensemble: int, kind: str, estimate: methods.PointEstimate, *, limits: bool) -> str | None:
    """How the family was made, for the record."""
    if not ensemble:
        return None
    if limits:
        return "limits"
    return "parametric" if "parametric" in estimate.draws else ("bootstrap" if kind == "auto" else kind)


def _check_privacy(epsilon: float | None, public: bool) -> float | None:
    """The checked epsilon; a warning where the readings are neither public nor paid for."""
    number = isinstance(epsilon, int | float | np.integer | np.floating) and not isinstance(epsilon, bool)
    if epsilon is not None and not (number and math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon: {epsilon!r} given; a finite number above 0, or None for public data")
    if epsilon is not None and public:
        raise InputError("epsilon: given for data that is declared public; give one of the two")
    if epsilon is None and not public:
        warnings.warn(
            "the chain is fitted on readings that are not declared public, and reveals them without limit: it costs an "
            "infinite epsilon. Fit public readings (public=True), or pay for it (epsilon=)",
            PrivacyLeakWarning,
            stacklevel=3,
        )
    return None if epsilon is None else float(epsilon)


def _choose_direction(
    readings: Sample,
    method: str,
    neighbours: Any,
    ways: tuple[Direction, ...],
    smoothing: float,
    effort: Effort,
    report: Progress,
) -> tuple[Direction, tuple[tuple[str, float], ...]]:
    """The direction that explains the last part of the readings best, after a fit on the rest, and the scores.

    Scores are log-likelihoods per tick; there are none where only one direction is left.
    """
    from csdp.fitting.sample import Prediction

    if len(ways) == 1:
        return ways[0], ()
    cut = round(readings.states.shape[0] * (1 - HELD_OUT))
    if min(cut, readings.states.shape[0] - cut) < 20:
        raise InputError(
            f"direction: 'auto' needs readings to set aside, and {readings.states.shape[0]} ticks are too few; give "
            "'forward' or 'backward'"
        )
    quick = replace(effort, restarts=1)
    scores: list[tuple[Direction, float]] = []
    for way in ways:
        past = readings.between(0, cut).in_direction(way)
        rest = readings.between(cut - 1, len(readings.states)).in_direction(way)
        estimate = _fit_point(past, method, neighbours, smoothing=smoothing, epsilon=None, effort=quick, report=report)
        assert not isinstance(estimate.chain, EnvironmentChain)
        prediction = Prediction(estimate.chain, rest)
        total = sum(float(prediction.scores(j)[0].sum()) for j in range(readings.sequences))
        scores.append((way, total / rest.transitions))
    return max(scores, key=lambda each: each[1])[0], tuple(scores)


def _fit_point(
    readings: Sample,
    method: str,
    neighbours: Any,
    *,
    smoothing: float,
    epsilon: float | None,
    effort: Effort,
    report: Progress,
) -> methods.PointEstimate:
    from csdp.fitting import methods

    if method == "joint":
        return methods.fit_joint(readings, smoothing=smoothing, epsilon=epsilon, effort=effort, progress=report)
    if method in {"em", "counts"} and epsilon is None:
        fixed = method == "counts"
        return methods.fit_em(readings, neighbours, smoothing=smoothing, effort=effort, progress=report, fixed=fixed)
    kind = "ching" if method == "ching" else "moments"
    return methods.fit_pairs(readings, neighbours, method=kind, smoothing=smoothing, epsilon=epsilon, progress=report)


def _notes(readings: Sample, estimate: methods.PointEstimate, smoothing: float, method: str) -> list[str]:
    """Warnings for the record, from public readings."""
    notes = []
    if not estimate.converged:
        notes.append(
            f"EM did not settle in {estimate.iterations} iterations; raise max_iterations, or tolerance if the last "
            "gains do not matter"
        )
    seen = np.array([np.bincount(column[column >= 0], minlength=readings.m) for column in readings.states.T])
    constant = [name for name, row in zip(readings.labels, seen, strict=True) if (row > 0).sum() <= 1]
    if constant:
        notes.append(f"{_list_names(constant)} never leave one state here: that they cannot move is smoothing's guess")
    unseen = [name for name, row in zip(readings.labels, seen, strict=True) if 1 < (row > 0).sum() < readings.m]
    if unseen:
        notes.append(
            f"{_list_names(unseen)} do not visit every state here: what follows those states is smoothing's guess"
        )
    if estimate.observations < 10 * estimate.parameters:
        notes.append(
            f"{estimate.observations:,} transitions for {estimate.parameters:,} parameters: the family is wide; "
            "lower neighbours or states, or fit on more ticks"
        )
    if smoothing == 0 and not estimate.chain.is_positive:
        notes.append("zero probabilities: smoothing=0 leaves what was never seen impossible; leakage may be infinite")
    if method == "ching":
        notes.append("the coupling of this method is hardly determined by data; method='em' is")
    return notes


def _private_notes(estimate: methods.PointEstimate, method: str) -> list[str]:
    """Warnings for the record, from the sizes and the noise, not from the readings."""
    notes = []
    if method in {"em", "counts"}:
        notes.append(f"method {method!r} needs the readings themselves; 'moments' was used, from noised pair counts")
    if estimate.noise_share > 0.2:
        notes.append(
            f"the noise has {estimate.noise_share:.0%} of the size of an average count: the chain is mostly noise; fit "
            "on more ticks, fewer sequences or states, pairs known beforehand, or a larger epsilon"
        )
    return notes


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _check_confidence(confidence: Any) -> None:
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence!r} given; a number between 0 and 1, such as 0.95")


def _check_direction(direction: str, method: str, epsilon: float | None) -> None:
    if direction not in {*get_args(Direction), "auto"}:
        raise InputError(f"direction: {direction!r} given; 'forward', 'backward' or 'auto'")
    if direction != "forward" and method == "joint":
        raise InputError("direction: a joint chain is the same process in both directions; leave direction= out")
    if direction == "auto" and epsilon is not None:
        raise InputError("direction: 'auto' looks at the readings; with epsilon give 'forward' or 'backward'")


def _check_environment(
    environment: Any,
    kernel: str,
    method: str,
    epsilon: float | None,
    smoothing: float,
    environments: int | None,
    shrinkage: float | None,
) -> None:
    """Refuse what a fit with environments, or with parametric matrices, cannot do."""
    if kernel not in get_args(KernelName):
        raise InputError(f"kernel: {kernel!r} given; 'free' or 'ordinal'")
    hidden = isinstance(environment, str) and environment in {"hidden", "both", "auto"}
    if environments is not None and not hidden:
        raise InputError("environments: the number of hidden ones; use it with environment='hidden', 'both' or 'auto'")
    if environments is not None and (not isinstance(environments, int | np.integer) or environments < 2):
        raise InputError(f"environments: {environments!r} given; a whole number of at least 2")
    if shrinkage is not None and environment is None:
        raise InputError("shrinkage: given without environments; use it with environment=")
    if shrinkage is not None and not (math.isfinite(shrinkage) and shrinkage > 0):
        raise InputError(f"shrinkage: {shrinkage!r} given; a finite number of transitions above 0")
    if environment is None and kernel == "free":
        return
    option = "kernel" if environment is None else "environment"
    if method != "em":
        raise InputError(f"{option}: needs the likelihood of the readings; use method='em', not {method!r}")
    if epsilon is not None:
        raise InputError(
            f"{option}: it is chosen and fitted on the readings themselves, not on noised counts; fit private readings "
            f"without {option}=, or fit on public ones (public=True)"
        )
    if not smoothing > 0:
        raise InputError(f"{option}: needs smoothing above 0, since rare environments see few transitions")


def _check_settings(
    method: str,
    smoothing: float,
    restarts: int,
    max_iterations: int,
    tolerance: float,
    ensemble: int,
    ensemble_method: str,
    seed: int,
) -> None:
    if method not in METHODS:
        raise InputError(f"method: {method!r} given; use one of {', '.join(METHODS)}")
    if ensemble_method not in ENSEMBLES:
        raise InputError(f"ensemble_method: {ensemble_method!r} given; use one of {', '.join(ENSEMBLES)}")
    for name, value in (("smoothing", smoothing), ("tolerance", tolerance)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise InputError(f"{name}: {value!r} given; a finite number of at least 0")
    wholes = {"restarts": (restarts, 1), "max_iterations": (max_iterations, 1), "ensemble": (ensemble, 0)}
    for name, (number, least) in {**wholes, "seed": (seed, 0)}.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < least:
            raise InputError(f"{name}: {number!r} given; a whole number of at least {least}")
