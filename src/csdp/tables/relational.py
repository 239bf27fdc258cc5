"""An engine over SQL: DuckDB and Spark differ in how they run it, not in what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from csdp import fran
from csdp.computation import FoldComputation
from csdp.errors import InputError, TooLargeError
from csdp.plan import Plan
from csdp.publisher import Release
from csdp.tables import gaps, sql
from csdp.tables.engine import checked_edges
from csdp.tables.memory import counted
from csdp.tables.sql import Domain
from csdp.tables.survey import Backend, Survey, dimensions, folded, survey
from csdp.tables.writing import write_long

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Cells of a dense block that may stand in memory at a time.
BLOCK_CELLS = 1 << 25


class RowBackend(Backend, Protocol):
    """A backend that can add noise to the rows of an identity query, where they are."""

    distributed: bool

    def noised(self, rows: str, unit: float, levels: Mapping[int, Any], keys: Mapping[int, bytes]) -> Any:
        """An Arrow table (tick, idx, noised) of rows (tick, idx, part): part * unit + noise * step."""


class RelationalEngine:
    """One table under one chain's domain, read through SQL. `once`: it is known that no reading is repeated.

    `by_place`: the sequences are called by their places in the chain, so there are no names to compare.
    """

    trusted_noise = True

    def __init__(
        self,
        backend: RowBackend,
        domain: Domain,
        *,
        step: int | None,
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

    def write(self, releases: Iterable[Release], path: str | Path, *, names: Sequence[str]) -> None:
        """Write releases as a long Parquet table, one row per tick and output; by the process that committed them."""
        write_long(releases, Path(path), names=names, clock=dict(zip(self.ticks.tolist(), self.times, strict=True)))

    def close(self) -> None:
        """Let go of what the engine itself opened: nothing here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what was found ----------------------------------------------------------------------------------------------

    @property
    def ticks(self) -> Ints:
        """Consecutive ticks, from the first to the last that has a reading."""
        return self._any_survey().ticks

    @property
    def times(self) -> npt.NDArray[Any]:
        """The times of the ticks, as they were read."""
        return self._any_survey().times

    @property
    def step(self) -> int:
        """Time from one tick to the next."""
        return self._any_survey().step

    def check(self, plan: Plan) -> None:
        """Refuse a table that is not one of the plan's chain."""
        self._domain_of(plan)
        if self._domain.states != plan.model.states:
            raise InputError(f"table: {self._domain.states} states given; the chain has {plan.model.states}")
        self._surveyed(plan)

    def _domain_of(self, plan: Plan | None) -> Domain:
        """The domain with its sequences in the order of the plan's chain."""
        if plan is None or self._by_place:
            return self._domain
        if self._arranged is None or self._arranged[0] != plan.chain.digest:
            self._arranged = (plan.chain.digest, self._domain.arrange(plan.model.names))
        return self._arranged[1]

    def _any_survey(self) -> Survey:
        return self._surveyed(None) if self._survey is None else self._survey[1]

    def _surveyed(self, plan: Plan | None) -> Survey:
        """The one pass over the table, kept while it serves: a common age and a query of counts need no other."""
        key = _kind(plan)
        if self._survey is None or (self._survey[0] != key and plan is not None):
            found = survey(self._backend, self._domain_of(plan), plan, step=self._step)
            if self._survey is None and not self._once:
                gaps.check_repeated(self._backend, self._domain_of(plan), found)
            self._survey, self._stale, self._filled = (key, found), None, None
        return self._survey[1]

    # ---- answers -----------------------------------------------------------------------------------------------------

    def availability(self, plan: Plan) -> Iterator[tuple[int, int, str]]:
        """Which ticks could be released, from which readings are missing alone."""
        found = self._surveyed(plan)
        stale, reasons = fran.releasable_ticks(
            plan, found.ticks.size, {} if found.whole.all() else self._stalest(plan, found)
        )
        yield from zip(found.ticks.tolist(), stale.tolist(), reasons, strict=True)

    def _stalest(self, plan: Plan, found: Survey) -> dict[int, Ints]:
        key = (plan.ages, plan.chain.digest)
        if self._stale is None or self._stale[0] != key:
            gaps.put_clock(self._backend, found, "clock", np.ones(found.at.size, dtype=bool))
            self._put_dimensions(plan)
            old = gaps.stalest(self._backend, self._known(plan, "clock"), found, dict(Counter(plan.ages)))
            self._stale = (key, old)
        return self._stale[1]

    def answers(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        """The query on the aged snapshots of some ticks, exact, on the plan's lattice."""
        query = plan.query
        if not isinstance(query, FoldComputation) or not (query.alike or sql.folded_part(plan)):
            return self._from_snapshots(plan, ticks)
        counts, folds = self._cells(plan, ticks)
        if folds is not None:
            join: Any = {"sum": np.sum, "max": np.max, "min": np.min}[query.fold]
            return np.asarray(join(folds, axis=1), dtype=np.float64)[:, None] * plan.unit
        return query.answers_of_counts(counts.sum(axis=1))

    def _cells(self, plan: Plan, ticks: Sequence[int]) -> tuple[Ints, Ints | None]:
        """Counts (ticks, G, m) and folds (ticks, G) of the aged snapshots: those of age a are a ticks back."""
        found = self._surveyed(plan)
        ages = np.asarray(sorted(set(plan.ages)))
        rows = np.asarray(ticks, dtype=np.int64)[:, None] - ages[None, :] - int(found.ticks[0])
        counts, folds = found.counts, found.folds
        if not found.whole[rows].all():
            counts, folds = self._with_gaps_filled(plan, found)
        group = np.arange(ages.size)[None, :]
        return counts[rows, group], None if folds is None else folds[rows, group]

    def _with_gaps_filled(self, plan: Plan, found: Survey) -> tuple[Ints, Ints | None]:
        """Counts and folds of every slice with the last readings in the place of missing ones; in one pass."""
        key = plan.digest
        if self._filled is None or self._filled[0] != key:
            gaps.put_clock(self._backend, found, "clock", np.ones(found.at.size, dtype=bool))
            part = sql.folded_part(plan)
            cells = self._backend.run(
                f"SELECT slice, age, st, count(*) AS n{part} FROM ({self._slices(plan, found, 'clock')}) s "
                "GROUP BY slice, age, st"
            )
            ages = np.asarray(sorted(set(plan.ages)))
            place = (
                cells.column("slice").to_numpy().astype(np.int64) - int(found.ticks[0]),
                np.searchsorted(ages, cells.column("age").to_numpy()),
            )
            counts = np.zeros((found.ticks.size, ages.size, self._domain.states), dtype=np.int64)
            np.add.at(counts, (*place, cells.column("st").to_numpy()), cells.column("n").to_numpy())
            self._filled = (key, counts, folded(cells, plan, place, counts.shape[:2]))
        return self._filled[1], self._filled[2]

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _put_dimensions(self, plan: Plan | None) -> None:
        table, _ = dimensions(self._domain_of(plan), plan, whole_names=self._backend.layout.whole_names)
        self._backend.put("dimensions", table)

    def _known(self, plan: Plan | None, clock: str) -> str:
        rows = sql.readings(self._backend.layout, self._domain_of(plan), sql.part_columns(plan))
        return sql.on_clock(rows, clock)

    def _slices(self, plan: Plan, found: Survey, clock: str) -> str:
        """Known readings at their slices; where some are missing, the last ones stand in as the plan allows."""
        self._put_dimensions(plan)
        known = self._known(plan, clock)
        if found.whole.all() or plan.stale_limit == 0:
            return f"SELECT k.*, tick AS slice FROM ({known}) k"
        last = int(found.ticks[-1])
        return sql.filled(known, limit=plan.stale_limit, last=last, unnest=self._backend.unnest)

    def _rows(self, plan: Plan, ticks: Sequence[int]) -> str:
        """Relation (tick, idx, st, part) of the aged snapshots of some ticks: the row's slice is shifted by its age."""
        found = self._surveyed(plan)
        low, high = min(ticks) - plan.max_age - plan.stale_limit, max(ticks) - plan.min_age
        gaps.put_clock(self._backend, found, "clock", (found.at >= low) & (found.at <= high))
        slices = self._slices(plan, found, "clock")
        wanted = ", ".join(str(int(tick)) for tick in ticks)
        part = f", {sql.part(plan)} AS part" if plan.query.per_sequence else ""
        return (
            f"SELECT CAST(slice + age AS BIGINT) AS tick, idx, st{part} FROM ({slices}) s "
            f"WHERE slice + age IN ({wanted})"
        )

    def _from_snapshots(self, plan: Plan, ticks: Sequence[int]) -> Floats:
        together = max(1, BLOCK_CELLS // plan.model.sequences)
        parts = []
        for start in range(0, len(ticks), together):
            chosen = ticks[start : start + together]
            cells = self._backend.run(self._rows(plan, chosen))
            aged = self._dense(cells, "st", chosen).astype(np.intp)
            parts.append(fran.lattice_answer(plan, aged))
        return np.concatenate(parts)

    def _dense(self, cells: Any, column: str, ticks: Sequence[int]) -> npt.NDArray[Any]:
        """Rows (tick, idx, ...) as an array (ticks, s); one for each cell, or the table has changed meanwhile."""
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

    def noised(self, plan: Plan, keys: Mapping[int, bytes]) -> Floats:
        """Answers of an identity query with noise drawn where the rows are, from the key of each tick."""
        ticks = list(keys)
        levels = {tick: plan.at(plan.level(tick)) for tick in ticks}
        scales = {tick: (level.scale, level.step) for tick, level in levels.items()}
        cells = self._backend.noised(self._rows(plan, ticks), plan.unit, scales, keys)
        return self._dense(cells, "noised", ticks)

    # ---- pairs -------------------------------------------------------------------------------------------------------

    def pair_counts(self, edges: npt.ArrayLike) -> Ints:
        """Counts (edges, m, m) of lag-1 pairs; pairs with a missing reading do not count."""
        pairs = checked_edges(edges, len(self._domain.names))
        found = self._any_survey()
        self._put_dimensions(None)
        if not pairs.size:
            return np.zeros((0, self._domain.states, self._domain.states), dtype=np.int64)
        return self._pairs_by_groups(found, pairs) if self._backend.distributed else self._pairs_by_blocks(found, pairs)

    def _pairs_by_blocks(self, found: Survey, pairs: Ints) -> Ints:
        """Dense blocks of consecutive ticks, each beginning with the last row of the one before."""
        count, m = len(self._domain.names), self._domain.states
        height = BLOCK_CELLS // count
        if height < 2:
            raise TooLargeError(
                f"pair counts: {count:,} sequences; at most {BLOCK_CELLS // 2:,} fit a block. Use engine='spark'",
                needed=count,
                limit=BLOCK_CELLS // 2,
            )
        total = np.zeros((pairs.shape[0], m, m), dtype=np.int64)
        first, last = int(found.ticks[0]), int(found.ticks[-1])
        for low in range(first, max(last, first + 1), height - 1):
            high = min(low + height - 1, last)
            gaps.put_clock(self._backend, found, "clock", (found.at >= low) & (found.at <= high))
            cells = self._backend.run(f"SELECT tick, idx, st FROM ({self._known(None, 'clock')}) k")
            block = np.full((high - low + 1, count), -1, dtype=np.int16)
            place = cells.column("tick").to_numpy() - low, cells.column("idx").to_numpy()
            block[place] = cells.column("st").to_numpy()
            total += counted(block, pairs, m)
        return total

    def _pairs_by_groups(self, found: Survey, pairs: Ints) -> Ints:
        """Each reading goes to its edges, as a source one tick later; what meets at (edge, tick) is a pair."""
        import pyarrow as pa

        m = self._domain.states
        gaps.put_clock(self._backend, found, "clock", np.ones(found.at.size, dtype=bool))
        numbers = np.arange(pairs.shape[0], dtype=np.int64)
        for name, column in (("targets", 0), ("sources", 1)):
            self._backend.put(name, pa.table({"edge": numbers, "idx": pairs[:, column].astype(np.int32)}))
        known = self._known(None, "clock")
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
    """What a survey depends on."""
    if plan is None:
        return None
    ages = (plan.ages, plan.chain.digest) if len(set(plan.ages)) > 1 else None
    weights = plan.digest if sql.folded_part(plan) else None
    return (ages, weights) if ages is not None or weights is not None else None
