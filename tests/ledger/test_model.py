"""Any order of reserving, committing, asking again, crashing and reopening agrees with a model of ten lines."""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from csdp.ledger import Ledger, Published, Refused, Reserved
from ledger.rules import ask, register

LIMIT = 6


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="csdp-ledger-")
        self.held: list[Reserved] = []
        self.charged: set[tuple[int, str]] = set()
        self.outputs: dict[tuple[int, str], int] = {}
        self.newest = -1

    @initialize()
    def start(self) -> None:
        self.ledger = Ledger.open(f"{self.folder}/ledger.db")
        register(self.ledger)

    @rule(ticks=st.lists(st.integers(0, 12), max_size=4), query=st.sampled_from(["mean", "max"]))
    def reserve(self, ticks: list[int], query: str) -> None:
        for tick, answer in zip(ticks, ask(self.ledger, ticks, limit=LIMIT, query=query), strict=True):
            key = (tick, query)
            if key in self.outputs:
                assert isinstance(answer, Published)
                assert answer.output == {"value": self.outputs[key]}
            elif key in self.charged:
                assert isinstance(answer, Refused)
                assert answer.why == "lost"
            elif tick < self.newest:
                assert isinstance(answer, Refused)
                assert answer.why in ("order", "limit")
            elif len(self.charged) == LIMIT:
                assert isinstance(answer, Refused)
                assert answer.why == "limit"
            else:
                assert isinstance(answer, Reserved)
                self.charged.add(key)
                self.newest = tick
                self.held.append(answer)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), value=st.integers())
    def commit(self, data: st.DataObject, value: int) -> None:
        some = data.draw(st.lists(st.sampled_from(self.held), unique_by=lambda one: one.seq, min_size=1))
        self.ledger.commit_many([(one, {"value": value}) for one in some])
        for one in some:
            self.outputs[one.tick, one.query] = value
            self.held.remove(one)

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        if crash:
            self.held.clear()  # whoever held them is gone
        self.ledger.close()
        self.ledger = Ledger.open(f"{self.folder}/ledger.db", create=False)

    @invariant()
    def the_books_balance(self) -> None:
        summary = self.ledger.summary("ward-7")
        assert (summary.reserved, summary.committed) == (len(self.charged), len(self.outputs))
        assert summary.reserved <= LIMIT

    def teardown(self) -> None:
        assert self.ledger.verify() == []
        self.ledger.close()
        shutil.rmtree(self.folder)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
