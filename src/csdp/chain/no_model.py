"""NoModel: sequences of which nothing is assumed, so that only plain differential privacy is promised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from csdp.chain.evidence import Verdict
from csdp.chain.model import Model, reading_json
from csdp.errors import InputError
from csdp.numbers import freeze

#: What every output says of a plan without a model.
NO_MODEL = Verdict("none")


class NoModel(Model):
    """Names and values of sequences, and nothing else.

    A plan under it is published within limits on plain differential privacy: of one reading (event) and of consecutive
    readings of one sequence (window). What it states of the present and of any moment is the group level of all
    sequences, which holds however they depend on each other, and grows with every release.

    Args:
        names: of the sequences.
        values: numbers that the states carry, (m,) or (s, m).

    >>> NoModel(["hall", "kitchen"], values=(0, 1))
    NoModel(2 sequences, 2 states, digest c2c589f5)
    """

    schema: ClassVar[str] = "csdp/no-model/1"
    has_law: ClassVar[bool] = False

    def __init__(self, names: Sequence[str], values: Any = (0, 1)) -> None:
        states = int(np.shape(values)[-1]) if np.ndim(values) else 0
        if states < 2 or not len(names):
            raise InputError("NoModel: names of sequences and two values or more expected, such as ['hall'] and (0, 1)")
        self._set_common(sequences=len(names), states=states, values=values, names=names)

    @classmethod
    def of(cls, model: Model) -> Self:
        """The sequences and values of a model, of which nothing is assumed any more; the cost of its fit stays."""
        made = cls(model.names, model.values)
        made._set(unit=model.unit, values=model.values, _fit_cost=model.fit_cost)
        return made

    @property
    def verdict(self) -> Verdict:
        """That there is no model."""
        return NO_MODEL

    @property
    def assumption(self) -> str:
        """What a certificate assumes about the model, in words."""
        return "nothing is assumed of the sequences"

    def components(self) -> list[tuple[int, ...]]:
        """One: any sequence may depend on any other."""
        return [tuple(range(self.sequences))]

    def subchain(self, members: Iterable[int]) -> Self:
        """The sequences themselves; there are no independent parts."""
        if len(set(members)) < self.sequences:
            raise InputError("subchain: any sequence may depend on any other; take all of them")
        return self

    def _refuse_law(self) -> NoReturn:
        raise InputError("no model: nothing is assumed of the sequences; give a public past for estimates and errors")

    @property
    def is_positive(self) -> bool:
        """Refused: there is no law."""
        self._refuse_law()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        content = json.dumps([self.schema, self.sequences, self.states, self.values.tolist()])
        return self._finish_digest(hashlib.sha256(content.encode()))

    def _law_content(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild from `to_dict`."""
        with reading_json():
            made = cls(content["names"] or [f"x{i + 1}" for i in range(int(content["sequences"]))], content["values"])
            return made._restore_fit(content)

    def with_values_of(self, model: Model, members: Sequence[int]) -> Self:
        """The same sequences with the values of another model."""
        values = model.values if model.values.ndim == 1 else model.values[list(members)]
        copy = self.carrying(fit_cost=self.fit_cost)
        copy._set(values=freeze(np.array(values)), unit=model.unit)
        return copy

    def __repr__(self) -> str:
        plural = "s" * (self.sequences > 1)
        return f"NoModel({self.sequences} sequence{plural}, {self.states} states, digest {self.digest[:8]})"
