"""`audit()`: a lower bound on what a mechanism leaks, from attacking it as a black box with known correlations.

The auditor draws what the mechanism reads from `Pr(past | present)` for two presents, walking back through time with
the backward kernel of each component. A quarter of the outputs fits scores, a quarter chooses the event {score >= t}
that distinguishes the presents best; the other half, independent of the choice, gives the bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.aging import Progress
from csdp.bounds.leakage import Setting
from csdp.bounds.result import Witness, as_text
from csdp.chain import Model
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Bools, Floats, Indices

if TYPE_CHECKING:
    from csdp.plan import Plan

States = npt.NDArray[Any]
Mechanism = Callable[[States, np.random.Generator], npt.ArrayLike]

#: Largest number of releases in one audit.
MAX_RELEASES = 64
#: Joint states of one component up to which pasts are drawn.
SAMPLED_STATES = 2048
#: Cells of the histogram of one feature of the outputs, and thresholds that are tried for one score.
CELLS, THRESHOLDS = 64, 128
#: Number of outputs above which only the outputs themselves are features, not their differences.
MOST_FEATURES = 128


@dataclass(frozen=True)
class Audit:
    """Result of an audit: with probability `confidence`, the mechanism leaks at least `lower` of the present.

    `claim` is the leakage it was compared with, `claim_words` its origin. `event` is the set of outputs that
    distinguishes the two presents of `pair`; `hits` of `reported` samples were in it under the likelier present and
    under the other one.
    """

    lower: float
    claim: float
    claim_words: str
    confidence: float
    releases: int
    pair: Witness
    event: str
    chosen: int
    reported: int
    hits: tuple[int, int]
    seed: int | None

    @property
    def violated(self) -> bool:
        """Whether the mechanism is proven to leak more than claimed."""
        return self.lower > self.claim

    @property
    def verdict(self) -> str:
        """The result in words."""
        sure = f"at confidence {100 * self.confidence:.13g} %"
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
    plan: Plan | None = None,
    *,
    claim: float | None = None,
    releases: int = 1,
    samples: int = 200_000,
    confidence: float = 0.999,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Attack a mechanism whose input follows a chain, and return a lower bound on its leakage.

    Pasts are drawn exactly from `Pr(past | present)` for two presents, the worst for one release; the mechanism runs on
    them as a black box; one half of the samples chooses an event; the other half gives the bound of Clopper and Pearson
    (1934),
    `ln( Beta^-1(a/2; k, n-k+1) / Beta^-1(1-a/2; k'+1, n'-k') )` with `a = 1 - confidence`.

    Formal guarantee: with probability at least `confidence`, `lower` is not above the leakage of the mechanism under
    the chain. So a reported violation is real (up to 1 - confidence); a mechanism without one may still leak more.

    Args:
        mechanism: a Plan (csdp's own noise, no ledger), or a callable of (readings, generator) that returns outputs
            (n, d). Readings are state numbers (n, s) of the plan's ages, with several releases (n, releases, s), oldest
            first.
        plan: for a callable, what it is declared to do: its chain, query, ages and noise level.
        claim: the leakage to compare with; by default what the plan is certified for.
        releases: successive ticks whose outputs are attacked together.
        samples: pasts drawn from each of the two presents.
        confidence: of the bound.
        seed: to repeat an audit. Noise drawn for an audit is discarded, and never a release.
        progress: called with (text, done, total).

    >>> from csdp import CoupledChain, Mean, Plan
    >>> skewed = CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]])
    >>> def laplace(readings, generator):
    ...     return readings + generator.laplace(scale=1.0, size=readings.shape)
    >>> audit(laplace, Plan(skewed, Mean(), ages=1, epsilon_c=1.0), claim=0.69, samples=400_000, seed=1)
    Audit(violated: leaks at least 0.754 at confidence 99.9 %, claimed 0.69)
    """
    from csdp.plan import Plan

    releases = check.whole("releases", releases, least=1, most=MAX_RELEASES)
    samples = check.whole("samples", samples, least=200, most=10**9)
    confidence = check.number("confidence", confidence, least=0.5, below=1)
    if isinstance(mechanism, Plan) and plan is None:
        plan, mechanism = mechanism, plan_mechanism(mechanism)
    if not callable(mechanism) or not isinstance(plan, Plan):
        kinds = f"{type(mechanism).__name__} and {type(plan).__name__}"
        raise InputError(
            f"audit: {kinds} given; give a Plan, or a callable of (readings, generator) and the Plan that it is "
            "declared to follow"
        )
    if plan.schedule is not None:
        raise InputError("audit: the plan has a schedule of noise levels; audit plan.at(level) for one of them")
    presents = worst_pair(plan)
    claimed, claim_words = _claimed(plan, claim, releases)
    halves = _run(mechanism, plan.ages, releases, presents, samples, np.random.default_rng(seed), progress)
    alarm = 1.0 - confidence
    event = _learn_event(*halves[0], alarm)
    sides = halves[1] if event.forward else halves[1][::-1]  # the likelier present first
    hits = int(event.hits(sides[0]).sum()), int(event.hits(sides[1]).sum())
    bound = float(lower_bound(hits[0], len(sides[0]), hits[1], len(sides[1]), alarm=alarm))
    witness = presents.witness()
    if not event.forward:
        witness = replace(witness, present=witness.alternative, alternative=witness.present)
    return Audit(
        lower=max(0.0, bound),  # a leakage is never negative
        claim=claimed,
        claim_words=claim_words,
        confidence=confidence,
        releases=releases,
        pair=witness,
        event=str(event),
        chosen=samples // 2,
        reported=samples - samples // 2,
        hits=hits,
        seed=seed,
    )


def plan_mechanism(plan: Plan) -> Callable[[States, np.random.Generator], Floats]:
    """Return the mechanism of a plan as a black box, for readings (n, s) or (n, releases, s) of state numbers.

    Its outputs are for an audit only: nothing is charged, and the noise follows from the generator.

    >>> from csdp import CoupledChain, Mean, Plan
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> plan_mechanism(plan)(np.array([[0], [1]]), np.random.default_rng(1)).shape
    (2, 1)
    """
    from csdp.noise import Randomness, two_sided_geometric

    plan.check_noise()

    def run(readings: States, random: np.random.Generator) -> Floats:
        flat = readings.reshape(-1, readings.shape[-1])
        # Many samples repeat few snapshots: the query is evaluated once for each.
        distinct, place = np.unique(flat, axis=0, return_inverse=True)
        answer = plan.query.lattice_answers(distinct)[place.ravel()]
        randomness = Randomness.from_key(random.bytes(32))
        noise = two_sided_geometric(plan.scale, answer.shape, randomness)
        outputs = (answer + noise * plan.step) / plan.divisor
        return np.asarray(outputs.reshape(*readings.shape[:-1], answer.shape[-1]))

    return run


def _claimed(plan: Plan, claim: float | None, releases: int) -> tuple[float, str]:
    """The claimed leakage, and its origin in words."""
    if claim is not None:
        return check.number("claim", claim, least=0), "given"
    if releases == 1:
        return plan.certified.epsilon, f"{plan.certified.bound} leakage of one release as declared"
    from csdp.accountant import Accountant

    after = Accountant(plan).after(releases)
    return after.epsilon, f"{after.bound} leakage of {releases} releases as declared"


# ---- the two presents ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two presents that differ in one sequence."""

    model: Model
    present: tuple[int, ...]
    alternative: tuple[int, ...]

    def witness(self) -> Witness:
        """Return the pair in the names and values of the sequences."""
        table, names = self.model.value_table, self.model.names
        values = [float(table[i, state]) for i, state in enumerate(self.present)]
        secret = next(i for i, state in enumerate(self.present) if state != self.alternative[i])
        others = {name: value for i, (name, value) in enumerate(zip(names, values, strict=True)) if i != secret}
        return Witness(names[secret], values[secret], float(table[secret, self.alternative[secret]]), others)


def worst_pair(plan: Plan) -> Pair:
    """Return the witness of the exact leakage; over a family, that of the member that leaks most."""
    best, chosen = 0.0, None
    for model in (member.point for member in plan.chain.members):
        setting = Setting.make(model, plan.query, ages=plan.ages, epsilon_c=plan.epsilon_c, adversary="informed")
        for component in setting.components:
            worst = component.value("exact").worst_case
            if worst is None or not worst.known or worst.value <= best:
                continue
            present = _likely_states(model, without=component.members)
            for place, state in zip(worst.known, worst.present, strict=True):
                present[component.members[place]] = state
            other = list(present)
            other[component.members[worst.sequence]] = worst.alternative
            best, chosen = worst.value, Pair(model, tuple(present), tuple(other))
    if chosen is None or chosen.present == chosen.alternative:
        raise InputError("audit: a release of this plan does not depend on the present, so there is nothing to attack")
    return chosen


def _likely_states(model: Model, without: Sequence[int]) -> list[int]:
    """The likeliest joint state of every component but one, whose states stay 0."""
    present = [0] * model.sequences
    for members in model.components():
        if members[0] not in without:
            component = model.subchain(members)
            likeliest = int(np.argmax(component.stationary()))
            states = np.unravel_index(likeliest, (component.states,) * component.sequences)
            for member, state in zip(members, states, strict=True):
                present[member] = int(state)
    return present


# ---- pasts -----------------------------------------------------------------------------------------------------------


class PastSampler:
    """Draws slices of the past of all sequences, given a present.

    Components are independent, so each is drawn separately.

    Args:
        model: the chain.
        depths: how many steps before the present the slices lie.
    """

    def __init__(self, model: Model, depths: Iterable[int]) -> None:
        self.model = model
        self.depths = tuple(sorted(set(depths)))
        self._components = [
            _ComponentSampler(model, np.asarray(members), self.depths) for members in model.components()
        ]

    def draw(self, present: Sequence[int], count: int, random: np.random.Generator) -> States:
        """Return states (count, depths, s) of the slices, in the order of `depths`."""
        kind: Any = np.int8 if self.model.states <= 127 else np.int16
        out = np.empty((count, len(self.depths), self.model.sequences), dtype=kind)
        for component in self._components:
            component.draw(np.asarray(present), out, random)
        return out


class _ComponentSampler:
    """Backward kernels between the slices of one component."""

    def __init__(self, model: Model, members: Indices, depths: Sequence[int]) -> None:
        component = model if len(members) == model.sequences else model.subchain(members)
        if component.size > SAMPLED_STATES:
            raise TooLargeError(
                f"audit: a component of {component.states}**{component.sequences} joint states; pasts are drawn for "
                f"at most {SAMPLED_STATES:,}. Audit the mechanism on a smaller chain",
                needed=float(min(component.size, 10**300)),
                limit=float(SAMPLED_STATES),
            )
        self._shape = (component.states,) * component.sequences
        self._members, self._depths = members, depths
        kernel, law = component.kernel(), component.stationary()
        #: cumulative backward rows from every stop to the next older one
        self._tables: list[Floats] = []
        for newer, older in reversed(list(itertools.pairwise(sorted({0, *depths})))):
            joint = law[:, None] * np.linalg.matrix_power(kernel, older - newer)
            self._tables.insert(0, np.cumsum(joint.T, axis=1))
            law = joint.sum(axis=0)

    def draw(self, present: States, out: States, random: np.random.Generator) -> None:
        """Fill the columns of the members, slice by slice back through time."""
        number: States = np.full(out.shape[0], np.ravel_multi_index(present[self._members].tolist(), self._shape))
        if self._depths[0] == 0:
            self._write(number, out[:, 0])
        for column, table in enumerate(self._tables, start=len(self._depths) - len(self._tables)):
            number = _draw_rows(table, number, random)
            self._write(number, out[:, column])

    def _write(self, number: States, slice_: States) -> None:
        for member, states in zip(self._members, np.unravel_index(number, self._shape), strict=True):
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


# ---- the mechanism's outputs -----------------------------------------------------------------------------------------


def _run(
    mechanism: Mechanism,
    ages: Sequence[int],
    releases: int,
    pair: Pair,
    samples: int,
    random: np.random.Generator,
    progress: Progress | None,
) -> list[tuple[Floats, Floats]]:
    """Outputs (n, releases, d) under both presents, in two halves."""
    read = np.arange(releases)[::-1, None] + np.asarray(ages)  # depths (releases, s), the oldest release first
    pasts = PastSampler(pair.model, read.ravel().tolist())
    columns = np.searchsorted(pasts.depths, read)
    halves = []
    for half, count in enumerate((samples // 2, samples - samples // 2)):
        outputs = []
        for side, present in enumerate((pair.present, pair.alternative)):
            readings = pasts.draw(present, count, random)[:, columns, np.arange(len(ages))]
            given = readings[:, 0] if releases == 1 else readings
            outputs.append(_check_outputs(mechanism(given, random), count, releases))
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
        raise InputError("mechanism: the outputs are not an array of numbers") from None
    if table.ndim not in {1, 2, 3} or table.shape[0] != count or table.size == 0:
        raise InputError(f"mechanism: outputs of shape {table.shape} for {count} readings; (n, d) expected")
    if not np.isfinite(table).all():
        raise InputError("mechanism: some outputs are not finite; use a special number for a missing output")
    if table.ndim == 3:
        return table
    table = table.reshape(count, -1)
    return table.reshape(count, releases if table.shape[1] % releases == 0 else 1, -1)


# ---- the event -------------------------------------------------------------------------------------------------------

#: A number for every output (n, releases, d).
Score = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Event:
    """The outputs of which a score is at least (`above`) or at most a threshold.

    `forward`: whether it is likelier under the first present.
    """

    name: str
    score: Score
    threshold: float = np.inf
    above: bool = True
    forward: bool = True

    def hits(self, outputs: Floats) -> Bools:
        """Which outputs lie in the set."""
        values = self.score(outputs)
        return np.asarray(values >= self.threshold if self.above else values <= self.threshold)

    def __str__(self) -> str:
        return f"{self.name} {'at least' if self.above else 'at most'} {self.threshold:.4g}"


def _learn_event(first: Floats, second: Floats, alarm: float) -> Event:
    """Fit scores to a half of these outputs, and choose the event with the largest bound on the other half."""
    fitted = first.shape[0] // 2
    fit, choose = (first[:fitted], second[:fitted]), (first[fitted:], second[fitted:])
    best, chosen = -np.inf, None
    for name, score in _list_scores(*fit):
        values = [np.sort(score(outputs)) for outputs in choose]
        cuts = np.unique(np.quantile(np.concatenate(values), np.linspace(0, 1, THRESHOLDS), method="nearest"))
        for above in (True, False):
            hits = [_count(value, cuts, above=above) for value in values]
            for forward in (True, False):
                one, other = (0, 1) if forward else (1, 0)
                sizes = choose[one].shape[0], choose[other].shape[0]
                bounds = lower_bound(hits[one], sizes[0], hits[other], sizes[1], alarm=alarm)
                at = int(bounds.argmax())
                if chosen is None or bounds[at] > best:
                    best, chosen = float(bounds[at]), Event(name, score, float(cuts[at]), above, forward)
    assert chosen is not None
    return chosen


def _count(values: Floats, cuts: Floats, *, above: bool) -> Indices:
    """How many of sorted values are at least, or at most, each cut."""
    if above:
        return values.size - np.searchsorted(values, cuts, side="left")
    return np.searchsorted(values, cuts, side="right")


def _list_scores(first: Floats, second: Floats) -> list[tuple[str, Score]]:
    """Scores learned from outputs: every feature, its log ratio, and the sum of the log ratios of all outputs."""
    features = _list_features(first.shape[1], first.shape[2])
    ratios = [(feature, _LogRatio(feature, first, second)) for feature in features]
    scores: list[tuple[str, Score]] = [(str(feature), feature) for feature in features]
    scores += [(f"log ratio of {feature}", ratio) for feature, ratio in ratios]
    plain = [ratio for feature, ratio in ratios if feature.minus is None]
    if len(plain) > 1:
        scores.append(("sum of the log ratios of all outputs", lambda outputs: np.sum([r(outputs) for r in plain], 0)))
    return scores


@dataclass(frozen=True)
class _Feature:
    """One number of an output: a coordinate of one release, or the difference of two."""

    plus: tuple[int, int]
    minus: tuple[int, int] | None = None

    def __call__(self, outputs: Floats) -> Floats:
        column = outputs[:, self.plus[0], self.plus[1]]
        return column if self.minus is None else column - outputs[:, self.minus[0], self.minus[1]]

    def __str__(self) -> str:
        plus, minus = (f"output {at[1] + 1} of release {at[0] + 1}" for at in (self.plus, self.minus or self.plus))
        return plus if self.minus is None else f"{plus} minus {minus}"


def _list_features(releases: int, outputs: int) -> list[_Feature]:
    """Every output and, unless they are many, differences of neighbouring outputs and successive releases.

    If noise is used twice, the difference has none.
    """
    cells = list(itertools.product(range(releases), range(outputs)))
    features = [_Feature(cell) for cell in cells[:MOST_FEATURES]]
    if len(cells) > MOST_FEATURES:
        return features
    return features + [
        _Feature((r, c), before) for r, c in cells for before in ((r - 1, c), (r, c - 1)) if min(before) >= 0
    ]


class _LogRatio:
    """The log ratio of two laws of one feature, cell by cell."""

    def __init__(self, feature: _Feature, first: Floats, second: Floats) -> None:
        self._feature = feature
        one, two = feature(first), feature(second)
        pooled = np.concatenate([one, two])
        values = np.unique(pooled)
        if values.size <= CELLS:
            self._edges = values[:-1] + np.diff(values) / 2
        else:
            self._edges = np.unique(np.quantile(pooled, np.linspace(0, 1, CELLS + 1)[1:-1], method="nearest"))
        counts = [np.bincount(self._cells(v), minlength=self._edges.size + 1) for v in (one, two)]
        # Half a sample in every cell, so that an empty cell does not give an infinite ratio.
        self._ratios = np.log((counts[0] + 0.5) / (one.size + 1)) - np.log((counts[1] + 0.5) / (two.size + 1))

    def _cells(self, values: Floats) -> Indices:
        return np.searchsorted(self._edges, values, side="right")

    def __call__(self, outputs: Floats) -> Floats:
        return np.asarray(self._ratios[self._cells(self._feature(outputs))])


# ---- the bound -------------------------------------------------------------------------------------------------------


def lower_bound(inside: Any, of: Any, against: Any, of_against: Any, *, alarm: float) -> Floats:
    """Lower bound of `ln p / p'` that fails with probability at most `alarm` (Clopper and Pearson 1934).

    `ln( Beta^-1(a/2; k, n-k+1) / Beta^-1(1-a/2; k'+1, n'-k') )`; -inf if no sample is inside.

    >>> round(float(lower_bound(900, 1000, 450, 1000, alarm=0.05)), 4)
    0.6028
    """
    from scipy.stats import beta

    k1, n1 = np.asarray(inside, dtype=np.float64), np.asarray(of, dtype=np.float64)
    k0, n0 = np.asarray(against, dtype=np.float64), np.asarray(of_against, dtype=np.float64)
    with np.errstate(divide="ignore"):
        low = np.where(k1 > 0, beta.ppf(alarm / 2, np.maximum(k1, 1), n1 - k1 + 1), 0.0)
        high = np.where(k0 < n0, beta.isf(alarm / 2, k0 + 1, np.maximum(n0 - k0, 1)), 1.0)
        return np.asarray(np.log(low) - np.log(high))


def _format_down(value: float) -> str:
    """A lower bound as text, rounded down to three digits."""
    if value <= 0:
        return "0"
    if math.isinf(value):
        return "infinite"
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return f"{math.floor(value * scale) / scale:.3g}"
