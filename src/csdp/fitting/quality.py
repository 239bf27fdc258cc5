"""csdp.fit_quality: does a chain explain the readings, and what does it leave unexplained?

Tests of the chain are built on residuals that have mean zero given the whole past (`fit_checks`), also for chains
with environments, known or hidden (`environment_prediction`). Where the chain was fitted on the same readings they are
conservative. Whether readings tell more than their states is asked without the chain (`emissions`).
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from csdp.arrays import Floats
from csdp.chain import EnvironmentChain, JointChain
from csdp.errors import InputError, PrivacyLeakWarning
from csdp.fitting.emissions import arrange_numbers, emission_ps, propose_states
from csdp.fitting.environment_prediction import add_environments, predict, start_cycle
from csdp.fitting.fit import fit
from csdp.fitting.fit_checks import (
    FitCheck,
    FitChecks,
    Hub,
    compared_sequences,
    describe,
    find_hubs,
    homogeneity_p,
    order_p,
    together_ps,
    worst_check,
)
from csdp.fitting.progress import show_progress
from csdp.fitting.sample import (
    Chain,
    Prediction,
    Progress,
    Sample,
    check_chain,
    match_chain,
    own_law,
    read_sample,
    still_law,
)
from csdp.fitting.scores import batch_error, join_graphs, members_of
from csdp.panel import Panel

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class SequenceQuality:
    """One sequence: log-likelihoods per transition on held-out readings, and chances of its tests (uncorrected)."""

    name: str
    transitions: int
    chain: float
    independent: float
    stationary: float
    order_p: float
    homogeneity_p: float
    together_p: float
    emission_p: float | None = None


@dataclass(frozen=True)
class FitQuality:
    """How well a chain explains readings.

    `chain`, `independent`, `stationary`: log-likelihood per transition on held-out readings of the chain, of one chain
    for each sequence, and of the law that ignores the past. `gain` is that of the chain over independent chains, per
    tick and all sequences together, `gain_error` its standard error. `order`, `homogeneity` and `together` are tests
    at a stated level; `together` is None for a joint chain, which can express any movement together. Where the
    readings behind the states are given, `emission_states` and `emission_readings` ask what they tell beyond their
    states, and `finer_states` is a number of states proposed instead. `hubs` are sequences that others seem to follow.
    """

    held_out_ticks: int
    refitted: bool
    chain: float
    independent: float
    stationary: float
    gain: float
    gain_error: float
    order: FitCheck
    homogeneity: FitCheck
    together: FitCheck | None
    table: tuple[SequenceQuality, ...]
    explains: bool
    verdict: str
    emission_states: FitCheck | None = None
    emission_readings: FitCheck | None = None
    finer_states: int | None = None
    hubs: tuple[Hub, ...] = ()

    def __repr__(self) -> str:
        held = f"on {self.held_out_ticks:,} held-out ticks"
        return f"FitQuality({'explains' if self.explains else 'does not explain'} the data, {held})"

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return asdict(self)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        table = Table("sequence", "chain", "independent", "no past")
        for row in self.table[:30]:
            table.add_row(row.name, f"{row.chain:.4f}", f"{row.independent:.4f}", f"{row.stationary:.4f}")
        return Group(table, self.verdict)


def fit_quality(
    chain: Chain,
    data: Any,
    *,
    readings: Any = None,
    environment: Any = None,
    train: Any = None,
    held_out: float = 0.3,
    level: float = 0.001,
    public: bool = False,
    progress: Progress | bool | None = None,
) -> FitQuality:
    """Does the chain explain the data? Scores on held-out readings, and tests of what it assumes.

    Scores: without `train`, the last part of the data is set aside, the chain is fitted again in the same way on the
    rest, and that fit is scored; a chain given by hand, or fitted with epsilon, is scored as it is. Independent chains
    and frequencies are fitted on the same rest.

    Tests, on all of the data: does the state before the present one help to predict the next (order), does the second
    half follow the same law as the first (homogeneity), do sequences move together within a step, which a coupled chain
    cannot express (together)? For a chain with environments the tests are made given the clock, given the public
    series, or given what the past says about the hidden environment. With `readings`: given the state, does the reading
    inside it help to predict the next and previous state (emission_states) and reading (emission_readings)? Then
    certificates for these states do not hold for published readings, and finer states are proposed.

    Args:
        chain: the chain.
        data: state numbers or a panel.
        readings: the `Readings` that the states were made of, or numbers of the same shape.
        environment: the public series that the chain follows, its number at every tick.
        train: the data that the chain was fitted to; the chain is then scored on `data`.
        held_out: the share of the data that is set aside without `train`.
        level: the false-alarm rate of each test over all sequences.
        public: declare that the data are public; otherwise it warns, because the answer reveals something about them.
        progress: called with what is done, how much, and the total; True shows a bar.

    >>> from csdp import CoupledChain
    >>> chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.9, 0.1], [0.1, 0.9]])
    >>> states = chain.simulate(4000, seed=1)
    >>> quality = fit_quality(fit(states, public=True, ensemble=0), states, public=True)
    >>> quality.explains, quality.chain > quality.independent > quality.stationary
    (True, True)
    """
    if not public:
        warnings.warn(
            "the quality of a fit tells about the readings; keep it to yourself, or declare them public (public=True)",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    if not 0.05 <= held_out <= 0.9:
        raise InputError(f"held_out: {held_out!r} given; a share between 0.05 and 0.9")
    if not 0 < level < 1:
        raise InputError(f"level: {level!r} given; a chance between 0 and 1")
    check_chain(chain)
    sample = match_chain(chain, read_sample(data, states=chain.states))
    ticks = np.asarray(data.ticks) if isinstance(data, Panel) else np.arange(sample.states.shape[0])
    sample = add_environments(chain, sample, ticks, environment)
    numbers = None
    if readings is not None:
        numbers = arrange_numbers(readings, chain.names, ticks if isinstance(data, Panel) else None, ticks.size)
    with show_progress(progress) as report:
        scored, past, future, refitted = _split(chain, sample, train, held_out, report)
        rows, gain, error = _scores(scored, past, future, report)
        checks, ps = run_checks(chain, sample, numbers, level, report)
    # A chain that was fitted again has no names of its own.
    table = tuple(SequenceQuality(name, *row[1:], *p) for name, row, p in zip(chain.names, rows, ps, strict=True))
    weights = [row.transitions for row in table]
    mean, alone, still = np.average([[r.chain, r.independent, r.stationary] for r in table], axis=0, weights=weights)
    finer, hubs = _propose_finer(sample, numbers, ps, checks), find_hubs(chain)
    explains, verdict = describe(chain, gain, error, useless=bool(mean <= still), checks=checks, hubs=hubs, finer=finer)
    return FitQuality(
        future.transitions,
        refitted,
        float(mean),
        float(alone),
        float(still),
        gain,
        error,
        checks.order,
        checks.homogeneity,
        checks.together,
        table,
        explains,
        verdict,
        checks.emission_states,
        checks.emission_readings,
        None if finer is None else finer[0],
        hubs,
    )


def _propose_finer(
    sample: Sample, numbers: Floats | None, ps: list[tuple[Any, ...]], checks: FitChecks
) -> tuple[int, bool] | None:
    """A finer number of states where the present ones hide something, and whether it is enough."""
    check = checks.emission_states
    if numbers is None or check is None or check.passed:
        return None
    chances = np.array([row[3] for row in ps])
    return propose_states(numbers, chances, than=sample.m, level=check.level, environments=sample.environments)


def _split(
    chain: Chain, readings: Sample, train: Any, held_out: float, report: Progress
) -> tuple[Chain, Sample, Sample, bool]:
    """The chain that is scored, the readings before and after the split, and whether the chain was fitted again."""
    if train is not None:
        past = match_chain(chain, read_sample(train, states=chain.states))
        return chain, past.in_direction(chain.direction), readings.in_direction(chain.direction), False
    ticks = readings.states.shape[0]
    cut = round(ticks * (1 - held_out))
    if min(cut, ticks - cut) < 20:
        raise InputError(f"data: {ticks} ticks given; too few to hold {held_out:.0%} out (20 on either side)")
    past, future = readings.between(0, cut), readings.between(cut - 1, ticks).in_direction(chain.direction)
    record = chain.fitted
    if record is None or record.epsilon is not None:
        return chain, past.in_direction(chain.direction), future, False
    return _fit_again(chain, past, report), past.in_direction(chain.direction), future, True


def _fit_again(chain: Chain, past: Sample, report: Progress) -> Chain:
    """A chain fitted in the same way on other readings."""
    record = chain.fitted
    assert record is not None
    neighbours: Any = record.neighbours
    if not record.screened and not isinstance(chain, JointChain):
        graph = join_graphs(members_of(chain))
        neighbours = np.column_stack([graph.targets, graph.sources])
    environment: dict[str, Any] = {}
    if isinstance(chain, EnvironmentChain):
        environment = {"environment": past.environments, "shrinkage": record.shrinkage}
        if chain.kind == "hidden":
            environment |= {"environment": "hidden", "environments": chain.regimes}
        if chain.kind == "hidden" and past.environments is not None:
            environment |= {"environment": "both", "cycle": start_cycle(chain, past.environments)}
    method: Any = record.method
    kernel: Any = record.kernel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the chain itself was fitted
        return fit(
            past.states,
            method=method,
            states=chain.states,
            neighbours=neighbours,
            smoothing=record.smoothing,
            public=True,
            ensemble=0,
            direction=chain.direction,
            kernel=kernel,
            progress=report,
            **environment,
        )


def _scores(
    chain: Chain, past: Sample, future: Sample, report: Progress
) -> tuple[list[tuple[str, int, float, float, float]], float, float]:
    """Held-out scores of every sequence, and the gain over independent chains per tick with its standard error."""
    prediction = predict(chain, future)
    gains = np.zeros(future.transitions)
    rows = []
    for j, name in enumerate(chain.names):
        score, known = prediction.scores(j)
        present, following = future.states[:-1, j], future.states[1:, j]
        known = known & (present >= 0)
        at, to = np.maximum(present, 0), np.maximum(following, 0)
        alone = np.log(own_law(past, j))[at, to]
        still = np.log(still_law(past, j))[to]
        if not isinstance(chain, JointChain):
            gains += np.where(known, score - alone, 0.0)
        else:
            gains -= np.where(known, alone, 0.0)
        n = max(int(known.sum()), 1)
        mean, lone, none = (float(part[known].sum()) / n for part in (score, alone, still))
        rows.append((name, int(known.sum()), mean, lone, none))
        report("scoring", j + 1, chain.sequences)
    if isinstance(prediction, Prediction) and isinstance(chain, JointChain):
        gains += prediction.joint_scores()
    if not any(row[1] for row in rows):
        raise InputError("data: no held-out transition was read at both ends; fill the gaps")
    return rows, float(gains.mean()), batch_error(gains)


def run_checks(
    chain: Chain, readings: Sample, numbers: Floats | None, level: float, report: Progress
) -> tuple[FitChecks, list[tuple[Any, ...]]]:
    """The checks, and the chances of every sequence."""
    prediction = predict(chain, readings)
    s, names = chain.sequences, chain.names
    some = compared_sequences(s, chain.states, readings.transitions)
    place = {int(j): i for i, j in enumerate(some)}
    left = np.zeros((readings.transitions, some.size, chain.states - 1), dtype=np.float64)
    spread = np.zeros_like(left)
    older, halves, close = np.ones(s), np.ones(s), np.ones(s)
    for j in range(s):
        residual, variance = prediction.residuals(j)
        older[j] = order_p(prediction, j, residual, variance)
        halves[j] = homogeneity_p(prediction, j, residual, variance)
        if j in place:
            left[:, place[j]], spread[:, place[j]] = residual, variance
        report("testing", j + 1, s)
    order = worst_check("does the state before the present one say more?", older, names, level)
    homogeneity = worst_check("does the second half move as the first?", halves, names, level)
    together, emissions = None, _check_emissions(chain, readings, numbers, level)
    if not isinstance(chain, JointChain) and s > 1:
        hidden = isinstance(chain, EnvironmentChain) and chain.kind == "hidden"
        ps = together_ps(left, spread, prediction.sample.states[:-1, some], in_turn=hidden)
        close[some] = ps.min(axis=1)
        pairs = some.size * (some.size - 1) // 2
        i, k = np.unravel_index(int(ps.argmin()), ps.shape)
        where = (names[some[i]], names[some[k]])
        question = "do sequences move together within a step?"
        together = FitCheck(question, min(1.0, float(ps.min()) * pairs), level, where, pairs)
    columns = (older.tolist(), halves.tolist(), close.tolist(), emissions[2])
    return FitChecks(order, homogeneity, together, *emissions[:2]), list(zip(*columns, strict=True))


def _check_emissions(
    chain: Chain, sample: Sample, numbers: Floats | None, level: float
) -> tuple[FitCheck | None, FitCheck | None, list[float | None]]:
    """What readings tell beyond their states, of states and of readings; and the chance of each sequence."""
    if numbers is None:
        return None, None, [None] * chain.sequences
    ps = emission_ps(numbers, sample.states, chain.states, sample.environments)
    questions = ("state", "reading")
    of_states, of_readings = (
        worst_check(
            f"does the reading inside a state tell more of the next and previous {what}?", ps[:, i], chain.names, level
        )
        for i, what in enumerate(questions)
    )
    return of_states, of_readings, ps[:, 0].tolist()
