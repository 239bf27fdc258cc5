"""The stationary law of a joint chain, with an estimate of its relative error in every entry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from csdp.chain.steps import Step
from csdp.errors import CsdpError, NoStationaryLawError

Floats = npt.NDArray[np.float64]

#: Up to this many states the law comes from elimination (no subtraction, so every entry is accurate).
ELIMINATION_STATES = 512
#: Up to this many states a kernel with zeros is searched for closed classes.
CLASSES_STATES = 4096
_UNIT = np.finfo(np.float64).eps / 2


def closed_classes(kernel: Floats) -> list[npt.NDArray[np.intp]]:
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
    for n in range(size - 1, 0, -1):
        work[:n, n] /= work[n, :n].sum()
        work[:n, :n] += np.outer(work[:n, n], work[n, :n])
    law = np.zeros(size)
    law[0] = 1.0
    for n in range(1, size):
        law[n] = law[:n] @ work[:n, n]
    return np.asarray(law / law.sum())


def stationary_law(step: Step, *, start: Floats, positive: bool, kernel: Callable[[], Floats]) -> tuple[Floats, float]:
    """The stationary law and its relative error; NoStationaryLawError where there are several.

    `positive` says that every entry of the kernel is known to be positive, so that the law is unique.
    """
    size = start.shape[0]
    if size <= ELIMINATION_STATES or (not positive and size <= CLASSES_STATES):
        dense = kernel()
        classes = [np.arange(size)] if positive else closed_classes(dense)
        if len(classes) > 1:
            raise NoStationaryLawError(
                f"the chain has {len(classes)} closed classes and so several stationary laws; "
                "give initial=, the law of the oldest snapshot that a release reads"
            )
        inside = classes[0]
        law = np.zeros(size)
        law[inside] = eliminate(dense[np.ix_(inside, inside)])
        return law, 8.0 * inside.size * _UNIT
    if not positive:
        raise NoStationaryLawError(
            f"a chain of {size} joint states with zero transition probabilities: that its stationary law is unique "
            "cannot be checked; give initial=, or smooth the transitions"
        )
    return _iterate(step, start)


def _iterate(step: Step, start: Floats) -> tuple[Floats, float]:
    law, last, rate, jumped = start / start.sum(), np.inf, 0.9, False
    floor = 4.0 * step.depth * _UNIT
    for n in range(1, 20_001):
        pushed = step.push(law[:, None])[:, 0]
        pushed /= pushed.sum()
        change = float(np.max(np.abs(pushed / law - 1.0)))
        if np.isfinite(last) and last > 0:
            rate = min(max(change / last, 0.1), 0.9999)
        law = pushed
        # `floor` is where rounding takes over; below it the change says nothing more.
        if change * rate / (1 - rate) < 1e-15 or (change <= floor and change >= last * 0.5):
            return law, (change + 2.0 * step.depth * _UNIT) / (1 - rate)
        last = change
        if not jumped and n >= 12 and np.log(1e-15 / change) / np.log(rate) > 60:
            law, jumped, last = _jump(step, law), True, np.inf
    raise CsdpError(
        f"the stationary law of {law.size} joint states did not settle (relative change {last:.2g}); give initial="
    )


def _jump(step: Step, law: Floats) -> Floats:
    """Leap over slow mixing with Arnoldi's method; the caller goes on iterating to repair small entries."""
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
