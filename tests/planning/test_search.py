"""find_plan: the paper's P1 and its dual, against brute force over a fine grid."""

import numpy as np
import pytest

from csdp import CoupledChain, Family, Mean, Sum, leakage
from csdp.errors import InfeasibleError, InputError, UnsoundError
from csdp.estimate import mse
from csdp.planning import find_plan, frontier


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
        low, high = 0, LEVELS.size  # leakage grows with epsilon_c: bisect for the last grid level that fits
        while low < high:
            middle = (low + high) // 2
            fits = leakage(chain, Mean(), ages=age, epsilon_c=LEVELS[middle]).epsilon <= budget
            low, high = (middle + 1, high) if fits else (low, middle)
        if low:
            best = min(best, mse(chain, Mean(), ages=age, epsilon_c=LEVELS[low - 1], estimate="linear").mse)
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


@pytest.mark.parametrize(
    ("given", "target", "printed"), [([1, 1], 0.6, 1.49), ([1, 1], 1.0, 0.89), ([1, 0], 0.6, 1.03), ([1, 0], 1.0, 0.76)]
)
def test_the_papers_optimal_noise_levels_follow_from_independent_marginals(given, target, printed):
    error = mse(paper(), Mean(), ages=20, epsilon_c=1.0, given=given, law="independent-marginals")
    level = 0.5 * np.sqrt(2.0 / (target - error.aging))
    assert round(level, 2) == printed
    assert mse(
        paper(), Mean(), ages=20, epsilon_c=level, given=given, law="independent-marginals"
    ).mse == pytest.approx(target, rel=1e-6)


def test_the_true_law_asks_for_another_level():
    # With both aged values at 1 the true joint law has a larger aging error than independent marginals.
    true = mse(paper(), Mean(), ages=20, epsilon_c=1.0, given=[1, 1]).aging
    assert true == pytest.approx(0.25 + mse(paper(), Mean(), ages=20, epsilon_c=1.0).no_data, rel=1e-6)
    assert true > 0.375


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
    from csdp.planning.curves import Curves, largest_level

    curves = Curves(chain, Sum(), ages, estimate="linear", releases=1, bound="auto", adversary="informed")
    level = largest_level(lambda e: curves.leakage(e).epsilon, budget, 10.0)
    return np.inf if level is None else curves.error(level).mse


def test_continual_plan_keeps_its_budget_for_ever():
    from csdp import Accountant

    found = find_plan(paper(), Mean(), budget=0.2, estimate="linear", releases="continual", min_age=1, max_age=3)
    accountant = Accountant(found.plan)
    assert max(accountant.after(n).epsilon for n in (1, 2, 5, 20, 100)) <= 0.2
    single = find_plan(paper(), Mean(), budget=0.2, estimate="linear", min_age=1, max_age=3)
    assert found.error.mse > single.error.mse


def test_a_found_plan_publishes(tmp_path):
    from csdp import Panel, Plan, Publisher

    chain = paper()
    plan = find_plan(chain, Mean(), budget=0.3, estimate="linear", releases="continual", min_age=1, max_age=3).plan
    assert type(plan) is Plan
    assert Plan.from_json(plan.to_json()) == plan
    with Publisher(plan, dataset="found", ledger=tmp_path / "ledger.db", budget=0.3) as publisher:
        batch = publisher.publish(Panel.from_states(chain.simulate(30, seed=0)))
    assert len(batch) == 30 - plan.max_age
    assert max(release.epsilon_s for release in batch) <= 0.3


def test_family_takes_the_worst_member():
    family = Family([paper(p=p, q=p) for p in (0.1, 0.3)])
    found = find_plan(family, Mean(), budget=0.3, estimate="linear", min_age=1, max_age=4)
    for member in family:
        assert leakage(member, Mean(), ages=found.plan.ages, epsilon_c=found.plan.epsilon_c).epsilon <= 0.3


def test_progress_counts_ages():
    told = []
    find_plan(paper(), Mean(), max_mse=0.5, max_age=2, progress=lambda *step: told.append(step))
    assert told == [("planning", 0, 3), ("planning", 1, 3), ("planning", 2, 3)]


def test_a_plan_whose_leakage_grows_with_age_says_that_a_publisher_refuses_it(tmp_path):
    from csdp import Panel, Publisher
    from csdp.errors import BudgetExceeded

    rare = paper(coupling=0.5, p=0.001, q=0.1)
    found = find_plan(rare, Mean(), budget=3.0, min_age=1, max_age=1)
    assert "aging raises this leakage before it falls" in found.note
    with (
        Publisher(found.plan, dataset="d", ledger=tmp_path / "l.db", budget=3.0) as publisher,
        pytest.raises(BudgetExceeded),
    ):
        publisher.publish(Panel.from_states(rare.simulate(3, seed=0)))


class TestGiant:
    """One component that is too large for anything but lineage and slice: its ages are bounded in one pass."""

    def ring(self, n=40):
        coupling = {(j, j): 0.8 for j in range(n)} | {(j, (j + 1) % n): 0.2 for j in range(n)}
        return CoupledChain(coupling, [[0.7, 0.3], [0.3, 0.7]])

    @pytest.mark.parametrize("releases", [1, "continual"])
    def test_the_youngest_age_that_fits(self, releases):
        from csdp import Accountant

        ring = self.ring()
        found = find_plan(ring, Mean(), budget=0.5, min_age=1, max_age=8, releases=releases)
        assert (
            found.leakage.epsilon
            == leakage(ring, Mean(), ages=found.plan.ages, epsilon_c=found.plan.epsilon_c).epsilon
            <= 0.5
        )
        assert Accountant(found.plan).ceiling() <= 0.5
        younger = leakage(ring, Mean(), ages=found.plan.ages[0] - 1, epsilon_c=found.plan.epsilon_c)
        assert younger.epsilon > 0.5
        assert found.evaluations == 1

    def test_fresh_data_is_bounded_by_its_noise_alone(self):
        found = find_plan(self.ring(), Mean(), budget=0.5, max_age=0)
        assert (found.plan.ages[0], found.leakage.bound) == (0, "group")
        assert found.plan.epsilon_c == pytest.approx(0.5 / 40)

    def test_an_error_that_none_reaches(self):
        with pytest.raises(InfeasibleError, match=r"publishing nothing has squared error 0\.0066"):
            find_plan(self.ring(), Mean(), max_mse=0.001, min_age=1, max_age=3, estimate="raw")

    def test_a_bound_that_was_asked_for_is_kept(self):
        found = find_plan(self.ring(), Mean(), budget=0.5, min_age=1, max_age=8, bound="slice")
        assert found.leakage.bound == "slice"


class TestChecks:
    """What a search returns is checked as it is: a search that went wrong gives an error, not a plan."""

    def test_a_level_above_the_budget(self, monkeypatch):
        from csdp.planning.curves import Curves

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
    assert len(line.records()) == 9
    best = [point for point in line.points if point.best]
    assert best
    for point in best:
        assert not any(o.leakage < point.leakage and o.mse < point.mse for o in line.points)


def test_a_frontier_runs_over_young_and_old_ages_and_cannot_be_changed():
    line = frontier(paper(), Mean(), levels=(1.0,))
    assert [point.age for point in line.points] == [0, 1, 2, 3, 5, 8]
    with pytest.raises(AttributeError):
        line.points = ()
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

    def test_unsound_bounds_cannot_plan(self):
        with pytest.raises(UnsoundError, match="not proven"):
            find_plan(paper(), Mean(), budget=1.0, bound="printed-loose")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"budget": 0.0}, "budget: 0.0 given; a positive number"),
            ({"budget": float("nan")}, "a positive number"),
            ({"budget": 1.0, "max_age": -1}, "max_age: -1 given"),
            ({"budget": 1.0, "max_age": 1.5}, "max_age: 1.5 given"),
            ({"budget": 1.0, "min_age": 9, "max_age": 3}, "min_age 9 is above max_age 3"),
            ({"budget": 1.0, "releases": 0}, "releases: 0 given"),
            ({"budget": 1.0, "ages": "best"}, "ages: 'best' given"),
            ({"budget": 1.0, "event_limit": -1}, "event_limit: -1 given"),
        ],
    )
    def test_bad_input(self, options, message):
        with pytest.raises(InputError, match=message):
            find_plan(paper(), Mean(), **options)
