"""Any order of publishing, pushing, holding, committing, crashing and refusing keeps the budget and the record."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from csdp.accountant import Accountant
from csdp.errors import BudgetExceeded, LedgerConflictError
from csdp.fran import Output
from csdp.ledger import Ledger, Reserved
from csdp.publisher import Publisher, Release, gate
from csdp.publisher.gate import record_output

from publisher.rules import NAME, PAIR, charged_ticks, opened, outputs, panel, plan, same, snapshot  # isort: skip
from accountant.systems import by_states
from csdp.accountant.account import add_release
from csdp.publisher.sources import Ready

BUDGETS = {(1, 1): 0.3, (2, 2): 0.2, (1, 2): 0.25, (0, 0): 0.7}


class PublisherMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="csdp-machine-")
        self.file = Path(self.folder) / "ledger.db"
        self.publisher: Publisher | None = None
        self.before: dict[int, tuple[float, ...]] = {}
        self.given: dict[int, tuple[float, ...]] = {}
        self.tick = 0
        self.charged: list[int] = []
        self.held: list[Reserved] = []

    @initialize(ages=st.sampled_from(sorted(BUDGETS)), skip=st.booleans())
    def begin(self, ages: tuple[int, int], skip: bool) -> None:
        self.plan = plan(PAIR, ages)
        self.budget = BUDGETS[ages]
        self.accountant = Accountant(self.plan)
        # A history of its own, by the general rule: not the one that consecutive releases share.
        self.state = replace(self.accountant.start(-1), consecutive=None)
        self.how = "skip" if skip else "raise"
        self.reopen()

    @rule()
    def reopen(self) -> None:
        if self.publisher is not None:
            self.publisher.close()
        self.publisher = opened(self.file, plan=self.plan, budget=self.budget, on_refusal=self.how)

    @rule(gap=st.sampled_from((1, 1, 1, 2, 4)))
    def push(self, gap: int) -> None:
        self.tick += gap
        try:
            self.note([self.publisher.push(snapshot(self.tick, 2), time=self.tick)])
        except BudgetExceeded as error:
            self.refused(error)

    @rule(count=st.integers(2, 6))
    def publish(self, count: int) -> None:
        start = max(0, self.tick - 2)
        try:
            self.note(list(self.publisher.publish(panel(count, start, 2))))
        except BudgetExceeded as error:
            self.refused(error)
        self.tick = max(self.tick, start + count - 1)

    @rule(gap=st.sampled_from((1, 2)), batch=st.booleans())
    def crash(self, gap: int, batch: bool) -> None:
        """The process dies after the charge, before the noise."""
        self.tick += gap

        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gate.fran, "add_noise", die)
            try:
                if batch:
                    self.publisher.publish(panel(3, max(0, self.tick - 2), 2))
                else:
                    self.publisher.push(snapshot(self.tick, 2), time=self.tick)
            except KeyboardInterrupt:
                pass
            except BudgetExceeded as error:
                self.refused(error)
        self.reopen()

    @rule(count=st.integers(1, 3))
    def hold(self, count: int) -> None:
        """Ticks are charged, and their holder is slow to commit: nobody else draws them, and limits count them."""
        sequences = self.publisher.plan.model.sequences
        ticks = [Ready(self.tick + number, 0, sequences) for number in range(1, count + 1)]
        self.tick += count
        answers, error = self.publisher._reserve(self.publisher._rule.list_requests(ticks, None))
        self.held += [one for one in answers if isinstance(one, Reserved)]
        if error is not None:
            self.refused(error)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """What was held is committed late, in any order; twice is once, and another output is refused."""
        some = data.draw(st.lists(st.sampled_from(self.held), unique_by=lambda one: one.seq, min_size=1))
        output = Output((0.5,), (), (), stale=0, unsafe=False)
        pairs = [(one, record_output(self.plan, one, output)) for one in some]
        done = self.publisher.ledger.commit_many(pairs)
        assert self.publisher.ledger.commit_many(pairs) == done
        with pytest.raises(LedgerConflictError, match="another output"):
            self.publisher.ledger.commit(some[0], {"values": [0.25]})
        self.held = [one for one in self.held if one not in some]

    @rule(back=st.integers(0, 8))
    def ask_again(self, back: int) -> None:
        """An old stretch again, with other readings."""
        start = max(0, self.tick - back - 2)
        size = self.tick - start + 1
        with Ledger.open(self.file) as ledger:
            entries = ledger.summary(NAME).reserved
        wrong = panel(size, start, 2)
        wrong.states[:] = 1 - wrong.states
        kept = [t for t in range(start, self.tick + 1) if t in self.before]
        try:
            batch = self.publisher.publish(wrong)
        except BudgetExceeded as error:
            self.refused(error)
            return
        found = {r.tick: r.values for r in batch}
        late = start + self.plan.max_age
        assert {t: found[t] for t in kept if t >= late} == {t: self.before[t] for t in kept if t >= late}
        self.note(list(batch))
        with Ledger.open(self.file) as ledger:
            assert ledger.summary(NAME).reserved >= entries

    def note(self, results: list[object]) -> None:
        for one in results:
            if isinstance(one, Release):
                assert self.given.setdefault(one.tick, one.values) == one.values
                assert one.epsilon_s <= self.budget

    def refused(self, error: BudgetExceeded) -> None:
        assert self.how == "raise"
        assert error.requested > self.budget
        assert error.spent <= self.budget
        assert error.remaining == pytest.approx(max(0.0, self.budget - error.spent))

    @invariant()
    def all_is_well(self) -> None:
        if self.publisher is None:
            return
        with Ledger.open(self.file, create=False) as ledger:
            assert ledger.verify() == []
            summary = ledger.summary(NAME)
            charged, published = charged_ticks(ledger), outputs(ledger)
        same(self.before, published)
        same(self.given, published)
        assert charged == sorted(set(charged))
        assert set(published) <= set(charged)
        assert (summary.reserved, summary.committed) == (len(charged), len(published))
        assert charged[: len(self.charged)] == self.charged, "a charge was taken back"
        for tick in charged[len(self.charged) :]:
            self.state = add_release(self.accountant.components, self.state, tick)
            for quiet in range(2):
                assert by_states(self.accountant, self.state, quiet) <= self.budget * (1 + 1e-9)
        self.before, self.charged = published, charged

    def teardown(self) -> None:
        if self.publisher is not None:
            self.publisher.close()
        shutil.rmtree(self.folder)


PublisherMachine.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=14,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
test_any_order_keeps_the_budget = PublisherMachine.TestCase
