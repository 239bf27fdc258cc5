"""Where aged answers come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.panel import Panel
from csdp.plan import Plan

Floats = npt.NDArray[np.float64]


@runtime_checkable
class AgedSource(Protocol):
    """Where aged answers come from: an in-memory panel, a stream, or a table engine.

    `availability` tells which ticks could be released and how stale they are, from which readings are missing alone;
    only for ticks that the ledger has granted are `answers` asked.
    """

    def availability(self, plan: Plan) -> Iterable[tuple[int, int, str]]:
        """(tick, staleness in steps, reason why not, or empty) in order of ticks, each once."""

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks, exact, on the plan's lattice (ticks, d)."""


@runtime_checkable
class DrawingSource(AgedSource, Protocol):
    """A source that adds the noise of wide answers where its rows are, from keys that the gate makes after the charge.

    Noise that somebody else has drawn cannot be verified. So its drawing is used only where it declares
    `trusted_noise = True`, as the engines of this package do: whoever declares it answers for the noise. Without the
    declaration the gate asks for exact answers and draws the noise itself.

    The noise of sequence i is `csdp.noise.indexed_noise` of the tick's key and i, so that a task that is run again
    draws the same; the source neither keeps nor writes a key.
    """

    @property
    def trusted_noise(self) -> bool:
        """The declaration that `noised` draws as specified here."""

    def draws(self, plan: Plan) -> bool:
        """Whether this source draws the noise of the plan's answers."""

    def noised(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of the ticks with their noise, on the plan's lattice (ticks, d), from one key per tick."""


class PanelSource:
    """A panel as a source of aged answers."""

    def __init__(self, panel: Panel, plan: Plan) -> None:
        panel = panel.arrange(plan.model.names)
        fran.check_states(panel.states, plan.model.states)  # before anything is charged
        self._panel = panel
        self._gaps = bool(panel.states.size and panel.states.min() < 0)

    @cached_property
    def _filled(self) -> npt.NDArray[Any]:
        return fran.fill(self._panel.states) if self._gaps else self._panel.states

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """Which ticks could be released, from which readings are missing alone."""
        stale, reasons = (
            fran.availability(plan, self._panel.states < 0) if self._gaps else fran.judged(plan, len(self._panel), {})
        )
        for i, tick in enumerate(self._panel.ticks.tolist()):
            yield tick, int(stale[i]), reasons[i]

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        rows = np.asarray(ticks, dtype=np.intp) - int(self._panel.ticks[0])
        return fran.answers(plan, self._filled, rows, checked=True)
