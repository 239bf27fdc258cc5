"""Wide releases written as a long Parquet table, one row per tick and output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from csdp.errors import InputError
from csdp.publisher import Release


def _release_schema(*, stamps: bool) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("tick", pa.int64()),
            ("time", pa.timestamp("s") if stamps else pa.int64()),
            ("output", pa.string()),
            ("value", pa.float64()),
            ("stale", pa.int64()),
            ("epsilon_s", pa.float64()),
        ]
    )


def _release_table(release: Release, names: Any, time: Any) -> Any:
    """One release as a long Arrow table."""
    import pyarrow as pa

    stamps = isinstance(time, np.datetime64)
    count = len(release.values)
    if count != len(names):
        raise InputError(f"write: {len(names)} names given for {count} outputs")
    when = pa.array(np.full(count, time)) if stamps else pa.array(np.full(count, int(time), dtype=np.int64))
    columns = [
        pa.array(np.full(count, release.tick, dtype=np.int64)),
        when,
        names,
        pa.array(np.asarray(release.values, dtype=np.float64)),
        pa.array(np.full(count, release.stale, dtype=np.int64)),
        pa.array(np.full(count, release.epsilon_s)),
    ]
    return pa.Table.from_arrays(columns, schema=_release_schema(stamps=stamps))


def write_long(releases: Iterable[Release], path: Path, *, names: Sequence[str], clock: Mapping[int, Any]) -> None:
    """Write releases tick by tick as a long Parquet table, atomically: into a `.part` file that is then renamed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = pa.array(names, pa.string())
    stamps = any(isinstance(time, np.datetime64) for time in clock.values())
    part = path.with_name(path.name + ".part")
    try:
        with pq.ParquetWriter(part, _release_schema(stamps=stamps)) as writer:
            for release in releases:
                writer.write_table(_release_table(release, labels, clock[release.tick]))
        part.replace(path)
    except OSError as error:
        raise InputError(f"write: {path} cannot be written ({error.strerror}); run it again elsewhere") from None
    finally:
        part.unlink(missing_ok=True)
