"""What is told about a data set."""

from __future__ import annotations

from dataclasses import dataclass

from csdp.panel import Discretiser, Panel, Readings


@dataclass(frozen=True, eq=False)
class Dataset:
    """Readings on a regular grid, with where they come from and what is known about them beforehand.

    `edges` and `bounds` (one row, or one per sequence) are public knowledge, not read from the data, so discretising
    with them tells nothing (but see `handling`). `past_ends` cuts the readings into a past
    to take as public and a rest to publish.
    """

    name: str
    title: str
    readings: Readings
    unit: str
    edges: tuple[tuple[float, ...], ...]
    bounds: tuple[tuple[float, float], ...]
    past_ends: str
    handling: str  #: how the grid came about, and what a stationary chain on it leaves out
    provenance: str
    licence: str
    source: str  #: the package that the file comes from
    bundled: bool

    def discretiser(self) -> Discretiser:
        """States by the declared edges."""
        return Discretiser.declared(self.readings.names, edges=self.edges, bounds=self.bounds)

    def panel(self) -> Panel:
        """The readings as states, by the declared edges."""
        return self.discretiser().apply(self.readings)

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {self.title}; {self.readings!r})"
