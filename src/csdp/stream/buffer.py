"""Readings of the ticks that are still open: in memory, and gone once their tick is closed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.clock import Time

Floats = npt.NDArray[np.float64]


class OpenTicks:
    """For every open tick the newest reading of each sequence; NaN where there is none yet."""

    def __init__(self, sequences: int) -> None:
        self._sequences = sequences
        self._ticks: dict[int, tuple[Floats, Floats]] = {}

    def _of(self, tick: int) -> tuple[Floats, Floats]:
        if tick not in self._ticks:
            self._ticks[tick] = (np.full(self._sequences, -np.inf), np.full(self._sequences, np.nan))
        return self._ticks[tick]

    def put(self, tick: int, sequence: int, time: Time, value: float) -> bool:
        """Keep a reading if it is newer than the one that is there; of two of one time the first counts."""
        times, values = self._of(tick)
        if times[sequence] >= time:
            return False
        times[sequence], values[sequence] = time, value
        return True

    def put_many(self, tick: int, sequences: npt.NDArray[np.intp], time: Time, readings: Floats) -> int:
        """The same for many sequences at one time; how many were kept."""
        times, values = self._of(tick)
        newer = times[sequences] < time
        chosen = sequences[newer]
        times[chosen], values[chosen] = time, readings[newer]
        return int(chosen.size)

    def first(self) -> int | None:
        """The oldest tick with a reading."""
        return min(self._ticks, default=None)

    def drop_after(self, tick: int) -> None:
        """Forget the ticks after another."""
        self._ticks = {found: readings for found, readings in self._ticks.items() if found <= tick}

    def readings(self, tick: int) -> Floats | None:
        """The readings of a tick, NaN where missing; None where there is not one."""
        found = self._ticks.get(tick)
        return None if found is None else found[1]

    def drop(self, tick: int) -> None:
        """Forget a tick."""
        self._ticks.pop(tick, None)

    def __len__(self) -> int:
        return len(self._ticks)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All of it, for a state file."""
        shape = (len(self._ticks), self._sequences)
        return {
            "open_ticks": np.array(list(self._ticks), dtype=np.int64),
            "open_times": np.array([times for times, _ in self._ticks.values()], dtype=np.float64).reshape(shape),
            "open_values": np.array([values for _, values in self._ticks.values()], dtype=np.float64).reshape(shape),
        }

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take back what `to_arrays` gave."""
        for tick, times, values in zip(
            arrays["open_ticks"].tolist(), arrays["open_times"], arrays["open_values"], strict=True
        ):
            self._ticks[tick] = (times.copy(), values.copy())
