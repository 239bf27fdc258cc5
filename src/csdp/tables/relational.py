"""The engine over SQL that DuckDB and Spark share, and the noise that is added to rows in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.arrays import Floats, Ints
from csdp.computation import FoldComputation, ReadingsComputation
from csdp.errors import InputError, TooLargeError
from csdp.noise import indexed_noise
from csdp.plan import Plan
from csdp.publisher import Release
from csdp.tables import sql
from csdp.tables.engine import ClosingEngine, check_edges, count_pairs, write_long
from csdp.tables.sql import Domain
from csdp.tables.survey import (
    Backend,
    ReadingSums,
    Survey,
    check_repeated,
    dimension_columns,
    dimensions,
    fold_contributions,
    level_column,
    register_clock,
    staleness_by_age,
    sum_readings,
    survey_table,
)

#: Largest number of cells of a dense block in memory.
BLOCK_CELLS = 1 << 25


class RowBackend(Backend, Protocol):
    """A backend that can add noise to the rows of an identity query without collecting them first."""

    distributed: bool

    def noisy_answers(self, rows: str, unit: float, levels: Mapping[int, Any], keys: Mapping[int, bytes]) -> Any:
        """An Arrow table (tick, idx, noised) of rows (tick, idx, contribution): contribution * unit + noise * step."""


class RelationalEngine(ClosingEngine):
    """One table under one chain's domain, read through SQL.

    Args:
        backend: runs the SQL.
        domain: names of the sequences and their values.
        step: time from one tick to the next; found from the times if None.
        once: whether readings are known not to repeat, so that this is not checked.
        by_place: whether sequences are named by their positions in the chain, so that names are not compared.
    """

    trusted_noise = True

    def __init__(
        self,
        backend: RowBackend,
        domain: Domain,
        *,
        step: int | str | None,
        once: bool = False,
        by_place: bool = False,
    ) -> None:
        self._backend = backend
        self._once = once
        self._by_place = by_place
        self._arranged: tuple[str, Domain] | None = None
        self._domain = domain
        self._step = step
        self._survey: tuple[object, Survey] | None = None
        self._stale: tuple[object, dict[int, Ints]] | None = None
        self._filled: tuple[object, Ints, Ints | None] | None = None
        self._reading_sums: tuple[str, ReadingSums] | None = None

    def write(self, releases: Iterable[Release], path: str | Path, *, names: Sequence[str]) -> None:
        """Write releases as a long Parquet table, one row per tick and output; by the process that committed them."""
        write_long(releases, Path(path), names=names, clock=dict(zip(self.ticks.tolist(), self.times, strict=True)))

    # ---- the table ----------------------------------------------------------------------------------------------

    @property
    def ticks(self) -> Ints:
        """Consecutive ticks, from the first to the last that has a reading."""
        return self._last_survey().ticks

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, as they were read."""
        return self._last_survey().times

    @property
    def step(self) -> int:
        """Time from one tick to the next."""
        return self._last_survey().step

    def check(self, plan: Plan) -> None:
        """Raise InputError unless the table holds readings of the plan's chain."""
        self._domain_of(plan)
        if self._domain.states != plan.model.states:
            raise InputError(f"table: {self._domain.states} states given; the chain has {plan.model.states}")
        self._survey_for(plan)

    def _domain_of(self, plan: Plan | None) -> Domain:
        """The domain with its sequences in the order of the plan's chain."""
        if plan is None or self._by_place:
            return self._domain
        if self._arranged is None or self._arranged[0] != plan.chain.digest:
            self._arranged = (plan.chain.digest, self._domain.arrange(plan.model.names))
        # Where readings are published, their states decide nothing, so none needs to be a declared value.
        return self._arranged[1] if plan.query.of_states else replace(self._arranged[1], clamp=True)

    def _last_survey(self) -> Survey:
        return self._survey_for(None) if self._survey is None else self._survey[1]

    def _survey_for(self, plan: Plan | None) -> Survey:
        """The survey that a plan needs, cached: plans with one common age and a query of counts share one."""
        key = _kind(plan)
        if self._survey is None or (self._survey[0] != key and plan is not None):
            domain = self._domain_of(plan)
            survey = survey_table(self._backend, domain, plan, step=self._step)
            if self._survey is None and not self._once:
                check_repeated(self._backend, domain, survey)
            self._survey, self._stale, self._filled, self._reading_sums = (key, survey), None, None, None
        return self._survey[1]

    # ---- answers -----------------------------------------------------------------------------------------------------

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """For each tick: staleness, and why it cannot be released; depends only on which readings are missing."""
        survey = self._survey_for(plan)
        if not plan.query.of_states:
            stale, reasons = fran.readable_ticks(plan, self._sums(plan).counts(plan.max_age))
            yield from zip(survey.ticks.tolist(), stale.tolist(), reasons, strict=True)
            return
        old = {} if survey.whole.all() else self._staleness(plan, survey)
        stale, reasons = fran.releasable_ticks(plan, survey.ticks.size, old)
        yield from zip(survey.ticks.tolist(), stale.tolist(), reasons, strict=True)

    def _staleness(self, plan: Plan, survey: Survey) -> dict[int, Ints]:
        key = (plan.ages, plan.chain.digest)
        if self._stale is None or self._stale[0] != key:
            register_clock(self._backend, survey, "clock", np.ones(survey.at.size, dtype=bool))
            self._register_dimensions(plan)
            known = self._known_readings(plan, "clock")
            self._stale = (key, staleness_by_age(self._backend, known, survey, dict(Counter(plan.ages))))
        return self._stale[1]

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks, exact, on the plan's lattice."""
        query = plan.query
        if not query.of_states:
            return self._sums(plan).answers(ticks)
        if not isinstance(query, FoldComputation) or not (query.is_symmetric or sql.folded_column(plan)):
            return self._answer_snapshots(plan, ticks)
        counts, folds = self._cells(plan, ticks)
        if folds is not None:
            join: Any = {"sum": np.sum, "max": np.max, "min": np.min}[query.fold]
            return np.asarray(join(folds, axis=1), dtype=np.float64)[:, None] * plan.unit
        return query.answers_of_counts(counts.sum(axis=1))

    def counts(self, plan: Plan, ticks: Sequence[int]) -> list[int]:
        """How many sequences were read at the aged ticks of some ticks."""
        if plan.query.of_states:
            return [plan.model.sequences] * len(ticks)
        sums = self._sums(plan)
        return [int(count) for count in sums.counts(plan.max_age)[np.asarray(ticks, dtype=np.int64) - sums.first]]

    def _sums(self, plan: Plan) -> ReadingSums:
        """The sums of readings at every tick, in one pass."""
        if self._reading_sums is None or self._reading_sums[0] != plan.digest:
            survey = self._survey_for(plan)
            register_clock(self._backend, survey, "clock", np.ones(survey.at.size, dtype=bool))
            self._register_dimensions(plan)
            known = self._known_readings(plan, "clock")
            self._reading_sums = (plan.digest, sum_readings(self._backend, known, plan, survey))
        return self._reading_sums[1]

    def _cells(self, plan: Plan, ticks: Sequence[int]) -> tuple[Ints, Ints | None]:
        """Counts (ticks, G, m) and folds (ticks, G) of the aged snapshots: those of age a are a ticks back."""
        survey = self._survey_for(plan)
        ages = np.asarray(sorted(set(plan.ages)))
        rows = np.asarray(ticks, dtype=np.int64)[:, None] - ages[None, :] - int(survey.ticks[0])
        counts, folds = survey.counts, survey.folds
        if not survey.whole[rows].all():
            counts, folds = self._fill_gaps(plan, survey)
        group = np.arange(ages.size)[None, :]
        return counts[rows, group], None if folds is None else folds[rows, group]

    def _fill_gaps(self, plan: Plan, survey: Survey) -> tuple[Ints, Ints | None]:
        """Counts and folds of every slice with the last readings in the place of missing ones; in one pass."""
        key = plan.digest
        if self._filled is None or self._filled[0] != key:
            register_clock(self._backend, survey, "clock", np.ones(survey.at.size, dtype=bool))
            folds = sql.folded_column(plan)
            cells = self._backend.run(
                f"SELECT slice, age, st, count(*) AS n{folds} FROM ({self._slices(plan, survey, 'clock')}) s "
                "GROUP BY slice, age, st"
            )
            ages = np.asarray(sorted(set(plan.ages)))
            place = (
                cells.column("slice").to_numpy().astype(np.int64) - int(survey.ticks[0]),
                np.searchsorted(ages, cells.column("age").to_numpy()),
            )
            counts = np.zeros((survey.ticks.size, ages.size, self._domain.states), dtype=np.int64)
            np.add.at(counts, (*place, cells.column("st").to_numpy()), cells.column("n").to_numpy())
            self._filled = (key, counts, fold_contributions(cells, plan, place, counts.shape[:2]))
        return self._filled[1], self._filled[2]

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _register_dimensions(self, plan: Plan | None) -> None:
        table, _ = dimensions(self._domain_of(plan), plan, whole_names=self._backend.layout.whole_names)
        self._backend.register("dimensions", table)

    def _known_readings(self, plan: Plan | None, clock: str) -> str:
        """Relation of the known readings at the times listed in the table `clock`, with their ticks."""
        query = None if plan is None else plan.query
        level = level_column(query) if isinstance(query, ReadingsComputation) else None
        rows = sql.readings(self._backend.layout, self._domain_of(plan), dimension_columns(plan), reading_level=level)
        return f"SELECT k.*, c.tick FROM ({rows}) k JOIN {clock} c ON k.time = c.time WHERE k.st >= 0"

    def _slices(self, plan: Plan, survey: Survey, clock: str) -> str:
        """Relation of known readings at their slices; the last reading replaces missing ones up to the stale limit."""
        self._register_dimensions(plan)
        known = self._known_readings(plan, clock)
        if survey.whole.all() or plan.stale_limit == 0:
            return f"SELECT k.*, tick AS slice FROM ({known}) k"
        last = int(survey.ticks[-1])
        return sql.fill_gaps(known, limit=plan.stale_limit, last=last, unnest=self._backend.unnest)

    def _rows(self, plan: Plan, ticks: Sequence[int]) -> str:
        """Relation (tick, idx, st, contribution) of the aged snapshots of some ticks: tick = slice + age."""
        survey = self._survey_for(plan)
        low, high = min(ticks) - plan.max_age - plan.stale_limit, max(ticks) - plan.min_age
        register_clock(self._backend, survey, "clock", (survey.at >= low) & (survey.at <= high))
        slices = self._slices(plan, survey, "clock")
        wanted = ", ".join(str(int(tick)) for tick in ticks)
        contribution = f", {sql.contribution(plan)} AS contribution" if plan.query.per_sequence else ""
        return (
            f"SELECT CAST(slice + age AS BIGINT) AS tick, idx, st{contribution} FROM ({slices}) s "
            f"WHERE slice + age IN ({wanted})"
        )

    def _answer_snapshots(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        together = max(1, BLOCK_CELLS // plan.model.sequences)
        blocks = []
        for start in range(0, len(ticks), together):
            chosen = ticks[start : start + together]
            cells = self._backend.run(self._rows(plan, chosen))
            aged = self._dense(cells, "st", chosen).astype(np.intp)
            blocks.append(plan.query.lattice_answers(aged))
        return np.concatenate(blocks)

    def _dense(self, cells: Any, column: str, ticks: Sequence[int]) -> npt.NDArray[Any]:
        """Rows (tick, idx, ...) as an array (ticks, s); raises InputError unless there is one row per cell."""
        order = np.argsort(ticks)
        row = order[np.searchsorted(np.asarray(ticks)[order], cells.column("tick").to_numpy())]
        count = len(self._domain.names)
        place = row * count + cells.column("idx").to_numpy()
        if place.size != len(ticks) * count or (np.bincount(place, minlength=place.size) != 1).any():
            raise InputError(f"{self._backend.layout.label}: the table changed while it was read; run it again")
        values = cells.column(column).to_numpy()
        out = np.empty(len(ticks) * count, dtype=values.dtype)
        out[place] = values
        return out.reshape(len(ticks), count)

    def noisy_answers(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of an identity query with noise drawn where the rows are, from the key of each tick."""
        ticks = list(keys)
        levels = {}
        for tick in ticks:
            level = plan.at_tick(tick)
            levels[tick] = (level.scale, level.step)
        cells = self._backend.noisy_answers(self._rows(plan, ticks), plan.unit, levels, keys)
        return self._dense(cells, "noised", ticks)

    # ---- pairs -------------------------------------------------------------------------------------------------------

    def pair_counts(self, edges: npt.ArrayLike) -> Ints:
        """Counts (edges, m, m) of lag-1 pairs; pairs with a missing reading do not count."""
        pairs = check_edges(edges, len(self._domain.names))
        survey = self._last_survey()
        self._register_dimensions(None)
        if not pairs.size:
            return np.zeros((0, self._domain.states, self._domain.states), dtype=np.int64)
        count = self._pairs_by_groups if self._backend.distributed else self._pairs_by_blocks
        return count(survey, pairs)

    def _pairs_by_blocks(self, survey: Survey, pairs: Ints) -> Ints:
        """Count in dense blocks of consecutive ticks; each block begins with the last row of the previous one."""
        count, m = len(self._domain.names), self._domain.states
        height = BLOCK_CELLS // count
        if height < 2:
            raise TooLargeError(
                f"pair counts: {count:,} sequences; at most {BLOCK_CELLS // 2:,} fit a block. Use engine='spark'",
                needed=count,
                limit=BLOCK_CELLS // 2,
            )
        total = np.zeros((pairs.shape[0], m, m), dtype=np.int64)
        first, last = int(survey.ticks[0]), int(survey.ticks[-1])
        for low in range(first, max(last, first + 1), height - 1):
            high = min(low + height - 1, last)
            register_clock(self._backend, survey, "clock", (survey.at >= low) & (survey.at <= high))
            cells = self._backend.run(f"SELECT tick, idx, st FROM ({self._known_readings(None, 'clock')}) k")
            block = np.full((high - low + 1, count), -1, dtype=np.int16)
            place = cells.column("tick").to_numpy() - low, cells.column("idx").to_numpy()
            block[place] = cells.column("st").to_numpy()
            total += count_pairs(block, pairs, m)
        return total

    def _pairs_by_groups(self, survey: Survey, pairs: Ints) -> Ints:
        """Count by grouping: readings go to their edges, sources one tick later; two at one (edge, tick) are a pair."""
        import pyarrow as pa

        m = self._domain.states
        register_clock(self._backend, survey, "clock", np.ones(survey.at.size, dtype=bool))
        numbers = np.arange(pairs.shape[0], dtype=np.int64)
        for name, column in (("targets", 0), ("sources", 1)):
            self._backend.register(name, pa.table({"edge": numbers, "idx": pairs[:, column].astype(np.int32)}))
        known = self._known_readings(None, "clock")
        each = (
            f"SELECT e.edge, k.tick + 1 AS at, k.st AS a, CAST(NULL AS INT) AS b FROM ({known}) k JOIN sources e "
            f"ON k.idx = e.idx UNION ALL SELECT e.edge, k.tick AS at, CAST(NULL AS INT) AS a, k.st AS b "
            f"FROM ({known}) k JOIN targets e ON k.idx = e.idx"
        )
        met = f"SELECT edge, max(a) AS a, max(b) AS b FROM ({each}) u GROUP BY edge, at"
        cells = self._backend.run(
            f"SELECT edge, a, b, count(*) AS n FROM ({met}) p WHERE a IS NOT NULL AND b IS NOT NULL GROUP BY edge, a, b"
        )
        total = np.zeros((pairs.shape[0], m, m), dtype=np.int64)
        total[tuple(cells.column(name).to_numpy() for name in ("edge", "a", "b"))] = cells.column("n").to_numpy()
        return total


def _kind(plan: Plan | None) -> object:
    """What a survey depends on, as a key of the cache."""
    if plan is None:
        return None
    ages = (plan.ages, plan.chain.digest) if len(set(plan.ages)) > 1 else None
    weights = plan.digest if sql.folded_column(plan) else None
    if not plan.query.of_states:
        return ("readings", ages)
    return (ages, weights) if ages is not None or weights is not None else None


@dataclass(frozen=True)
class RowNoise:
    """Adds noise to rows (tick, idx, contribution), in this process or in a worker's task.

    The noise of a row is a function of (key of its tick, number of its sequence), so a task that runs again, elsewhere
    or over other rows, draws the same. The keys are passed to workers in memory and are never written to disk.
    """

    unit: float
    levels: Mapping[int, tuple[Fraction, float]]
    keys: Mapping[int, bytes]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield Arrow batches (tick, idx, noised)."""
        import pyarrow as pa

        for batch in batches:
            ticks, idx, contribution = (batch.column(name).to_numpy() for name in ("tick", "idx", "contribution"))
            noised = contribution.astype(np.float64) * self.unit
            for tick in np.unique(ticks).tolist():
                rows = ticks == tick
                scale, step = self.levels[tick]
                noised[rows] += indexed_noise(scale, idx[rows], self.keys[tick]) * step
            columns = [pa.array(ticks), pa.array(idx.astype(np.int64)), pa.array(noised)]
            yield pa.RecordBatch.from_arrays(columns, names=["tick", "idx", "noised"])

    def __repr__(self) -> str:
        return f"<RowNoise of {len(self.keys)} ticks>"  # a key must not reach a log
