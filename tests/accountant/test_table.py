"""What a table tells, over one release and over many, against brute force over all histories of outputs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from csdp import Accountant, CoupledChain, Family, JointChain, Max, Mean, Sum
from csdp.bounds.table import table_leakage
from csdp.noise import MechanismTable
from csdp.plan import Plan

from accountant.brute import Array, Told, history_leakage  # isort: skip
from oracle import joint_kernel  # isort: skip

PAIR = [[0.75, 0.25], [0.25, 0.75]]
APART = [[1.0, 0.0], [0.0, 1.0]]


@dataclass(frozen=True)
class Drawn(Told):
    """An output drawn from a table: its likelihoods are those of the table."""

    table: MechanismTable | None = None

    def likelihoods(self) -> Array:
        assert self.table is not None
        place = {answer: row for row, answer in enumerate(self.table.answers)}
        return self.table.probabilities[[place[value[0]] for value in self.fvals]].T


def random_table(rng: np.random.Generator, answers: tuple[float, ...], outputs: int = 3) -> MechanismTable:
    rows = rng.dirichlet(np.full(outputs, 2.0), size=len(answers)) + 0.02
    return MechanismTable.from_probabilities(answers, range(outputs), rows)


def made(chain: CoupledChain | JointChain, query: Sum | Max, ages: list[int], table: MechanismTable) -> Plan:
    return Plan(chain, query, ages, table.record_epsilon(1.0), mechanism=table)


CASES = [
    (s, coupling, query, ages, seed)
    for seed, (s, coupling, query, ages) in enumerate(
        [
            (1, [[1.0]], Sum(), [0]),
            (1, [[1.0]], Sum(), [1]),
            (1, [[1.0]], Sum(), [2]),
            (2, PAIR, Sum(), [0, 0]),
            (2, PAIR, Sum(), [1, 1]),
            (2, PAIR, Sum(), [0, 1]),
            (2, PAIR, Sum(), [2, 1]),
            (2, APART, Sum(), [1, 1]),
            (2, APART, Sum(), [0, 1]),
            (2, PAIR, Max(), [1, 1]),
            (2, APART, Max(), [1, 1]),
            (2, PAIR, Max(), [0, 1]),
        ]
    )
]


def system(s: int, coupling: list[list[float]], query: Sum | Max, ages: list[int], seed: int) -> tuple[Plan, Array]:
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet([1.0, 1.0], size=2)
    answers = (0.0, 1.0) if s == 1 or isinstance(query, Max) else (0.0, 1.0, 2.0)
    plan = made(CoupledChain(coupling, moves), query, ages, random_table(rng, answers))
    return plan, joint_kernel(coupling, moves)


def told(plan: Plan, ticks: range) -> list[Drawn]:
    s = plan.model.sequences
    values = plan.query.lattice_answers(np.array(list(product(range(2), repeat=s))))
    fvals = tuple((float(v[0]),) for v in values)
    return [Drawn(tick, plan.ages, fvals, 0.0, plan.mechanism) for tick in ticks]


@pytest.mark.parametrize(("s", "coupling", "query", "ages", "seed"), CASES)
@pytest.mark.parametrize("adversary", ["informed", "uninformed", "any"])
def test_one_release_is_exact(s, coupling, query, ages, seed, adversary) -> None:
    plan, kernel = system(s, coupling, query, ages, seed)
    assert plan.mechanism is not None
    truth = history_leakage(kernel, s, 2, told(plan, range(1)), 0, adversary=adversary)
    answer = table_leakage(plan.chain, plan.query, plan.mechanism, ages=plan.ages, adversary=adversary).epsilon
    assert truth - 1e-12 <= answer <= truth + 1e-10


@pytest.mark.parametrize(("s", "coupling", "query", "ages", "seed"), CASES)
@pytest.mark.parametrize("state", ["auto", "scalar", "vector"])
def test_no_history_of_outputs_tells_more_than_is_charged(s, coupling, query, ages, seed, state) -> None:
    plan, kernel = system(s, coupling, query, ages, seed)
    accountant = Accountant(plan, state=state)
    for releases in (1, 2, 3):
        later = 0 if releases < 3 else 1
        truth = history_leakage(kernel, s, 2, told(plan, range(releases)), releases - 1 + later)
        history = accountant.history(releases)
        assert accountant.leakage(history, releases + later).epsilon >= truth - 1e-10


def test_the_comparison_would_notice_costs_that_are_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, kernel = system(*CASES[3])
    truth = history_leakage(kernel, 2, 2, told(plan, range(2)), 1)
    assert plan.mechanism is not None
    monkeypatch.setitem(plan.mechanism.__dict__, "distances", plan.mechanism.distances / 2)
    assert Accountant(plan, state="metric").after(2).epsilon < truth


def test_a_table_costs_no_more_than_the_noise_of_its_record_epsilon() -> None:
    for case in CASES[::4]:
        plan, _ = system(*case)
        noise = Plan(plan.chain, plan.query, plan.ages, plan.epsilon_c)
        for state in ("scalar", "vector"):
            own, other = (Accountant(one, state=state).after(2).epsilon for one in (plan, noise))
            assert own <= other * (1 + 1e-9)
        assert Accountant(plan).event_level() == Accountant(noise).event_level()


def test_the_largest_member_of_a_family_counts() -> None:
    rng = np.random.default_rng(3)
    chains = [CoupledChain(PAIR, rng.dirichlet([1.0, 1.0], size=2)) for _ in range(3)]
    table = random_table(rng, (0.0, 1.0, 2.0))
    each = [made(chain, Sum(), [1, 1], table).certified.epsilon for chain in chains]
    whole = Plan(Family(chains), Sum(), 1, table.record_epsilon(1.0), mechanism=table)
    assert whole.certified.epsilon == pytest.approx(max(each), rel=1e-12)
    assert Accountant(whole).after(3).epsilon >= max(
        Accountant(made(c, Sum(), [1, 1], table)).after(3).epsilon for c in chains
    )


def test_a_mean_divides_its_answers_and_nothing_else() -> None:
    rng = np.random.default_rng(4)
    chain, table = CoupledChain(PAIR, rng.dirichlet([1.0, 1.0], size=2)), random_table(rng, (0.0, 1.0, 2.0))
    mean = Plan(chain, Mean(), 1, table.record_epsilon(1.0), mechanism=table)
    assert mean.certified.epsilon == made(chain, Sum(), [1, 1], table).certified.epsilon
