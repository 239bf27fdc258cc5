"""The long run of a model: its components, its stationary law with an estimate of the relative error, its mixing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from csdp.chain.steps import KERNEL_STATES, Step
from csdp.errors import CsdpError, NoStationaryLawError
from csdp.numbers import Floats, Indices

if TYPE_CHECKING:
    from csdp.chain.model import Model

#: Up to this many states the law comes from elimination (no subtraction, so every entry is accurate).
ELIMINATION_STATES = 512
#: Up to this many states a kernel with zeros is searched for closed classes.
CLASSES_STATES = 4096
#: What to do with a model that has no single stationary law.
SEVERAL_LAWS = "smooth the transitions, so that every snapshot can follow every other in some number of steps"
_UNIT = np.finfo(np.float64).eps / 2


def connected_parts(graph: Any) -> list[tuple[int, ...]]:
    """The connected components of a sparse graph, whatever the direction of its edges."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(graph, directed=True, connection="weak")
    order = np.argsort(label, kind="stable")
    cuts = [0, *np.searchsorted(label[order], np.arange(1, count)).tolist(), order.size]
    members = order.tolist()
    return sorted(tuple(members[start:end]) for start, end in itertools.pairwise(cuts))


def count_kinds(
    components: Iterable[tuple[int, ...]], signature: Callable[[tuple[int, ...]], Any]
) -> list[tuple[tuple[int, ...], int]]:
    """One component of each kind with the number of its copies; large ones are not compared."""
    copies_by_kind: dict[Any, tuple[tuple[int, ...], int]] = {}
    for component in components:
        kind = signature(component) if len(component) <= 64 else component
        representative, count = copies_by_kind.get(kind, (component, 0))
        copies_by_kind[kind] = (representative, count + 1)
    return list(copies_by_kind.values())


def closed_classes(kernel: Floats) -> list[Indices]:
    """The closed communicating classes of a kernel: one for each stationary law."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    support = csr_array(kernel > 0)
    count, label = connected_components(support, directed=True, connection="strong")
    source, target = support.nonzero()
    leaves = label[source] != label[target]
    open_classes = set(label[source[leaves]].tolist())
    return [np.flatnonzero(label == c) for c in range(count) if c not in open_classes]


def eliminate(kernel: Floats) -> Floats:
    """Stationary law of an irreducible kernel by Grassmann, Taksar and Heyman (1985): no subtraction."""
    work = np.array(kernel)
    size = work.shape[0]
    law = np.zeros(size)
    law[0] = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        for n in range(size - 1, 0, -1):
            work[:n, n] /= work[n, :n].sum()
            work[:n, :n] += np.outer(work[:n, n], work[n, :n])
        for n in range(1, size):
            law[n] = law[:n] @ work[:n, n]
            if law[n] > 1.0:  # not above 1: the ratio of two states may be beyond a float; by powers of 2, exactly
                law = np.ldexp(law, -math.frexp(law[n])[1])
        return np.asarray(law / law.sum())


def stationary_law(step: Step, *, start: Floats, positive: bool, kernel: Callable[[], Floats]) -> tuple[Floats, float]:
    """The stationary law and its relative error; NoStationaryLawError if there are several.

    `positive` says that every entry of the kernel is known to be positive, so that the law is unique.
    """
    size = start.shape[0]
    if size <= ELIMINATION_STATES or (not positive and size <= CLASSES_STATES):
        dense = kernel()
        classes = [np.arange(size)] if positive else closed_classes(dense)
        if len(classes) > 1:
            raise NoStationaryLawError(
                f"the chain has {len(classes)} closed classes and so several stationary laws; " + SEVERAL_LAWS
            )
        inside = classes[0]
        law = np.zeros(size)
        law[inside] = eliminate(dense[np.ix_(inside, inside)])
        if not (law[inside] > 0).all():
            raise NoStationaryLawError(
                "some snapshots are possible, but rarer than any number that a float holds, so that what they reveal "
                "cannot be computed; make transition probabilities close to 0 larger, or 0"
            )
        return law, 8.0 * inside.size * _UNIT
    if not positive:
        raise NoStationaryLawError(
            f"a chain of {size} joint states with zero transition probabilities: that its stationary law is unique "
            "cannot be checked; " + SEVERAL_LAWS
        )
    return _iterate(step, start)


def _iterate(step: Step, start: Floats) -> tuple[Floats, float]:
    law, last, rate, leapt = start / start.sum(), np.inf, 0.9, False
    floor = 4.0 * step.depth * _UNIT
    for n in range(1, 20_001):
        pushed = step.push(law[:, None])[:, 0]
        pushed /= pushed.sum()
        change = float(np.max(np.abs(pushed / law - 1.0)))
        if np.isfinite(last) and last > 0:
            rate = min(max(change / last, 0.1), 0.9999)
        law = pushed
        # Below `floor` the change is rounding.
        if change * rate / (1 - rate) < 1e-15 or (change <= floor and change >= last * 0.5):
            return law, (change + 2.0 * step.depth * _UNIT) / (1 - rate)
        last = change
        if not leapt and n >= 12 and np.log(1e-15 / change) / np.log(rate) > 60:
            law, leapt, last = _leap(step, law), True, np.inf
    raise CsdpError(
        f"the stationary law of {law.size} joint states did not settle (relative change {last:.2g}); " + SEVERAL_LAWS
    )


def _leap(step: Step, law: Floats) -> Floats:
    """Skip slow mixing with Arnoldi's method; the caller goes on iterating to repair small entries."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

    operator = LinearOperator((law.size, law.size), matvec=lambda v: step.push(np.real(v).reshape(-1, 1))[:, 0])
    try:
        _, vectors = eigs(operator, k=1, which="LR", v0=law, ncv=min(40, law.size - 1), maxiter=50)
    except ArpackNoConvergence:
        return law
    leap = np.real(vectors[:, 0])
    leap = leap / leap.sum()
    # Entries below the accuracy of the leap keep their old share: a law has no zero or negative entry here.
    return np.asarray(np.where(leap > 1e-12 * leap.max(), leap, np.minimum(law, 1e-12 * leap.max())))


def mixing_time(rate: float) -> float:
    """Steps after which differences between marginal laws, which shrink by `rate` in each, are below a quarter.

    >>> mixing_time(0.4)
    2.0
    """
    return math.inf if rate >= 1 - 1e-12 else float(max(1, math.ceil(math.log(0.25) / math.log(max(rate, 1e-300)))))


def reverse_kernel(kernel: Floats, law: Floats) -> Floats:
    """The kernel of a stationary chain in the other direction of time; snapshots that never occur lead to the law."""
    joint = (kernel * law[:, None]).T
    total = joint.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, joint / total, law[None, :])


def product_law(margins: Floats) -> Floats:
    """Joint law of independent sequences."""
    joint = np.ones(1)
    for row in margins:
        joint = np.multiply.outer(joint, row).ravel()
    return joint


def margins(joint: Floats) -> Floats:
    """Law of every sequence (s, m) under a joint law with one axis for each."""
    axes = range(joint.ndim)
    return np.array([joint.sum(axis=tuple(a for a in axes if a != i)) for i in axes])


def draw_snapshot(model: Model, random: np.random.Generator, *, burn_in: int) -> Any:
    """A snapshot of small integers from the stationary law; of large models after `burn_in` steps."""
    kind: Any = np.int8 if model.states <= 127 else np.int16
    if model.size <= KERNEL_STATES:
        law = model.stationary()
        number = int(np.searchsorted(np.cumsum(law), random.random() * law.sum(), side="right"))
        number = min(number, model.size - 1)
        return np.array(np.unravel_index(number, (model.states,) * model.sequences)).astype(kind)
    cumulative = np.cumsum(model.marginals(), axis=1)[:, :-1]
    snapshot = (random.random(model.sequences)[:, None] >= cumulative).sum(axis=1).astype(kind)
    for _ in range(burn_in):
        snapshot = model.advance(snapshot, random.random(model.sequences))
    return snapshot
