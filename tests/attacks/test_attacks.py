"""A fixed sample of random histories, and wrong rules that they find."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from attacks.campaign import reported, run_case, run_seeds
from attacks.cases import GRAPHS, ODDS, OTHER_MODELS, Ask, Case, PlanSpec, Step, random_case
from attacks.history import Outcome
from attacks.models import Spec
from attacks.plants import (
    PLANTS,
    a_backward_chain_is_read_forward,
    a_clock_shows_its_first_phase,
    a_clock_stands_still,
    a_family_is_its_point,
    a_given_environment_is_the_first,
    a_vector_state_reads_all_at_the_smallest_age,
    a_vector_state_tells_what_its_largest_sequence_tells,
    an_estimator_fits_every_plan,
    late_readings_cost_nothing,
    later_values_reveal_nothing_of_a_moment,
    missing_sequences_are_charged_as_planned,
    the_last_window_holds_near_the_present,
    the_peak_is_now,
)
from oracle import joint_kernel

#: Histories in this sample; `make attack` runs others.
SAMPLE = range(40 if os.environ.get("CSDP_FULL") else 24)
OTHERS = range(OTHER_MODELS + 87, OTHER_MODELS + 107)  # with many clocks and hidden environments
OF_GRAPHS = range(GRAPHS, GRAPHS + 16)
OF_ODDS = range(ODDS, ODDS + 12)
#: The sequences of a chain that wakes up late.
LATE = (np.full((2, 2), 0.5), np.broadcast_to([[0.999, 0.001], [0.1, 0.9]], (2, 2, 2, 2)))


def spec(coupling: np.ndarray, transitions: np.ndarray) -> Spec:
    values = np.arange(2.0)
    return Spec(2, 2, joint_kernel(coupling, transitions), coupling, transitions, values, "by hand")


def one_release_that_tells_more_later() -> Case:
    return Case(2, (PlanSpec((spec(*LATE),), Ask("mean"), (0, 0), 4.0),), (Step(0, "push"),))


def one_release_that_is_late() -> Case:
    """Two sequences that hardly change, tied closely; the second of them is read a tick later than planned."""
    slow = spec(np.array([[0.75, 0.25], [0.25, 0.75]]), np.broadcast_to([[0.99, 0.01], [0.01, 0.99]], (2, 2, 2, 2)))
    plan = PlanSpec((slow,), Ask("mean"), (1, 1), 1.0, stale_limit=1, levels=(0.0, 0.0, 1.0))
    return Case(4, (plan,), (Step(0, "push"), Step(1, "push", missing=(1,)), Step(2, "push")))


def one_of_two_that_cancel_is_missing() -> Case:
    """The second sequence is nearly always what the first is not, so that their sum says little, but for a gap."""
    rows = np.array([[SLOW, SLOW], [SLOW[::-1], SLOW]])
    plan = PlanSpec((spec(COPIES, rows),), Ask("sum"), (1, 1), 2.0)
    return Case(4, (plan,), (Step(0, "push", missing=(1,)), Step(1, "push")))


def a_change_to_more_noise() -> Case:
    """Ages and outputs stay the same, and the noise does not."""
    plan = PlanSpec((spec(*LATE),), Ask("mean"), (1, 1), 4.0)
    steps = (*(Step(tick, "push") for tick in range(3)), Step(3, "change", plan=1), Step(3, "push"))
    return Case(4, (plan, replace(plan, epsilon_c=0.5)), steps)


# ---- backward chains, families at once, environments -----------------------------------------------------------------

EVERYWHERE = (2, 2, 2, 2)
#: Both previous states copy the first sequence.
COPIES = np.array([[1.0, 0.0], [1.0, 0.0]])
SLOW, FAST = np.array([[0.99, 0.01], [0.01, 0.99]]), np.array([[0.6, 0.4], [0.4, 0.6]])


def backward(coupling: np.ndarray, transitions: np.ndarray, **more: object) -> Spec:
    return replace(spec(coupling, np.broadcast_to(transitions, EVERYWHERE)), direction="backward", **more)


def pushes(count: int) -> tuple[Step, ...]:
    return tuple(Step(tick, "push") for tick in range(count))


def a_copy_that_is_read_late() -> Case:
    """The second previous state copies the first sequence, and is read a tick after it."""
    plan = PlanSpec((backward(COPIES, SLOW),), Ask("sum"), (0, 1), 1.0, large=True)
    return Case(5, (plan,), pushes(2))


def a_change_from_a_vector_state() -> Case:
    """What two copies tell adds up a tick later, under another plan."""
    first = PlanSpec((backward(COPIES, SLOW),), Ask("sum"), (0, 0), 1.0, large=True)
    return Case(
        6, (first, replace(first, epsilon_c=0.5, large=False)), (*pushes(1), Step(1, "change", plan=1), Step(1, "push"))
    )


def a_wide_family() -> Case:
    wide = backward(np.array([[0.9, 0.1], [0.1, 0.9]]), FAST, margin=0.3, seed=1)
    return Case(8, (PlanSpec((wide,), Ask("sum"), (1, 1), 2.0),), pushes(3))


def chains_by_turns(how: str, *, large: bool) -> Case:
    """One forgets and one remembers, by a clock or hidden."""
    calm, wild = (backward(np.array([[0.8, 0.2], [0.2, 0.8]]), rows) for rows in (FAST, SLOW))
    cycle, switching = (0, 1) if how == "clock" else (), np.full((2, 2), 0.5) if how == "hidden" else None
    both = replace(calm, environments=(calm, wild), how=how, cycle=cycle, switching=switching)
    return Case(9, (PlanSpec((both,), Ask("sum"), (1, 1), 1.0, large=large),), pushes(4))


def copies_of_two_ticks_later() -> Case:
    """Old values copy what came two ticks later, the newest one what came next."""
    near, far = (((0, 0, lag, 1.0, FAST),) for lag in (1, 2))
    kept = Spec(1, 2, FAST, np.eye(1), FAST, np.arange(2.0), "graph", windows=(near, far), ahead=far)
    return Case(10, (PlanSpec((kept,), Ask("sum"), (1,), 1.0),), pushes(9))


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Case], Outcome]:
    def one(case: Case) -> Outcome:
        return run_case(case, tmp_path / f"{len(list(tmp_path.iterdir()))}.db")

    return one


def test_no_number_of_a_sample_is_below_the_truth() -> None:
    coverage = run_seeds(SAMPLE)
    assert not coverage.findings, "\n".join(reported(coverage))
    assert coverage.histories == len(SAMPLE)
    assert coverage.releases > 2.5 * len(SAMPLE)
    assert coverage.checks > 32 * len(SAMPLE)
    assert min(coverage.numbers.values()) > 1 - 1e-9
    assert {"change of plan", "stale readings", "private fit", "restart", "unequal ages"} <= set(coverage.tags)
    assert "missing sequences" in coverage.tags
    assert "estimator of another plan" in coverage.tags


def test_no_number_of_other_models_is_below_the_truth() -> None:
    coverage = run_seeds(OTHERS)
    assert not coverage.findings, "\n".join(reported(coverage))
    assert coverage.releases > 50
    assert coverage.checks > 500
    assert {"backward chain", "family at once", "clock", "given environment", "state vector"} <= set(coverage.tags)


def test_no_number_of_graphs_is_below_the_truth() -> None:
    coverage = run_seeds(OF_GRAPHS)
    assert not coverage.findings, "\n".join(reported(coverage))
    assert coverage.releases > 40
    assert coverage.checks > 300
    assert {"graph", "longer memory", "edges inside a tick", "stale readings", "missing sequences"} <= set(
        coverage.tags
    )
    assert {"change of plan", "unequal ages", "gaps"} <= set(coverage.tags)


def test_histories_of_limits_of_odds_are_never_below_the_truth():
    coverage = run_seeds(OF_ODDS)
    assert not coverage.findings, "\n".join(reported(coverage))
    assert coverage.checks > 150
    assert {"limits of odds", "longer memory", "edges inside a tick", "change of plan"} <= set(coverage.tags)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_wrong_rule_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], run: Callable[[Case], Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = random_case(PLANTS[plant])
    assert not run(case).findings
    plant(monkeypatch)
    found = run(case).findings
    assert found
    assert all(finding.seed == case.seed for finding in found)


@pytest.mark.parametrize(
    ("plant", "made"),
    [
        (late_readings_cost_nothing, one_release_that_is_late),
        (missing_sequences_are_charged_as_planned, one_of_two_that_cancel_is_missing),
        (the_peak_is_now, one_release_that_tells_more_later),
        (an_estimator_fits_every_plan, a_change_to_more_noise),
        (a_vector_state_reads_all_at_the_smallest_age, a_copy_that_is_read_late),
        (a_vector_state_tells_what_its_largest_sequence_tells, a_change_from_a_vector_state),
        (a_backward_chain_is_read_forward, partial(random_case, 1000045)),
        (a_family_is_its_point, a_wide_family),
        (a_clock_shows_its_first_phase, partial(chains_by_turns, "clock", large=False)),
        (a_clock_shows_its_first_phase, partial(chains_by_turns, "clock", large=True)),
        (a_clock_stands_still, partial(chains_by_turns, "clock", large=False)),
        (a_given_environment_is_the_first, partial(chains_by_turns, "hidden", large=False)),
        (a_given_environment_is_the_first, partial(chains_by_turns, "hidden", large=True)),
        (the_last_window_holds_near_the_present, copies_of_two_ticks_later),
        (later_values_reveal_nothing_of_a_moment, copies_of_two_ticks_later),
    ],
)
def test_a_wrong_rule_that_few_histories_find_is_found_by_one_made_for_it(
    plant: Callable[[pytest.MonkeyPatch], None],
    made: Callable[[], Case],
    run: Callable[[Case], Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = run(made())
    assert before.releases
    assert not before.findings
    plant(monkeypatch)
    assert run(made()).findings


def test_the_command_says_what_it_covered() -> None:
    command = [sys.executable, "-m", "attacks", "--seed", "1", "--count", "2", "--jobs", "1"]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True)
    assert "2 histories" in done.stdout
    assert "0 histories with a number below the truth" in done.stdout
