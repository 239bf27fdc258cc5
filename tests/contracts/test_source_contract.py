"""Sources and discretisers as strangers write them, honest and hostile: each is right or refused.

What a source lists is refused before anything is charged. What is wrong with its answers shows only after the charge:
those ticks are lost, it is said so, and nothing of them is published.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from csdp import CoupledChain, Custom, Histogram, Identity, Ledger, Linear, Max, Mean, Min, Panel, Plan, Publisher, Sum
from csdp.errors import InputError
from csdp.publisher import AgedSource, DrawingSource, PanelSource
from csdp.stream import Clock, Runner
from csdp.tables import EngineSource
from csdp.tables.engine import MemoryEngine

NAMES = ("hall", "kitchen", "attic")
CHAIN = CoupledChain(np.eye(3), [[0.7, 0.3], [0.3, 0.7]], names=NAMES, values=[0.0, 2.0])
ROWS = np.random.default_rng(2).integers(0, 2, (12, 3))
QUERIES = [Mean(), Sum(), Max(), Min(), Histogram(), Identity(), Linear([1.0, -2.0, 0.5]),
           Custom(lambda v: v.max() - v.min(), sensitivity=2.0)]  # fmt: skip


def plan(query=None, epsilon_c=1.0, **more) -> Plan:
    return Plan(CHAIN, query or Sum(), 1, epsilon_c, bound="group", **more)


class Lists:
    """A stranger's source: snapshots in a list of lists, asked by the plain words of the protocol."""

    def __init__(self, rows=ROWS) -> None:
        self.rows = [list(map(int, row)) for row in rows]
        self.asked: list[int] = []

    def availability(self, plan):
        for tick in range(len(self.rows)):
            yield tick, 0, "" if tick >= plan.max_age else "too early"

    def answers(self, plan, ticks):
        self.asked += ticks
        aged = np.array([[self.rows[tick - age][i] for i, age in enumerate(plan.ages)] for tick in ticks])
        return plan.query.evaluate(aged, plan.model.value_table) * plan.divisor


class Gate:
    """A publisher, and what the ledger says afterwards."""

    def __init__(self, folder, given) -> None:
        self.ledger = Ledger.open(folder / "ledger.db")
        self.publisher = Publisher(given, dataset="d", ledger=self.ledger)

    def counts(self):
        found = self.ledger.summary("d")
        return found.reserved, found.committed


@pytest.fixture
def gate(tmp_path):
    opened = []

    def one(given):
        opened.append(Gate(tmp_path, given))
        return opened[-1]

    yield one
    for found in opened:
        found.ledger.close()


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_an_honest_stranger_is_right(gate, query) -> None:
    given = plan(query)
    source = Lists()
    assert isinstance(source, AgedSource)
    assert not isinstance(source, DrawingSource)
    panel = PanelSource(Panel.from_states(ROWS, names=NAMES), given)
    found = gate(given)
    batch = found.publisher.publish(source)
    assert [release.tick for release in batch] == list(range(1, 12)) == source.asked
    assert (source.answers(given, [3, 4]) == panel.answers(given, [3, 4])).all()
    assert found.counts() == (11, 11)


# ---- what it lists: refused before the charge ---------------------------------------------------------------------

LISTS = {
    "out of order": ([(3, 0, ""), (2, 0, "")], "tick 2 is listed after tick 3"),
    "twice": ([(2, 0, ""), (2, 0, "")], "tick 2 is listed after tick 2"),
    "twice, once without output": ([(2, 0, "missing"), (2, 0, "")], "each once"),
    "far beyond": ([(2, 0, ""), (2**70, 0, "")], "64 bits"),
    "no whole tick": ([(2.0, 0, "")], "a tick must be an integer"),
    "a tick that is a truth value": ([(True, 0, "")], "a tick must be an integer"),
    "newer than planned": ([(2, -1, "")], "staleness -1 given; 0 or more"),
    "half a step": ([(2, 0.5, "")], "staleness float given"),
    "staleness that is a word": ([(2, "0", "")], "staleness str given"),
    "staleness that is a truth value": ([(2, True, "")], "staleness bool given"),
    "no staleness": ([(2, None, "")], "staleness NoneType given"),
    "staler than the plan allows": ([(2, 5, "")], "5 steps older than planned; the plan allows 3"),
    "a reason that is no text": ([(2, 0, None)], "reason NoneType given"),
    "two columns": ([(2, 0)], "availability must list"),
    "no columns": ([7], "availability must list"),
    "after a good one": ([(tick, 0, "") for tick in range(1, 400)] + [(5, 0, "")], "tick 5 is listed after tick 399"),
}


@pytest.mark.parametrize("wrong", LISTS)
def test_a_wrong_list_is_refused_before_the_charge(gate, wrong) -> None:
    listed, words = LISTS[wrong]

    class Hostile(Lists):
        def availability(self, plan):
            return iter(listed)

    found, source = gate(plan(stale_limit=3)), Hostile()
    with pytest.raises(InputError, match=words):
        found.publisher.publish(source)
    assert found.counts() == (0, 0)
    assert source.asked == []


def test_staleness_that_is_allowed_is_charged_as_such(gate) -> None:
    class Late(Lists):
        def availability(self, plan):
            yield from [(2, np.int64(0), ""), (3, np.int64(3), "")]

    found = gate(plan(stale_limit=3))
    batch = found.publisher.publish(Late())
    assert [release.stale for release in batch] == [0, 3]


# ---- what it answers: lost, said so, never published --------------------------------------------------------------


def change(**how):
    """A source whose answers are changed after they were right."""

    class Hostile(Lists):
        def answers(self, plan, ticks):
            return how["by"](super().answers(plan, ticks))

    return Hostile()


ANSWERS = {
    "one row too many": (lambda a: np.vstack([a, a[:1]]), "shape .* given for 11 ticks, 1 outputs"),
    "one row too few": (lambda a: a[1:], "shape .* given for 11 ticks"),
    "flat": (lambda a: a[:, 0], "shape .* given"),
    "a column too many": (lambda a: np.hstack([a, a]), "shape .* given"),
    "nothing": (lambda _: None, "answers"),
    "words": (lambda a: [["many"]] * len(a), "no numbers"),
    "not a number": (lambda a: a * np.nan, "not finite"),
    "infinite": (lambda a: a + np.inf, "not finite"),
    "off the lattice": (lambda a: a + 0.001, "between the steps"),
    "above what can be": (lambda a: a + 8.0, "beyond what the query can give"),
    "below what can be": (lambda a: a - 8.0, "beyond what the query can give"),
    "one of them far off": (lambda a: np.where(np.arange(len(a))[:, None] == 7, 1e6, a), "beyond what the query can"),
}


@pytest.mark.parametrize("wrong", ANSWERS)
def test_a_wrong_answer_is_lost_and_told(gate, wrong) -> None:
    by, words = ANSWERS[wrong]
    found = gate(plan())
    with pytest.raises(InputError, match=words) as caught:
        found.publisher.publish(change(by=by))
    assert "11 ticks from 1 to 11 were charged and are lost" in caught.value.__notes__[0]
    assert found.counts() == (11, 0)
    again = found.publisher.publish(Lists())  # nobody publishes them afterwards, the right source neither
    assert len(again) == 0
    assert {skip.why for skip in again.skipped[1:]} == {"held"}


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_the_range_is_that_of_the_query(gate, query) -> None:
    """The largest and the least possible answers pass, a little more does not."""
    given = plan(query)
    every = np.array(list(np.ndindex(2, 2, 2)))
    possible = query.evaluate(every, CHAIN.value_table) * given.divisor

    class Extreme(Lists):
        answer = possible.max(axis=0)

        def answers(self, plan, ticks):
            return np.tile(self.answer, (len(ticks), 1))

    found = gate(given)
    for row in every:
        Extreme.answer = (given.query.evaluate(row, CHAIN.value_table) * given.divisor).reshape(-1)
        assert len(found.publisher.publish(Extreme())) in {0, 11}
    Extreme.answer = possible.max(axis=0) + 64 * max(given.unit, 1.0)
    other = Publisher(given, dataset="other", ledger=found.ledger)
    with pytest.raises(InputError, match="beyond what the query can give"):
        other.publish(Extreme())


def test_a_source_that_fails_half_way(gate) -> None:
    class Failing(Lists):
        def answers(self, plan, ticks):
            raise OSError("the disk is gone")

    found = gate(plan())
    with pytest.raises(OSError, match="the disk is gone") as caught:
        found.publisher.publish(Failing())
    assert "were charged and are lost; nothing of them was published" in caught.value.__notes__[0]
    assert found.counts() == (11, 0)


# ---- noise that a source draws ------------------------------------------------------------------------------------


class Quiet(Lists):
    """It says that it draws noise, and draws none."""

    def draws(self, plan):
        return True

    def noisy_answers(self, plan, keys):
        return self.answers(plan, list(keys))


def test_the_noise_of_a_stranger_is_not_used(gate) -> None:
    """Whatever it says of itself: the gate asks for exact answers and draws. Rejects a source without noise, and the
    test would notice: 33 outputs, each without noise with chance 1/2 at most, are all so with chance 1e-10.
    """
    source, given = Quiet(), plan(Identity())
    found = gate(given)
    batch = found.publisher.publish(source)
    exact = Lists().answers(given, list(range(1, 12)))
    noise = np.array([release.values for release in batch]) - exact
    assert np.count_nonzero(noise)


def test_a_declared_source_is_trusted_and_only_its_form_is_checked(gate) -> None:
    class Declared(Quiet):
        trusted_noise = True

    class Torn(Declared):
        def noisy_answers(self, plan, keys):
            return super().noisy_answers(plan, keys) + math.pi

    assert isinstance(Declared(), DrawingSource)
    given = plan(Identity())
    found = gate(given)
    with pytest.raises(InputError, match="between the steps"):
        found.publisher.publish(Torn())
    other = Publisher(given, dataset="other", ledger=found.ledger)
    batch = other.publish(Declared())
    assert [list(release.values) for release in batch] == Lists().answers(given, list(range(1, 12))).tolist()


@pytest.mark.parametrize("declared", [None, "yes", 1], ids=str)
def test_only_the_plain_word_declares(gate, declared) -> None:
    class Half(Quiet):
        trusted_noise = declared

    given = plan(Identity(), epsilon_c=0.01)  # no noise at all in 22 numbers: one run in 10^50
    batch = gate(given).publisher.publish(Half())
    assert [list(release.values) for release in batch] != Lists().answers(given, list(range(1, 12))).tolist()


def test_the_noise_of_a_strangers_engine_is_not_used_either(gate) -> None:
    class Rows(Lists):
        def check(self, plan):
            pass

        def noisy_answers(self, plan, keys):
            return self.answers(plan, list(keys))

    given = plan(Identity(), epsilon_c=0.01)
    found = gate(given)
    batch = found.publisher.publish(EngineSource(Rows(), given))
    assert [list(release.values) for release in batch] != Lists().answers(given, list(range(1, 12))).tolist()
    ours = EngineSource(MemoryEngine(Panel.from_states(ROWS, names=NAMES), states=2), given)
    assert ours.trusted_noise is True
    assert isinstance(ours, DrawingSource)


# ---- discretisers -------------------------------------------------------------------------------------------------


class Thermometer:
    """A stranger's discretiser, honest: warm or not."""

    categories = None

    def states_of(self, snapshot):
        return np.where(np.isnan(snapshot), -1, (snapshot >= 20).astype(int))


class Ranks(Thermometer):
    """Above the mean of all who are there: one reading moves everybody's state."""

    def states_of(self, snapshot):
        there = ~np.isnan(snapshot)
        mean = snapshot[there].sum() / max(1, there.sum())
        return np.where(there, (snapshot >= mean).astype(int), -1)


class Adaptive(Thermometer):
    """Edges that move with what it has seen."""

    edge = 0.0

    def states_of(self, snapshot):
        self.edge += 15.0
        return np.where(np.isnan(snapshot), -1, (snapshot >= self.edge % 40).astype(int))


def answer(of):
    class Other(Thermometer):
        def states_of(self, snapshot):
            return of(super().states_of(snapshot))

    return Other


DISCRETISERS = {
    "ranks": (Ranks, "depend on that reading alone"),
    "adaptive": (Adaptive, "depend on that reading alone"),
    "floats": (answer(lambda s: s.astype(float)), "float64 of shape"),
    "too few": (answer(lambda s: s[:-1]), "shape"),
    "too many": (answer(lambda s: np.append(s, 0)), "shape"),
    "one number": (answer(lambda s: 1), "shape"),
    "nothing": (answer(lambda s: None), "shape"),
    "a state that is not there": (answer(lambda s: s + 5), "states are 0 to 1"),
    "below -1": (answer(lambda s: s - 7), "states are 0 to 1"),
    "a reading without a state": (answer(lambda s: np.where(s > 0, -1, s)), "every number has a state"),
    "a state without a reading": (answer(lambda s: np.maximum(s, 0)), "missing reading has -1"),
}


@pytest.fixture
def feed(tmp_path):
    """Runs readings through a discretiser; what it raised, and the ledger."""

    def one(states, seed=4, ticks=30):
        random = np.random.default_rng(seed)
        with Ledger.open(tmp_path / "ledger.db") as ledger:
            publisher = Publisher(
                plan(stale_limit=2), dataset="d", ledger=ledger, on_refusal="skip", time_step=1, times="data"
            )
            runner = Runner(publisher, ledger=ledger, clock=Clock(step=1, times="data"), states=states)
            caught = None
            try:
                for tick in range(ticks):
                    row = random.uniform(0, 40, 3).tolist()
                    runner.ingest_snapshot([None if random.random() < 0.1 else value for value in row], time=tick)
            except InputError as error:
                caught = error
            return caught, ledger.summary("d")

    return one


def test_an_honest_discretiser_is_right(feed) -> None:
    caught, found = feed(Thermometer())
    assert caught is None
    assert found.lost == 0
    assert found.committed > 20


@pytest.mark.parametrize("wrong", DISCRETISERS)
def test_a_wrong_discretiser_is_refused_before_the_charge(feed, wrong) -> None:
    """Those that depend on other readings are found by hiding some, in one snapshot of ten at least: missed in 300 of
    them with chance below 1e-13.
    """
    kind, words = DISCRETISERS[wrong]
    caught, found = feed(kind(), ticks=300)
    assert caught is not None
    assert words in str(caught)
    assert found.lost == 0
    assert found.reserved == found.committed


def test_a_discretiser_that_ranks_into_one_array_is_refused(feed) -> None:
    """Asked again, it overwrote what it was compared with."""

    class Ranks:
        categories = None
        room = np.zeros(3, dtype=np.int16)

        def states_of(self, snapshot):
            known = ~np.isnan(snapshot)
            self.room[:] = np.where(known, snapshot >= np.nanmean(np.append(snapshot, 0.0)), -1)
            return self.room

    caught, found = feed(Ranks(), ticks=300)
    assert "must depend on that reading alone" in str(caught)
    assert found.reserved == found.committed


def test_what_declares_itself_is_asked_once(feed) -> None:
    class Declared(Thermometer):
        elementwise = True
        calls = 0

        def states_of(self, snapshot):
            self.calls += 1
            return super().states_of(snapshot)

    states = Declared()
    caught, _ = feed(states, ticks=10)
    assert caught is None
    assert states.calls == 9  # one for each closed tick


def test_a_panel_takes_states_and_nothing_else() -> None:
    """The other way in: a stranger who makes states himself."""
    good = Panel.from_states(ROWS, names=NAMES)
    for states, words in (
        (ROWS.astype(float), "states are whole numbers"),
        (ROWS - 5, "unknown state"),
        (ROWS[:, :2], "shape"),
    ):
        with pytest.raises(InputError, match=words):
            Panel(good.names, good.ticks, good.times, states)
    beyond = Panel.from_states(ROWS + 1, names=NAMES)
    with pytest.raises(InputError, match="unknown state"):
        PanelSource(beyond, plan())


def test_the_law_of_the_noise_does_not_depend_on_the_source(gate) -> None:
    """Two thousand outputs of a stranger's source follow the law of the plan (chi-square over the values from -3 to 3
    and the two ends, level 1e-9), and answers without noise do not.
    """
    rows = np.zeros((2001, 3), dtype=int)
    given = plan(Sum())
    found = gate(given)
    values = [release.values[0] for release in found.publisher.publish(Lists(rows))]
    q = math.exp(-1 / float(given.scale))
    inner = (1 - q) / (1 + q) * q ** np.abs(np.arange(-3, 4))
    law = np.array([q**4 / (1 + q), *inner, q**4 / (1 + q)])

    def fit(noise):
        counts = np.bincount(np.clip(np.asarray(noise) / given.step, -4, 4).astype(int) + 4, minlength=9)
        return stats.chisquare(counts, law * counts.sum()).pvalue

    assert fit(values) > 1e-9
    assert fit(np.zeros(2000)) < 1e-9
