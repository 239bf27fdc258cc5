"""`csdp.leakage`: how much one release, some, or a release at every tick reveals, of the present or of any moment."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from csdp import check
from csdp.accountant.account import Accountant
from csdp.aging import Adversary, Progress
from csdp.bounds.leakage import leakage as leakage_of_one
from csdp.bounds.result import Leakage
from csdp.chain import Family, Model
from csdp.errors import InputError
from csdp.plan import Plan
from csdp.query_table import Query

#: Why nothing finite is known of any moment.
_UNKNOWN = "infinite: what later releases reveal of a state is not known under this model, and grows with each of them"
#: What is kept secret: the present state of a sequence, or its state at any one tick.
Secret = Literal["present", "moment"]


def leakage(
    model: Model | Family,
    query: Query | str,
    *,
    ages: Any,
    epsilon_c: float,
    releases: int | Literal["continual"] = 1,
    secret: Secret = "present",
    bound: str = "auto",
    adversary: Adversary = "informed",
    progress: Progress | None = None,
) -> Leakage:
    """How much `query(aged snapshot) + Laplace(Delta_f / epsilon_c)` reveals about the state of any sequence.

    Formal guarantee: for all presents x, x' that differ in one sequence and every set S of outputs,
    `Pr[outputs in S | x_t = x] <= exp(epsilon) Pr[outputs in S | x_t = x']`, under the model; for `secret="moment"` the
    same for the states at any one tick, before or after the readings of any release. Under an environment the adversary
    may know that of every tick; of a clock the worst phase counts.
    Not promised: several moments together; and of the present alone, a record once it is old enough to be published.

    Args:
        model: the model. Over a Family, and over that of a fitted chain, the answer is the largest; `point` is that of
            the first member, the point estimate.
        query: what is published of the aged snapshot: a query, or its text as on the command line ("mean", "count:1").
        ages: how old the published readings are, in steps: one age for all sequences, or one each.
        epsilon_c: the noise level; smaller means more noise.
        releases: their number, at consecutive ticks, or "continual": a release at every tick, in the long run.
        secret: the state of a sequence at the present, or at any one moment.
        bound: of one release: one of `csdp.bounds.result.BOUNDS`, or "auto": the sharpest that fits, by component.
        adversary: of one release: who knows every other present value besides the model ("informed"), or none of them
            ("uninformed").
        progress: called with a stage, what is done and what there is to do.

    >>> from csdp import CoupledChain, InfluenceGraph, Mean
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> leakage(chain, Mean(), ages=2, epsilon_c=1.0)
    Leakage(0.153046, exact, informed)
    >>> leakage(chain, "mean", ages=2, epsilon_c=1.0, releases="continual")
    Leakage(0.210384, metric, informed)
    >>> print(leakage(CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0).witness)
    x1 = 1 against 0, seen at output 1
    >>> rooms = InfluenceGraph.declared(["hall", "kitchen"], own=0.4, others={("hall", "kitchen"): 0.05})
    >>> [leakage(rooms, "mean", ages=1, epsilon_c=0.25, releases="continual", secret=s) for s in ("present", "moment")]
    [Leakage(0.270015, influence, informed), Leakage(0.79003, influence, informed)]
    """
    check.choice("secret", secret, ("present", "moment"))
    number = None if releases == "continual" else check.whole("releases", releases, least=1, hint="or 'continual'")
    if number == 1 and secret == "present":
        return leakage_of_one(
            model, query, ages=ages, epsilon_c=epsilon_c, bound=bound, adversary=adversary, progress=progress
        )
    if bound != "auto" or adversary != "informed":
        raise InputError(
            f"leakage: bound {bound!r} and adversary {adversary!r} given for {releases} releases, secret {secret!r}; "
            "these are choices for the present after one release: leave them out"
        )
    accountant = Accountant(Plan(model, query, ages, epsilon_c))
    now = accountant.limit() if number is None else accountant.after(number)
    return now if secret == "present" else _of_any_moment(accountant, number, now)


def _of_any_moment(accountant: Accountant, releases: int | None, now: Leakage) -> Leakage:
    """The leakage of any moment, with the assumptions of that of the present."""
    revealed = accountant.every_moment(releases)
    group = math.inf if releases is None else accountant.group_level(releases)
    return replace(
        now,
        epsilon=revealed,
        bound="group" if revealed >= group else now.bound,
        assumptions=(*now.assumptions, "the state at any one tick, from all releases before and after it"),
        reason=_UNKNOWN if math.isinf(revealed) else "",
        witness=None,
        components=(),
        point=None,
    )
