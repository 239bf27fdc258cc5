"""`audit()`: what a mechanism leaks at least, found by attacking it as a black box with the correlations known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from csdp.aging import Adversary, Progress, check_ages, check_epsilon
from csdp.auditing.events import Event, choose, learned, lower_bound
from csdp.auditing.likelihood_score import declared_score
from csdp.auditing.pairs import Pair, given_pair, worst_pair
from csdp.auditing.past_sampler import Pasts
from csdp.bounds.result import Witness, as_text
from csdp.chain import Family, Model
from csdp.errors import InputError
from csdp.queries import Query

if TYPE_CHECKING:
    from csdp.plan import Plan

Floats = npt.NDArray[np.float64]
Mechanism = Callable[[npt.NDArray[Any], np.random.Generator], npt.ArrayLike]
Reads = Literal["aged", "history"]

#: Releases that one audit looks at together.
MAX_RELEASES = 64


@dataclass(frozen=True)
class Audit:
    """What an audit proved: with probability `confidence`, the mechanism leaks at least `lower` of the present.

    `claim` is what it was held against (None: nothing), `claim_words` where that comes from. `event` is the set of
    outputs that tells the two presents of `pair` apart; `hits` of `reported` samples were in it under the likelier
    present and under the other one. `growth` has the bound after the first n of the reported samples.
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
            return f"leaks at least {_down(self.lower)} {sure}; nothing was claimed"
        if self.violated:
            return f"violated: leaks at least {_down(self.lower)} {sure}, claimed {as_text(self.claim)}"
        return f"no violation found {sure}: leaks at least {_down(self.lower)}, claimed {as_text(self.claim)}"

    def __repr__(self) -> str:
        return f"Audit({self.verdict})"

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return {**asdict(self), "violated": self.violated, "verdict": self.verdict}


def audit(
    mechanism: Mechanism | Plan,
    chain: Model | Family | None = None,
    query: Query | None = None,
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
    """Attack a mechanism whose input follows a chain, and say what it leaks at least.

    Pasts are drawn exactly from `Pr(past | present)` for two presents; the mechanism runs on them as a black box; one
    half of the samples chooses an event by likelihood ratio; the other half gives the bound of Clopper and Pearson
    (1934), `ln( Beta^-1(a/2; k, n-k+1) / Beta^-1(1-a/2; k'+1, n'-k') )` with `a = 1 - confidence`.

    Formal guarantee: with probability at least `confidence`, `lower` is not above the leakage of the mechanism under
    the chain. So a violation that is found is real (up to 1 - confidence); one that is not found may still exist.

    Args:
        mechanism: a Plan (our own noise, no ledger), or a callable of (readings, generator) that gives outputs (n, d).
            Readings are state numbers (n, s), with several releases (n, releases, s), oldest first; with
            reads="history" every slice up to the present (n, slices, s), the present last.
        chain, query, ages, epsilon_c: what was declared; not with a Plan, which says it all. query and epsilon_c may
            be left out; they give the worst pair, the likelihood, and the claim.
        claim: what the mechanism is said to leak; by default what the declared one is certified for.
        pair: the two presents, -1 for a state that the adversary does not know; by default the worst for one release.
        releases: successive ticks whose outputs are seen together.
        samples: pasts drawn from each of the two presents.
        seed: to repeat an audit. Noise drawn for an audit is thrown away, and never a release.

    >>> from csdp import CoupledChain, Mean
    >>> skewed = CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
    >>> def laplace(readings, generator):
    ...     return readings + generator.laplace(scale=1.0, size=readings.shape)
    >>> audit(laplace, skewed, Mean(), ages=1, epsilon_c=1.0, claim=0.69, samples=400_000, seed=1)
    Audit(violated: leaks at least 0.743 at confidence 99.9 %, claimed 0.69)
    """
    asked = _Question.make(mechanism, chain, query, ages=ages, epsilon_c=epsilon_c, adversary=adversary)
    asked = replace(asked, releases=_checked(releases, "releases", 1, MAX_RELEASES), reads=reads)
    _checked(samples, "samples", 200, 10**9)
    if not (isinstance(confidence, float) and 0.5 <= confidence < 1):
        raise InputError(f"confidence: {confidence!r} given; a number from 0.5 to below 1, such as 0.999")
    if reads not in {"aged", "history"}:
        raise InputError(f"reads: {reads!r} given; 'aged' or 'history'")
    found = asked.pair(pair)
    held, words = asked.claim(claim)
    halves = _run(asked, found, samples, np.random.default_rng(seed), progress)
    alarm = 1.0 - confidence
    event = _choose(asked, found, halves[0], alarm)
    return _reported(
        event,
        halves[1],
        alarm,
        Audit(
            lower=0.0,
            claim=held,
            claim_words=words,
            confidence=confidence,
            adversary=asked.adversary,
            releases=releases,
            pair=found.witness(),
            event=str(event),
            chosen=samples // 2,
            reported=samples - samples // 2,
            hits=(0, 0),
            growth=(),
            seed=seed,
        ),
    )


@dataclass(frozen=True)
class _Question:
    """What is audited, checked; `plan` is what was declared, where all of it was."""

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
        query: Query | None,
        *,
        ages: Any,
        epsilon_c: float | None,
        adversary: Adversary | None,
    ) -> _Question:
        from csdp.plan import Plan

        if isinstance(mechanism, Plan):
            if any(given is not None for given in (chain, query, ages, epsilon_c, adversary)):
                raise InputError("audit: a Plan says it all; leave out chain, query, ages, epsilon_c and adversary")
            if mechanism.schedule is not None:
                raise InputError("audit: the plan has a schedule of noise levels; audit plan.at(level) for one of them")
            from csdp.auditing.mechanisms import plan_mechanism

            own = mechanism
            run = plan_mechanism(own)
            return cls(run, own.chain, own.ages, own.query, own.epsilon_c, own.adversary, own)
        if not callable(mechanism):
            kind = type(mechanism).__name__
            raise InputError(f"mechanism: {kind} given; a Plan, or a callable of (readings, generator), expected")
        if not isinstance(chain, Model | Family):
            kind = type(chain).__name__
            raise InputError(f"chain: {kind} given; a mechanism is audited under a CoupledChain, JointChain or Family")
        if ages is None:
            raise InputError("ages: give the ages of what the mechanism reads")
        if query is not None and (isinstance(query, type) or not isinstance(query, Query)):
            raise InputError(f"query: {query!r} given; expected an instance such as Mean()")
        model = chain.members[0] if isinstance(chain, Family) else chain
        checked = check_ages(ages, model.sequences)
        who: Adversary = "informed" if adversary is None else adversary
        if who not in {"informed", "uninformed", "any"}:
            raise InputError(f"adversary: {who!r} given; 'informed', 'uninformed' or 'any'")
        level = None if epsilon_c is None else check_epsilon(epsilon_c)
        declared = None
        if query is not None and level is not None:
            declared = Plan(chain, query, checked, level, adversary=who)
        return cls(mechanism, chain, checked, query, level, who, declared)

    def pair(self, given: Sequence[Sequence[int]] | None) -> Pair:
        """The two presents, and under which member of a family."""
        if given is not None:
            model = self.chain.members[0] if isinstance(self.chain, Family) else self.chain
            return given_pair(model, given, self.adversary)
        return worst_pair(self.chain, self.query, ages=self.ages, epsilon_c=self.epsilon_c, adversary=self.adversary)

    def claim(self, given: float | None) -> tuple[float | None, str]:
        """What the mechanism is held against, and where that comes from."""
        if given is not None:
            if not (isinstance(given, int | float) and not math.isnan(given) and given >= 0):
                raise InputError(f"claim: {given!r} given; a leakage of 0 or more")
            return float(given), "given"
        if self.plan is None:
            return None, ""
        if self.releases == 1:
            return self.plan.certified.epsilon, f"{self.plan.certified.bound} leakage of one release as declared"
        from csdp.accountant import Accountant

        after = Accountant(self.plan).after(self.releases)
        return after.epsilon, f"{after.bound} leakage of {self.releases} releases as declared"

    @property
    def slices(self) -> list[int]:
        """Depths of what the mechanism may read."""
        oldest = max(self.ages) + self.releases - 1
        if self.reads == "history":
            return list(range(oldest + 1))
        return sorted({age + ago for age in self.ages for ago in range(self.releases)})

    def readings(self, drawn: npt.NDArray[Any], depths: Sequence[int]) -> npt.NDArray[Any]:
        """What the mechanism is given, from the slices that were drawn."""
        if self.reads == "history":
            return drawn[:, ::-1]
        place = {depth: column for column, depth in enumerate(depths)}
        columns = np.array(
            [[place[age + ago] for age in self.ages] for ago in range(self.releases - 1, -1, -1)], dtype=np.intp
        )
        aged = drawn[:, columns, np.arange(len(self.ages))]
        return aged[:, 0] if self.releases == 1 else aged


def _run(
    asked: _Question, pair: Pair, samples: int, random: np.random.Generator, progress: Progress | None
) -> list[tuple[Floats, Floats]]:
    """Outputs (n, releases, d) under both presents, in two halves."""
    pasts = Pasts(pair.model, asked.slices, oldest=max(asked.ages) + asked.releases - 1)
    for present in (pair.present, pair.alternative):
        pasts.check(present)
    halves = []
    for half, count in enumerate((samples // 2, samples - samples // 2)):
        outputs = []
        for side, present in enumerate((pair.present, pair.alternative)):
            drawn = asked.readings(pasts.draw(present, count, random), pasts.depths)
            outputs.append(_shaped(asked.mechanism(drawn, random), count, asked.releases))
            if progress is not None:
                progress("auditing", 2 * half + side + 1, 4)
        if outputs[0].shape != outputs[1].shape:
            raise InputError("mechanism: the shape of the outputs must not change from call to call")
        halves.append((outputs[0], outputs[1]))
    return halves


def _shaped(outputs: npt.ArrayLike, count: int, releases: int) -> Floats:
    try:
        found = np.asarray(outputs, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("mechanism: the outputs are no array of numbers") from None
    if found.ndim not in {1, 2, 3} or found.shape[0] != count or found.size == 0:
        raise InputError(f"mechanism: outputs of shape {found.shape} for {count} readings; (n, d) expected")
    if not np.isfinite(found).all():
        raise InputError("mechanism: some outputs are not finite; mark a missing output by a number of its own")
    if found.ndim == 3:
        return found
    found = found.reshape(count, -1)
    return found.reshape(count, releases, -1) if found.shape[1] % releases == 0 else found.reshape(count, 1, -1)


def _choose(asked: _Question, pair: Pair, half: tuple[Floats, Floats], alarm: float) -> Event:
    first, second = half
    fitted = first.shape[0] // 2
    scores = learned(first[:fitted], second[:fitted])
    if asked.plan is not None and first.shape[1] == asked.releases:
        presents = (pair.present, pair.alternative)
        known = declared_score(asked.plan, pair.model, presents, releases=asked.releases, outputs=first.shape[2])
        scores += [known] if known is not None else []
    return choose(first[fitted:], second[fitted:], scores, alarm=alarm)


def _reported(event: Event, half: tuple[Floats, Floats], alarm: float, record: Audit) -> Audit:
    """The bound from the half that no choice has seen, after growing numbers of its samples."""
    inside, against = (event.hits(outputs) for outputs in half)
    pair = record.pair
    if not event.forward:
        inside, against = against, inside
        pair = replace(pair, present=pair.alternative, alternative=pair.present)
    count = inside.size
    sizes = np.unique(np.geomspace(min(100, count), count, 24).astype(int))
    k1, k0 = (np.cumsum(hits)[sizes - 1] for hits in (inside, against))
    # A leakage is never negative, so 0 is a bound for nothing.
    bounds = np.maximum(lower_bound(k1, sizes, k0, sizes, alarm=alarm), 0.0)
    growth = tuple((int(n), float(b)) for n, b in zip(sizes, bounds, strict=True))
    return replace(record, lower=growth[-1][1], pair=pair, hits=(int(k1[-1]), int(k0[-1])), growth=growth)


def _checked(value: int, what: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{what}: {value!r} given; a whole number from {least:,} to {most:,}")
    return value


def _percent(confidence: float) -> str:
    """A confidence in percent, with the digits that matter.

    >>> _percent(0.999), _percent(1 - 1e-9), _percent(0.95)
    ('99.9 %', '99.9999999 %', '95 %')
    """
    digits = max(0, math.ceil(-math.log10(1.0 - confidence) - 2 - 1e-6))
    return f"{100 * confidence:.{digits}f} %"


def _down(value: float) -> str:
    """A lower bound for reading: cut, not rounded, to three digits."""
    if value <= 0:
        return "0"
    if math.isinf(value):
        return "infinite"
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return f"{math.floor(value * scale) / scale:.3g}"
