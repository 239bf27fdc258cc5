"""Windows of consecutive readings, and every moment, against what each recorded release has read."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from csdp import Accountant, CoupledChain, InfluenceGraph, Mean, Plan, replay
from csdp.errors import BudgetExceeded, InputError
from csdp.ledger import DatasetState, Ledger, PrivacyLimits, TickGrid
from csdp.publisher import Release, Standing, look_ahead
from csdp.publisher.charge import DatasetAccount, earlier_costs
from csdp.report.certificate import certify

from publisher.rules import NAME, ONE, opened, panel, plan, snapshot  # isort: skip

PAIR = CoupledChain(np.eye(2), [[0.7, 0.3], [0.3, 0.7]])


def account_of(chosen: Plan) -> DatasetAccount:
    return DatasetAccount(NAME, grid=TickGrid(), accountant=Accountant(chosen), fits={})


def largest_window(reads: list[tuple[int, float]], length: int) -> float:
    """The costs (slice, epsilon) of one sequence that lie in any `length` consecutive slices, summed."""
    return max(sum(cost for at, cost in reads if first <= at < first + length) for first, _ in reads)


@pytest.mark.parametrize("seed", range(60))
def test_a_window_is_never_below_what_any_schedule_of_plans_has_read(seed: int) -> None:
    """Gaps, late readings, unequal ages, and up to three changes of plan; the newest plan alone would be too low."""
    random = np.random.default_rng([3, seed])
    state, tick, reads, alone = DatasetState(), 0, ([], []), []
    account: DatasetAccount | None = None
    for _ in range(int(random.integers(1, 5))):
        ages = tuple(int(age) for age in random.integers(0, 4, size=2))
        stale_limit = int(random.integers(0, 3))
        chosen = Plan(PAIR, Mean(), ages, float(random.choice([0.01, 0.5, 2.0])), stale_limit=stale_limit)
        following = account_of(chosen)
        if account is not None and state.cost > 0:
            state = DatasetState(cost=state.cost, earlier=earlier_costs(account, state, tick, chosen, tick + 1))
        account = following
        for _ in range(int(random.integers(0, 9))):
            tick += int(random.integers(1, 3))
            delays = random.integers(0, stale_limit + 1, size=2)
            for sequence, age, delay in zip(reads, ages, delays.tolist(), strict=True):
                sequence.append((tick - age - delay, chosen.epsilon_c))
            state = DatasetState(
                releases=state.releases + 1,
                stale=max(state.stale, *delays.tolist()),
                cost=state.cost + 1.0,
                earlier=state.earlier,
            )
    assert account is not None
    for length in (1, 2, 3, 5, 12, 40):
        truth = max((largest_window(sequence, length) for sequence in reads if sequence), default=0.0)
        level = account.window(state, length)
        assert truth <= level <= account.window(state, length, ever=True)
        assert level <= sum(cost for _, cost in reads[0]) * (1 + 1e-9) + 1e-12
        alone.append(truth <= account.accountant.window_level(length, state.stale))
    if seed == 0:
        assert not all(alone)


@pytest.mark.parametrize(("ages", "stale"), list(itertools.product([(1,), (0, 2)], [0, 1, 2])))
def test_one_plan_reads_a_window_at_most_that_often(ages: tuple[int, ...], stale: int) -> None:
    """Every delay of every release is tried: the most that any of them adds up to is reached."""
    chain = CoupledChain(np.eye(len(ages)), [[0.7, 0.3], [0.3, 0.7]])
    accountant = Accountant(Plan(chain, Mean(), ages, 1.0, stale_limit=stale))
    for length in (1, 2, 3):
        most = 0.0
        for delays in itertools.product(range(stale + 1), repeat=length + stale):
            most = max(most, largest_window([(tick - delay, 1.0) for tick, delay in enumerate(delays)], length))
        assert accountant.window_level(length, stale) == pytest.approx(most)
        assert accountant.window_level(length, stale) >= most
    assert accountant.window_level(1, stale) == accountant.event_level(stale)


def test_a_window_limit_is_held_stated_and_replayed(file: Path) -> None:
    with opened(file, budget=None, window=3, window_limit=1.0) as publisher:
        assert look_ahead(publisher, 0).ticks == 2
        for tick in range(3):
            publisher.push(snapshot(tick), time=tick)
        assert publisher.summary()["window_level"] == pytest.approx(1.0)
        assert publisher.remaining() == {"window_limit": pytest.approx(0.0, abs=1e-9)}
        assert look_ahead(publisher, 2).limited_by == "window_limit"
        with pytest.raises(BudgetExceeded, match=r"window of consecutive readings to 1\.5, .* new dataset") as caught:
            publisher.push(snapshot(3), time=3)
        refused = caught.value
        assert (refused.limit_name, refused.requested) == ("window_limit", pytest.approx(1.5))
        level = refused.fits["epsilon_c"]
        assert Accountant(plan(epsilon_c=level)).window_level(3) <= 1.0
        certificate = certify(publisher, publisher.ledger)
        assert [promise.name for promise in certificate.promises] == [
            "present",
            "every_moment",
            "event",
            "window",
            "group",
        ]
        assert (certificate["window"].epsilon, certificate["window"].ceiling) == pytest.approx((1.0, 1.5))
        assert "any 3 consecutive readings" in certificate["window"].protects
        assert replay(publisher.ledger).findings == ()
        wider = publisher.change_plan(plan(epsilon_c=0.25), from_tick=4, window_limit=3.0)
        assert wider.limits == vars(PrivacyLimits(window=3, window_limit=3.0))
    with opened(file, dataset="fits", budget=None, plan=plan(epsilon_c=level), window=3, window_limit=1.0) as publisher:
        assert len(publisher.publish(panel(30))) == 29
        assert look_ahead(publisher, 30).ticks is None
    with opened(file, dataset="no window", budget=None) as publisher:
        publisher.publish(panel(3))
        assert publisher.summary()["window_level"] is None
        assert "window" not in [promise.name for promise in certify(publisher, publisher.ledger).promises]
        charge = next(publisher.ledger.entries("no window", kind="reserve")).data()["charge"]
        assert "window" not in charge
        assert charge["every_moment"] == pytest.approx(0.5)


def test_a_private_fit_has_read_every_reading_of_a_window(file: Path) -> None:
    paid = ONE.carrying(fit_cost={"epsilon": 0.1, "fit": "a"})
    with opened(file, budget=None, plan=plan(paid), window=4) as publisher:
        assert publisher.summary()["window_level"] == pytest.approx(4 * 0.1)
        publisher.publish(panel(10))
        assert publisher.summary()["window_level"] == pytest.approx(4 * 0.5 + 4 * 0.1)


def test_a_window_limit_needs_a_window(file: Path) -> None:
    with pytest.raises(InputError, match="window_limit: 6 given without a window; give window="):
        opened(file, window_limit=6.0)
    with pytest.raises(InputError, match="window"):
        opened(file, window=0)


def test_a_ledger_from_before_windows_counts_every_release_of_its_earlier_plans() -> None:
    record = {"releases": 4, "event": 0.5, "group": 2.0, "slice": 0.5, "slice_any": 0.5, "newest": 3, "overlap": False}
    state = DatasetState.from_record({"accountant": {}, "releases": 2, "stale": 0, "cost": 3.0, "earlier": record})
    assert account_of(plan()).window(state, 3) == pytest.approx(4 * 0.5 + 2 * 0.5)


# ---- every moment across changes of plan -----------------------------------------------------------------------------


def moment_by_brute_force(reads: list[tuple[int, float]], rows: np.ndarray) -> float:
    """The largest log ratio of any outputs given two states of a binary sequence at any one tick.

    Every release favours one of the two values by its whole epsilon; all combinations are tried.
    """
    slices = range(min(at for at, _ in reads), max(at for at, _ in reads) + 1)
    worst = 0.0
    for signs in itertools.product([0, 1], repeat=len(reads)):
        weight = {at: np.ones(2) for at in slices}
        for (at, cost), favoured in zip(reads, signs, strict=True):
            weight[at] = weight[at] * np.exp(cost * (np.arange(2) == favoured))
        ahead, behind = {slices[-1]: np.ones(2)}, {slices[0]: np.ones(2)}
        for at in reversed(slices[:-1]):
            ahead[at] = rows @ (weight[at + 1] * ahead[at + 1])
        for at in slices[1:]:
            behind[at] = rows @ (weight[at - 1] * behind[at - 1])  # a symmetric chain is its own reverse
        for at in slices:
            told = np.log(ahead[at] * behind[at] * weight[at])
            worst = max(worst, abs(float(told[0] - told[1])))
    return worst


@pytest.mark.parametrize(
    ("age", "level", "from_tick"), [(1, 0.4, 4), (3, 0.4, 4), (3, 0.05, 5), (0, 0.05, 4), (4, 1.0, 6)]
)
def test_every_moment_of_a_graph_counts_all_recorded_releases(
    file: Path, age: int, level: float, from_tick: int
) -> None:
    rows = np.array([[0.8, 0.2], [0.2, 0.8]])
    graph = InfluenceGraph.from_chain(CoupledChain([[1.0]], rows))
    first, second = Plan(graph, Mean(), 1, 0.6), Plan(graph, Mean(), age, level)
    with opened(file, budget=None, plan=first) as publisher:
        for tick in range(4):
            publisher.push(snapshot(tick), time=tick)
        changed = publisher.change_plan(second, from_tick=from_tick)
        for tick in range(10):
            changed.observe(snapshot(tick), time=tick) if tick < from_tick else changed.push(snapshot(tick), time=tick)
        charges = [(entry.tick, entry.plan) for entry in changed.ledger.entries(NAME, kind="reserve")]
        reads = [(tick - 1, 0.6) if digest == first.digest else (tick - age, level) for tick, digest in charges]
        truth = moment_by_brute_force(reads, rows)
        said = changed.summary()["every_moment"]
        alone = Accountant(second).every_moment(len(charges))
        costs = {at: sum(cost for slice_, cost in reads if slice_ == at) for at, _ in reads}
        together = Accountant(Plan(graph, Mean(), 1, max(costs.values()) * (1 + 1e-9))).every_moment(len(charges))
        assert alone < truth <= said == pytest.approx(together, rel=1e-6)
        assert replay(changed.ledger).findings == ()
        content = certify(changed, changed.ledger)["every_moment"]
        assert content.epsilon == said <= content.ceiling


def test_sequences_that_are_followed_one_by_one_count_one_record_of_earlier_plans(file: Path) -> None:
    """Not a whole slice of all sequences: a change to the same plan must not raise what is revealed of one."""
    names = ["a", "b", "c", "d"]
    graph = InfluenceGraph.declared(names, own=0.4, others=dict.fromkeys(itertools.pairwise(names), 0.05))
    chosen = Plan(graph, Mean(), 1, 0.2)
    bound = Accountant(chosen).every_moment()
    with opened(file, budget=None, plan=chosen) as publisher:
        publisher.publish(panel(8, sequences=4))
        assert publisher.summary()["every_moment"] == pytest.approx(bound)
        again = publisher.change_plan(chosen, from_tick=8)
        again.publish(panel(8, first=7, sequences=4))
        assert again.ledger.summary(NAME).state.earlier.slice == pytest.approx(4 * 0.2)
        said = again.summary()["every_moment"]
        assert said == pytest.approx(bound)
        older = again.change_plan(Plan(graph, Mean(), 3, 0.2), from_tick=16)
        twice = Accountant(Plan(graph, Mean(), 3, 0.4)).every_moment()
        assert older.summary()["every_moment"] == pytest.approx(twice)
        reads = [(tick - 1, 0.2) for tick in range(1, 16)] + [(tick - 3, 0.2) for tick in range(16, 20)]
        assert moment_by_brute_force(reads[9:], np.array([[0.7, 0.3], [0.3, 0.7]])) <= twice
        assert replay(older.ledger).findings == ()


def test_every_moment_is_charged_without_a_limit_too_and_held_with_one(file: Path) -> None:
    by_count = [Accountant(plan()).every_moment(n) for n in range(1, 9)]
    with opened(file, budget=None) as publisher:
        publisher.publish(panel(9))
        charged = [entry.data()["charge"]["every_moment"] for entry in publisher.ledger.entries(NAME, kind="reserve")]
        assert charged == pytest.approx(by_count)
    with opened(file, budget=None, dataset="limited", moment_limit=by_count[5]) as publisher:
        assert look_ahead(publisher, 0).ticks == 6
        with pytest.raises(BudgetExceeded, match=r"of any moment to .* new dataset") as caught:
            publisher.publish(panel(9))
        assert (caught.value.limit_name, caught.value.requested) == ("moment_limit", pytest.approx(by_count[6]))
        assert Accountant(plan(epsilon_c=caught.value.fits["epsilon_c"])).every_moment() <= by_count[5]
        assert look_ahead(publisher, 9).limited_by == "moment_limit"
        with pytest.raises(BudgetExceeded, match="under the new plan what everything published"):
            publisher.change_plan(plan(ages=4), from_tick=9)


def test_no_noise_level_bounds_what_grows(file: Path) -> None:
    """A coupled chain read backwards has no law forwards: no component bounds the past."""
    coupled = CoupledChain([[0.9, 0.1], [0.1, 0.9]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    grows = Plan(InfluenceGraph.around(coupled, 0.01), Mean(), 1, 0.5)
    assert Accountant(grows).every_moment() == float("inf")
    with opened(file, budget=None, plan=grows, moment_limit=2.5) as publisher:
        with pytest.raises(BudgetExceeded, match="influences in both directions") as caught:
            publisher.publish(panel(9, sequences=2))
        assert caught.value.fits == {}
        certificate = certify(publisher, publisher.ledger)
        assert certificate["every_moment"].grows
        assert "grows with every release under this model; more noise" in certificate.not_promised[0]


def test_what_was_published_stays_where_it_stands_for_who_asks_later(file: Path) -> None:
    with opened(file, budget=None, window=2) as publisher:
        releases = publisher.publish(panel(6))
        assert all(isinstance(release, Release) for release in releases)
        said = publisher.status(since=None)
    with Ledger.open(file, read_only=True) as ledger:
        assert Standing(ledger, NAME).status(since=None) == said
        assert said["window_level"] == pytest.approx(1.0)
        assert said["every_moment"] == pytest.approx(Accountant(plan()).every_moment(5))
