"""JointChain: any Markov chain on snapshots, for few sequences and common shocks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from csdp import check
from csdp.chain.model import Model, States, check_rows, reading_json, refuse_initial
from csdp.chain.stationary import margins
from csdp.chain.steps import KERNEL_STATES, KernelStep, Step
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats, freeze


class JointChain(Model):
    """A Markov chain on the m**s snapshots themselves: sequences may move together within one step.

    Args:
        kernel: (m**s, m**s), row-stochastic; snapshots numbered with the first sequence most significant.
        states: m. sequences: s.
        values, names: as for CoupledChain.

    The bounds that need the coupled form do not apply: `influence` and `slice`.

    >>> both = JointChain([[0.7, 0.3], [0.3, 0.7]], states=2, sequences=1)
    >>> both.stationary().tolist()
    [0.5, 0.5]
    """

    schema: ClassVar[str] = "csdp/joint-chain/1"
    _kernel: Floats

    def __init__(
        self,
        kernel: Any,
        *,
        states: int,
        sequences: int,
        values: Any = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if states < 2 or sequences < 1:
            raise InputError(f"states={states}, sequences={sequences} given; at least 2 states and 1 sequence")
        size = states**sequences
        if size > KERNEL_STATES:
            raise TooLargeError(
                f"{states}**{sequences} joint states given; at most {KERNEL_STATES:,} for a joint kernel. "
                "Use CoupledChain for more sequences",
                needed=size,
                limit=KERNEL_STATES,
            )
        rows = check.floats("kernel", kernel)
        if rows.shape != (size, size):
            raise InputError(f"kernel: shape {rows.shape} given; ({size}, {size}) = {states}**{sequences} expected")
        self._set(_kernel=freeze(check_rows("kernel", rows)))
        self._set_common(sequences=sequences, states=states, values=values, names=names)

    @cached_property
    def own_step(self) -> Step:
        """The stored kernel."""
        return KernelStep(self._kernel)

    @cached_property
    def is_positive(self) -> bool:
        """Whether every transition has positive probability."""
        return bool((self._kernel > 0).all())

    def _own_kernel(self) -> Floats:
        return self._kernel

    def components(self) -> list[tuple[int, ...]]:
        """All sequences together: common shocks may tie any of them."""
        return [tuple(range(self.sequences))]

    def subchain(self, members: Iterable[int]) -> JointChain:
        """The whole chain; no sequences of a joint chain are known to be independent."""
        if sorted(set(members)) != list(range(self.sequences)):
            raise InputError("subchain: a joint chain cannot be divided; take all of its sequences")
        return self

    def marginals(self) -> Floats:
        """Stationary law of every sequence (s, m)."""
        return margins(self.stationary().reshape((self.states,) * self.sequences))

    def advance(self, snapshot: States, uniform: Floats) -> States:
        """The next snapshot, by inverting its law; the first number decides."""
        shape = (self.states,) * self.sequences
        row = self._kernel[np.ravel_multi_index(tuple(snapshot.astype(np.intp)), shape)]
        number = min(int(np.searchsorted(np.cumsum(row), uniform[0], side="right")), self.size - 1)
        following: Any = np.array(np.unravel_index(number, shape), dtype=snapshot.dtype)
        return following  # type: ignore[no-any-return] # numpy loses the width of the integers

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        hasher = hashlib.sha256(f"{self.schema}|{self.states}|{self.sequences}".encode())
        for numbers in (self._kernel, self.values):
            hasher.update(np.ascontiguousarray(numbers, dtype="<f8").tobytes())
        return self._finish_digest(hasher)

    def _law_content(self) -> dict[str, Any]:
        return {"kernel": self._kernel.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> JointChain:
        """Rebuild a chain from `to_dict`."""
        refuse_initial(content)
        with reading_json():
            return cls(
                content["kernel"],
                states=int(content["states"]),
                sequences=int(content["sequences"]),
                values=content.get("values"),
                names=content.get("names"),
            )._restore_fit(content)

    def __repr__(self) -> str:
        return f"JointChain({self.sequences} sequences, {self.states} states, digest {self.digest[:8]})"
