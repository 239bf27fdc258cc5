"""find_plan: the paper's P1 and its dual, against brute force over a fine grid; and whether a plan is worth it."""

from bisect import bisect_right

import numpy as np
import pytest

from csdp import (
    Accountant,
    CoupledChain,
    Family,
    InfluenceGraph,
    Mean,
    Panel,
    Plan,
    Publisher,
    Sum,
    find_plan,
    frontier,
    leakage,
    mse,
)
from csdp.chain.graph import Odds
from csdp.errors import BudgetExceeded, InfeasibleError, InputError, NotUsefulError
from csdp.planning.calibrate import Curves
from csdp.planning.search import _Search, check_useful, improvements


def paper(coupling=0.75, p=0.3, q=0.3):
    return CoupledChain([[coupling, 1 - coupling], [1 - coupling, coupling]], [[1 - p, p], [q, 1 - q]])


def random_chain(seed):
    random = np.random.default_rng(seed)
    s, m = int(random.integers(1, 3)), int(random.integers(2, 4))
    coupling = random.dirichlet(np.ones(s), size=s)
    transitions = random.dirichlet(np.full(m, 0.6), size=(s, s, m)) * 0.98 + 0.02 / m
    return CoupledChain(coupling, transitions)


LEVELS = np.geomspace(1e-3, 10.0, 2500)


def grid_least_error(chain, budget, max_age):
    """The least error on a fine grid of (age, epsilon_c) whose exact leakage keeps the budget."""
    best = np.inf
    for age in range(max_age + 1):
        fitting = bisect_right(
            LEVELS, budget, key=lambda level, age=age: leakage(chain, Mean(), ages=age, epsilon_c=level).epsilon
        )
        if fitting:
            best = min(best, mse(chain, Mean(), ages=age, epsilon_c=LEVELS[fitting - 1], estimate="linear").mse)
    return best


def check_against_grid(seed):
    chain = random_chain(seed)
    budget = float(np.random.default_rng(seed + 1).uniform(0.05, 1.0))
    found = find_plan(chain, Mean(), budget=budget, estimate="linear", max_age=4)
    assert found.leakage.epsilon <= budget
    assert leakage(chain, Mean(), ages=found.plan.ages, epsilon_c=found.plan.epsilon_c).epsilon <= budget
    assert found.error.mse <= grid_least_error(chain, budget, 4) * 1.001
    # P1 with the dual's answer gives the same leakage and error back
    back = find_plan(chain, Mean(), max_mse=found.error.mse, estimate="linear", max_age=4)
    assert back.error.mse <= found.error.mse
    assert back.leakage.epsilon <= found.leakage.epsilon * (1 + 1e-6)
    again = find_plan(chain, Mean(), budget=back.leakage.epsilon, estimate="linear", max_age=4)
    assert again.error.mse == pytest.approx(back.error.mse, rel=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_never_worse_than_a_fine_grid(seed):
    check_against_grid(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 200))
def test_never_worse_than_a_fine_grid_many(seed):
    check_against_grid(seed)


def test_targets_above_the_no_data_line_say_so():
    found = find_plan(paper(), Mean(), max_mse=0.6, max_age=20)
    assert "publishing nothing" in found.note
    assert found.error.no_data == pytest.approx(0.1333, abs=1e-3)


def test_vector_ages_beat_the_best_common_age_where_sequences_differ():
    slow, fast = [[0.98, 0.02], [0.02, 0.98]], [[0.6, 0.4], [0.4, 0.6]]
    chain = CoupledChain([[1, 0], [0, 1]], np.array([[slow, slow], [fast, fast]]))
    options = {"budget": 0.4, "estimate": "linear", "min_age": 1, "max_age": 6}
    common = find_plan(chain, Sum(), **options)
    vector = find_plan(chain, Sum(), ages="vector", **options)
    assert vector.error.mse < common.error.mse * 0.999
    assert vector.leakage.epsilon <= 0.4
    # exhaustive search over all pairs of ages: the local search is within 1 %
    exhaustive = min(_best_at(chain, (a, b), 0.4) for a in range(1, 7) for b in range(1, 7))
    assert vector.error.mse <= exhaustive * 1.01


def _best_at(chain, ages, budget):
    curves = Curves(chain, Sum(), ages, estimate="linear", releases=1)
    level = curves.largest_level(budget, 10.0)
    return np.inf if level is None else curves.error(level).mse


def test_a_found_plan_publishes(tmp_path):
    chain = paper()
    plan = find_plan(chain, Mean(), budget=0.3, estimate="linear", releases="continual", min_age=1, max_age=3).plan
    accountant = Accountant(plan)
    assert max(accountant.after(n).epsilon for n in (1, 2, 5, 20, 100)) <= 0.3
    with Publisher(plan, dataset="found", ledger=tmp_path / "ledger.db", budget=0.3) as publisher:
        batch = publisher.publish(Panel.from_states(chain.simulate(30, seed=0)))
    assert len(batch) == 30 - plan.max_age
    assert max(release.epsilon_s for release in batch) <= 0.3


def test_a_budget_below_what_slow_levels_add_is_refused_with_what_would_help():
    graph = InfluenceGraph.declared(["a", "b"], own=0.2)
    fitted = InfluenceGraph.of_odds(
        CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]], names=["a", "b"]),
        [Odds(2, 2, *(graph.worlds[0][0].edge_targets,) * 2, graph.worlds[0][0].edge_lags, np.ones(2))],
        forward=None,
        swing=1.25 * (1.0 - np.eye(2)) * np.ones((2, 1, 1)),
        confidence=0.99,
    )
    for target in ({"about": "now"}, {"about": "then", "max_mse": 0.2}):
        with pytest.raises(InfeasibleError, match=r"Slow levels alone add 1.25.*csdp.NoModel"):
            find_plan(fitted, "mean", budget=1.0, max_age=3, releases="continual", **target)


def test_a_plan_is_certified_for_every_member_of_a_family_and_the_gate_charges_it(tmp_path):
    family = Family([paper(coupling=0.8, p=0.1, q=0.2), paper(coupling=0.75, p=0.12, q=0.2)])
    found = find_plan(family, Mean(), budget=0.5, min_age=1, max_age=3, releases=3)
    plan = found.plan
    assert isinstance(plan.chain, Family)
    accountants = [Accountant(Plan(member, Mean(), plan.ages, plan.epsilon_c)) for member in plan.chain]
    assert max(each.ceiling(3) for each in accountants) <= found.leakage.epsilon <= 0.5
    assert Plan.from_json(plan.to_json()) == plan
    with Publisher(plan, dataset="d", ledger=tmp_path / "l.db", budget=0.5, on_refusal="skip") as publisher:
        batch = publisher.publish(Panel.from_states(np.zeros((8, 2), dtype=np.int8)))
    assert len(batch) >= 3
    assert batch.releases[0].epsilon_s == pytest.approx(max(a.after(1).epsilon for a in accountants), rel=1e-9)


def test_leakage_is_the_largest_over_a_family_with_that_of_the_fitted_chain_beside_it():
    family, options = Family([paper(p=p, q=p) for p in (0.3, 0.1)]), {"ages": 1, "epsilon_c": 1.0}
    answer = leakage(paper().carrying(family=family), Mean(), **options)
    point = leakage(paper(), Mean(), **options)
    assert answer.epsilon == max(leakage(member, Mean(), **options).epsilon for member in family) > point.epsilon
    assert (answer.point, point.point) == (point.epsilon, None)


def test_progress_counts_ages():
    told = []
    find_plan(paper(), Mean(), max_mse=0.5, max_age=2, progress=lambda *step: told.append(step))
    assert told == [("planning", 0, 3), ("planning", 1, 3), ("planning", 2, 3)]


def test_a_plan_whose_leakage_grows_with_age_says_that_a_publisher_refuses_it(tmp_path):
    rare = paper(coupling=0.5, p=0.001, q=0.1)
    found = find_plan(rare, Mean(), budget=3.0, min_age=1, max_age=1)
    assert "aging raises this leakage before it falls" in found.note
    with (
        Publisher(found.plan, dataset="d", ledger=tmp_path / "l.db", budget=3.0) as publisher,
        pytest.raises(BudgetExceeded),
    ):
        publisher.publish(Panel.from_states(rare.simulate(3, seed=0)))


@pytest.mark.parametrize(
    ("target", "step"),
    [
        ({"budget": 0.6}, "_solve"),
        ({"max_mse": 0.2}, "_solve"),
        ({"budget": 0.3, "releases": "continual"}, "_solve"),
        ({"budget": 1.5, "max_mse": 1.0, "releases": "continual", "about": "then"}, "_within_both"),
    ],
)
def test_an_interrupt_returns_the_best_plan_so_far(monkeypatch, target, step):
    work, done = getattr(_Search, step), []

    def impatient(self, *arguments):
        if done:
            raise KeyboardInterrupt
        done.append(1)
        return work(self, *arguments)

    monkeypatch.setattr(_Search, step, impatient)
    found = find_plan(paper(p=0.05, q=0.1), Mean(), max_age=6, **target)
    assert "interrupted; this is the best plan so far" in found.note
    assert found.leakage.epsilon <= target.get("budget", 99)
    assert found.error.safe <= target.get("max_mse", 99)
    with pytest.raises(KeyboardInterrupt):  # before there is any plan
        find_plan(paper(), Mean(), max_age=6, **target)


def test_continual_ages_are_passed_over_only_if_they_cannot_win():
    chain = CoupledChain([[1.0]], [[0.9, 0.08, 0.02], [0.05, 0.9, 0.05], [0.02, 0.08, 0.9]])
    options = {"budget": 0.6, "releases": "continual", "estimate": "linear"}
    found = find_plan(chain, Mean(), max_age=4, **options)
    each = [find_plan(chain, Mean(), min_age=age, max_age=age, **options) for age in range(5)]
    assert found.error.safe <= min(one.error.safe for one in each) * 1.002


@pytest.mark.parametrize(("sequences", "at_age_0", "at_age_1"), [(12, 0.175, 0.187), (50, 0.173, 0.183)])
def test_the_chain_of_a_new_user_can_be_planned_in_the_long_run(sequences, at_age_0, at_age_1):
    """Own coupling .75, the rest shared, p .1, q .2, budget 1: the forward cap said that even 1e-6 leaks 3.25."""
    coupling = np.full((sequences, sequences), 0.25 / (sequences - 1))
    np.fill_diagonal(coupling, 0.75)
    chain = CoupledChain(coupling, [[0.9, 0.1], [0.2, 0.8]], direction="backward")
    for age, level in ((0, at_age_0), (1, at_age_1)):
        found = find_plan(chain, Mean(), budget=1.0, releases="continual", min_age=age, max_age=age)
        assert level <= found.plan.epsilon_c < level + 0.001
        assert (found.leakage.bound, found.leakage.epsilon <= 1.0) == ("influence", True)


class TestGiant:
    """One forward component that is too large for anything but slice and group."""

    def ring(self, n=24):
        coupling = {(j, j): 0.8 for j in range(n)} | {(j, (j + 1) % n): 0.2 for j in range(n)}
        return CoupledChain(coupling, [[0.7, 0.3], [0.3, 0.7]])

    @pytest.mark.parametrize("releases", [1, "continual"])
    def test_the_youngest_age_that_fits(self, releases):
        ring = self.ring()
        found = find_plan(ring, Mean(), budget=0.5, min_age=1, max_age=8, releases=releases)
        accountant = Accountant(found.plan)
        first = leakage(ring, Mean(), ages=found.plan.ages, epsilon_c=found.plan.epsilon_c).epsilon
        assert found.leakage.epsilon == (first if releases == 1 else accountant.ceiling()) <= 0.5
        assert accountant.ceiling(releases if releases == 1 else None) <= 0.5
        younger = accountant.plan.ages[0] - 1
        assert Accountant(Plan(ring, Mean(), younger, found.plan.epsilon_c)).ceiling() > 0.5

    def test_fresh_data_is_bounded_by_its_noise_alone(self):
        found = find_plan(self.ring(), Mean(), budget=0.5, max_age=0)
        assert (found.plan.ages[0], found.leakage.bound) == (0, "group")
        assert found.plan.epsilon_c == pytest.approx(0.5 / 24)

    def test_an_error_that_none_reaches(self):
        with pytest.raises(InfeasibleError, match=r"publishing nothing has squared error 0\.01"):
            find_plan(self.ring(), Mean(), max_mse=0.001, min_age=1, max_age=3, estimate="raw")


class TestChecks:
    """What a search returns is checked as it is: a search that went wrong gives an error, not a plan."""

    def test_a_level_above_the_budget(self, monkeypatch):
        monkeypatch.setattr(Curves, "largest_level", lambda self, budget, limit, **_: limit)
        with pytest.raises(AssertionError, match="the certified leakage passes the budget"):
            find_plan(paper(), Mean(), budget=0.1, min_age=1, max_age=1)

    def test_a_level_that_misses_the_error(self, monkeypatch):
        monkeypatch.setattr("csdp.planning.search.least_level", lambda error, target, limit: 0.1)
        with pytest.raises(AssertionError, match="the error passes the target"):
            find_plan(paper(), Mean(), max_mse=0.5, min_age=1, max_age=1, estimate="raw")


def test_event_limit_bounds_the_noise_level():
    found = find_plan(paper(), Mean(), budget=5.0, estimate="linear", event_limit=2.0)
    assert found.plan.epsilon_c == 2.0


def test_frontier_has_the_no_data_line_and_marks_the_best_points():
    line = frontier(paper(), Mean(), ages=(1, 2, 4), levels=(0.1, 1.0, 5.0))
    assert len(line.points) == 9
    best = [point for point in line.points if point.best]
    assert best
    for point in best:
        assert not any(o.leakage < point.leakage and o.mse < point.mse for o in line.points)


def test_a_frontier_runs_over_young_and_old_ages():
    assert [point.age for point in frontier(paper(), Mean(), levels=(1.0,)).points] == [0, 1, 2, 3, 5, 8]
    levels = [point.epsilon_c for point in frontier(paper(), Mean(), ages=(1,)).points]
    assert (len(levels), levels[0], levels[-1]) == (12, pytest.approx(0.05), pytest.approx(10.0))


class TestErrors:
    def test_both_or_no_target(self):
        with pytest.raises(InputError, match="neither of max_mse and budget"):
            find_plan(paper(), Mean())
        with pytest.raises(InputError, match="both of max_mse and budget"):
            find_plan(paper(), Mean(), max_mse=1.0, budget=1.0)

    def test_infeasible_names_what_is_feasible(self):
        with pytest.raises(InfeasibleError, match="the least squared error") as caught:
            find_plan(paper(), Mean(), max_mse=1e-5)
        assert caught.value.nearest > 1e-5
        find_plan(paper(), Mean(), max_mse=caught.value.nearest * 1.0001)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"budget": 0.0}, "budget: 0.0 given; a finite number above 0"),
            ({"budget": float("nan")}, "budget: nan given"),
            ({"budget": 1.0, "max_age": -1}, "max_age: -1 given"),
            ({"budget": 1.0, "max_age": 1.5}, "max_age: 1.5 given"),
            ({"budget": 1.0, "min_age": 9, "max_age": 3}, "min_age: 9 given; .* at most 3"),
            ({"budget": 1.0, "releases": 0}, "releases: 0 given"),
            ({"budget": 1.0, "ages": "best"}, "ages: 'best' given"),
            ({"budget": 1.0, "event_limit": -1}, "event_limit: -1 given"),
        ],
    )
    def test_bad_input(self, options, message):
        with pytest.raises(InputError, match=message):
            find_plan(paper(), Mean(), **options)


# ---- whether a plan is worth its leakage -----------------------------------------------------------------------------

SLOW = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.98, 0.02], [0.02, 0.98]])


def error_of(plan, about="now"):
    return mse(plan.chain, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, estimate="history", about=about)


def test_a_useful_plan_is_let_through_and_another_is_told_what_would_help():
    useful = Plan(SLOW, Mean(), 1, 2.0)
    check_useful(useful, error_of(useful))
    with pytest.raises(NotUsefulError) as refused:
        check_useful(Plan(paper(), Mean(), 6, 1.0), error_of(Plan(paper(), Mean(), 6, 1.0)))
    assert refused.value.helps == improvements(Plan(paper(), Mean(), 6, 1.0))


@pytest.mark.parametrize(
    ("plan", "about", "helps"),
    [
        (Plan(paper(), Mean(), 6, 1.0), "now", ["--about then", "readings of age"]),  # too old for any noise level
        (Plan(SLOW, Mean(), 1, 0.01), "now", ["less noise"]),
        (Plan(paper(), Mean(), 6, 1e-3), "then", ["less noise"]),
        (Plan(paper(), Mean(), 0, 1e-3), "now", ["less noise"]),  # nothing younger is left
    ],
)
def test_only_what_helps_is_proposed(plan, about, helps):
    told = improvements(plan, about)
    assert [any(words in each for each in told) for words in helps] == [True] * len(helps)
    assert any("--about then" in each for each in told) == ("--about then" in helps)
    assert any("readings of age" in each for each in told) == ("readings of age" in helps)
    assert any("less noise" in each for each in told) == ("less noise" in helps)
