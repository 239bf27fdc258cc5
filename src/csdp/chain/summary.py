"""What a model looks like: spectrum, stationary marginals, mixing, components."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csdp.chain.coupled import CoupledChain
from csdp.chain.model import KERNEL_STATES, Model
from csdp.chain.stationary import closed_classes
from csdp.errors import CsdpError

if TYPE_CHECKING:
    from rich.table import Table

Floats = npt.NDArray[np.float64]

_DENSE_SPECTRUM = 2000


@dataclass(frozen=True)
class Summary:
    """Facts about a model, for people (`rich.print`) and as data.

    `rate` is the largest modulus with which differences between marginal laws shrink per step, `mixing_time` the
    number of steps after which they are below a quarter; `primitive` is None where the model is too large to decide.
    """

    title: str
    spectrum: tuple[complex, ...]
    rate: float
    mixing_time: float
    marginals: Floats | None
    components: tuple[int, ...]
    primitive: bool | None

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return {
            "title": self.title,
            "spectrum": [[value.real, value.imag] for value in self.spectrum],
            "rate": self.rate,
            "mixing_time": None if math.isinf(self.mixing_time) else self.mixing_time,
            "marginals": None if self.marginals is None else self.marginals[:1000].tolist(),
            "components": list(self.components[:1000]),
            "primitive": self.primitive,
        }

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=self.title, title_justify="left", show_header=False, min_width=len(self.title))
        largest = ", ".join(_number(value) for value in self.spectrum[:8])
        table.add_row("spectrum of Q", largest + (", ..." if len(self.spectrum) > 8 else ""))
        table.add_row("differences shrink by", f"{self.rate:.6g} per step")
        table.add_row("mixing time", f"{self.mixing_time:g} steps to a quarter")
        sizes = ", ".join(map(str, self.components[:8])) + (", ..." if len(self.components) > 8 else "")
        table.add_row("components", f"{len(self.components)} (sizes {sizes})")
        table.add_row("primitive", {True: "yes", False: "no", None: "too large to decide"}[self.primitive])
        if self.marginals is None:
            table.add_row("stationary marginals", "several stationary laws: give initial=")
        else:
            for i, row in enumerate(self.marginals[:8]):
                table.add_row(f"stationary law of sequence {i + 1}", ", ".join(f"{p:.4g}" for p in row))
            if self.marginals.shape[0] > 8:
                table.add_row("", f"... and {self.marginals.shape[0] - 8} more")
        return table


def _number(value: complex) -> str:
    return f"{value.real:.4g}" if abs(value.imag) < 1e-12 else f"{value.real:.3g}{value.imag:+.3g}i"


def summarise(model: Model) -> Summary:
    """Spectrum, mixing, stationary marginals, components of a model.

    >>> facts = summarise(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]))
    >>> round(facts.rate, 6), facts.mixing_time, facts.primitive
    (0.4, 2.0, True)
    """
    spectrum, rate = _coupled_spectrum(model) if isinstance(model, CoupledChain) else _joint_spectrum(model)
    mixing = math.inf if rate >= 1 - 1e-12 else float(max(1, math.ceil(math.log(0.25) / math.log(max(rate, 1e-300)))))
    try:
        marginals: Floats | None = model.marginals()
    except CsdpError:
        marginals = None
    sizes = tuple(sorted((len(part) for part in model.components()), reverse=True))
    return Summary(repr(model), spectrum, rate, mixing, marginals, sizes, _primitive(model))


def _ordered(values: Any) -> tuple[complex, ...]:
    return tuple(complex(v) for v in sorted(values, key=lambda v: (-abs(v), -v.real, -v.imag)))


def _joint_spectrum(model: Model) -> tuple[tuple[complex, ...], float]:
    values = _ordered(np.linalg.eigvals(model.kernel()))
    return values, min(1.0, abs(values[1]))


def _coupled_spectrum(model: CoupledChain) -> tuple[tuple[complex, ...], float]:
    """Eigenvalues of Q, and the largest on differences of laws (blocks that sum to zero), on which mixing rests."""
    s, m = model.sequences, model.states
    # Basis of zero-sum blocks: state b against state 0.
    if s * m <= _DENSE_SPECTRUM:
        q = model.q_matrix().toarray()
        blocks = q.reshape(s, m, s, m)
        reduced = (blocks[:, 1:, :, 1:] - blocks[:, 1:, :, :1]).reshape(s * (m - 1), s * (m - 1))
        return _ordered(np.linalg.eigvals(q)), min(1.0, float(np.abs(np.linalg.eigvals(reduced)).max()))
    difference = np.random.default_rng(0).random((s, m))
    difference -= difference.mean(axis=1, keepdims=True)
    rates = []
    for _ in range(200):
        pushed = model.evolve(difference, 1)
        pushed -= pushed.mean(axis=1, keepdims=True)  # rounding must not leave the space of differences
        size = float(np.abs(pushed).max())
        if size == 0:
            return (1.0 + 0j,), 0.0
        rates.append(size)
        difference = pushed / size
    rate = min(1.0, float(np.exp(np.mean(np.log(rates[-50:])))))
    return (1.0 + 0j, complex(rate)), rate


def _primitive(model: Model) -> bool | None:
    if model.is_positive:
        return True
    if model.size > KERNEL_STATES:
        return None
    kernel = model.kernel() > 0
    classes = closed_classes(kernel.astype(np.float64))
    if len(classes) != 1 or classes[0].size != model.size:
        return False
    # Wielandt: a primitive matrix of order n has a positive power (n-1)^2 + 1.
    reach, power = kernel, 1
    while power < (model.size - 1) ** 2 + 1:
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        power *= 2
    return bool(reach.all())
