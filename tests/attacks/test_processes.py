"""Backward chains, families at once and environments: their truth against known values and plain enumeration."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from attacks.models import FIRST, LAST, Spec, worlds_of
from attacks.processes import Limits, ahead, back, backward_world, coupled_laws, periodic_world, product_kernel
from oracle import Array, Output, World, digits_of, joint_kernel, stationary, told_by_paths
from reference_values import binary, pair

MEAN = digits_of(2, 2).sum(axis=1, keepdims=True) / 2


def kernel(coupling: np.ndarray, *transitions: np.ndarray) -> Array:
    """Of a coupled chain with the same transitions everywhere."""
    s, m = len(coupling), transitions[0].shape[-1]
    return joint_kernel(np.asarray(coupling), np.broadcast_to(transitions[0], (s, s, m, m)))


def told_by_backward_paths(out_of: Callable[[int], Array], outputs: list[Output], last: int, s: int, m: int) -> float:
    """What outputs tell of the snapshot at the slice `last`, by enumeration of every past, in plain loops."""
    digits, first = digits_of(s, m), min(n for output in outputs for n in output.reads)
    histories = list(product(*(range(len(o.likelihoods)) for o in outputs)))
    rows = np.zeros((len(digits), len(histories)))
    for path in product(range(len(digits)), repeat=last - first + 1):  # the newest slice first
        chance = np.prod([out_of(last - n)[path[n], path[n + 1]] for n in range(last - first)])
        read = [int(sum(digits[path[last - n]][i] * m ** (s - 1 - i) for i, n in enumerate(o.reads))) for o in outputs]
        for column, history in enumerate(histories):
            density = np.prod([o.likelihoods[y, z] for o, y, z in zip(outputs, history, read, strict=True)])
            rows[path[0], column] += chance * density
    near = (digits[:, None, :] != digits[None, :, :]).sum(axis=2) == 1
    with np.errstate(divide="ignore"):
        logs = np.log(rows)
    return float(max((logs[x] - logs[y]).max() for x, y in np.argwhere(near)))


def test_one_release_of_a_backward_chain_has_the_known_leakage() -> None:
    copies = backward_world(kernel(np.eye(3)[[0, 0, 0]], binary(0.1, 0.1)), 3, 2)
    mean = digits_of(3, 2).sum(axis=1, keepdims=True) / 3
    assert copies.told([Output((-1,) * 3, mean, 12.0)], 0, "informed") == pytest.approx(6.140, abs=5e-4)
    follows = backward_world(kernel(np.eye(2)[[0, 0]], binary(0.01, 0.01)), 2, 2)
    assert follows.told([Output((0, -1), MEAN, 2.0)], 0, "informed") == pytest.approx(1.977, abs=5e-4)


def test_many_releases_of_a_backward_chain_have_the_known_leakage() -> None:
    transitions = np.broadcast_to([[0.8, 0.15, 0.05], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]], (2, 2, 3, 3)).copy()
    transitions[0, 1] = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]]
    chain = backward_world(joint_kernel(np.array([[0.6, 0.4], [0.3, 0.7]]), transitions), 2, 3)
    mean = digits_of(2, 3).sum(axis=1, keepdims=True) / 2
    told = [chain.told([Output((n - 1,) * 2, mean, 0.5) for n in range(k)], k - 1, "informed") for k in (1, 2)]
    assert told == pytest.approx([0.309723, 0.505209], abs=1e-6)


@pytest.mark.parametrize(("move", "expected"), [((0.3, 0.3), 0.067), ((0.1, 0.1), 0.42)], ids=["forgets", "persistent"])
def test_a_backward_ring_comes_near_its_limit(move: tuple[float, float], expected: float) -> None:
    """A ring of three, self .8, eps_c .1, A=1: certified for ever 0.0673 and 0.42 by the metric state."""
    ring = backward_world(kernel(0.7 * np.eye(3) + 0.1, binary(*move)), 3, 2)
    mean = digits_of(3, 2).sum(axis=1, keepdims=True) / 3
    told = ring.told([Output((n - 1,) * 3, mean, 0.3) for n in range(6)], 5, "informed")
    assert 0.55 * expected < told < expected * 1.01


@pytest.mark.parametrize("backward", [True, False])
def test_a_clock_has_the_known_leakage_of_every_phase(backward: bool) -> None:
    kernels = [kernel(pair(0.75), binary(0.3, 0.3)), kernel(pair(0.75), binary(0.1, 0.4))]
    known = [(0.400180, 0.606472), (0.223834, 0.211122), (0.081287, 0.114612)]
    if not backward:  # the first kernel leads from phase 0 to phase 1
        kernels.reverse()
        known = [(0.564128, 0.424432), (0.238018, 0.206059), (0.112966, 0.090250)]
    clock = periodic_world(kernels, backward=backward, first=-8, last=8, s=2, m=2)
    for age, expected in enumerate(known, start=1):
        told = [clock.told([Output((now - age,) * 2, MEAN, 2.0)], now, "informed") for now in (4, 5)]
        assert told == pytest.approx(expected, abs=1e-6)


def test_who_knows_the_path_of_environments_learns_what_is_known() -> None:
    """Two own chains under a common regime that stays with .9."""
    kernels = [kernel(np.eye(2), binary(0.1, 0.5)), kernel(np.eye(2), binary(0.5, 0.1))]
    switching = np.array([[0.9, 0.1], [0.1, 0.9]])
    joint = np.block([[switching[e, f] * kernels[f] for f in range(2)] for e in range(2)])
    law = stationary(joint).reshape(2, 4)
    for age, expected in ((1, 0.508455), (2, 0.230798), (4, 0.039745)):
        told = 0.0
        for path in product(range(2), repeat=age + 1):
            start = law[path[0]] / law[path[0]].sum()
            world = ahead(lambda n, path=path: kernels[path[n]], start, 0, age, 2, 2)  # type: ignore[misc]
            told = max(told, world.told([Output((0, 0), MEAN, 2.0)], age, "informed"))
        assert told == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_laws_that_change_agree_with_the_enumeration_of_paths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s, m = ((1, 2), (2, 2), (1, 3))[seed % 3]
    kernels = [joint_kernel(rng.dirichlet(np.ones(s), s), rng.dirichlet(np.full(m, 0.4), (s, s, m))) for _ in range(6)]
    law = rng.dirichlet(np.ones(m**s))
    outputs = [
        Output(tuple(rng.integers(0, 4, s).tolist()), rng.integers(0, 3, (m**s, 1)).astype(float), rng.uniform(0.2, 2))
        for _ in range(2)
    ]
    forward = ahead(lambda n: kernels[n], law, 0, 5, s, m)
    backward = back(lambda n: kernels[n], law, 0, 5, s, m)
    for world in (forward, backward):
        for watched in (4, 1):
            told = world.told(outputs, watched, "informed")
            assert told == pytest.approx(told_by_paths(world, outputs, watched, "informed"), abs=1e-9)
    by_pasts = told_by_backward_paths(lambda n: kernels[n], outputs, 4, s, m)
    assert backward.told(outputs, 4, "informed") == pytest.approx(by_pasts, abs=1e-9)
    later = backward.told_from(outputs, 3, 2, "informed")
    assert later == pytest.approx([backward.told(outputs, n, "informed") for n in (3, 4, 5)], abs=1e-9)


def test_a_backward_chain_forgets_where_nothing_leads() -> None:
    """A snapshot that the stationary law never visits says nothing, and spoils nothing."""
    chain = backward_world(kernel(np.eye(1), np.array([[1.0, 0.0], [0.5, 0.5]])), 1, 2)
    assert chain.told([Output((0,), np.array([[0.0], [1.0]]), 1.0)], 1, "informed") == 0.0


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.4])
def test_members_of_a_family_reach_its_limits_and_no_further(margin: float) -> None:
    rng = np.random.default_rng(3)
    coupling = np.array([[0.5, 0.5, 0.0], [0.2, 0.5, 0.3], [0.0, 0.0, 1.0]])
    laws = coupled_laws(coupling, rng.dirichlet(np.ones(2), (3, 3, 2)))
    assert product_kernel(laws).sum(axis=1) == pytest.approx(np.ones(8))
    limits = Limits(laws, coupling > 0, margin)
    members = [limits.member(rng) for _ in range(20)]
    assert max(map(limits.excess, members)) < 1e-12
    tight = Limits(laws, coupling > 0, 0.8 * margin)
    assert max(map(tight.excess, members)) >= 0.1 * margin
    assert limits.excess(np.roll(laws, 1, axis=2)) > 0.01


def spec(**changed: object) -> Spec:
    coupling, transitions = pair(0.75), np.broadcast_to(binary(0.3, 0.2), (2, 2, 2, 2))
    chain = Spec(2, 2, joint_kernel(coupling, transitions), coupling, transitions, np.arange(2.0), "by hand")
    return Spec(**{**chain.__dict__, **changed})


def test_a_model_stands_for_every_phase_and_for_some_paths_and_members() -> None:
    other = spec(kernel=kernel(pair(0.9), binary(0.1, 0.4)))
    clock = worlds_of(spec(environments=(spec(), other), how="clock", cycle=(0, 1, 1)))
    assert len(clock) == 3
    assert np.array_equal(clock[0].into(6), spec().kernel)
    assert np.array_equal(clock[1].into(5), spec().kernel)
    given = worlds_of(spec(environments=(spec(), other), how="hidden", direction="backward"))
    assert all(isinstance(world, World) for world in given)
    members = worlds_of(spec(direction="backward", margin=0.1))
    assert len(members) > 3
    assert all(world.law_at(FIRST).min() > 0 for world in members)
    assert any(not np.allclose(world.into(3), world.into(4)) for world in members[1:])
    assert LAST > 40
