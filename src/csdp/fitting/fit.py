"""csdp.fit: from readings to a chain that says how it was fitted and what else might be true."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from csdp.chain import CoupledChain, Family, FitRecord, JointChain
from csdp.chain.model import Direction
from csdp.errors import CsdpWarning, InputError, PrivacyLeakWarning
from csdp.fitting.fit import show_progress
from csdp.fitting.sample import Progress

if TYPE_CHECKING:
    from csdp.fitting import methods
    from csdp.fitting.em import Effort
    from csdp.fitting.pairs import Neighbours
    from csdp.fitting.sample import Sample

Method = Literal["em", "ching", "counts", "moments", "joint"]
METHODS = ("em", "ching", "counts", "moments", "joint")
ENSEMBLES = ("bootstrap", "posterior")
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
    ensemble_method: Literal["bootstrap", "posterior"] = "bootstrap",
    seed: int = 0,
    direction: Direction | Literal["auto"] = "forward",
    progress: Progress | bool | None = None,
) -> CoupledChain | JointChain:
    """Fit a chain; it carries `fitted` (the record of the fit) and `family` (what else the data leaves possible).

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
        ensemble: further plausible chains in the family; 0 for none.
        seed: of restarts and ensemble; noise never comes from it.
        direction: "forward", "backward" (the chain gives the past from the present, so that `influence` counts the
            noise at any size), or "auto": whichever explains the last 30 % better after a fit on the rest; the record
            shows both. Joint chains are forward.
        progress: called with (what, done, total); default a bar on a terminal.

    Formal guarantee, with epsilon: the chain, its record and its family are epsilon-differentially private for one
    reading (event level). All counts that are used get exact two-sided geometric noise from secure randomness, of
    scale sensitivity / epsilon, and nothing else of the readings is looked at. The sensitivity of all lag-1 pair
    counts is 4 s. Likelihoods cannot be had from pair counts: "em" and "counts" then become "moments". Number of
    ticks, names and what is missing are taken as public. The cost is `chain.fit_cost`.

    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> fitted = fit(chain.simulate(2000, seed=1), public=True)
    >>> bool(abs(fitted.kernel() - chain.kernel()).max() < 0.03), len(fitted.family), fitted.fitted.converged
    (True, 21, True)
    """
    # Here and not above: reading tables and drawing noise bring in what `import csdp` should not wait for.
    from csdp.fitting.em import Effort
    from csdp.fitting.sample import read_sample

    _check_settings(method, smoothing, restarts, max_iterations, tolerance, ensemble, ensemble_method, seed)
    epsilon = _check_privacy(epsilon, public)
    _check_direction(direction, method, epsilon)
    readings = read_sample(data, states=states, private=epsilon is not None)
    effort = Effort(restarts, max_iterations, tolerance, seed)
    with show_progress(progress) as tell:
        held_out: tuple[tuple[str, float], ...] = ()
        if direction == "auto":
            held_out = _score_directions(readings, method, neighbours, smoothing=smoothing, effort=effort, tell=tell)
            direction = "backward" if dict(held_out)["backward"] > dict(held_out)["forward"] else "forward"
        readings = readings.in_direction(direction)
        found = _fit_point(readings, method, neighbours, smoothing=smoothing, epsilon=epsilon, effort=effort, tell=tell)
        notes = _notes(readings, found, smoothing, method) if epsilon is None else _private_notes(found, method)
        for note in notes:
            if note.startswith(("EM did not", "zero")):
                warnings.warn(note, CsdpWarning, stacklevel=2)
        others = _draw_ensemble(found, ensemble, ensemble_method, seed, tell)
    record = FitRecord(
        method=found.method,
        observations=found.observations,
        log_likelihood=found.log_likelihood,
        path=found.path,
        iterations=found.iterations,
        converged=found.converged,
        restarts=restarts,
        smoothing=float(smoothing),
        neighbours=found.neighbours,
        screened=found.screened,
        parameters=found.parameters,
        states=readings.m,
        epsilon=epsilon,
        public=public,
        ensemble=ensemble,
        ensemble_method=None if not ensemble else ("parametric" if epsilon is not None else ensemble_method),
        seed=seed,
        warnings=tuple(notes),
        direction=direction,
        held_out=held_out,
    )
    point = found.chain.carrying(fitted=record, fit_cost=found.cost)
    if not others:
        return point
    return point.carrying(fitted=record, fit_cost=found.cost, family=Family([point, *others]))


def _check_privacy(epsilon: float | None, public: bool) -> float | None:
    """What is spent on the chain; a warning where the readings are neither public nor paid for."""
    from csdp.fitting.fit import check_epsilon

    spent = check_epsilon(epsilon)
    if spent is not None and public:
        raise InputError("epsilon: given for data that is declared public; give one of the two")
    if spent is None and not public:
        warnings.warn(
            "the chain is fitted on readings that are not declared public, and tells about them; fit on public "
            "readings (public=True), or pay for it (epsilon=...)",
            PrivacyLeakWarning,
            stacklevel=3,
        )
    return spent


def _score_directions(
    readings: Sample, method: str, neighbours: Any, *, smoothing: float, effort: Effort, tell: Progress
) -> tuple[tuple[str, float], ...]:
    """Log-likelihood per tick of the last part of the readings, in each direction, after a fit on the rest."""
    from csdp.fitting.sample import Prediction

    cut = round(readings.states.shape[0] * (1 - HELD_OUT))
    if min(cut, readings.states.shape[0] - cut) < 20:
        raise InputError(
            f"direction: 'auto' needs readings to set aside, and {readings.states.shape[0]} ticks are too few; give "
            "'forward' or 'backward'"
        )
    quick = replace(effort, restarts=1)
    scores = []
    for way in get_args(Direction):
        past, rest = (
            readings.between(0, cut).in_direction(way),
            readings.between(cut - 1, len(readings.states)).in_direction(way),
        )
        found = _fit_point(past, method, neighbours, smoothing=smoothing, epsilon=None, effort=quick, tell=tell)
        prediction = Prediction(found.chain, rest)
        total = sum(float(prediction.scores(j)[0].sum()) for j in range(readings.sequences))
        scores.append((way, total / rest.transitions))
    return tuple(scores)


def _draw_ensemble(
    found: methods.PointEstimate, count: int, kind: str, seed: int, tell: Progress
) -> list[CoupledChain | JointChain]:
    """The further chains of the family."""
    from csdp.fitting import methods

    if not count:
        return []
    drawn = methods.ensemble_draw(found, kind)
    others = []
    for n in range(count):
        others.append(drawn(np.random.default_rng([seed, 1, n])))
        tell("ensemble", n + 1, count)
    return others


def _fit_point(
    readings: Sample,
    method: str,
    neighbours: Any,
    *,
    smoothing: float,
    epsilon: float | None,
    effort: Effort,
    tell: Progress,
) -> methods.PointEstimate:
    from csdp.fitting import methods

    if method == "joint":
        return methods.fit_joint(readings, smoothing=smoothing, epsilon=epsilon, effort=effort, progress=tell)
    if method in {"em", "counts"} and epsilon is None:
        fixed = method == "counts"
        return methods.fit_em(readings, neighbours, smoothing=smoothing, effort=effort, progress=tell, fixed=fixed)
    kind = "ching" if method == "ching" else "moments"
    return methods.fit_pairs(readings, neighbours, method=kind, smoothing=smoothing, epsilon=epsilon, progress=tell)


def _notes(readings: Sample, found: methods.PointEstimate, smoothing: float, method: str) -> list[str]:
    """What to beware of, found in public readings."""
    notes = []
    if not found.converged:
        notes.append(
            f"EM did not settle in {found.iterations} iterations; raise max_iterations, or tolerance if the last gains "
            "do not matter"
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
    if found.observations < 10 * found.parameters:
        notes.append(
            f"{found.observations:,} transitions for {found.parameters:,} parameters: the family is wide; "
            "lower neighbours or states, or fit on more ticks"
        )
    if smoothing == 0 and not found.chain.is_positive:
        notes.append("zero probabilities: smoothing=0 leaves what was never seen impossible; leakage may be infinite")
    if method == "ching":
        notes.append("the coupling of this method is hardly determined by data; method='em' is")
    return notes


def _private_notes(found: methods.PointEstimate, method: str) -> list[str]:
    """What to beware of; known from the sizes and the noise, not from the readings."""
    notes = []
    if method in {"em", "counts"}:
        notes.append(f"method {method!r} needs the readings themselves; 'moments' was used, from noised pair counts")
    if found.noise_share > 0.2:
        notes.append(
            f"the noise has {found.noise_share:.0%} of the size of an average count: the chain is mostly noise; fit on "
            "more ticks, fewer sequences or states, pairs known beforehand, or a larger epsilon"
        )
    return notes


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _check_direction(direction: str, method: str, epsilon: float | None) -> None:
    if direction not in {*get_args(Direction), "auto"}:
        raise InputError(f"direction: {direction!r} given; 'forward', 'backward' or 'auto'")
    if direction != "forward" and method == "joint":
        raise InputError("direction: a joint chain is the same process in both directions; leave direction= out")
    if direction == "auto" and epsilon is not None:
        raise InputError("direction: 'auto' looks at the readings; with epsilon give 'forward' or 'backward'")


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
