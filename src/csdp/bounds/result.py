"""What a leakage computation returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from csdp.aging import Adversary
from csdp.bounds.rounding import shown


@dataclass(frozen=True)
class Witness:
    """The worst case found: who, which present value against which, and the output that tells them apart best."""

    sequence: str
    present: float
    alternative: float
    others: dict[str, float]  #: present values of the sequences the adversary knows
    output: tuple[float, ...] | None = None

    def __str__(self) -> str:
        known = ", ".join(f"{name}={value:g}" for name, value in list(self.others.items())[:6])
        more = ", ..." if len(self.others) > 6 else ""
        seen = "" if self.output is None else f", seen at output {', '.join(f'{y:g}' for y in self.output[:6])}"
        given = f" given {known}{more}" if known else ""
        return f"{self.sequence} = {self.present:g} against {self.alternative:g}{given}{seen}"


@dataclass(frozen=True)
class Leakage:
    """How much a release tells about the present: `epsilon`, and what kind of statement it is.

    `sound`: proven never to be below the truth under the model, so that it may certify. `reason` says why this bound
    was chosen, or why the answer is infinite. `components` has one entry per independent group of sequences. `point`:
    over a family of models, the leakage under the first of them, the point estimate.
    """

    epsilon: float
    bound: str
    sound: bool
    adversary: Adversary
    witness: Witness | None = None
    assumptions: tuple[str, ...] = ()
    reason: str = ""
    components: tuple[dict[str, Any], ...] = field(default=())
    point: float | None = None

    def __float__(self) -> float:
        return self.epsilon

    def __repr__(self) -> str:
        mark = "" if self.sound else ", NOT SOUND"
        return f"Leakage({shown(self.epsilon)}, {self.bound}, {self.adversary}{mark})"

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return {
            "epsilon": self.epsilon,
            "bound": self.bound,
            "sound": self.sound,
            "adversary": self.adversary,
            "witness": None if self.witness is None else vars(self.witness),
            "assumptions": list(self.assumptions),
            "reason": self.reason,
            "components": list(self.components),
            **({} if self.point is None else {"point": self.point}),
        }
