"""Histories under environments with gaps of about 4,096 ticks, after which steps are no longer counted one by one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from attacks.processes import ahead, back
from csdp import CoupledChain, EnvironmentChain, Mean, Plan
from csdp.audit.replay import replay
from csdp.ledger import Ledger
from csdp.publisher import Publisher, Release
from oracle import Array, Output, World, digits_of, joint_kernel, stationary

LONG, BURST, QUIET = 4096, 3, 2
SIZES = ((1, 3), (2, 2), (1, 2), (2, 2))


class History:
    """Bursts of releases between long gaps, under a clock or a hidden environment.

    Some environment hardly changes a state, so that a gap forgets little.
    """

    def __init__(self, seed: int, where: Path) -> None:
        self.rng, self.where = np.random.default_rng([40, seed]), where
        self.s, self.m = SIZES[seed % 4]
        self.direction = ("backward", "forward", "backward")[seed % 3]
        self.regimes = 1 + int(seed % 5 < 3)
        self.period = 1 if self.regimes > 1 else (3, 7)[seed // 2 % 2]
        self.coupling = 0.9 * np.eye(self.s) + 0.1 * self.rng.dirichlet(np.ones(self.s), self.s)
        rates = 10.0 ** self.rng.uniform(-6, -4, (self.period, self.regimes))
        if self.regimes > 1:
            rates[0, 0] = self.rng.uniform(0.1, 0.45)
        self.kernels = [[joint_kernel(self.coupling, self._moves(rate)) for rate in row] for row in rates]
        chains = [CoupledChain(self.coupling, self._moves(rate), direction=self.direction) for rate in rates.ravel()]
        if self.regimes > 1:
            self.chain = EnvironmentChain(chains, switching=np.full((2, 2), 0.5))
        else:
            self.chain = EnvironmentChain(chains, cycle=tuple(range(self.period)))
        self.rows: dict[int, Array] = {}
        self.outputs: list[Output] = []
        self.plan = self._plan()
        self.checks = 0

    def _moves(self, rate: float) -> Array:
        rows = rate / (self.m - 1) + (1 - rate - rate / (self.m - 1)) * np.eye(self.m)
        return np.broadcast_to(rows, (self.s, self.s, self.m, self.m))

    def _plan(self) -> Plan:
        return Plan(self.chain, Mean(), int(self.rng.integers(0, 2)), float(self.rng.choice([0.5, 1.0])))

    def run(self) -> None:
        with Ledger.open(self.where) as ledger:
            publisher, tick = Publisher(self.plan, dataset="d", ledger=ledger), 0
            for number in range(3):
                if number:
                    gap = LONG + int(self.rng.integers(-2, 9))
                    if self.rng.random() < 0.3:
                        self.plan = self._plan()
                        publisher = publisher.change_plan(self.plan, from_tick=tick + gap // 2)
                    elif self.rng.random() < 0.5:
                        publisher = Publisher(self.plan, dataset="d", ledger=ledger)
                    tick += gap
                for _ in range(BURST if number < 2 else 1 + self.plan.min_age):
                    self.rows[tick] = self.rng.integers(0, self.m, self.s)
                    self._push(publisher, tick, ledger)
                    tick += 1
            assert replay(ledger).ok

    def _push(self, publisher: Publisher, tick: int, ledger: Ledger) -> None:
        release = publisher.push(self.rows[tick], time=tick)
        if not isinstance(release, Release):
            return
        answers = digits_of(self.s, self.m).mean(axis=1, keepdims=True)
        rate = self.plan.epsilon_c / float(self.plan.sensitivity)
        self.outputs.append(Output((tick - self.plan.min_age,) * self.s, answers, rate))
        (entry,) = [e for e in ledger.entries("d", kind="reserve") if e.tick == tick]
        charge = entry.data()["charge"]
        truths = [told for phase in range(self.period) for told in self._truths(phase, tick)]
        for name, true in (("present", max(one[0] for one in truths)), ("peak", max(map(max, truths)))):
            assert charge[name] >= true * (1 - 1e-9) - 1e-11, f"{name} at tick {tick}: {charge[name]} below {true}"
        self.checks += 1

    # ---- the truth ---------------------------------------------------------------------------------------------------

    def _truths(self, phase: int, tick: int) -> list[list[float]]:
        """What all outputs tell of the present and of two later ones, if tick 0 lies at a phase.

        Only ticks that are looked at are slices of these laws: a gap is one step, by the product of its kernels.
        """
        ticks = sorted({n for output in self.outputs for n in output.reads} | {*range(tick, tick + QUIET + 1)})
        place = {at: n for n, at in enumerate(ticks)}
        outputs = [Output(tuple(place[n] for n in one.reads), one.answers, one.rate) for one in self.outputs]
        guesses = [self.regimes - 1, 0, None][: 1 if self.regimes == 1 else 3]
        worlds = [self._world(ticks, phase, self._path(ticks, guess)) for guess in guesses]
        return [world.told_from(outputs, place[tick], QUIET, "informed") for world in worlds]

    def _path(self, ticks: list[int], guess: int | None) -> Mapping[int, int]:
        """The environment of every tick: always the same or any."""
        return {
            n: int(self.rng.integers(self.regimes)) if guess is None else guess for n in range(ticks[0], ticks[-1] + 1)
        }

    def _world(self, ticks: list[int], phase: int, path: Mapping[int, int]) -> World:
        kernels = {n: self.kernels[(n + phase) % self.period][path[n]] for n in path}
        size, forward = (self.s, self.m), self.direction == "forward"
        steps = []
        for before, after in pairwise(ticks):
            between = [kernels[n] for n in range(before + 1, after + 1)]
            steps.append(reduce(np.matmul, between if forward else between[::-1]))
        if not forward or self.regimes > 1:  # anybody's law, of independent sequences
            law = reduce(np.kron, self.rng.dirichlet(np.ones(self.m), self.s))
        else:
            first = ticks[0] + phase + 1
            law = stationary(
                reduce(np.matmul, [self.kernels[n % self.period][0] for n in range(first, first + self.period)])
            )
        turn = ahead if forward else back
        return turn(lambda n: steps[n - 1], law, 0, len(steps), *size)


@pytest.mark.parametrize(
    "seed", [seed if seed in {0, 1, 2, 4} else pytest.param(seed, marks=pytest.mark.slow) for seed in range(12)]
)
def test_no_charge_is_below_the_truth_after_long_gaps(seed: int, tmp_path: Path) -> None:
    history = History(seed, tmp_path / "ledger.db")
    history.run()
    assert history.checks > 2
