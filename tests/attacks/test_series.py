"""Histories in which a public series is told, late or never: no charge is below the truth given what was told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.processes import ahead, back
from attacks.truth import Output, World, coupled_kernel, digits_of
from csdp import Accountant, CoupledChain, EnvironmentChain, Mean, Plan
from csdp.accountant import protocol
from csdp.accountant.environment import EnvironmentComponent
from csdp.accountant.vector import InfluenceComponent
from csdp.auditing.replay import replay
from csdp.ledger import Ledger
from csdp.publisher import Publisher, Release
from oracle_environment import random_member

TICKS, FIRST, LAST, QUIET = 10, -4, 16, 2
SIZES = ((1, 2), (2, 2), (2, 2), (1, 3))
KINDS = (("plain", "persistent"), ("persistent", "hub"), ("skewed", "own"), ("own", "persistent"))


class History:
    """Publishers that come and go over one ledger, with readings and environments that are late or missing."""

    def __init__(self, seed: int, where: Path, *, trouble: bool = True) -> None:
        self.rng, self.where, self.trouble = np.random.default_rng([33, seed]), where, trouble
        self.s, self.m = SIZES[seed % 4]
        self.direction = ("backward", "forward", "backward")[seed % 3]
        self.members = [self._members(KINDS[(seed // 2 + n) % 4]) for n in range(2)]
        self.path = self.rng.integers(0, 2, LAST - FIRST + 1)
        self.told: dict[int, int] = {}
        self.rows: dict[int, np.ndarray] = {}
        self.outputs: list[Output] = []
        self.plan, self.live = self._plan(0), 0
        self.checks = 0

    def _members(self, kinds: tuple[str, str]) -> list[tuple[Any, Any]]:
        return [random_member(self.rng, self.s, self.m, kind) for kind in kinds]

    def _plan(self, which: int) -> Plan:
        chains = [CoupledChain(*member, direction=self.direction) for member in self.members[which]]
        chain = EnvironmentChain(chains, series="weather")
        level, age = float(self.rng.choice([0.5, 1.0, 2.0])), int(self.rng.integers(0, 3))
        return Plan(chain, Mean(), age, level, stale_limit=1 if self.trouble else 0)

    def environment(self, tick: int) -> int:
        return int(self.path[tick - FIRST])

    def run(self) -> None:
        with Ledger.open(self.where) as ledger:
            publishers = [self._opened(ledger), self._opened(ledger)]
            for tick in range(TICKS):
                gone = self.rng.random(self.s) < (0.2 if self.trouble else 0.0)
                self.rows[tick] = np.where(gone, -1, self.rng.integers(0, self.m, self.s))
                if self.trouble and tick == TICKS // 2:
                    self.live = int(self.rng.random() < 0.3)
                    self.plan = self._plan(self.live)
                    publishers = [publishers[0].change_plan(self.plan, from_tick=tick)] * 2
                    self._refill(publishers[0], tick)
                if self.trouble and self.rng.random() < 0.2:
                    publishers[0] = self._opened(ledger)
                    self._refill(publishers[0], tick)
                if self.trouble and self.rng.random() < 0.15:
                    for one in publishers:
                        one.observe(self.rows[tick], time=tick)
                    continue
                self._push(publishers[int(self.rng.random() < 0.3)], tick, ledger)
            assert replay(ledger).ok

    def _opened(self, ledger: Ledger) -> Publisher:
        return Publisher(self.plan, dataset="d", ledger=ledger)

    def _refill(self, publisher: Publisher, tick: int) -> None:
        for at in range(max(0, tick - 4), tick):
            publisher.observe(self.rows[at], time=at)

    def _push(self, publisher: Publisher, tick: int, ledger: Ledger) -> None:
        self._refill(publisher, tick)
        now = self.rng.random() < 0.7
        late = [t for t in range(tick - 3, tick) if self.rng.random() < 0.4]
        publisher.tell({t: self.environment(t) for t in late})
        answer = publisher.push(self.rows[tick], time=tick, environment=self.environment(tick) if now else None)
        if not isinstance(answer, Release):
            return
        age = self.plan.min_age
        reads = [max(t for t in range(tick - age + 1) if self.rows[t][i] >= 0) for i in range(self.s)]
        digits = digits_of(self.s, self.m)
        rate = self.plan.epsilon_c / float(self.plan.sensitivity)
        self.outputs.append(Output(tuple(reads), digits.mean(axis=1, keepdims=True), rate))
        (entry,) = [e for e in ledger.entries("d", kind="reserve") if e.tick == tick]
        charge = entry.data()["charge"]
        self.told |= dict(charge.get("environments", ()))
        assert all(self.environment(t) == number for t, number in self.told.items())
        assert (tick in self.told) == now
        truths = [world.told_from(self.outputs, tick, QUIET, "informed") for world in self._worlds()]
        for name, true in (("present", max(one[0] for one in truths)), ("peak", max(map(max, truths)))):
            assert charge[name] >= true * (1 - 1e-9) - 1e-11, f"{name} at tick {tick}: {charge[name]} below {true}"
        self.checks += 1

    def _worlds(self) -> list[World]:
        """Laws that agree with all that was told; elsewhere the series may have been anything."""
        kernels = [coupled_kernel(*member) for member in self.members[self.live]]
        guesses = [
            *np.eye(2, dtype=int)[:, :1] * np.ones_like(self.path),
            *self.rng.integers(0, 2, (2, self.path.size)),
        ]
        law = reduce(np.kron, self.rng.dirichlet(np.ones(self.m), self.s))
        worlds = []
        for guess in map(np.copy, guesses):
            for tick, number in self.told.items():
                guess[tick - FIRST] = number
            turn = ahead if self.direction == "forward" else back
            worlds.append(turn(lambda n, g=guess: kernels[g[n - FIRST]], law, FIRST, LAST, self.s, self.m))
        return worlds


@pytest.mark.parametrize(
    "seed", [seed if seed < 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(12)]
)
def test_no_charge_is_below_the_truth_given_what_was_told(seed: int, tmp_path: Path) -> None:
    history = History(seed, tmp_path / "ledger.db")
    history.run()
    assert history.checks > 1


# ---- wrong rules, planted on purpose ---------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def a_step_is_under_the_environment_before(patch: Patch) -> None:
    """The step that leads to a tick happens under the environment of the tick before it."""
    real = protocol.SeriesPath.__init__

    def init(self: Any, known: Any = None, now: int = 0) -> None:
        real(self, {tick + 1: number for tick, number in (known or {}).items()}, now)

    patch.setattr(protocol.SeriesPath, "__init__", init)


def what_is_not_known_is_the_first(patch: Patch) -> None:
    """Environments that are late, missing or still to come count as the first one, not as the worst."""
    patch.setattr(protocol.SeriesPath, "at", lambda self, depth: self.known.get(self.now - depth, 0))
    for kind in (EnvironmentComponent, InfluenceComponent):
        real = kind.advance
        patch.setattr(kind, "advance", lambda self, state, steps, e=None, real=real: real(self, state, steps, e or 0))


def a_change_of_plan_forgets_the_path(patch: Patch) -> None:
    """After a change of plan the history counts as if it had run under the first environment."""
    real = Accountant._carried_states
    patch.setattr(
        Accountant,
        "_carried_states",
        lambda self, state: real(self, replace(state, environments=dict.fromkeys(range(state.tick + 1), 0))),
    )


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (a_step_is_under_the_environment_before, 2),
        (what_is_not_known_is_the_first, 0),
        (a_change_of_plan_forgets_the_path, 0),
    ],
)
def test_a_wrong_rule_is_found(
    plant: Callable[[Patch], None], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"present|peak"):
        History(seed, tmp_path / "ledger.db").run()
