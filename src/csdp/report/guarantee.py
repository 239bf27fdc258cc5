"""What a leakage guarantees and what it does not, in words."""

from __future__ import annotations

from dataclasses import dataclass

from csdp.errors import InputError

#: What an adversary of each kind knows besides what is published.
ADVERSARY_KNOWLEDGE = {
    "informed": "who knows the model and every other present value",
    "uninformed": "who knows the model but no present value",
    "any": "who knows the model and any part of the other present values",
}


@dataclass(frozen=True)
class Guarantee:
    """What a leakage protects and what it does not: two sentences to show with every leakage."""

    protects: str
    exposes: str

    def __str__(self) -> str:
        return f"Protects: {self.protects} Does not protect: {self.exposes}"


def guarantee(*, adversary: str, epsilon_c: float) -> Guarantee:
    """Describe the guarantee of one release against an adversary, at a noise level.

    >>> guarantee(adversary="uninformed", epsilon_c=0.5).exposes
    'old records, which are exposed with noise epsilon_c = 0.5.'
    """
    if adversary not in ADVERSARY_KNOWLEDGE:
        raise InputError(f"adversary: {adversary!r} given; use one of {', '.join(ADVERSARY_KNOWLEDGE)}")
    return Guarantee(
        protects="the present value of each sequence, against an adversary "
        f"{ADVERSARY_KNOWLEDGE[adversary]}, if the model holds.",
        exposes=f"old records, which are exposed with noise epsilon_c = {epsilon_c:g}.",
    )


#: Replaces the guarantee if only unproven formulas were computed.
UNSOUND_WARNING = "UNSOUND: this number can be below the true leakage. It guarantees nothing and certifies nothing."
