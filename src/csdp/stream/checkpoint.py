"""The readings that a runner holds: those of open ticks, in memory, and the state file that keeps them over a restart.

The state file holds private readings, so it is written only where it is asked for: with mode 0600, versioned, replaced
in one step. With it a runner goes on at once; without it, it waits until readings are as old as the plan needs.
"""

from __future__ import annotations

import io
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats
from csdp.clock import Mark, Time
from csdp.errors import InputError
from csdp.scratch import write_privately

VERSION = "csdp/stream-state/1"
Arrays = dict[str, npt.NDArray[Any]]


class OpenTicks:
    """For every open tick the newest reading of each sequence; NaN where there is none yet."""

    def __init__(self, sequences: int) -> None:
        self._sequences = sequences
        # tick -> times and values of the readings
        self._ticks: defaultdict[int, tuple[Floats, Floats]] = defaultdict(
            lambda: (np.full(sequences, -np.inf), np.full(sequences, np.nan))
        )

    def put(self, tick: int, sequence: int, time: Time, value: float) -> bool:
        """Store a reading if it is newer than the stored one; of two at the same time the first counts."""
        times, values = self._ticks[tick]
        if times[sequence] >= time:
            return False
        times[sequence], values[sequence] = time, value
        return True

    def put_many(self, tick: int, sequences: npt.NDArray[np.intp], time: Time, readings: Floats) -> int:
        """Store readings of many sequences at one time, as `put` does; how many were stored."""
        times, values = self._ticks[tick]
        newer = times[sequences] < time
        chosen = sequences[newer]
        times[chosen], values[chosen] = time, readings[newer]
        return int(chosen.size)

    def first(self) -> int | None:
        """The oldest tick with a reading."""
        return min(self._ticks, default=None)

    def readings(self, tick: int) -> Floats | None:
        """The readings of a tick, NaN where missing; None where there is not one."""
        return self._ticks[tick][1] if tick in self._ticks else None

    def drop(self, tick: int) -> None:
        """Forget a tick."""
        self._ticks.pop(tick, None)

    def drop_after(self, tick: int) -> None:
        """Forget all ticks after another."""
        for later in [one for one in self._ticks if one > tick]:
            del self._ticks[later]

    def __len__(self) -> int:
        return len(self._ticks)

    def to_arrays(self) -> Arrays:
        """Everything, for a state file."""
        shape = (len(self._ticks), self._sequences)
        return {
            "open_ticks": np.array(list(self._ticks), dtype=np.int64),
            "open_times": np.array([times for times, _ in self._ticks.values()], dtype=np.float64).reshape(shape),
            "open_values": np.array([values for _, values in self._ticks.values()], dtype=np.float64).reshape(shape),
        }

    def restore(self, arrays: Arrays) -> None:
        """Add what `to_arrays` returned."""
        for tick, times, values in zip(
            arrays["open_ticks"].tolist(), arrays["open_times"], arrays["open_values"], strict=True
        ):
            self._ticks[tick] = (times.copy(), values.copy())


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A runner at one moment: its clock, the last snapshots as states, and the readings of open ticks."""

    mark: Mark
    done: int
    history: tuple[tuple[int, npt.NDArray[np.int16]], ...]
    open_ticks: Arrays


def save_checkpoint(path: Path, checkpoint: Checkpoint, *, identity: str) -> None:
    """Write a state file in the place of an older one; durable when this returns."""
    history = checkpoint.history
    sequences = checkpoint.open_ticks["open_values"].shape[1]
    content = io.BytesIO()
    np.savez(
        content,
        version=np.array(VERSION),
        identity=np.array(identity),
        newest=np.array(checkpoint.mark.newest),
        closed=np.array([checkpoint.mark.closed, checkpoint.done], dtype=np.int64),
        ticks=np.array([tick for tick, _ in history], dtype=np.int64),
        rows=np.array([row for _, row in history], dtype=np.int16).reshape(len(history), sequences),
        allow_pickle=False,
        **checkpoint.open_ticks,
    )
    write_privately(path, content.getvalue())


def load_checkpoint(path: Path, *, identity: str) -> Checkpoint | None:
    """Read a state file; None where there is none yet. One of another plan or grid is refused."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
        if str(content["version"]) != VERSION:
            raise InputError(f"{path}: a state file of another version; this one reads {VERSION}. Remove it to go on")
        if str(content["identity"]) != identity:
            raise InputError(
                f"{path}: the state of another dataset, plan, grid or list of sequences; give another state_file"
            )
        rows = content["rows"]
        mark = Mark(content["newest"].item(), int(content["closed"][0]))
        open_ticks = {name: content[name] for name in ("open_ticks", "open_times", "open_values")}
    except FileNotFoundError:
        return None
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, EOFError, AttributeError, zipfile.BadZipFile):
        raise InputError(f"{path}: not a state file, or a damaged one; remove it to go on without it") from None
    history = tuple((int(tick), row) for tick, row in zip(content["ticks"], rows, strict=True))
    return Checkpoint(mark, int(content["closed"][1]), history, open_ticks)
