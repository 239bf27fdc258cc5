"""The state file: what a runner needs to go on without waiting for its ages to fill up again.

It holds private readings, so it is written only where it is asked for: with mode 0600, replaced in one step, versioned.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from csdp.clock import Mark
from csdp.errors import InputError
from csdp.stream.private_file import write_privately

VERSION = "csdp/stream-state/1"
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Saved:
    """A runner at one moment: its clock, the last snapshots as states, and the readings of open ticks."""

    mark: Mark
    done: int
    history: tuple[tuple[int, npt.NDArray[np.int16]], ...]
    open_ticks: Arrays


def save(path: Path, saved: Saved, *, identity: str) -> None:
    """Write the state in the place of an older one; durable when this returns."""
    sequences = saved.open_ticks["open_values"].shape[1]
    rows = np.array([row for _, row in saved.history], dtype=np.int16).reshape(len(saved.history), sequences)
    content = io.BytesIO()
    np.savez(
        content,
        version=np.array(VERSION),
        identity=np.array(identity),
        newest=np.array(saved.mark.newest),
        closed=np.array([saved.mark.closed, saved.done], dtype=np.int64),
        ticks=np.array([tick for tick, _ in saved.history], dtype=np.int64),
        rows=rows,
        allow_pickle=False,
        **saved.open_ticks,
    )
    write_privately(path, content.getvalue())


def load(path: Path, *, identity: str) -> Saved | None:
    """The state that was saved, None where there is none yet; that of another plan or grid is refused."""
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
    return Saved(mark, int(content["closed"][1]), history, open_ticks)
