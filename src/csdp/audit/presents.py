"""The two presents that an audit compares, and pasts drawn from the model given one of them.

The auditor knows the correlations: it draws what a mechanism reads from `Pr(past | present)`, walking back through time
with the backward kernel of each component. Components are independent, so each is drawn separately.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.bounds.adversary import Adversary, ProtectedPairs
from csdp.bounds.leakage import Setting
from csdp.bounds.result import Witness
from csdp.chain import Family, Model
from csdp.errors import InputError, TooLargeError
from csdp.query import Identity
from csdp.query_table import Query

States = npt.NDArray[Any]

#: Joint states of one component up to which pasts are drawn.
SAMPLED_STATES = 2048
#: Entries of the array of readings that are drawn at once.
MAX_READINGS = 400_000_000


@dataclass(frozen=True)
class Pair:
    """Two presents that differ in one sequence; -1 marks a state that the adversary does not know."""

    model: Model
    present: tuple[int, ...]
    alternative: tuple[int, ...]

    @property
    def sequence(self) -> int:
        """The sequence in which they differ."""
        return next(i for i, (a, b) in enumerate(zip(self.present, self.alternative, strict=True)) if a != b)

    def witness(self) -> Witness:
        """Return the pair in the names and values of the sequences."""
        table, names, secret = self.model.value_table, self.model.names, self.sequence
        others = {
            names[i]: float(table[i, state]) for i, state in enumerate(self.present) if state >= 0 and i != secret
        }
        return Witness(
            names[secret],
            float(table[secret, self.present[secret]]),
            float(table[secret, self.alternative[secret]]),
            others,
        )


def check_pair(model: Model, pair: Sequence[Sequence[int]], adversary: Adversary, protect: float | None = None) -> Pair:
    """Return two presents of a caller as a Pair; raise InputError if they are none for this adversary."""
    try:
        rows = np.asarray([list(row) for row in pair])
    except (TypeError, ValueError):
        rows = np.zeros(0)
    if rows.shape != (2, model.sequences) or not np.issubdtype(rows.dtype, np.integer):
        raise InputError(
            f"pair: two presents of {model.sequences} state numbers expected, -1 for a state that the adversary does "
            "not know, such as ([1, 0], [0, 0])"
        )
    if rows.min() < -1 or rows.max() >= model.states:
        raise InputError(f"pair: unknown state; states are 0..{model.states - 1}, and -1 where not known")
    differ = np.flatnonzero(rows[0] != rows[1])
    if differ.size != 1 or (rows[:, differ] < 0).any():
        raise InputError(f"pair: the presents differ in {differ.size} sequences; they must differ in one known state")
    unknown = int((rows[0] < 0).sum())
    if adversary == "informed" and unknown:
        raise InputError("pair: an informed adversary knows every state; -1 is for 'uninformed' and 'any'")
    if adversary == "uninformed" and unknown != model.sequences - 1:
        raise InputError("pair: an uninformed adversary knows no other state; mark all others with -1")
    present, alternative = (tuple(int(v) for v in row) for row in rows)
    i = int(differ[0])
    if not ProtectedPairs.of(model.value_table, protect).close[i, present[i], alternative[i]]:
        raise InputError(f"pair: values further apart than {protect:g}, which the plan does not protect; give others")
    return Pair(model, present, alternative)


def worst_pair(
    chain: Model | Family,
    query: Query | None,
    *,
    ages: Sequence[int],
    epsilon_c: float | None,
    adversary: Adversary,
    protect: float | None = None,
) -> Pair:
    """Return the witness of the exact leakage; over a family, that of the member that leaks most.

    Without a query, all aged values are taken to be released; without a noise level, epsilon_c = 1.
    """
    best, chosen = -1.0, None
    for model in (member.point for member in chain.members):
        setting = Setting.make(
            model,
            Identity() if query is None else query,
            ages=ages,
            epsilon_c=1.0 if epsilon_c is None else epsilon_c,
            adversary=adversary,
            protect=protect,
        )
        try:
            values = [(component.value("exact"), component) for component in setting.components]
        except TooLargeError as error:
            raise TooLargeError(
                f"pair: the worst one cannot be computed, because {error}; give pair= with a present and an "
                "alternative",
                needed=error.needed,
                limit=error.limit,
            ) from None
        for value, component in values:
            worst = value.worst_case
            if worst is None or not worst.known or worst.value <= best:
                continue
            present = _other_states(model, component.members, adversary)
            for place, state in zip(worst.known, worst.present, strict=True):
                present[component.members[place]] = state
            other = list(present)
            other[component.members[worst.sequence]] = worst.alternative
            best, chosen = worst.value, Pair(model, tuple(present), tuple(other))
    if chosen is None or chosen.present == chosen.alternative:
        raise InputError(
            "pair: this release does not depend on the present; give pair= with a present and an alternative"
        )
    return chosen


def _other_states(model: Model, members: Sequence[int], adversary: Adversary) -> list[int]:
    """States of the other components: unknown (-1), or for an informed adversary the likeliest joint state of each."""
    present = [-1] * model.sequences
    if adversary != "informed":
        return present
    for other in model.components():
        if other[0] in members:
            continue
        component = model.subchain(other)
        law = component.stationary()
        states = np.unravel_index(int(np.argmax(law)), (component.states,) * component.sequences)
        for member, state in zip(other, states, strict=True):
            present[member] = int(state)
    return present


# ---- pasts -----------------------------------------------------------------------------------------------------------


class PastSampler:
    """Draws slices of the past of all sequences, given a present in which -1 marks an unknown state.

    Args:
        model: the chain.
        depths: how many steps before the present the slices lie.
    """

    def __init__(self, model: Model, depths: Iterable[int]) -> None:
        self.model = model
        self.depths = tuple(sorted(set(depths)))
        self._components = [
            (np.asarray(members), _ComponentSampler(model, members, self.depths)) for members in model.components()
        ]

    def draw(self, present: Sequence[int], count: int, random: np.random.Generator) -> States:
        """Return states (count, depths, s) of the slices, in the order of `depths`."""
        entries = count * len(self.depths) * self.model.sequences
        if entries > MAX_READINGS:
            raise TooLargeError(
                f"audit: {count:,} pasts of {len(self.depths)} slices and {self.model.sequences} sequences do not fit; "
                "ask for fewer samples",
                needed=float(entries),
                limit=float(MAX_READINGS),
            )
        kind: Any = np.int8 if self.model.states <= 127 else np.int16
        out = np.empty((count, len(self.depths), self.model.sequences), dtype=kind)
        known = np.asarray(present)
        for members, component in self._components:
            component.draw(known[members], out, members, random)
        return out

    def check(self, present: Sequence[int]) -> None:
        """Raise InputError for a present that cannot occur."""
        known = np.asarray(present)
        for members, component in self._components:
            component.present_law(known[members])


class _ComponentSampler:
    """Backward kernels between the slices of one component."""

    def __init__(self, model: Model, members: Sequence[int], depths: Sequence[int]) -> None:
        component = model if len(members) == model.sequences else model.subchain(members)
        if component.size > SAMPLED_STATES:
            raise TooLargeError(
                f"audit: a component of {component.states}**{component.sequences} joint states; pasts are drawn for "
                f"at most {SAMPLED_STATES:,}. Audit the mechanism on a smaller chain",
                needed=float(min(component.size, 10**300)),
                limit=float(SAMPLED_STATES),
            )
        self._shape = (component.states,) * component.sequences
        kernel = component.kernel()
        law = component.stationary()
        stops = sorted({0, *depths})
        self._depths = depths
        #: cumulative backward rows from every stop to the next older one
        self._tables: list[Floats] = []
        for newer, older in reversed(list(itertools.pairwise(stops))):
            joint = law[:, None] * np.linalg.matrix_power(kernel, older - newer)
            self._tables.insert(0, np.cumsum(joint.T, axis=1))
            law = joint.sum(axis=0)
        self._law = law / law.sum()

    def present_law(self, known: States) -> Floats:
        """Law of the component's present snapshot, given the known states (-1: unknown)."""
        states = np.array(np.unravel_index(np.arange(self._law.size), self._shape)).T
        fits = ((known < 0) | (states == known)).all(axis=1)
        law = np.where(fits, self._law, 0.0)
        if not law.sum() > 0:
            raise InputError(f"pair: a present of states {known.tolist()} never occurs under the model; give another")
        return np.asarray(law / law.sum())

    def draw(self, known: States, out: States, members: States, random: np.random.Generator) -> None:
        """Fill the columns of the members, slice by slice back through time."""
        law = self.present_law(known)
        count = out.shape[0]
        number = _draw_rows(np.cumsum(law)[None, :], np.zeros(count, dtype=np.intp), random)
        column = 0
        if self._depths[0] == 0:
            self._write(number, out[:, 0], members)
            column = 1
        for table in self._tables:
            number = _draw_rows(table, number, random)
            self._write(number, out[:, column], members)
            column += 1

    def _write(self, number: States, slice_: States, members: States) -> None:
        for member, states in zip(members, np.unravel_index(number, self._shape), strict=True):
            slice_[:, member] = states


def _draw_rows(cumulative: Floats, rows: States, random: np.random.Generator) -> Indices:
    """Draw for every entry of `rows` from the law whose running sums are that row; never a state of probability 0."""
    uniform = random.random(rows.size)
    drawn = np.empty(rows.size, dtype=np.intp)
    order = np.argsort(rows, kind="stable")
    present, starts = np.unique(rows[order], return_index=True)
    for row, chosen in zip(present, np.split(order, starts[1:]), strict=True):
        law = cumulative[row]
        last = int(np.searchsorted(law, law[-1], side="left"))  # rounding must not reach a state of probability zero
        drawn[chosen] = np.minimum(np.searchsorted(law, uniform[chosen] * law[-1], side="right"), last)
    return drawn
