"""What a leakage computation returns, and how its number is rounded: never below the computed one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Literal, get_args

from csdp.aging import Adversary
from csdp.chain.evidence import DECLARED, Verdict
from csdp.errors import InputError

Bound = Literal[
    "exact",
    "metric",
    "profile",
    "freshness",
    "slice",
    "influence",
    "group",
]

BOUNDS: tuple[str, ...] = get_args(Bound)
SMALLEST = math.ulp(0.0)
_DIGITS = 44


def round_up(value: float) -> float:
    """Round up to 44 binary digits (about 1e-13); never 0, so that underflow does not look like perfect privacy.

    >>> round_up(0.1) >= 0.1, round_up(0.0) > 0, round_up(math.inf)
    (True, True, inf)
    """
    if math.isnan(value):
        raise FloatingPointError("a leakage came out as NaN; please report this chain, query and ages")
    if value <= SMALLEST:
        return SMALLEST
    if math.isinf(value):
        return value
    mantissa, exponent = math.frexp(value)
    raised = math.ldexp(math.ceil(mantissa * 2**_DIGITS), exponent - _DIGITS)
    return raised if raised >= value else math.nextafter(value, math.inf)


def as_text(value: float, digits: int = 6) -> str:
    """A leakage as text, rounded up: what is printed must not promise more than the computed number.

    The last 1e-12 is taken off first, so that 0.4 plus rounding reads 0.4.

    >>> as_text(0.02356211), as_text(0.4 + 1e-15), as_text(math.inf), as_text(round_up(0.0))
    ('0.0235622', '0.4', 'infinite', 'below 1e-300')
    """
    if value == 0:
        return "0"
    if value < 1e-300:
        return "below 1e-300"
    if math.isinf(value):
        return "infinite"
    lowered = Decimal(value) * (1 - Decimal("1e-12"))
    raised = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(lowered)
    return f"{float(raised):.{digits}g}"


def belief(epsilon: float, prior: float = 0.5) -> float:
    """The most that an observer can believe in one of two present values, who believed `prior` before; rounded up.

    `p e^epsilon / (p e^epsilon + 1 - p)`: odds between two values change by a factor of at most e^epsilon.

    >>> round(belief(0.5), 3), belief(0.0), belief(math.inf)
    (0.622, 0.5, 1.0)
    """
    if not 0 < prior < 1:
        raise InputError(f"prior: {prior!r} given; a probability between 0 and 1")
    if not epsilon >= 0:
        raise InputError(f"epsilon: {epsilon!r} given; a leakage of 0 or more")
    against = (1 - prior) / prior * math.exp(-epsilon)
    return min(1.0, 1.0 / (1.0 + against) * (1 + 1e-15)) if epsilon else prior


def in_words(epsilon: float) -> str:
    """A leakage in words, for an observer who found two present values equally likely.

    >>> in_words(0.5)
    'a 50 % guess becomes at most 63 %'
    >>> in_words(math.inf), in_words(1e-9)
    ('a 50 % guess can become certainty', 'a 50 % guess stays below 50.1 %')
    """
    likely = belief(epsilon)
    if likely < 0.501:
        return "a 50 % guess stays below 50.1 %"
    return "a 50 % guess can become certainty" if likely > 0.999 else f"a 50 % guess becomes at most {chance(epsilon)}"


def chance(epsilon: float) -> str:
    """What a 50 % guess about one of two values becomes at most by a leakage, in percent, rounded up.

    >>> chance(0.5), chance(1e-9), chance(math.inf)
    ('63 %', '50.1 %', '100 %')
    """
    likely = belief(epsilon)
    if likely < 0.501:
        return "50.1 %"
    return "100 %" if likely > 0.999 else f"{as_text(100 * likely, 3 if likely < 0.51 or likely > 0.99 else 2)} %"


def with_chance(epsilon: float, digits: int = 6) -> str:
    """A leakage as text, rounded up, and what a 50 % guess becomes at most.

    >>> with_chance(0.5)
    '0.5 (63 %)'
    """
    return f"{as_text(epsilon, digits)} ({chance(epsilon)})"


@dataclass(frozen=True)
class Witness:
    """The worst case: the sequence, two of its present values, and the output that distinguishes them best."""

    sequence: str
    present: float
    alternative: float
    others: dict[str, float]  #: present values of the sequences the adversary knows
    output: tuple[float, ...] | None = None

    def __str__(self) -> str:
        known = ", ".join(f"{name}={value:g}" for name, value in list(self.others.items())[:6])
        more = ", ..." if len(self.others) > 6 else ""
        seen = "" if self.output is None else f", seen at output {', '.join(f'{y:g}' for y in self.output[:6])}"
        others = f" given {known}{more}" if known else ""
        return f"{self.sequence} = {self.present:g} against {self.alternative:g}{others}{seen}"


@dataclass(frozen=True)
class Leakage:
    """How much a release reveals about the present: `epsilon`, and what kind of statement it is.

    Formal guarantee: never below the truth under the model. `reason` says why this bound was chosen, or why the answer
    is infinite. `components` has one entry per independent group of sequences. `point`: over a family of models, the
    leakage under the first of them, the point estimate. `environment`: "given" if the adversary may know the
    environment of every tick; `phase`: the worst phase of a clock. `model`: whether the data accept the model.
    """

    epsilon: float
    bound: str
    adversary: Adversary
    witness: Witness | None = None
    assumptions: tuple[str, ...] = ()
    reason: str = ""
    components: tuple[dict[str, Any], ...] = ()
    point: float | None = None
    environment: str | None = None
    phase: int | None = None
    model: Verdict = DECLARED

    @property
    def in_words(self) -> str:
        """Its meaning for an observer who found two present values equally likely."""
        return in_words(self.epsilon)

    def __float__(self) -> float:
        return self.epsilon

    def __repr__(self) -> str:
        mark = "" if self.model.reliable else f", {self.model.brief}"
        given = "" if self.phase is None else f", phase {self.phase}"
        given += "" if self.environment is None else f", environment {self.environment}"
        return f"Leakage({as_text(self.epsilon)}, {self.bound}, {self.adversary}{given}{mark})"

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        given = {"point": self.point, "environment": self.environment, "phase": self.phase}
        return {
            "epsilon": self.epsilon,
            "bound": self.bound,
            "model": self.model.to_dict(),
            "adversary": self.adversary,
            "witness": None if self.witness is None else vars(self.witness),
            "assumptions": list(self.assumptions),
            "reason": self.reason,
            "components": list(self.components),
            **{name: value for name, value in given.items() if value is not None},
        }
