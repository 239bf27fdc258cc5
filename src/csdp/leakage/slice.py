"""Slice: a bound for one giant component that decays with age, for every adversary and any number of releases.

For every sequence i, whatever others the adversary knows of the present, and for every two pasts z, z', it bounds the
log-odds range of `Pr(x_t^(i) | x_t^(others), x_{t-A} = z)`. Everything published depends on the present only through
data at least A old, so no query, no noise and no number of releases tells more. Needs independent picks (CoupledChain);
holds for any law of the past. The proof is in docs/theory.md.

It walks over the slices t-A+1, ..., t. Within a slice it keeps, for every sequence given all others of the slice: an
interval for its law, how far a change of the past moves that law, and how far a change of another sequence does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from csdp.aging import Progress
from csdp.chain import CoupledChain
from csdp.errors import InputError
from csdp.leakage.boxes import first_boxes, next_boxes
from csdp.leakage.forms import Form, MatrixForm, RowSumForm, SharedForm
from csdp.leakage.lineage import lineage, require_forward
from csdp.leakage.local_numbers import SORTED_PAIRS, Floats, LocalNumbers

#: Sequences up to which every target has its own matrix.
MATRIX_SEQUENCES = 160
#: Sequences up to which one sparse matrix serves all targets; row sums beyond.
SHARED_SEQUENCES = 10_000

FORMS: dict[str, type[MatrixForm] | type[SharedForm] | type[RowSumForm]] = {
    "matrix": MatrixForm,
    "shared": SharedForm,
    "row-sum": RowSumForm,
}


@dataclass(frozen=True)
class Slice:
    """Log-odds range of every sequence's present given any knowledge of the others, and how it was found."""

    ranges: Floats  # (s,) rho_A of every sequence
    pairs: npt.NDArray[np.intp]  # (s, 2) the two states that are told apart best
    form: str  # "matrix", "shared" or "row-sum"
    curve: Floats  # (age,) the largest over the sequences at ages 1, 2, ..., age


def slice_bound(chain: CoupledChain, age: int, *, form: str = "auto", progress: Progress | None = None) -> Slice:
    """The range over all pasts of the log odds of each sequence's present, given all others, `age` steps later.

    Never below the truth, never above the value at age 1, exact for one binary sequence; never grows with age.
    Each cheaper form is never below the sharper one: "matrix", "shared", "row-sum".

    >>> pair = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    >>> slice_bound(pair, 6).curve.round(4).tolist()
    [1.6946, 0.6702, 0.2982, 0.1349, 0.0613, 0.0279]
    """
    chain = require_forward("slice", chain)
    if form != "auto" and form not in FORMS:
        raise InputError(f"form: {form!r} given; use auto, {', '.join(FORMS)}")
    first = lineage(chain, min(age, 1))
    if age == 0:
        return Slice(first.ranges, first.pairs, "matrix", np.zeros(0))
    local = LocalNumbers.of(chain)
    boxes = first_boxes(local)
    # The lineage of one step is the exact range of p_i; its box may be wider for many states.
    ranges, pairs = np.minimum(boxes.spread(local.width), first.ranges), first.pairs.copy()
    curve = [float(ranges.max())]
    carried: Form = FORMS[choose_form(local) if form == "auto" else form](local)
    for n in range(1, age):
        following = next_boxes(local, carried.cells, boxes)
        moved = carried.step(ranges, following)
        fresh = following.spread(moved)
        better = fresh < ranges
        pairs[better] = following.worst_states(moved)[better]
        # Older data tell less: the range at a greater age is a mixture of those at a smaller one.
        ranges, boxes = np.minimum(fresh, ranges), following
        curve.append(float(ranges.max()))
        if progress is not None:
            progress("slice", n + 1, age)
    return Slice(ranges, pairs, carried.name, np.array(curve))


def choose_form(local: LocalNumbers) -> str:
    """The sharpest form whose cost a chain of this size allows."""
    if local.chain.sequences <= MATRIX_SEQUENCES:
        return "matrix"
    small = local.chain.sequences <= SHARED_SEQUENCES and local.pair_count <= SORTED_PAIRS
    return "shared" if small else "row-sum"
