"""Brute-force oracle for chains under environments. Independent of the library; imports nothing of it."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from oracle import Array, joint_kernel, safe_log, stationary


def random_member(rng: np.random.Generator, s: int, m: int, kind: str) -> tuple[Array, Array]:
    """Coupling and transitions of one environment: plain, skewed, persistent, deterministic, hub or own chains."""
    coupling = rng.dirichlet(np.ones(s), size=s)
    rows = rng.dirichlet(np.ones(m) * (0.25 if kind == "skewed" else 1.0), size=(s, s, m))
    if kind == "persistent":
        rows = 0.85 * np.eye(m) + 0.15 * rows
    if kind == "deterministic":
        rows = np.eye(m)[rng.integers(m, size=(s, s, m))]
    if kind == "hub":
        coupling = np.full((s, s), 0.1 / s) + 0.9 * np.eye(s)[[0] * s]
    if kind == "own":
        coupling = np.eye(s)
    return coupling, rows


def member_kernel(member: tuple[Array, Array]) -> Array:
    """The joint kernel of one environment, in its own direction."""
    return joint_kernel(*member)


def periodic_laws(kernels: Sequence[Array], *, backward: bool) -> list[Array]:
    """Law of the snapshot at each phase; kernels[h] leads to phase h, or back from it."""
    count = len(kernels)
    round_trip = np.eye(len(kernels[0]))
    order = [-h % count for h in range(count)] if backward else [(h + 1) % count for h in range(count)]
    for h in order:
        round_trip = round_trip @ kernels[h]
    law, laws = stationary(round_trip), {}
    for h in order:
        law = law @ kernels[h]
        laws[(h - 1) % count if backward else h] = law
    return [laws[h] for h in range(count)]


def reverse(kernel: Array, before: Array) -> Array:
    """The kernel in the other direction of time, from the law where it starts."""
    joint = (before[:, None] * kernel).T
    total = joint.sum(axis=1, keepdims=True)
    return np.where(total > 0, joint / np.where(total > 0, total, 1.0), 0.0)


def clock_backward_kernels(kernels: Sequence[Array], *, backward: bool) -> list[Array]:
    """R_h, back from phase h."""
    if backward:
        return list(kernels)
    laws = periodic_laws(kernels, backward=False)
    return [reverse(kernels[h], laws[h - 1]) for h in range(len(kernels))]


def hidden_law(switching: Array, kernels: Sequence[Array], *, backward: bool) -> tuple[Array, Array]:
    """Joint backward kernel on (e, x), environment first, and the law, from the definition."""
    count, n = len(kernels), len(kernels[0])
    share = stationary(switching)
    back = reverse(switching, share)
    own = np.zeros((count, n, count, n))
    for e, f in product(range(count), repeat=2):
        own[e, :, f, :] = back[e, f] * kernels[e] if backward else switching[e, f] * kernels[f]
    own = own.reshape(count * n, count * n)
    law = stationary(own)
    return (own if backward else reverse(own, law)), law


def likelihoods(back: Sequence[Array], answers: Array, rate: float, age: int, releases: int) -> Array:
    """Log likelihood (histories, presents) of every output history, whose newest release reads the slice `age` ago.

    `back[n]` leads from n steps ago to n + 1 steps ago.
    """
    return told_likelihoods(back, answers, [(age + n, rate) for n in range(releases)])


def told_likelihoods(back: Sequence[Array], answers: Array, told: Sequence[tuple[int, float]]) -> Array:
    """The same for releases that each read one slice, so many steps ago, with a rate epsilon_c / Delta_f each."""
    n = len(back[0]) if back else len(answers)
    rows = []
    for history in product(np.unique(answers), repeat=len(told)):
        g = np.ones(n)
        for slice_ago in range(max((ago for ago, _ in told), default=0), -1, -1):
            for output, (ago, rate) in zip(history, told, strict=True):
                if ago == slice_ago:
                    g = g * np.exp(-rate * np.abs(output - answers))
            if slice_ago > 0:
                g = back[slice_ago - 1] @ g
        rows.append(g)
    return safe_log(np.array(rows))


def worst(logs: Array, s: int, m: int, law: Array | None = None) -> float:
    """Largest difference between presents that differ in one sequence, among those that can occur."""
    tensor = logs.reshape((-1,) + (m,) * s)
    if law is not None:
        tensor = np.where((law > 0).reshape((1,) + (m,) * s), tensor, np.nan)
    best = 0.0
    for axis in range(1, s + 1):
        gap = np.fmax.reduce(tensor, axis=axis) - np.fmin.reduce(tensor, axis=axis)
        best = max(best, float(np.nan_to_num(gap, nan=0.0, posinf=np.inf).max()))
    return best


def mean_answers(s: int, m: int) -> tuple[Array, float]:
    """Mean of the states of every snapshot, and its sensitivity."""
    snaps = np.array(list(product(range(m), repeat=s)))
    return snaps.mean(axis=1), (m - 1) / s
