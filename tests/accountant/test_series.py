"""A public series that is followed: each step under the environment of its tick, against enumeration."""

from itertools import product

import numpy as np
import pytest

from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan
from csdp.accountant.state import State
from csdp.auditing.replay import replay
from csdp.errors import InputError
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.publisher import Publisher, Release
from oracle_environment import mean_answers, member_kernel, random_member, reverse, told_likelihoods, worst

SLOW = pytest.mark.slow
PAIR = [[0.75, 0.25], [0.25, 0.75]]


def binary(p: float, q: float) -> list[list[float]]:
    return [[1 - p, p], [q, 1 - q]]


def members_of(seed: int, s: int, m: int):
    rng = np.random.default_rng(seed)
    return [random_member(rng, s, m, kind) for kind in (("plain", "persistent"), ("own", "skewed"))[seed % 2]]


def chain_of(members, direction: str, **how) -> EnvironmentChain:
    return EnvironmentChain([CoupledChain(*member, direction=direction) for member in members], **how)


def truth(members, direction, path, now, reads, s, m, rate, rng) -> float:
    """What releases at the slices `reads` tell at tick `now`, given the environment of every tick."""
    kernels = [member_kernel(member) for member in members]
    depth = now - min(reads)
    steps = [kernels[path[now - n]] for n in range(depth)]
    if direction == "forward":
        laws = [rng.dirichlet(np.ones(m**s))]
        for kernel in steps[::-1]:
            laws.append(laws[-1] @ kernel)
        steps = [reverse(steps[n], laws[depth - n - 1]) for n in range(depth)]
    answers, delta = mean_answers(s, m)
    return worst(told_likelihoods(steps, answers, [(now - n, rate / delta) for n in reads]), s, m)


def follow(accountant: Accountant, ticks, known) -> tuple[State, list[State]]:
    """Release at some ticks, telling each time what is known by then: tick -> (told at, environment)."""
    state, states, last = accountant.start(), [], -1
    for tick in ticks:
        told = {at: e for at, (when, e) in known.items() if last < when <= tick}
        state = accountant.restore(accountant.release(state, tick, environments=told).to_dict())
        states.append(state)
        last = tick
    return state, states


def worst_truth(members, direction, path, known, now, reads, s, m, rate, rng) -> float:
    """The largest truth over all environments of the ticks that were not told by `now`."""
    first = min(reads) + 1
    open_ticks = [t for t in range(first, now + 1) if t not in known or known[t][0] > now]
    values = []
    for guess in product((0, 1), repeat=len(open_ticks)):
        whole = dict(enumerate(path)) | dict(zip(open_ticks, guess, strict=True))
        values.append(truth(members, direction, whole, now, reads, s, m, rate, rng))
    return max(values)


@pytest.mark.parametrize(
    ("state", "direction"),
    [
        ("metric", "forward"),
        ("scalar", "forward"),
        ("metric", "backward"),
        ("scalar", "backward"),
        ("vector", "backward"),
    ],
)
@pytest.mark.parametrize("seed", [seed if seed == 3 else pytest.param(seed, marks=SLOW) for seed in range(4)])
def test_no_state_lies_below_enumeration_given_the_path(state, direction, seed):
    rng = np.random.default_rng(seed)
    s, m = ((2, 2), (1, 3), (2, 2), (1, 2))[seed]
    members, age, rate = members_of(seed, s, m), seed % 3, 0.8
    chain = chain_of(members, direction, series="weather")
    accountant = Accountant(Plan(chain, Mean(), age, rate), state=state)
    for ticks in ((3, 4, 5), (3, 5, 8)):
        path = rng.integers(0, 2, 12).tolist()
        known = {t: (t, path[t]) for t in range(12)}
        if seed % 2:  # one is late, one is never told
            known[ticks[1]] = (ticks[1] + 1, path[ticks[1]])
            del known[ticks[-1] - 1]
        _, states = follow(accountant, ticks, known)
        for n, at in enumerate(states, start=1):
            reads = [tick - age for tick in ticks[:n]]
            below = worst_truth(members, direction, path, known, at.tick, reads, s, m, rate, rng)
            told = accountant.leakage(at).epsilon
            assert told >= below * (1 - 1e-9)
            assert accountant.peak(at) >= told
            later = {t: pair for t, pair in known.items() if t <= at.tick}
            quiet = worst_truth(members, direction, path, later, at.tick + 2, reads, s, m, rate, rng)
            assert accountant.leakage(at, at.tick + 2).epsilon >= quiet * (1 - 1e-9)
            assert accountant.peak(at) >= quiet * (1 - 1e-9)


# ---- publishers ------------------------------------------------------------------------------------------------------


def slow_and_fast(**how) -> EnvironmentChain:
    ring = {(i, (i + d) % 40): w for i in range(40) for d, w in ((0, 0.8), (1, 0.1), (39, 0.1))}
    members = [CoupledChain(ring, binary(p, p), direction="backward") for p in (0.1, 0.35)]
    return EnvironmentChain(members, **how)


def publish(plan, file, told, *, rows=None, **more) -> list[Release]:
    """Push some ticks, each with the environment that is known of it."""
    with Publisher(plan, dataset="d", ledger=file, **more) as publisher:
        came = [publisher.push([0] * 40, time=t, environment=e) for t, e in (rows or told).items()]
    return [each for each in came if isinstance(each, Release)]


def test_charges_follow_the_series_and_the_ledger_says_so(tmp_path):
    plan = Plan(slow_and_fast(series="weather"), Mean(), 1, 0.3)
    fast = publish(plan, tmp_path / "fast.db", dict.fromkeys(range(8), 1))
    slow = publish(plan, tmp_path / "slow.db", dict.fromkeys(range(8), 0))
    never = publish(plan, tmp_path / "never.db", dict.fromkeys(range(8)))
    alone = Accountant(Plan(slow_and_fast(series="weather").environments[1], Mean(), 1, 0.3))
    for n, (quick, late, worst_of_both) in enumerate(zip(fast, slow, never, strict=True), start=1):
        assert quick.epsilon_s == pytest.approx(alone.after(n).epsilon, rel=1e-9)
        assert quick.epsilon_s < 0.6 * late.epsilon_s
        assert late.epsilon_s == pytest.approx(worst_of_both.epsilon_s, rel=1e-9)
    with Ledger.open(tmp_path / "fast.db") as ledger:
        charges = [entry.data()["charge"] for entry in ledger.entries("d", kind="reserve")]
        assert [charge["environments"] for charge in charges] == [[[0, 1], [1, 1]], *([[t, 1]] for t in range(2, 8))]
        # What comes may be slow: the ceiling for every moment counts it.
        assert all(charge["peak"] >= charge["present"] for charge in charges)
        assert replay(ledger).ok
    with Ledger.open(tmp_path / "never.db") as ledger:
        assert all("environments" not in entry.data()["charge"] for entry in ledger.entries("d", kind="reserve"))


def test_a_restarted_publisher_goes_on_as_one_that_stayed(tmp_path):
    plan = Plan(slow_and_fast(series="weather"), Mean(), 2, 0.3)
    path = dict(enumerate([0, 1, 1, 0, 1, 1, 1, 0, 1, 1]))
    stayed = publish(plan, tmp_path / "stayed.db", path)
    for upto in range(3, 11):  # each process sees the last ticks only
        seen = {t: path[t] for t in range(max(0, upto - 3), upto)}
        came = publish(plan, tmp_path / "again.db", seen)
    assert came[-1].epsilon_s == stayed[-1].epsilon_s


def test_late_numbers_are_counted_from_when_they_are_told(tmp_path):
    plan = Plan(slow_and_fast(series="weather"), Mean(), 2, 0.3)
    fast = dict.fromkeys(range(6), 1)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        for tick in range(5):
            publisher.push([0] * 40, time=tick, environment=None if tick == 4 else 1)
        with pytest.raises(InputError, match="stays"):
            publisher.tell({3: 0})
        publisher.tell({4: 1})  # the charge of tick 4 stays what it was
        told = publisher.push([0] * 40, time=5, environment=1)
    known = publish(plan, tmp_path / "known.db", fast)
    assert told.epsilon_s == known[-1].epsilon_s


def test_publishers_with_other_numbers_are_refused_before_anything_is_charged(tmp_path):
    plan, file = Plan(slow_and_fast(series="weather"), Mean(), 1, 0.3), tmp_path / "ledger.db"
    publish(plan, file, {0: 1, 1: 1})
    with Publisher(plan, dataset="d", ledger=file) as other:
        other.observe([0] * 40, time=1)
        other.tell({1: 0})
        with pytest.raises(InputError, match="tick 1 was charged under environment 1"):
            other.push([0] * 40, time=2, environment=0)
        assert other.summary()["published"] == 1
        assert [entry.tick for entry in other.ledger.entries("d", kind="reserve")] == [1]


@pytest.mark.parametrize(("told", "words"), [({0: 2}, "from 0 to 1"), ({0: -1}, "from 0 to 1")])
def test_numbers_that_the_series_does_not_have_are_refused(told, words, tmp_path):
    plan = Plan(slow_and_fast(series="weather"), Mean(), 1, 0.3)
    with (
        Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher,
        pytest.raises(InputError, match=words),
    ):
        publisher.tell(told)
    hidden = Plan(slow_and_fast(switching=[[0.9, 0.1], [0.1, 0.9]]), Mean(), 1, 0.3)
    with (
        Publisher(hidden, dataset="d", ledger=tmp_path / "hidden.db") as publisher,
        pytest.raises(InputError, match="no public series"),
    ):
        publisher.push([0] * 40, time=0, environment=1)


def test_a_panel_comes_with_its_series(tmp_path):
    plan = Plan(slow_and_fast(series="weather"), Mean(), 1, 0.3)
    panel = Panel.from_states(np.zeros((10, 40), dtype=int), first_tick=5)
    with Publisher(plan, dataset="d", ledger=tmp_path / "panel.db") as publisher:
        batch = publisher.publish(panel, environments=[1] * 9 + [-1])
        with pytest.raises(InputError, match="for each tick of a panel"):
            publisher.publish(panel, environments=[1] * 3)
    pushed = publish(plan, tmp_path / "pushed.db", dict.fromkeys(range(5, 14), 1) | {14: None})
    assert [each.epsilon_s for each in batch.releases] == [each.epsilon_s for each in pushed]


def test_a_series_beside_a_clock_is_followed_at_every_phase():
    ring = slow_and_fast(series="weather").environments
    both = EnvironmentChain([ring[0], ring[1], ring[0], ring[0]], cycle=(0, 1), series="weather")
    accountant = Accountant(Plan(both, Mean(), 1, 0.3))
    state, unknown = accountant.start(), accountant.start()
    for tick in range(6):
        state = accountant.release(state, tick, environments={tick: 1})
        unknown = accountant.release(unknown, tick)
    fast = Accountant(Plan(ring[1], Mean(), 1, 0.3)).after(6).epsilon
    assert fast < accountant.leakage(state).epsilon < accountant.leakage(unknown).epsilon


def test_environments_that_cannot_be_are_refused_by_the_accountant_too():
    """Those who account without a publisher get the same answer."""
    accountant = Accountant(Plan(slow_and_fast(series="weather"), Mean(), 1, 0.3))
    for told in ({3: 2}, {3: -1}, {4: 0}):
        with pytest.raises(InputError, match="numbers from 0 to 1, for ticks up to 3"):
            accountant.release(accountant.start(), 3, environments=told)
    plain = Accountant(Plan(slow_and_fast(series="weather").environments[0], Mean(), 1, 0.3))
    with pytest.raises(InputError, match="no public series"):
        plain.release(plain.start(), 3, environments={3: 0})
