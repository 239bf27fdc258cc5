"""A plan as a measurement of OpenDP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from csdp.bounds.result import round_up
from csdp.errors import InputError
from csdp.interop.needed import needed
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Batch, Publisher

FEATURES = ("contrib", "honest-but-curious")


def opendp_measurement(source: Plan | Publisher, *, ticks: int, start: int = 0) -> Any:
    """A user-defined measurement of OpenDP for the readings of `ticks` consecutive ticks, from `start` on.

    Its argument is a list of state numbers, all sequences of the first tick, then of the next; none may be missing.
    Two arguments are as far apart as the readings in which they differ (Hamming distance). Its privacy map is
    `d -> d epsilon_c`: a reading is read by one release, so `map(1)` is the event level of the plan.

    From a **Publisher** it publishes: calling it charges the ledger, releases and records, and gives a `Batch`. Ticks
    that are published already come from the ledger, and refusals depend on ticks alone, so the map holds whatever was
    published before. From a **Plan** it is for accounting and combination only: `map` works, calling it is refused,
    because nothing is published except through a publisher; a release that OpenDP made by itself would be in no ledger,
    and the leakage of the present would be counted too low.

    Guarantee: plain DP of single readings, under any model. The leakage of the present, which knows the correlations,
    does not cross over. OpenDP asks for the features "contrib" and "honest-but-curious", because it cannot check
    a map that it has not proven.

    >>> import opendp.prelude as dp
    >>> dp.enable_features("contrib", "honest-but-curious")
    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=0.5)
    >>> measurement = opendp_measurement(plan, ticks=24)
    >>> measurement.map(1), measurement.map(3)
    (0.5, 1.5)
    """
    plan = source.plan if isinstance(source, Publisher) else source
    if not isinstance(plan, Plan):
        raise InputError(f"source: {type(source).__name__} given; a Plan, or a Publisher to publish")
    if isinstance(source, Publisher) and source.unsafe:
        raise InputError(
            "source: this publisher draws its noise from a seed, which protects nobody; leave unsafe_seed out"
        )
    for name, value, least in (("ticks", ticks, 1), ("start", start, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name}: {value!r} given; a whole number, {least} or more")
    dp = needed("opendp.prelude", package="opendp")
    _check_features(dp)
    model = plan.model
    return dp.m.make_user_measurement(
        input_domain=dp.vector_domain(dp.atom_domain(bounds=(0, model.states - 1)), size=ticks * model.sequences),
        input_metric=dp.hamming_distance(),
        output_measure=dp.max_divergence(),
        function=_published(source, ticks, start) if isinstance(source, Publisher) else _refused,
        privacy_map=lambda distance: _rounded(int(distance) * plan.epsilon_c),
    )


def _check_features(dp: Any) -> None:
    """OpenDP's switches are the caller's promise, so we do not turn them."""
    try:
        dp.assert_features(*FEATURES)
    except Exception as error:  # OpenDP raises a type of its own, which older versions keep elsewhere
        names = ", ".join(f'"{name}"' for name in FEATURES)
        raise InputError(f"opendp: enable its features first, opendp.prelude.enable_features({names})") from error


def _rounded(epsilon: float) -> float:
    return 0.0 if epsilon == 0 else round_up(epsilon)


def _published(publisher: Publisher, ticks: int, start: int) -> Callable[[Sequence[int]], Batch]:
    model = publisher.plan.model

    def function(readings: Sequence[int]) -> Batch:
        states = np.asarray(readings, dtype=np.int64)
        if states.size != ticks * model.sequences:
            raise InputError(
                f"readings: {states.size:,} given; {ticks:,} ticks of {model.sequences:,} sequences expected"
            )
        if states.min() < 0 or states.max() >= model.states:
            # A missing reading would show in what is released, which the map does not cover.
            raise InputError(
                f"readings: every one must be a state number, 0 to {model.states - 1}; none may be missing"
            )
        rows = states.reshape(ticks, model.sequences)
        return publisher.publish(Panel.from_states(rows, names=model.names, first_tick=start))

    return function


def _refused(_: Sequence[int]) -> Batch:
    raise InputError(
        "this measurement was made from a plan, for accounting only; make it from a Publisher, so that the release is "
        "charged in a ledger"
    )
