"""A small plan, its data, and what must hold of any ledger that a publisher wrote."""

from __future__ import annotations

from accountant.systems import by_states
from csdp import CoupledChain, Mean
from csdp.accountant import Accountant
from csdp.accountant.account import add_release
from csdp.ledger import Ledger
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import Publisher

NAME = "ward-7"
BUDGET = 0.3  # three releases in a row fit, a fourth does not
ONE = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
PAIR = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def plan(chain: CoupledChain = ONE, ages: object = 1, epsilon_c: float = 0.5, **rest: object) -> Plan:
    return Plan(chain, Mean(), ages, epsilon_c, **rest)  # type: ignore[arg-type]


def snapshot(tick: int, sequences: int = 1) -> list[int]:
    """What was read at a tick: the same in every process."""
    return [(tick * 7 // 3 + i) % 2 for i in range(sequences)]


def panel(ticks: int, first: int = 0, sequences: int = 1) -> Panel:
    return Panel.from_states([snapshot(first + t, sequences) for t in range(ticks)], first_tick=first)


def opened(where: object, **given: object) -> Publisher:
    settings: dict[str, object] = {"dataset": NAME, "ledger": where, "budget": BUDGET} | given
    chosen = settings.pop("plan", None) or plan()
    return Publisher(chosen, **settings)  # type: ignore[arg-type]


def charged_ticks(ledger: Ledger) -> list[int]:
    return [int(entry.tick) for entry in ledger.entries(NAME, kind="reserve") if entry.tick is not None]


def outputs(ledger: Ledger) -> dict[int, tuple[float, ...]]:
    found = [(one.tick, tuple(one.output["values"])) for one in ledger.published(NAME)]
    assert len(found) == len(dict(found)), "a tick was published twice"
    return dict(found)


def check(ledger: Ledger, asked: Plan | None = None, budget: float | None = BUDGET) -> dict[int, tuple[float, ...]]:
    """Charged covers published; a fresh accountant finds no moment above the budget; the file is sound."""
    assert ledger.verify() == []
    charged, published = charged_ticks(ledger), outputs(ledger)
    assert charged == sorted(set(charged))
    assert set(published) <= set(charged)
    accountant = Accountant(asked or plan())
    state = accountant.start()
    for tick in charged:
        state = add_release(accountant.components, state, tick)  # the general rule, not the shared one
        for quiet in range(3):
            assert budget is None or by_states(accountant, state, quiet) <= budget * (1 + 1e-9)
    return published


def same(before: dict[int, tuple[float, ...]], after: dict[int, tuple[float, ...]]) -> None:
    assert {tick: after.get(tick) for tick in before} == before, "a recorded output changed"
