"""`audit()`: a lower bound on what a mechanism leaks, from attacking it as a black box with known correlations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.aging import Progress, check_ages, check_epsilon
from csdp.arrays import Floats
from csdp.audit.events import Event, choose_event, learned_scores, likelihood_score, lower_bound
from csdp.audit.presents import Pair, PastSampler, check_pair, worst_pair
from csdp.bounds.adversary import Adversary
from csdp.bounds.result import Witness, as_text
from csdp.chain import Family, Model, certified_model
from csdp.display import Displayed
from csdp.errors import InputError
from csdp.query import to_query
from csdp.query_table import Query

if TYPE_CHECKING:
    from csdp.plan import Plan

Mechanism = Callable[[npt.NDArray[Any], np.random.Generator], npt.ArrayLike]
Reads = Literal["aged", "history"]

#: Largest number of releases in one audit.
MAX_RELEASES = 64


@dataclass(frozen=True)
class Audit(Displayed):
    """Result of an audit: with probability `confidence`, the mechanism leaks at least `lower` of the present.

    `claim` is the leakage it was compared with (None: nothing), `claim_words` its origin. `event` is the set of outputs
    that distinguishes the two presents of `pair`; `hits` of `reported` samples were in it under the likelier present
    and under the other one. `growth` has the bound after the first n of the reported samples.
    """

    lower: float
    claim: float | None
    claim_words: str
    confidence: float
    adversary: Adversary
    releases: int
    pair: Witness
    event: str
    chosen: int
    reported: int
    hits: tuple[int, int]
    growth: tuple[tuple[int, float], ...]
    seed: int | None

    @property
    def violated(self) -> bool:
        """Whether the mechanism is proven to leak more than claimed."""
        return self.claim is not None and self.lower > self.claim

    @property
    def verdict(self) -> str:
        """The result in words."""
        sure = f"at confidence {_percent(self.confidence)}"
        if self.claim is None:
            return f"leaks at least {_format_down(self.lower)} {sure}; nothing was claimed"
        if self.violated:
            return f"violated: leaks at least {_format_down(self.lower)} {sure}, claimed {as_text(self.claim)}"
        return f"no violation found {sure}: leaks at least {_format_down(self.lower)}, claimed {as_text(self.claim)}"

    def __repr__(self) -> str:
        return f"Audit({self.verdict})"

    def to_dict(self) -> dict[str, Any]:
        """Return the content as plain data, for JSON."""
        return {**asdict(self), "violated": self.violated, "verdict": self.verdict}


def audit(
    mechanism: Mechanism | Plan,
    chain: Model | Family | None = None,
    query: Query | str | None = None,
    *,
    ages: Any = None,
    epsilon_c: float | None = None,
    claim: float | None = None,
    pair: Sequence[Sequence[int]] | None = None,
    adversary: Adversary | None = None,
    releases: int = 1,
    reads: Reads = "aged",
    samples: int = 200_000,
    confidence: float = 0.999,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Attack a mechanism whose input follows a chain, and return a lower bound on its leakage.

    Pasts are drawn exactly from `Pr(past | present)` for two presents; the mechanism runs on them as a black box; one
    half of the samples chooses an event by likelihood ratio; the other half gives the bound of Clopper and Pearson
    (1934), `ln( Beta^-1(a/2; k, n-k+1) / Beta^-1(1-a/2; k'+1, n'-k') )` with `a = 1 - confidence`.

    Formal guarantee: with probability at least `confidence`, `lower` is not above the leakage of the mechanism under
    the chain. So a reported violation is real (up to 1 - confidence); a mechanism without one may still leak more.

    Args:
        mechanism: a Plan (csdp's own noise, no ledger), or a callable of (readings, generator) that returns outputs
            (n, d). Readings are state numbers (n, s), with several releases (n, releases, s), oldest first; with
            reads="history" every slice up to the present (n, slices, s), the present last.
        chain, query, ages, epsilon_c: what was declared; leave them out for a Plan, which has them. query and
            epsilon_c are optional; they give the worst pair, the likelihood, and the claim.
        claim: the leakage to compare with; by default what the declared mechanism is certified for.
        pair: the two presents, -1 for a state that the adversary does not know; by default the worst for one release.
        adversary: what the adversary knows of the present; by default "informed".
        releases: successive ticks whose outputs are attacked together.
        reads: what the mechanism is given, the "aged" slices or the whole "history".
        samples: pasts drawn from each of the two presents.
        confidence: of the bound.
        seed: to repeat an audit. Noise drawn for an audit is discarded, and never a release.
        progress: called with (text, done, total).

    >>> from csdp import CoupledChain, Mean
    >>> skewed = CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
    >>> def laplace(readings, generator):
    ...     return readings + generator.laplace(scale=1.0, size=readings.shape)
    >>> audit(laplace, skewed, Mean(), ages=1, epsilon_c=1.0, claim=0.69, samples=400_000, seed=1)
    Audit(violated: leaks at least 0.743 at confidence 99.9 %, claimed 0.69)
    """
    _check_whole(releases, "releases", 1, MAX_RELEASES)
    _check_whole(samples, "samples", 200, 10**9)
    if not (isinstance(confidence, float) and 0.5 <= confidence < 1):
        raise InputError(f"confidence: {confidence!r} given; a number from 0.5 to below 1, such as 0.999")
    if reads not in {"aged", "history"}:
        raise InputError(f"reads: {reads!r} given; 'aged' or 'history'")
    subject = _AuditSubject.make(mechanism, chain, query, ages=ages, epsilon_c=epsilon_c, adversary=adversary)
    subject = replace(subject, releases=releases, reads=reads)
    presents = subject.pair(pair)
    claimed, claim_words = subject.claim(claim)
    halves = _run(subject, presents, samples, np.random.default_rng(seed), progress)
    alarm = 1.0 - confidence
    event = _choose_event(subject, presents, halves[0], alarm)
    return _add_bound(
        event,
        halves[1],
        alarm,
        Audit(
            lower=0.0,
            claim=claimed,
            claim_words=claim_words,
            confidence=confidence,
            adversary=subject.adversary,
            releases=releases,
            pair=presents.witness(),
            event=str(event),
            chosen=samples // 2,
            reported=samples - samples // 2,
            hits=(0, 0),
            growth=(),
            seed=seed,
        ),
    )


@dataclass(frozen=True)
class _AuditSubject:
    """The mechanism and what is declared of it, validated; `plan` is None unless query and noise level are declared."""

    mechanism: Mechanism
    chain: Model | Family
    ages: tuple[int, ...]
    query: Query | None
    epsilon_c: float | None
    adversary: Adversary
    plan: Plan | None
    releases: int = 1
    reads: Reads = "aged"

    @classmethod
    def make(
        cls,
        mechanism: Mechanism | Plan,
        chain: Model | Family | None,
        query: Query | str | None,
        *,
        ages: Any,
        epsilon_c: float | None,
        adversary: Adversary | None,
    ) -> _AuditSubject:
        from csdp.plan import Plan

        if isinstance(mechanism, Plan):
            if any(argument is not None for argument in (chain, query, ages, epsilon_c, adversary)):
                raise InputError("audit: a Plan has them; leave out chain, query, ages, epsilon_c and adversary")
            if mechanism.schedule is not None:
                raise InputError("audit: the plan has a schedule of noise levels; audit plan.at(level) for one of them")
            plan = mechanism
            run = plan_mechanism(plan)
            return cls(run, plan.chain, plan.ages, plan.query, plan.epsilon_c, plan.adversary, plan)
        if not callable(mechanism):
            kind = type(mechanism).__name__
            raise InputError(f"mechanism: {kind} given; a Plan, or a callable of (readings, generator), expected")
        if chain is None:
            raise InputError("chain: NoneType given; a mechanism is audited under a CoupledChain, JointChain or Family")
        certified_model(chain)  # refuses what is no model
        if ages is None:
            raise InputError("ages: none given; give the ages of the readings that the mechanism uses")
        query = None if query is None else to_query(query)
        if query is not None and (isinstance(query, type) or not isinstance(query, Query)):
            raise InputError(f"query: {query!r} given; expected an instance such as Mean()")
        checked = check_ages(ages, chain.members[0].sequences)
        knows: Adversary = "informed" if adversary is None else adversary
        if knows not in {"informed", "uninformed", "any"}:
            raise InputError(f"adversary: {knows!r} given; 'informed', 'uninformed' or 'any'")
        level = None if epsilon_c is None else check_epsilon(epsilon_c)
        declared = None
        if query is not None and level is not None:
            declared = Plan(chain, query, checked, level, adversary=knows)
        return cls(mechanism, chain, checked, query, level, knows, declared)

    def pair(self, presents: Sequence[Sequence[int]] | None) -> Pair:
        """The two presents, and the member of a family under which they are compared."""
        protect = None if self.plan is None else self.plan.protect
        if presents is not None:
            return check_pair(self.chain.members[0].point, presents, self.adversary, protect)
        secret: dict[str, Any] = {"adversary": self.adversary, "protect": protect}
        return worst_pair(self.chain, self.query, ages=self.ages, epsilon_c=self.epsilon_c, **secret)

    def claim(self, epsilon: float | None) -> tuple[float | None, str]:
        """The claimed leakage (None where nothing is claimed), and its origin in words."""
        if epsilon is not None:
            if not (isinstance(epsilon, int | float) and not math.isnan(epsilon) and epsilon >= 0):
                raise InputError(f"claim: {epsilon!r} given; a leakage of 0 or more")
            return float(epsilon), "given"
        if self.plan is None:
            return None, ""
        if self.releases == 1:
            return self.plan.certified.epsilon, f"{self.plan.certified.bound} leakage of one release as declared"
        from csdp.accountant import Accountant

        after = Accountant(self.plan).after(self.releases)
        return after.epsilon, f"{after.bound} leakage of {self.releases} releases as declared"

    @property
    def slices(self) -> list[int]:
        """Depths of the slices that the mechanism may read."""
        oldest = max(self.ages) + self.releases - 1
        if self.reads == "history":
            return list(range(oldest + 1))
        return sorted({age + ago for age in self.ages for ago in range(self.releases)})

    def readings(self, drawn: npt.NDArray[Any], depths: Sequence[int]) -> npt.NDArray[Any]:
        """Input of the mechanism, from the slices that were drawn."""
        if self.reads == "history":
            return drawn[:, ::-1]
        place = {depth: column for column, depth in enumerate(depths)}
        columns = np.array(
            [[place[age + ago] for age in self.ages] for ago in range(self.releases - 1, -1, -1)], dtype=np.intp
        )
        aged = drawn[:, columns, np.arange(len(self.ages))]
        return aged[:, 0] if self.releases == 1 else aged


def _run(
    subject: _AuditSubject, pair: Pair, samples: int, random: np.random.Generator, progress: Progress | None
) -> list[tuple[Floats, Floats]]:
    """Outputs (n, releases, d) under both presents, in two halves."""
    pasts = PastSampler(pair.model, subject.slices)
    for present in (pair.present, pair.alternative):
        pasts.check(present)
    halves = []
    for half, count in enumerate((samples // 2, samples - samples // 2)):
        outputs = []
        for side, present in enumerate((pair.present, pair.alternative)):
            readings = subject.readings(pasts.draw(present, count, random), pasts.depths)
            outputs.append(_check_outputs(subject.mechanism(readings, random), count, subject.releases))
            if progress is not None:
                progress("auditing", 2 * half + side + 1, 4)
        if outputs[0].shape != outputs[1].shape:
            raise InputError("mechanism: the shape of the outputs must not change from call to call")
        halves.append((outputs[0], outputs[1]))
    return halves


def _check_outputs(outputs: npt.ArrayLike, count: int, releases: int) -> Floats:
    """Return outputs of a mechanism as an array (n, releases, d); raise InputError if they are none."""
    try:
        table = np.asarray(outputs, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("mechanism: the outputs are no array of numbers") from None
    if table.ndim not in {1, 2, 3} or table.shape[0] != count or table.size == 0:
        raise InputError(f"mechanism: outputs of shape {table.shape} for {count} readings; (n, d) expected")
    if not np.isfinite(table).all():
        raise InputError("mechanism: some outputs are not finite; use a special number for a missing output")
    if table.ndim == 3:
        return table
    table = table.reshape(count, -1)
    return table.reshape(count, releases if table.shape[1] % releases == 0 else 1, -1)


def _choose_event(subject: _AuditSubject, pair: Pair, half: tuple[Floats, Floats], alarm: float) -> Event:
    first, second = half
    fitted = first.shape[0] // 2
    scores = learned_scores(first[:fitted], second[:fitted])
    if subject.plan is not None and first.shape[1] == subject.releases:
        presents = (pair.present, pair.alternative)
        score = likelihood_score(subject.plan, pair.model, presents, releases=subject.releases, outputs=first.shape[2])
        scores += [score] if score is not None else []
    return choose_event(first[fitted:], second[fitted:], scores, alarm=alarm)


def _add_bound(event: Event, half: tuple[Floats, Floats], alarm: float, record: Audit) -> Audit:
    """Fill in the bound from the half that the choice did not use, after growing numbers of its samples."""
    inside, against = (event.hits(outputs) for outputs in half)
    pair = record.pair
    if not event.forward:
        inside, against = against, inside
        pair = replace(pair, present=pair.alternative, alternative=pair.present)
    count = inside.size
    sizes = np.unique(np.geomspace(min(100, count), count, 24).astype(int))
    k1, k0 = (np.cumsum(hits)[sizes - 1] for hits in (inside, against))
    # A leakage is never negative, so 0 is always a lower bound.
    bounds = np.maximum(lower_bound(k1, sizes, k0, sizes, alarm=alarm), 0.0)
    growth = tuple((int(n), float(b)) for n, b in zip(sizes, bounds, strict=True))
    return replace(record, lower=growth[-1][1], pair=pair, hits=(int(k1[-1]), int(k0[-1])), growth=growth)


def _check_whole(value: int, name: str, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name}: {value!r} given; a whole number from {least:,} to {most:,}")


def plan_mechanism(plan: Plan) -> Callable[[npt.NDArray[Any], np.random.Generator], Floats]:
    """Return the mechanism of a plan as a black box, for readings (n, s) or (n, releases, s) of state numbers.

    Its outputs are for an audit only: nothing is charged, and the noise follows from the generator.

    >>> from csdp import CoupledChain, Mean, Plan
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> plan_mechanism(plan)(np.array([[0], [1]]), np.random.default_rng(1)).shape
    (2, 1)
    """
    from csdp.noise import Randomness, two_sided_geometric

    plan.check_noise()

    def run(readings: npt.NDArray[Any], random: np.random.Generator) -> Floats:
        flat = readings.reshape(-1, readings.shape[-1])
        # Many samples repeat few snapshots: the query is evaluated once for each.
        distinct, place = np.unique(flat, axis=0, return_inverse=True)
        answer = plan.query.lattice_answers(distinct)[place.ravel()]
        randomness = Randomness.from_key(random.bytes(32))
        noise = two_sided_geometric(plan.scale, answer.shape, randomness)
        outputs = (answer + noise * plan.step) / plan.divisor
        return np.asarray(outputs.reshape(*readings.shape[:-1], answer.shape[-1]))

    return run


def _percent(confidence: float) -> str:
    """A confidence in percent, with the digits that matter.

    >>> _percent(0.999), _percent(1 - 1e-9), _percent(0.95)
    ('99.9 %', '99.9999999 %', '95 %')
    """
    digits = max(0, math.ceil(-math.log10(1.0 - confidence) - 2 - 1e-6))
    return f"{100 * confidence:.{digits}f} %"


def _format_down(value: float) -> str:
    """A lower bound as text, rounded down to three digits."""
    if value <= 0:
        return "0"
    if math.isinf(value):
        return "infinite"
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return f"{math.floor(value * scale) / scale:.3g}"
