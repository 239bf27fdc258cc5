"""What a leakage promises, and what it does not, in plain words: the same on the command line and on a page."""

from __future__ import annotations

from dataclasses import dataclass

from csdp.errors import InputError

#: What an adversary of each kind knows, beside what is published.
KNOWS = {
    "informed": "who knows the model and every other present value",
    "uninformed": "who knows the model but no present value",
    "any": "who knows the model and any part of the other present values",
}


@dataclass(frozen=True)
class Guarantee:
    """Two sentences that belong beside every leakage."""

    protects: str
    exposes: str

    def __str__(self) -> str:
        return f"Protects: {self.protects} Does not protect: {self.exposes}"


def guarantee(*, adversary: str, epsilon_c: float) -> Guarantee:
    """The promise of one release, for an adversary and a noise level.

    >>> guarantee(adversary="uninformed", epsilon_c=0.5).exposes
    'old records, which are exposed with noise epsilon_c = 0.5.'
    """
    if adversary not in KNOWS:
        raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(KNOWS)}")
    return Guarantee(
        protects=f"the present value of each sequence, against an adversary {KNOWS[adversary]}, if the model holds.",
        exposes=f"old records, which are exposed with noise epsilon_c = {epsilon_c:g}.",
    )


#: Stands in the place of a guarantee where only formulas that are not proven were computed.
UNSOUND_WARNING = "UNSOUND: this number can be below the true leakage. It protects nothing and certifies nothing."
