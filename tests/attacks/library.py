"""From the description of a case to the library's own objects, and a tap on the noise that it draws."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import csdp
from attacks.cases import Ask, PlanSpec
from attacks.models import Spec, added
from csdp import fran
from csdp.accountant import build
from csdp.plan import Plan
from csdp.query import PerGroup
from csdp.schedule import Schedule
from oracle import Edge

logging.getLogger("csdp.publisher").addHandler(logging.NullHandler())  # histories publish recorded ticks again

NAMES = ("ash", "birch", "cedar")


class CrashError(Exception):
    """A process that dies after the charge and before the output."""


def make_chain(spec: Spec) -> Any:
    """The model of the library."""
    rest: dict[str, Any] = {"values": spec.values, "names": NAMES[: spec.s]}
    chain: Any
    if spec.levels is not None:
        windows = [[_odds_window(edges) for edges in spec.windows]]
        shape = {"sequences": spec.s, "states": spec.m, "values": spec.values.tolist(), "names": list(rest["names"])}
        graph = {"schema": csdp.InfluenceGraph.schema, "windows": windows, "forward": [_odds_window(spec.ahead)]}
        chain = csdp.InfluenceGraph.from_dict({**graph, **shape})
    elif spec.windows:
        chain = csdp.InfluenceGraph(spec.s, spec.values, spec.windows, names=rest["names"])
        matrices = [np.asarray(edge[4]).tolist() for edge in spec.ahead]
        ahead = {"matrices": matrices, "edges": [[*edge[:4], n] for n, edge in enumerate(spec.ahead)]}
        chain = csdp.InfluenceGraph.from_dict({**chain.to_dict(), "forward": [ahead]})
    elif spec.environments:
        how = {"clock": {"cycle": spec.cycle}, "hidden": {"switching": spec.switching}}
        chain = csdp.EnvironmentChain([make_chain(member) for member in spec.environments], **how[spec.how])
    elif spec.coupling is None:
        chain = csdp.JointChain(spec.kernel, states=spec.m, sequences=spec.s, **rest)
    else:
        chain = csdp.CoupledChain(spec.coupling, spec.transitions, direction=spec.direction, **rest)
    if spec.fit is not None:
        chain = chain.carrying(fit_cost={"epsilon": spec.fit, "mechanism": "counts", "sensitivity": 4})
    return chain if spec.margin is None else csdp.InfluenceGraph.around(chain, spec.margin)


def _odds_window(edges: Sequence[Edge]) -> dict[str, Any]:
    """Limits of the log odds that parents add."""
    limits = []
    for edge in edges:
        moved = added(edge)[None] - added(edge)[:, None]
        limits.append([*edge[:3], float(np.ptp(moved, axis=-1).max()) * (1 + 1e-12)])
    return {"odds": limits}


def make_query(ask: Ask, spec: Spec) -> Any:
    """The query of the library; of a table of contributions where it has no name there."""
    table = np.broadcast_to(spec.values, (spec.s, spec.m))
    made: Any = {
        "mean": csdp.Mean,
        "sum": csdp.Sum,
        "max": csdp.Max,
        "min": csdp.Min,
        "count": lambda: csdp.Count(ask.state),
        "histogram": csdp.Histogram,
        "identity": csdp.Identity,
        "linear": lambda: csdp.Linear(ask.weights),
        "custom": lambda: csdp.Custom(lambda v: v.max() - v.min() + 2.0 * v[0]),
        "above": lambda: csdp.Custom((table > float(table.mean())).astype(float)),
        "weighted": lambda: csdp.Custom(np.asarray(ask.weights)[:, None] * table),
        "average": lambda: csdp.Custom(table, divisor=4),
        "gap": lambda: csdp.Custom(8.0 - table, fold="max"),
    }[ask.name]()
    return PerGroup(made, ask.groups) if ask.groups else made


def make_plan(given: PlanSpec) -> Plan:
    """The plan of the library."""
    models = [make_chain(spec) for spec in given.models]
    schedule = Schedule(given.levels, then=given.levels[-1]) if given.levels else None
    return Plan(
        models[0] if len(models) == 1 else csdp.Family(models),
        make_query(given.ask, given.models[0]),
        list(given.ages),
        given.epsilon_c,
        stale_limit=given.stale_limit,
        schedule=schedule,
    )


@contextmanager
def follow_sequences(wanted: bool) -> Iterator[None]:
    """The state of a large component where one for all pairs of snapshots would be kept."""
    kept = build.METRIC_STATES, build.SCALAR_STATES
    if wanted:
        build.METRIC_STATES = build.SCALAR_STATES = 1
    try:
        yield
    finally:
        build.METRIC_STATES, build.SCALAR_STATES = kept


class Tap:
    """Sees every draw of noise on its way from the sampler to the mechanism; the noise is the real one."""

    def __init__(self) -> None:
        self.draws: list[tuple[Any, Any]] = []
        self.crash = False

    @contextmanager
    def open(self) -> Iterator[Tap]:
        real = fran.two_sided_geometric

        def tapped(scale: Any, shape: Any, randomness: Any) -> Any:
            if self.crash:
                raise CrashError
            steps = real(scale, shape, randomness)
            self.draws.append((scale, steps))
            return steps

        fran.two_sided_geometric = tapped
        try:
            yield self
        finally:
            fran.two_sided_geometric = real
