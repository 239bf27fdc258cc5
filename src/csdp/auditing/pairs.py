"""Which two presents an audit tells apart: the worst ones of the declared mechanism, or those that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from csdp.aging import Adversary
from csdp.bounds.leakage import Setting
from csdp.bounds.result import Witness
from csdp.chain import Family, Model
from csdp.errors import InputError, TooLargeError
from csdp.queries import Identity, Query


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
        """The pair in the names and values of the sequences."""
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


def given_pair(model: Model, pair: Sequence[Sequence[int]], adversary: Adversary) -> Pair:
    """Check two presents as a caller gives them."""
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
        raise InputError(f"pair: the presents differ in {differ.size} sequences; they must in one, known in both")
    unknown = int((rows[0] < 0).sum())
    if adversary == "informed" and unknown:
        raise InputError("pair: an informed adversary knows every state; -1 is for 'uninformed' and 'any'")
    if adversary == "uninformed" and unknown != model.sequences - 1:
        raise InputError("pair: an uninformed adversary knows no other state; mark all others with -1")
    present, alternative = (tuple(int(v) for v in row) for row in rows)
    return Pair(model, present, alternative)


def worst_pair(
    chain: Model | Family,
    query: Query | None,
    *,
    ages: Sequence[int],
    epsilon_c: float | None,
    adversary: Adversary,
) -> Pair:
    """The witness of the exact leakage; over a family, of the member that leaks most.

    Without a query the release of every aged value, without a noise level epsilon_c = 1.
    """
    members = chain.members if isinstance(chain, Family) else (chain,)
    best, chosen = -1.0, None
    for model in members:
        setting = Setting.make(
            model,
            Identity() if query is None else query,
            ages=ages,
            epsilon_c=1.0 if epsilon_c is None else epsilon_c,
            adversary=adversary,
        )
        try:
            values = [(part.value("exact"), part) for part in setting.components]
        except TooLargeError as error:
            raise TooLargeError(
                f"pair: the worst one is not found, because {error}; give pair=(present, alternative)",
                needed=error.needed,
                limit=error.limit,
            ) from None
        for value, part in values:
            worst = value.worst_case
            if worst is None or not worst.known or worst.value <= best:
                continue
            present = _rest(model, part.members, adversary)
            for place, state in zip(worst.known, worst.present, strict=True):
                present[part.members[place]] = state
            other = list(present)
            other[part.members[worst.sequence]] = worst.alternative
            best, chosen = worst.value, Pair(model, tuple(present), tuple(other))
    if chosen is None:
        raise InputError("pair: this release tells no two presents apart; give pair=(present, alternative)")
    return chosen


def _rest(model: Model, members: Sequence[int], adversary: Adversary) -> list[int]:
    """Everyone else: not known, or for an informed adversary in a state that each component is often in."""
    present = [-1] * model.sequences
    if adversary != "informed":
        return present
    for other in model.components():
        if other[0] in members:
            continue
        part = model.subchain(other)
        law = part.oldest_law()[0]
        states = np.unravel_index(int(np.argmax(law)), (part.states,) * part.sequences)
        for member, state in zip(other, states, strict=True):
            present[member] = int(state)
    return present
