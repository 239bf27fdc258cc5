"""The family that a fit leaves with its chain: an ensemble of chains, or all processes within confidence limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from csdp.chain import CoupledChain, EnvironmentChain, Family, InfluenceFamily, JointChain
from csdp.chain.influence_family import FAMILY_STATES, influence_limits
from csdp.chain.stationary import connected_parts
from csdp.chain.steps import METRIC_STATES
from csdp.errors import InputError
from csdp.fitting import methods
from csdp.fitting.limits import confidence_limits, first_part
from csdp.fitting.pairs import Graph
from csdp.fitting.sample import Progress, Sample

#: What becomes of "auto" where there are no limits.
DEFAULT = "bootstrap"


def choose_limits(
    readings: Sample, neighbours: Any, *, kind: str, method: str, epsilon: float | None, progress: Progress
) -> tuple[Graph, bool] | None:
    """The graph on which limits are computed and whether the readings chose it; None where an ensemble is the family.

    "auto" takes limits where no state for every pair of snapshots fits, so that only `influence` certifies. A graph
    that is not given is chosen on the first part of the readings, which the limits do not use.
    """
    reason = (
        "needs direction='backward'" * (readings.direction == "forward")
        or "has no joint chains" * (method == "joint")
        or "needs the readings themselves; with epsilon leave it out" * (epsilon is not None)
        or f"takes at most {FAMILY_STATES} states" * (readings.m > FAMILY_STATES)
    )
    if kind == "limits" and reason:
        raise InputError(f"ensemble_method: 'limits' {reason}")
    if kind not in {"auto", "limits"} or reason:
        return None
    graph, screened = methods.choose_graph(first_part(readings), neighbours, progress)
    largest = max(map(len, connected_parts(graph.matrix())))
    return (graph, screened) if kind == "limits" or readings.m**largest > METRIC_STATES else None


def limits_family(
    readings: Sample,
    point: CoupledChain,
    graph: Graph,
    *,
    screened: bool,
    confidence: float,
    smoothing: float,
    progress: Progress,
) -> InfluenceFamily:
    """All processes within the confidence limits of a fit, which are widened to hold its point estimate."""
    gains, bases = confidence_limits(
        readings, graph, screened=screened, confidence=confidence, smoothing=smoothing, progress=progress
    )
    least, most = influence_limits(point, graph.pairs)
    return InfluenceFamily(
        point, graph.pairs, np.maximum(gains, least), np.minimum(bases, most).clip(min=0.0), confidence=confidence
    )


def ensemble_family(
    point: CoupledChain | JointChain | EnvironmentChain,
    estimate: methods.PointEstimate,
    *,
    count: int,
    kind: str,
    seed: int,
    progress: Progress,
) -> Family:
    """The point estimate and further chains like it."""
    draw = methods.ensemble_draw(estimate, DEFAULT if kind == "auto" else kind)
    others = []
    for n in range(count):
        others.append(draw(np.random.default_rng([seed, 1, n])))
        progress("ensemble", n + 1, count)
    return Family([point, *others])
