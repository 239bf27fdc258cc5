"""Engines of strangers behind the protocol: an honest one is right, a wrong one is refused where that can be seen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from csdp import Count, Custom, Histogram, Identity, Ledger, Linear, Max, Mean, Panel, Plan, Publisher, Sum, fran
from csdp.errors import CsdpError, InputError
from csdp.groups import PerGroup
from csdp.noise import indexed_noise
from csdp.publisher import AgedSource, DrawingSource, PanelSource
from csdp.tables import EngineSource

from tables.tables import ALIKE, NAMES, OWN, TICKS, chain, states  # isort: skip

QUERIES = [
    Mean(),
    Sum(),
    Max(),
    Count(1),
    Histogram(),
    Linear([0.3, -1.7, 2.0, 0.001, 5.0, -0.2, 1.0]),
    Custom(lambda v: v.max() - v.min(), sensitivity=40.0),
    PerGroup(Sum(), ((0, 3), (1, 2, 6), (4, 5))),
]


class Rows:
    """Rows in a dictionary, tick -> states (-1 where missing), as somebody would write it who has read the docs."""

    def __init__(self, found):
        self.rows = dict(enumerate(found.tolist()))

    def check(self, plan):
        if len(self.rows[0]) != plan.model.sequences:
            raise InputError("rows: of another chain")
        fran.check_states(np.array(list(self.rows.values())), plan.model.states)

    def read(self, tick, sequence, limit):
        """The state that stands at a tick, and how stale it is; None where it is missing for longer than allowed."""
        for stale in range(limit + 1):
            state = self.rows.get(tick - stale, [-1] * 7)[sequence]
            if state >= 0:
                return state, stale
        return None

    def availability(self, plan):
        for tick in sorted(self.rows):
            if tick < plan.max_age:
                yield tick, 0, "too early"
                continue
            found = [self.read(tick - age, i, plan.stale_limit) for i, age in enumerate(plan.ages)]
            if None in found:
                yield tick, 0, "no reading"
            else:
                yield tick, max(stale for _, stale in found), ""

    def answers(self, plan, ticks):
        aged = [[self.read(tick - age, i, plan.stale_limit)[0] for i, age in enumerate(plan.ages)] for tick in ticks]
        return plan.query.lattice_answers(np.array(aged))

    def noisy_answers(self, plan, keys):
        exact = np.array(self.answers(plan, list(keys)))
        for row, (tick, key) in enumerate(keys.items()):
            level = plan.at(plan.level(tick))
            exact[row] += indexed_noise(level.scale, np.arange(exact.shape[1]), key) * level.step
        return exact


def panel(found):
    return Panel.from_states(found, names=NAMES)


@pytest.mark.parametrize("values", [ALIKE, OWN], ids=["alike", "own values"])
@pytest.mark.parametrize("gaps", [False, True], ids=["whole", "gaps"])
def test_an_honest_stranger_is_right(values, gaps):
    found = states(gaps=gaps)
    engine = Rows(found)
    for query, ages in itertools.product(QUERIES, (2, (1, 2, 4, 1, 2, 4, 1))):
        plan = Plan(chain(values), query, ages, 1.0, stale_limit=3 if gaps else 0, bound="group")
        source, memory = EngineSource(engine, plan), PanelSource(panel(found), plan)
        assert isinstance(source, AgedSource)
        ready = [tick for tick, _, reason in source.availability(plan) if not reason]
        known = [(tick, stale) for tick, stale, reason in memory.availability(plan) if not reason]
        assert [(tick, stale) for tick, stale, reason in source.availability(plan) if not reason] == known
        assert len(ready) > 10
        for ticks in (ready, ready[::-1], ready[3:4]):
            assert np.array_equal(source.answers(plan, ticks), memory.answers(plan, ticks)), query.name


def test_an_honest_stranger_publishes_through_the_gate(tmp_path):
    found = states(gaps=False)
    for number, query in enumerate([Mean(), Identity()]):
        plan = Plan(chain(), query, 2, 1.0, bound="group")
        source = EngineSource(Rows(found), plan)
        assert isinstance(source, DrawingSource)
        with Publisher(plan, dataset=f"d{number}", ledger=tmp_path / "ledger.db") as publisher:
            assert len(publisher.publish(source)) == TICKS - 2


def changed(**methods):
    """The same engine with some methods that do something else."""
    return type("Hostile", (Rows,), methods)


def _ticks(change):
    def availability(self, plan):
        return change(list(Rows.availability(self, plan)))

    return changed(availability=availability)


def _answers(change):
    def answers(self, plan, ticks):
        return change(Rows.answers(self, plan, ticks))

    return changed(answers=answers)


#: What is seen before anything is charged.
WRONG_TICKS = {
    "in another order": _ticks(lambda rows: rows[::-1]),
    "one twice": _ticks(lambda rows: [*rows, rows[-1]]),
    "one twice, first refused": _ticks(lambda rows: [*rows[:5], (rows[5][0], 0, "no"), *rows[5:]]),
    "half ticks": _ticks(lambda rows: [(tick + 0.5, stale, reason) for tick, stale, reason in rows]),
    "truths for ticks": _ticks(lambda rows: [(True, 0, "")]),
    "words for ticks": _ticks(lambda rows: [(str(tick), stale, reason) for tick, stale, reason in rows]),
    "too stale": _ticks(lambda rows: [(tick, stale + 1, reason) for tick, stale, reason in rows]),
    "fresher than now": _ticks(lambda rows: [(tick, -1, reason) for tick, _, reason in rows]),
    "no reason given": _ticks(lambda rows: [(tick, stale, None) for tick, stale, _ in rows]),
    "pairs": _ticks(lambda rows: [(tick, stale) for tick, stale, _ in rows]),
    "beyond what a ledger holds": _ticks(lambda rows: [(2**70, 0, "")]),
}
#: What is seen when the answers come: the ticks are charged and lost, and nothing is published.
WRONG_ANSWERS = {
    "one missing": _answers(lambda found: found[:-1]),
    "one more": _answers(lambda found: np.concatenate([found, found[:1]])),
    "one output more": _answers(lambda found: np.column_stack([found, found])),
    "flat": _answers(lambda found: found[:, 0]),
    "turned": _answers(lambda found: found.T),
    "nothing": _answers(lambda _: None),
    "words": _answers(lambda found: [["many"] for _ in found]),
    "not numbers": _answers(lambda found: found * np.nan),
    "infinite": _answers(lambda found: found + np.inf),
    "off the lattice": _answers(lambda found: found + 1e-3),
    "divided already": _answers(lambda found: found / 7),
    "scaled": _answers(lambda found: found * 1024),
    "moved away": _answers(lambda found: found + 64),
    "of the other side": _answers(lambda found: found - 64),
}


@pytest.mark.parametrize("what", WRONG_TICKS)
def test_wrong_ticks_are_refused_before_any_charge(tmp_path, what):
    plan = Plan(chain(), Mean(), 2, 1.0, bound="group")
    source = EngineSource(WRONG_TICKS[what](states(gaps=False)), plan)
    with Ledger.open(tmp_path / "ledger.db") as book, Publisher(plan, dataset="d", ledger=book) as publisher:
        with pytest.raises(CsdpError):
            publisher.publish(source)
        assert book.summary("d").reserved == 0


@pytest.mark.parametrize("what", WRONG_ANSWERS)
@pytest.mark.parametrize("query", [Mean(), Sum()], ids=lambda query: query.name)
def test_wrong_answers_are_never_published(tmp_path, what, query):
    plan = Plan(chain(), query, 2, 1.0, bound="group")
    source = EngineSource(WRONG_ANSWERS[what](states(gaps=False)), plan)
    with Ledger.open(tmp_path / "ledger.db") as book, Publisher(plan, dataset="d", ledger=book) as publisher:
        with pytest.raises(InputError, match="source: "):
            publisher.publish(source)
        assert book.summary("d").committed == 0
        assert not list(book.published("d"))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found[:, :-1],
        lambda found: found[:-1],
        lambda found: found + 1e-7,
        lambda found: found + np.inf,
        lambda found: [["many"] * 7 for _ in found],
    ],
)
def test_wrong_noisy_answers_are_never_published(tmp_path, change):
    plan = Plan(chain(), Identity(), 2, 1.0, bound="group")

    def noisy_answers(self, plan, keys):
        return change(Rows.noisy_answers(self, plan, keys))

    engine = changed(noisy_answers=noisy_answers, trusted_noise=True)(states(gaps=False))
    with Ledger.open(tmp_path / "ledger.db") as book, Publisher(plan, dataset="d", ledger=book) as publisher:
        with pytest.raises(InputError, match="source: "):
            publisher.publish(EngineSource(engine, plan))
        assert book.summary("d").committed == 0


def test_noise_of_a_stranger_is_used_only_where_it_is_declared(tmp_path):
    """Without the declaration the gate draws, so noise that is none does no harm."""
    found = states(gaps=False)
    plan = Plan(chain(), Identity(), 2, 1.0, bound="group")
    engine = changed(noisy_answers=lambda self, plan, keys: Rows.answers(self, plan, list(keys)))(found)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        batch = publisher.publish(EngineSource(engine, plan))
    exact = Rows(found).answers(plan, [release.tick for release in batch])
    apart = np.array([release.values for release in batch]) != exact
    assert apart.any()  # each is zero with a chance of less than a half, all of them never


@pytest.mark.parametrize(
    "form", [lambda found: found.tolist(), lambda found: found.astype(np.float32), lambda found: found.astype(object)]
)
def test_the_right_numbers_in_another_form_are_right(tmp_path, form):
    """Values of the chain are halves: nothing is lost in any of these forms."""
    found = states(gaps=False)
    plan = Plan(chain(), Sum(), 2, 1e5, bound="group")  # next to no noise
    engine = _answers(form)(found)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db") as publisher:
        batch = publisher.publish(EngineSource(engine, plan))
    exact = Rows(found).answers(plan, [release.tick for release in batch])
    assert np.allclose([release.values for release in batch], exact, atol=0.1)


def test_a_table_of_another_chain_is_refused_by_its_own_check():
    engine = Rows(states(gaps=False))
    engine.rows[4][2] = 3  # a state that the chain does not have
    with pytest.raises(InputError, match="unknown state"):
        EngineSource(engine, Plan(chain(), Mean(), 2, 1.0, bound="group"))


class TestTrusted:
    """What nobody can see from outside is trusted code: here the suite for engines shows that it notices it."""

    def honest(self, engine, plan, found):
        """As in the contract of the built-in engines: equal to the panel, in any order of ticks."""
        memory = PanelSource(panel(found), plan)
        ticks = [20, 7, 15, 8]
        return np.array_equal(EngineSource(engine, plan).answers(plan, ticks), memory.answers(plan, ticks))

    @pytest.mark.parametrize(
        "answers",
        [
            lambda self, plan, ticks: Rows.answers(self, plan, sorted(ticks)),  # in an order of its own
            lambda self, plan, ticks: Rows.answers(self, plan, [tick + 1 for tick in ticks]),  # too fresh
            lambda self, plan, ticks: Rows.answers(self, plan, ticks)[::-1].copy(),
            lambda self, plan, ticks: Rows.answers(self, plan, ticks) * 0,
        ],
    )
    def test_the_suite_notices(self, answers):
        found = states(gaps=False)
        plan = Plan(chain(), Sum(), 2, 1.0, bound="group")
        assert self.honest(Rows(found), plan, found)
        assert not self.honest(changed(answers=answers)(found), plan, found)
