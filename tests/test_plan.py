"""Plans: frozen, named by their content, and nothing that differs passes for the same."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from csdp import Count, CoupledChain, Custom, Family, Histogram, Identity, JointChain, Linear, Max, Mean, Sum
from csdp.errors import InputError, TooLargeError
from csdp.plan import ALGORITHM, EXACT_STEPS, Plan
from csdp.query import PerGroup
from csdp.schedule import Schedule

CHAIN = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
WIDE = CoupledChain(np.eye(12), [[0.7, 0.3], [0.3, 0.7]])


def test_repr_shows_what_is_certified() -> None:
    plan = Plan(CHAIN, Mean(), ages=2, epsilon_c=1)
    assert repr(plan) == "Plan(mean, ages 2, epsilon_c 1, certified 0.153046)"
    assert repr(Plan(CHAIN, Mean(), ages=[1, 3], epsilon_c=1)).startswith("Plan(mean, ages 1,3,")
    assert (plan.certified.bound, plan.min_age, plan.max_age) == ("exact", 2, 2)


def test_a_plan_is_frozen_and_equal_by_content() -> None:
    plan = Plan(CHAIN, Mean(), 2, 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.epsilon_c = 2.0  # type: ignore[misc]
    assert plan == Plan(CHAIN, Mean(), [2, 2], 1.0)
    assert hash(plan) == hash(Plan(CHAIN, Mean(), [2, 2], 1.0))
    assert plan.digest == Plan(CHAIN, Mean(), [2, 2], 1.0).digest


def test_every_part_of_the_content_changes_the_digest() -> None:
    plans = [
        Plan(CHAIN, Mean(), 2, 1.0),
        Plan(CoupledChain([[0.7, 0.3], [0.3, 0.7]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), 2, 1.0),
        Plan(CHAIN, Max(), 2, 1.0),
        Plan(CHAIN, Count(1), 2, 1.0),
        Plan(CHAIN, Count(0), 2, 1.0),
        Plan(CHAIN, Mean(), 3, 1.0),
        Plan(CHAIN, Mean(), [2, 3], 1.0),
        Plan(CHAIN, Mean(), 2, 1.5),
        Plan(CHAIN, Mean(), 2, 1.0, stale_limit=1),
        Plan(CHAIN, Linear([1.0, 0.5]), 2, 1.0),
        Plan(CHAIN, Linear([1.0, 0.5 + 2**-19]), 2, 1.0),
        Plan(CHAIN, Custom(lambda v: v.sum(), name="f"), 2, 1.0),
        Plan(CHAIN, Custom(lambda v: v.max(), name="f"), 2, 1.0),
        Plan(CHAIN, Custom(np.ones((CHAIN.sequences, 1)) * np.arange(CHAIN.states) ** 2, name="f"), 2, 1.0),
        Plan(WIDE, Linear([1.0] * 12), 2, 1.0),
        Plan(WIDE, Linear([1.0] * 11 + [2.0]), 2, 1.0),
        Plan(CHAIN, Mean(), 2, 1.0, schedule=Schedule((1.0, 0.5))),
        Plan(CHAIN, Mean(), 2, 1.0, schedule=Schedule((1.0, 0.5), start=3)),
        Plan(CHAIN, Mean(), 2, 1.0, schedule=Schedule((1.0, 0.5), then=0.1)),
        Plan(WIDE, PerGroup(Sum(), (tuple(range(6)), tuple(range(6, 12)))), 2, 1.0),
        Plan(WIDE, PerGroup(Sum(), (tuple(range(5)), tuple(range(5, 12)))), 2, 1.0),
        Plan(WIDE, Sum(), 2, 1.0),
    ]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert ALGORITHM in {json.loads(json.dumps(plan.record()))["algorithm"] for plan in plans}


def test_outputs_are_named_after_the_sequences_of_the_plan_that_they_belong_to() -> None:
    """A query of another plan kept its names: each sequence was published under the name of the other."""
    named = [CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], names=names) for names in ("ab", "ba")]
    first, second = (Plan(chain, "identity", ages=1, epsilon_c=1.0) for chain in named)
    for again in (dataclasses.replace(first, chain=named[1]), Plan(named[1], first.query, ages=1, epsilon_c=1.0)):
        assert again == second
        assert again.query.outputs == ("b", "a")


@pytest.mark.parametrize(
    "plan",
    [
        Plan(CHAIN, Mean(), 2, 1.0),
        Plan(CHAIN, Identity(), [1, 4], 0.1, stale_limit=3),
        Plan(Family([CHAIN, CoupledChain(np.eye(2), [[0.9, 0.1], [0.2, 0.8]])]), Histogram(), 1, 0.5),
        Plan(WIDE, Linear(np.linspace(0.1, 1.3, 12).tolist()), 1, 0.5),
        Plan(JointChain(np.full((4, 4), 0.25), states=2, sequences=2), Count(1), 1, 0.5),
        Plan(WIDE, PerGroup(Histogram(), (tuple(range(4)), tuple(range(4, 12)))), 1, 0.5),
        Plan(CHAIN, Max(), 1, 0.5, schedule=Schedule((0.5, 0.0, 0.25), start=7, then=0.125)),
    ],
    ids=lambda plan: plan.query.name,
)
def test_json_round_trip(plan: Plan) -> None:
    again = Plan.from_json(plan.to_json(indent=1))
    assert again.digest == plan.digest
    assert again.query == plan.query
    assert again.ages == plan.ages
    assert again.schedule == plan.schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "schema 'csdp/plan/1'"),
        ('{"schema": "csdp/plan/9"}', "schema 'csdp/plan/1'"),
        ('{"schema": "csdp/plan/1"}', "lacks or garbles"),
        ("[" * 100_000, "not JSON"),
        ('{"schema": "csdp/plan/1", "chain": [{"schema": "x"}]}', "schema 'x' given; this version reads"),
    ],
)
def test_damaged_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"chain": []}, "no models given"),
        ({"chain": {}}, "no models given"),
        ({"chain": ["chain"]}, "a JSON str given; an object expected"),
        ({"query": 3}, "lacks or garbles"),
        ({"query": "median"}, "use mean, sum, max"),
        ({"groups": [[0], [1]]}, "mean given; sum, count or histogram"),
        ({"query": "sum", "groups": 3}, "lacks or garbles"),
        ({"ages": "old"}, "ages"),
        ({"epsilon_c": [1.0]}, "epsilon_c"),
        ({"schedule": {"levels": ["loud"], "start": 0, "then": 0}}, "lacks or garbles"),
        ({"schedule": [1.0]}, "lacks or garbles"),
    ],
)
def test_a_damaged_part_is_refused(changed: dict[str, object], message: str) -> None:
    content = json.loads(Plan(CHAIN, Mean(), 2, 1.0).to_json())
    with pytest.raises(InputError, match=message):
        Plan.from_json(json.dumps({**content, **changed}))


def test_a_custom_query_is_recorded_but_not_written() -> None:
    plan = Plan(CHAIN, Custom(lambda v: v.sum(), name="mine"), 1, 1.0)
    assert plan.record()["query"] == "mine"
    with pytest.raises(InputError, match="cannot be written as JSON"):
        plan.to_json()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"chain": "chain"}, "a model or a Family"),
        ({"query": "average"}, r"query: 'average' given; use mean"),
        ({"schedule": Schedule((0.5, 2.0))}, "level 2 is above epsilon_c 1 of the plan"),
        ({"ages": -1}, "age"),
        ({"ages": [1, 2, 3]}, "age"),
        ({"epsilon_c": 0}, "epsilon_c"),
        ({"epsilon_c": float("nan")}, "epsilon_c"),
        ({"stale_limit": -1}, "stale_limit"),
        ({"stale_limit": 1.5}, "stale_limit"),
        ({"stale_limit": True}, "stale_limit"),
        ({"stale_limit": 65_535}, "stale_limit"),
    ],
)
def test_bad_plans_say_what_is_allowed(changed: dict[str, object], message: str) -> None:
    given = {"chain": CHAIN, "query": Mean(), "ages": 1, "epsilon_c": 1.0, **changed}
    with pytest.raises(InputError, match=message):
        Plan(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("levels", "then", "message"),
    [((), 0.0, "at least one"), ((0.5, -0.1), 0.0, "0 or more"), ((float("inf"),), 0.0, "0 or more"),
     ((0.5,), float("nan"), "0 or more"), ((0.0, 0.0), 0.0, "nothing would ever be published")],
)  # fmt: skip
def test_bad_schedules_say_what_is_allowed(levels: tuple[float, ...], then: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Schedule(levels, then=then)


def test_a_schedule_is_a_function_of_the_tick() -> None:
    schedule = Schedule((0.5, 0.0, 0.25), start=10, then=0.125)
    assert [schedule.level(tick) for tick in (9, 10, 11, 12, 13, 99)] == [0.0, 0.5, 0.0, 0.25, 0.125, 0.125]
    plan = Plan(CHAIN, Mean(), 2, 1.0, stale_limit=2, schedule=schedule)
    assert [plan.level(tick) for tick in (9, 10, 13)] == [0.0, 0.5, 0.125]
    once = plan.at(0.25)
    assert (once.schedule, once.epsilon_c, once.stale_limit) == (None, 0.25, 2)
    assert once.at(0.25) is once
    assert once.level(9) == 0.25


def test_a_list_of_levels_that_is_changed_after_the_plan_was_made_changes_nothing() -> None:
    levels = [0.1, 0.1]
    plan = Plan(CHAIN, Mean(), 0, 0.1, schedule=Schedule(levels))  # type: ignore[arg-type]
    noise = plan.at_tick(0).noise_variance
    levels[:] = [5.0, 5.0]
    assert plan.level(0) == 0.1
    assert plan.at_tick(0).noise_variance == noise  # it was that of level 5, charged as 0.1


def test_every_level_of_a_schedule_must_be_drawn() -> None:
    Plan(CHAIN, Mean(), 1, 1.0, schedule=Schedule((1.0, 0.0), then=0.5)).check_noise()
    with pytest.raises(InputError, match="lattice steps"):
        Plan(CHAIN, Mean(), 1, 1.0, schedule=Schedule((1.0, 1e-10))).check_noise()


def test_answers_that_a_float_cannot_count_are_refused() -> None:
    """Values of 20 binary digits, and noise far wider than they are: more than 2^53 units."""
    fine = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], values=[0.0, 2.0**20 - 1])
    for query in (Sum(), Max(), Identity(), PerGroup(Sum(), ((0,), (1,))), Linear([1.0, 0.5])):
        Plan(fine, query, 1, 1.0).check_exact()
        plan = Plan(fine, query, 1, 2.0**-40)
        with pytest.raises(
            TooLargeError, match="lattice steps are not exact; give values and weights with fewer"
        ) as no:
            plan.check_exact()
        assert no.value.needed >= no.value.limit == EXACT_STEPS
    Plan(fine, Custom(lambda v: v.sum(), name="mine"), 1, 2.0**-40).check_exact()  # on a lattice of its own


def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_charged() -> None:
    Plan(CHAIN, Mean(), 1, 1.0).check_noise()
    with pytest.raises(InputError, match="lattice steps"):
        Plan(CHAIN, Mean(), 1, 1e-10).check_noise()
    fine = CoupledChain(np.eye(2), np.full((3, 3), 1 / 3), values=[0.1, 0.23, 0.71])
    with pytest.raises(InputError, match="fewer binary digits"):
        Plan(fine, Linear([1 / 3, 0.1]), 1, 1.0).check_noise()


def test_the_lattice_unit_is_the_largest_common_power_of_two() -> None:
    for values, unit in (([0, 4], 4.0), ([0.5, 3], 0.5), ([-6, 2], 2.0), ([0, 0.375], 0.125)):
        chain = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], values=values)
        assert Plan(chain, Mean(), 1, 1e-3).unit == unit
        assert Plan(chain, Identity(), 1, 1e-3).unit == unit
    assert Plan(CHAIN, Histogram(), 1, 1e-3).unit == 1.0


@pytest.mark.parametrize("epsilon_c", [5e-324, 1e-310, 1e-290, 1e-12])
def test_noise_too_wide_to_be_drawn_is_refused_in_words(epsilon_c: float) -> None:
    """Also where its width is beyond what a float can hold."""
    plan = Plan(CHAIN, Mean(), ages=2, epsilon_c=epsilon_c)
    with pytest.raises(InputError, match=r"noise (more than )?\S+ lattice steps wide; .* Use a larger epsilon_c"):
        plan.check_noise()
    with pytest.raises(InputError, match=r"scale is a fraction beyond that; allowed are numbers from 1e-9 to 1e9"):
        _ = plan.noise_variance
