"""The truth that histories are held against: apart from the library, and right by two methods and known values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attacks import plain
from attacks.cases import random_case
from oracle import Output, World, digits_of, group_loss, joint_kernel, record_loss, told_by_paths
from reference_values import ONE, REFERENCE, RTOL, binary, pair

HERE = Path(__file__).parent
DIGITS = digits_of(2, 2)
MEAN = DIGITS.sum(axis=1, keepdims=True) / 2


def world(coupling: np.ndarray, transitions: np.ndarray) -> World:
    s = len(coupling)
    table = np.broadcast_to(transitions, (s, s, *transitions.shape[-2:]))
    return World(joint_kernel(np.asarray(coupling), table), s, transitions.shape[-1])


def test_it_runs_where_the_library_cannot_be_imported() -> None:
    """In a process of its own: what other tests have imported would hide it."""
    code = (
        "import sys; sys.modules['csdp'] = None; import attacks.plain as p; from attacks.cases import random_case;"
        "truth = p.Truth(1, 2); truth.add((0,), p.np.array([[0.0], [1.0]]), 1.0);"
        "print(truth.event(), any(m.startswith('csdp.') for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.0", "False"]


@pytest.mark.parametrize("row", REFERENCE)
def test_one_release_has_the_known_leakage(row: str) -> None:
    (coupling, transitions, ages, epsilon_c, query), expected = REFERENCE[row]
    found = world(coupling, transitions)
    spread = {"mean": len(ages), "histogram": 0.5}.get(query, 1.0)
    table = plain.answers(plain.Ask(query), np.arange(found.m, dtype=float), found.s, found.m)
    rate = epsilon_c * spread / (1 if query == "histogram" else found.m - 1)
    told = found.told([Output(tuple(-a for a in ages), table, rate)], 0, "informed")
    assert told == pytest.approx(expected[0], rel=RTOL)


def test_what_all_releases_tell_of_one_record_comes_near_its_limit() -> None:
    """One chain, change .3, epsilon 1: temporal privacy leakage 2.0522 in the long run."""
    chain = world(ONE, binary(0.3, 0.3))
    outputs = [Output((n,), np.array([[0.0], [1.0]]), 1.0) for n in range(13)]
    assert chain.told(outputs, 6, "informed") == pytest.approx(2.0522, abs=2e-3)


@pytest.mark.parametrize("seed", range(24))
def test_filtering_agrees_with_the_enumeration_of_paths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s, m = ((1, 2), (2, 2), (1, 3))[seed % 3]
    law = rng.dirichlet(np.ones(m**s)) * (rng.random(m**s) < 0.7) if seed % 2 else None
    if law is not None:
        law = (law + 1e-3 * np.eye(m**s)[0]) / (law + 1e-3 * np.eye(m**s)[0]).sum()
    transitions = rng.dirichlet(np.ones(m), (s, s, m)) * (rng.random((s, s, m, m)) < 0.8)
    transitions += np.eye(m) * 1e-2
    transitions /= transitions.sum(axis=-1, keepdims=True)
    kernel = joint_kernel(rng.dirichlet(np.ones(s), s), transitions)
    found = World(kernel, s, m, law)
    outputs = [
        Output(tuple(rng.integers(0, 4, s).tolist()), rng.integers(0, 3, (m**s, 1)).astype(float), rng.uniform(0.2, 2))
        for _ in range(int(rng.integers(1, 4)))
    ]
    for watched in (4, int(rng.integers(0, 4))):
        for adversary in ("informed", "uninformed"):
            told = found.told(outputs, watched, adversary, begin=0)
            assert told == pytest.approx(told_by_paths(found, outputs, watched, adversary, begin=0), abs=1e-10)


def test_quiet_ticks_are_those_of_a_later_present() -> None:
    found = world(pair(0.75), binary(0.01, 0.1))
    outputs = [Output((0, 0), MEAN, 4.0), Output((1, 0), MEAN, 2.0)]
    later = found.told_from(outputs, 2, 4, "informed")
    assert later == pytest.approx([found.told(outputs, n, "informed") for n in range(2, 7)], rel=1e-12)


def test_plain_privacy_adds_up_over_the_outputs_that_read_a_record() -> None:
    outputs = [Output((0, 0), MEAN, 2.0), Output((0, 1), MEAN, 1.0)]
    assert record_loss(outputs, 2, 2) == pytest.approx(1.5)  # the first sequence's reading of slice 0, in both
    assert group_loss(outputs, [0, 1], 2, 2) == pytest.approx(3.0)
    assert group_loss(outputs, [0], 2, 2) == pytest.approx(1.5)


def test_a_case_is_a_function_of_its_seed() -> None:
    assert repr(random_case(5)) == repr(random_case(5)) != repr(random_case(6))
