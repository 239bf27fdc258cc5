"""The protocol of an engine, the engine of a panel in memory, and releases written as a table.

The engine in memory is the reference for the others; `EngineSource` makes a source of aged answers of any engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Ints
from csdp.errors import InputError
from csdp.noise import indexed_noise
from csdp.panel import Panel
from csdp.plan import Plan
from csdp.publisher import PanelSource, Release


class AnswerEngine(Protocol):
    """The methods of an engine that a publisher needs."""

    def check(self, plan: Plan) -> None:
        """Raise InputError unless the table holds readings of the plan's chain."""

    def availability(self, plan: Plan) -> Iterable[tuple[int, int, str]]:
        """(tick, staleness, why it cannot be released or "") in order of ticks; depends only on missing readings."""

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks (ticks, d), exact, on the plan's lattice."""

    def noisy_answers(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of an identity query with noise drawn where the rows are, from the key of each tick (ticks, s).

        Called only where the engine declares `trusted_noise = True`: it cannot be verified.
        """


class Engine(AnswerEngine, Protocol):
    """One table of readings; answers of all engines are equal to the last bit.

    A table holds a chain's readings: known sequences, declared values, at most one reading of each sequence at each
    time of a regular grid. `check` raises InputError for any other, before anything is charged. No message quotes a
    reading.
    """

    @property
    def ticks(self) -> Ints:
        """Consecutive ticks, from the first to the last that has a reading."""

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, as they were read."""

    @property
    def step(self) -> int:
        """Time from one tick to the next."""

    def pair_counts(self, edges: npt.ArrayLike) -> Ints:
        """Counts (edges, m, m) for pairs (target, source): ticks with the source in a and the target next in b."""

    def write(self, releases: Iterable[Release], path: str | Path, *, names: Sequence[str]) -> None:
        """Write releases as a long Parquet table, one row per tick and output."""

    def close(self) -> None:
        """Release the resources of the engine."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class ClosingEngine:
    """A base of engines: a context manager that closes at the end."""

    def close(self) -> None:
        """Release what the engine itself opened: nothing here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EngineSource:
    """An engine as a source of aged answers (`csdp.publisher.AgedSource`).

    Whether the table is one of the plan's chain is checked here, before anything is charged. Aggregates are small and
    get their noise at the gate. For an identity query the gate hands over a key for each granted tick, and noise is
    drawn where the rows are.

    The gate checks what an engine returns against the plan, as for every source (`csdp.publisher.sources`): ticks in
    order, staleness within the limit, possible answers. A possible but wrong answer cannot be detected: an engine is
    trusted code.
    """

    def __init__(self, engine: AnswerEngine, plan: Plan, *, ticks: range | None = None) -> None:
        plan.check_exact()
        if not plan.query.of_states and not hasattr(engine, "counts"):
            raise InputError(
                f"engine: the plan publishes {plan.query.name}, and {type(engine).__name__} answers queries of states "
                "only; read the file in memory (--engine memory), or publish the query of states (--of states)"
            )
        engine.check(plan)
        self._engine = engine
        self._ticks = ticks  # only these are offered; older ones are needed for the ages

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, where the engine knows them: the gate compares timestamps with the wall clock."""
        return np.asarray(getattr(self._engine, "times", ()))

    @property
    def ticks(self) -> Ints | None:
        """The ticks of these times, where the engine knows them."""
        return getattr(self._engine, "ticks", None)

    @property
    def step(self) -> int:
        """Time from one tick to the next."""
        return int(getattr(self._engine, "step", 1))

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """For each tick: staleness, and why it cannot be released; depends only on which readings are missing."""
        for entry in self._engine.availability(plan):
            if self._ticks is None or entry[0] in self._ticks:
                yield entry

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        return self._engine.answers(plan, ticks)

    def counts(self, plan: Plan, ticks: Sequence[int]) -> Sequence[int]:
        """How many sequences were read at the aged ticks of some ticks, as an engine of readings says."""
        counted: Any = self._engine
        return list(counted.counts(plan, ticks))

    @property
    def trusted_noise(self) -> bool:
        """Whether the engine declares that it draws noise as it should; if not, the gate draws it."""
        return getattr(self._engine, "trusted_noise", False) is True

    def draws(self, plan: Plan) -> bool:
        """Whether noise is drawn where the rows are."""
        return plan.query.per_sequence

    def noisy_answers(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Noisy answers on the lattice, from one key per tick."""
        return self._engine.noisy_answers(plan, keys)


def check_edges(edges: npt.ArrayLike, sequences: int) -> Ints:
    """Return edges as an array of pairs (target, source) of sequence numbers; raise InputError if they are none."""
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
        raise InputError("edges: pairs (target, source) of sequence numbers expected")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= sequences):
        raise InputError(f"edges: sequence numbers lie between 0 and {sequences - 1}")
    return pairs.astype(np.int64)


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


class MemoryEngine(ClosingEngine):
    """A panel as an engine.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=1, epsilon_c=1.0)
    >>> engine = MemoryEngine(Panel.from_states([[0], [1], [1]]), states=2)
    >>> engine.answers(plan, [1, 2]).tolist(), engine.pair_counts([(0, 0)]).tolist()
    ([[0.0], [1.0]], [[[0, 1], [0, 1]]])
    """

    trusted_noise = True

    def __init__(self, panel: Panel, *, states: int) -> None:
        self._panel = panel
        self._states = states
        self._source: tuple[str, PanelSource] | None = None

    @property
    def ticks(self) -> Ints:
        """Consecutive ticks."""
        return self._panel.ticks

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, as they were read."""
        return self._panel.times

    @property
    def step(self) -> int:
        """Time from one tick to the next."""
        return self._panel.step

    def _source_for(self, plan: Plan) -> PanelSource:
        if self._source is None or self._source[0] != plan.digest:
            self._source = (plan.digest, PanelSource(self._panel, plan))
        return self._source[1]

    def check(self, plan: Plan) -> None:
        """Raise InputError unless the panel holds readings of the plan's chain."""
        self._source_for(plan)

    def availability(self, plan: Plan) -> Iterable[tuple[int, int, str]]:
        """For each tick: staleness, and why it cannot be released; depends only on which readings are missing."""
        return self._source_for(plan).availability(plan)

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks."""
        return self._source_for(plan).answers(plan, ticks)

    def counts(self, plan: Plan, ticks: Sequence[int]) -> Sequence[int]:
        """How many sequences were read at the aged ticks of some ticks."""
        return self._source_for(plan).counts(plan, ticks)

    def noisy_answers(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of an identity query with noise from one key per tick."""
        exact = self.answers(plan, list(keys))
        sequences = np.arange(exact.shape[1])
        for row, (tick, key) in enumerate(keys.items()):
            level = plan.at_tick(tick)
            exact[row] += indexed_noise(level.scale, sequences, key) * level.step
        return exact

    def pair_counts(self, edges: npt.ArrayLike) -> Ints:
        """Counts (edges, m, m) of lag-1 pairs."""
        pairs = check_edges(edges, len(self._panel.names))
        return count_pairs(self._panel.states, pairs, self._states)

    def write(self, releases: Iterable[Release], path: str | Path, *, names: Sequence[str]) -> None:
        """Write releases as a long Parquet table."""
        write_long(releases, Path(path), names=names, clock=dict(zip(self.ticks.tolist(), self.times, strict=True)))


def count_pairs(states: npt.NDArray[Any], pairs: Ints, m: int) -> Ints:
    """Count lag-1 pairs (edges, m, m) of a block (T, s); pairs with a missing reading (-1) are not counted."""
    from csdp.fitting import compiled
    from csdp.fitting.pairs import bit_planes

    out = np.zeros((pairs.shape[0], m, m), dtype=np.int64)
    if len(states) > 1 and len(pairs):
        targets, sources = (np.ascontiguousarray(pairs[:, k]) for k in (0, 1))
        compiled.pair_counts(bit_planes(states[:-1], m), bit_planes(states[1:], m), targets, sources, out)
    return out
