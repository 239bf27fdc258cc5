"""Noise for rows, wherever they are: in this process or in a worker's task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from csdp.noise import indexed_noise


@dataclass(frozen=True)
class RowNoise:
    """Adds the noise of (key of the tick, number of the sequence) to rows (tick, idx, part).

    What a row gets depends on nothing else, so a task that is run again, elsewhere or over other rows, draws the same.
    It is handed to workers in memory, is never written, and a driver that dies takes it along.
    """

    unit: float
    levels: Mapping[int, tuple[Fraction, float]]
    keys: Mapping[int, bytes]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Arrow batches (tick, idx, noised) of batches of rows."""
        import pyarrow as pa

        for batch in batches:
            ticks, idx, part = (batch.column(name).to_numpy() for name in ("tick", "idx", "part"))
            noised = part.astype(np.float64) * self.unit
            for tick in np.unique(ticks).tolist():
                rows = ticks == tick
                scale, step = self.levels[tick]
                noised[rows] += indexed_noise(scale, idx[rows], self.keys[tick]) * step
            columns = [pa.array(ticks), pa.array(idx.astype(np.int64)), pa.array(noised)]
            yield pa.RecordBatch.from_arrays(columns, names=["tick", "idx", "noised"])

    def __repr__(self) -> str:
        return f"<RowNoise of {len(self.keys)} ticks>"  # a key must not reach a log
