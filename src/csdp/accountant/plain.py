"""What releases tell under any model whatever: for readings whose public past speaks against every certificate."""

from __future__ import annotations

import math

import numpy as np

from csdp.accountant.lateness import Stale
from csdp.accountant.protocol import UNKNOWN, Before, Kind, Read, SeriesPath
from csdp.arrays import Floats
from csdp.bounds.result import round_up
from csdp.chain import Model
from csdp.plan import Plan


def is_plain(plan: Plan) -> bool:
    """Whether no certificate can rest on the model of a plan: the public past of the readings speaks against it."""
    return plan.readings_check == "failed"


def plain_cost(plan: Plan) -> float:
    """What one release of a plan adds, at most, to the log ratio of the history under any model whatever."""
    whole = plan.query.sensitivity(plan.model.sequences, plan.model.value_table)
    return whole / plan.sensitivity * plan.epsilon_c


class PlainComponent:
    """All sequences as one component of which nothing is known: every release adds its whole cost, and none fades.

    State: one number, the sum of the costs so far.

    Args:
        model: the model of the plan; only its sequences and phases count.
        plan: what is released.
    """

    kind: Kind = "group"
    alike: bytes | None = None
    finds_rest = False
    follows_delays = False
    follows_missing = False

    def __init__(self, model: Model, plan: Plan) -> None:
        self.model = model
        self.ages: tuple[int, ...] = (plan.min_age,)
        self.alpha = round_up(plain_cost(plan))

    @property
    def oldest(self) -> int:
        """Steps before now from which on a state waits for no more readings."""
        return self.ages[0]

    def reads(self, stale: Stale) -> list[Read]:
        """One read: it does not matter what was late or missing."""
        return [Read(self.ages[0])]

    def initial_state(self) -> Floats:
        """The state before any release."""
        return np.zeros(1)

    def state_at_rest(self) -> Floats | None:
        """There is none: every release adds to the state."""
        return None

    def worst_log_ratio(self, state: Floats) -> float:
        """The worst log ratio of the history between any two snapshots."""
        return float(state[0])

    def carry(self, before: Before, cost: float) -> Floats:
        """The state for a history under another plan: its cost under any model."""
        return np.array([cost])

    def add(self, state: Floats, read: Read, *, behind: int = 0, share: float = 1.0) -> Floats:
        """Add a whole release."""
        return np.array([round_up(state[0] + self.alpha * share)])

    def advance(self, state: Floats, steps: int, environment: int | None = None) -> Floats:
        """The same state: nothing fades."""
        return state

    def leakage(self, state: Floats, steps: int, path: SeriesPath = UNKNOWN) -> tuple[float, str]:
        """The cost of all releases."""
        return float(state[0]), "group"

    def peak(self, state: Floats, steps: int, path: SeriesPath = UNKNOWN) -> float:
        """The same at every later tick."""
        return float(state[0])

    def decaying_bound(self, state: Floats, steps: int, path: SeriesPath = UNKNOWN) -> float:
        """The same at every later tick."""
        return float(state[0])

    def cap(self, steps: int) -> tuple[float, str]:
        """No number of releases is too large."""
        return math.inf, "group"

    def lifetime(self, releases: int | None, *, stale: int = 0, earlier: float = 0.0, overlap: bool = False) -> float:
        """What all releases tell of one record: their whole cost, and that of earlier plans."""
        return math.inf if releases is None else self.alpha * releases + earlier * releases
