"""`verify_query`: from the query of a user to what it computes, or to the reason why it is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from csdp.arrays import Floats, Indices
from csdp.chain import Model
from csdp.computation.computation import (
    FoldComputation,
    FunctionComputation,
    Groups,
    Sensitivities,
    function_answers,
    is_same_table,
    round_to_lattice,
)
from csdp.computation.fingerprints import fingerprint_function
from csdp.computation.readings import ReadingsComputation, ReadingsEvidence, read_level_value, read_levels
from csdp.errors import CsdpError, InputError
from csdp.lattice import LATTICE_BITS, common_unit, fine_unit
from csdp.queries import (
    BlockQuery,
    FoldQuery,
    Query,
    ReadingsQuery,
    all_snapshots,
    is_enumerable,
    largest_change,
    parse_query,
    reading_range,
)
from csdp.reading_range import ReadingRange

Computation = FoldComputation | FunctionComputation | ReadingsComputation
T = TypeVar("T")

#: Binary digits of a part: a weight of 20 times a value of 20, and some room.
PART_DIGITS: Final = 2 * LATTICE_BITS + 4
#: Snapshots up to which all answers of a fold query are compared with its parts; of more, a sample of as many readings.
COMPARED_SNAPSHOTS: Final = 512
SAMPLED_READINGS: Final = 2_000_000
#: Relative difference that the arithmetic of a query may have to that of its parts.
SLACK: Final = 1e-9
#: Work up to which the declared s_k of every k is compared with enumeration.
ENUMERATED_WORK: Final = 2**22


def verify_query(
    query: Query | str, model: Model, *, on_lattice: bool = False, readings_check: ReadingsEvidence | None = None
) -> Computation:
    """What a query, or its text, computes on the values of a model. `on_lattice`: answers of a function are rounded.

    `readings_check`: for a query of readings, what is known of them; by default as the record of the model's fit says.

    A fold query is what its parts say; a function of the snapshot is tabled where there are at most 4,096 snapshots.
    Refused with a reason: parts that are not finite, of another shape, off the lattice or different at every call; a
    divisor that is not positive; answers or sensitivities that do not agree with the parts, or with enumeration.

    >>> from csdp import CoupledChain, Mean
    >>> verify_query(Mean(), CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])).unit
    1.0
    """
    table, names = model.value_table, model.names
    query = parse_query(query) if isinstance(query, str) else query
    if isinstance(query, Computation):
        ready = not isinstance(query, FunctionComputation) or query.step is not None or not on_lattice
        if ready and is_same_table(table, query.table) and query.names in ((), names):
            of_readings = isinstance(query, ReadingsComputation)
            return _judge(query, model, readings_check) if of_readings or readings_check is not None else query
        if query.source is None:
            raise InputError(f"query {query.name}: it was verified for other values or names; give the query itself")
        query = query.source
    if isinstance(query, type) or not isinstance(query, Query):
        hint = (
            "an instance, Mean() not Mean"
            if isinstance(query, type)
            else "Mean(), Max(), Custom(...), ... or a text such as 'mean'"
        )
        raise InputError(f"query: {query!r} given; expected {hint}")
    name = query.name
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"query: its name is {name!r}; a text that is not empty")
    of = reading_range(query)
    computation: Computation
    if of is not None:
        computation = _verify_readings(query, name, of, names, table)
    elif isinstance(query, FoldQuery):
        computation = _verify_fold(query, name, names, table)
    else:
        computation = _verify_function(query, name, names, table, on_lattice=on_lattice)
    return computation if of is None and readings_check is None else _judge(computation, model, readings_check)


def _judge(computation: Computation, model: Model, given: ReadingsEvidence | None) -> Computation:
    """A query of readings with what the model's fit says of them, or why it is refused; others as they are."""
    if not isinstance(computation, ReadingsComputation):
        if given is not None:
            raise InputError(f"readings_check: {given!r} given, but {computation.name} publishes no readings")
        return computation
    record = model.point.fitted
    if record is None:
        return computation.judge(None, given=given)
    return computation.judge(record.readings_check, given=given, finer=record.finer_states)


def _read(name: str, what: str, call: Callable[..., T], *arguments: Any) -> T:
    """Call a method of a query; whatever its own code raises becomes an InputError."""
    try:
        return call(*arguments)
    except CsdpError:
        raise
    except Exception as error:
        raise InputError(f"query {name}: {what} failed ({type(error).__name__}: {error})") from error


def _read_twice(name: str, what: str, call: Callable[..., T], *arguments: Any) -> T:
    """Call a method of a query twice; the two results must be the same."""
    first, second = _read(name, what, call, *arguments), _read(name, what, call, *arguments)
    if not _read(name, what, _is_same, first, second):
        raise InputError(f"query {name}: {what} differs from call to call; a query must be a function of the snapshot")
    return first


def _is_same(a: Any, b: Any) -> bool:
    """Whether two results are equal: numbers, arrays, or tuples of arrays. NaN equals itself, and is refused later."""
    if isinstance(a, tuple):
        return all(map(_is_same, a, b))
    if isinstance(a, np.ndarray):
        return np.array_equal(_unique_rows(a), _unique_rows(b), equal_nan=True)
    return bool(a == b or (a != a and b != b))  # noqa: PLR0124


def _unique_rows(parts: Floats) -> Floats:
    """One row where all are views of the same numbers, so that nothing is done a million times."""
    return parts[:1] if parts.ndim and parts.shape[0] > 1 and parts.strides[0] == 0 else parts


def is_positive(number: Any) -> bool:
    """Whether this is a positive, finite number."""
    real = isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool)
    return real and math.isfinite(number) and number > 0


# ---- folds ---------------------------------------------------------------------------------------------------------


def _verify_fold(query: FoldQuery, name: str, names: tuple[str, ...], table: Floats) -> FoldComputation:
    fold = query.fold
    if fold not in ("sum", "max", "min"):
        raise InputError(f"query {name}: fold {fold!r} given; sum, max or min")
    inner, block, unit = _read_parts(query, name, table)
    if fold != "sum" and inner.shape[2] * (int(block.max()) + 1) > 1:
        raise InputError(f"query {name}: the {fold} of parts with several outputs; one output, or several queries")
    divisor, text = _read_twice(name, "divisor", query.divisor, table), str(getattr(query, "text", name))
    if not is_positive(divisor):
        raise InputError(f"query {name}: divisor {divisor!r} given; it must be positive and finite")
    seen = _unique_rows(inner)
    rows = np.array(seen[:1] if (seen == seen[:1]).all() else seen, dtype=np.float64) + 0.0  # a copy, without -0.0
    rows.flags.writeable = block.flags.writeable = False
    computation = FoldComputation(
        name=name,
        text=text,
        fold=fold,
        rows=rows,
        block=block,
        unit=unit,
        denominator=float(divisor),
        table=table,
        outputs=(),
        groups=_read_groups(query, block),
        source=query,
        names=names,
    )
    sensitivity = computation.undivided_sensitivity(1)
    if sensitivity > 0 and not is_positive(sensitivity / computation.denominator):
        raise InputError(
            f"query {name}: divisor {divisor!r} given; answers divided by it are beyond what a float holds"
        )
    object.__setattr__(computation, "outputs", _compare_statements(query, computation, names))
    return computation


def _read_parts(query: FoldQuery, name: str, table: Floats) -> tuple[Floats, Indices, float]:
    """Parts (s, m, w) in the block of each sequence, the blocks (s,), and the lattice of the parts."""
    s, m = table.shape
    if isinstance(query, BlockQuery):
        inner, block = _read_twice(name, "blocks", lambda: _as_blocks(query.blocks(table)))
        numbered = block.shape == (s,) and np.array_equal(np.unique(block), np.arange(int(block.max(initial=0)) + 1))
        if not numbered:
            raise InputError(f"query {name}: blocks are whole numbers from 0 on, one for each of {s} sequences")
    else:
        inner = _read_twice(name, "parts", lambda: np.asarray(query.parts(table), dtype=np.float64))
        block = np.zeros(s, dtype=np.intp)
    if inner.ndim != 3 or inner.shape[:2] != (s, m) or not inner.shape[2]:
        raise InputError(
            f"query {name}: parts of shape {inner.shape} given; (sequences, states, outputs) = ({s}, {m}, d) expected"
        )
    seen = _unique_rows(inner)
    if not np.isfinite(seen).all():
        raise InputError(f"query {name}: some parts are infinite or no numbers; every state needs a finite part")
    unit = common_unit(seen)
    if float(np.abs(seen).max()) / unit >= 2.0**PART_DIGITS:
        raise InputError(
            f"query {name}: parts need {PART_DIGITS} binary digits at most, so that sums are exact; round them with "
            "csdp.lattice.on_lattice, or give values and weights with fewer binary digits (such as multiples of 1/8)"
        )
    if s > 1 and inner.shape[2] == s and not block.any():
        inner, block = _own_output(inner)
    return inner, block, unit


def _as_blocks(pair: Any) -> tuple[Floats, Indices]:
    inner, block = pair
    return np.asarray(inner, dtype=np.float64), np.array(block, dtype=np.intp)


def _own_output(inner: Floats) -> tuple[Floats, Indices]:
    """Parts with one output per sequence that only it moves, without the zeros; others as they are."""
    s = inner.shape[0]
    everyone = np.arange(s)
    own = inner[everyone, :, everyone]
    if np.count_nonzero(inner) == np.count_nonzero(own):
        return own[:, :, None], everyone
    return inner, np.zeros(s, dtype=np.intp)


def _read_groups(query: FoldQuery, block: Indices) -> Groups | None:
    """The groups that a query says it answers for, where its blocks are these groups."""
    try:
        groups = tuple(tuple(int(i) for i in group) for group in getattr(query, "groups", ()))
        labels = np.full(block.size, -1)
        for number, group in enumerate(groups):
            labels[list(group)] = number
    except (IndexError, TypeError, ValueError):
        return None
    once = sum(map(len, groups)) == block.size
    return groups if groups and once and np.array_equal(labels, block) else None


def _read_outputs(query: Query, name: str, names: tuple[str, ...], table: Floats, count: int) -> tuple[str, ...]:
    outputs = _read(name, "output_names", lambda: tuple(query.output_names(names, table)))
    if len(outputs) != count or any(not isinstance(text, str) for text in outputs):
        raise InputError(f"query {name}: {len(outputs)} names of outputs given for {count} outputs; give one text each")
    return outputs


def _sample(s: int, m: int) -> Indices:
    """Some snapshots that are always the same ones: each state everywhere, then at random."""
    count = max(2, min(64, SAMPLED_READINGS // s))
    flat = np.repeat(np.arange(m)[: max(1, count // 2)], s).reshape(-1, s)
    return np.concatenate([flat, np.random.default_rng(0).integers(0, m, (count, s))]).astype(np.intp)


def _compare_statements(query: FoldQuery, computation: FoldComputation, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the outputs. Refuses answers that differ from the fold of the parts, and a sensitivity below a
    change that some records make; one above it is not used.
    """
    name, table, divisor = computation.name, computation.table, computation.denominator
    s, m = table.shape
    outputs = _read_outputs(query, name, names, table, computation.blocks * computation.width)
    states = all_snapshots(s, m) if m ** min(s, 64) <= COMPARED_SNAPSHOTS else _sample(s, m)
    answers: Any = _read(name, "evaluate", query.evaluate, states, table)
    claims: dict[int, Any] = {}
    for k in sorted({1, min(2, s), s}):
        claims[k] = _read(name, "sensitivity", query.sensitivity, k, table)
    answers = _read(name, "evaluate", np.asarray, answers, np.float64)
    expected = computation.lattice_answers(states) / divisor
    room = SLACK * max(float(np.abs(expected).max()), computation.undivided_sensitivity(1) / divisor)
    if answers.shape != expected.shape or not (np.abs(answers - expected) <= room).all():
        raise InputError(
            f"query {name}: evaluate and the {computation.fold} of the parts, divided by {divisor:g}, do not agree; "
            "what is published are the parts"
        )
    for k, claimed in claims.items():
        _compare_claim(name, k, claimed, _largest_change(computation, k) / divisor)
    return outputs


def _largest_change(computation: FoldComputation, k: int) -> float:
    """A change that k records make, before the division: the largest for one output, or for one record."""
    if computation.fold != "sum" or computation.width * computation.blocks == 1 or computation.per_sequence or k == 1:
        return computation.undivided_sensitivity(k)
    total = np.zeros((computation.blocks, computation.width))
    for i in np.argsort(-computation.changes, kind="stable")[:k].tolist():
        rows = computation.own[i]
        far = np.abs(rows[:, None] - rows[None, :]).sum(axis=2)
        a, b = divmod(int(far.argmax()), rows.shape[0])
        step = rows[a] - rows[b]
        at = total[computation.block[i]]
        at += step if np.abs(at + step).sum() >= np.abs(at - step).sum() else -step
    return float(np.abs(total).sum())


# ---- readings ------------------------------------------------------------------------------------------------------


def _verify_readings(
    query: Query, name: str, of: ReadingRange, names: tuple[str, ...], table: Floats
) -> ReadingsComputation:
    if not isinstance(query, ReadingsQuery):
        raise InputError(
            f"query {name}: of readings, but it does not say what they add; it needs level_parts, level_value, shares "
            "and is_mean (csdp.queries.ReadingsQuery)"
        )
    s = table.shape[0]
    parts, shares = _read_twice(name, "level_parts or shares", read_levels, query, name, of, s)
    base, step = _read_twice(name, "level_value", read_level_value, query, name)
    if not isinstance(query.is_mean, bool) or (query.is_mean and not (shares == 1).all()):
        raise InputError(f"query {name}: is_mean is {query.is_mean!r}; True or False, and True only without shares")
    parts.flags.writeable = shares.flags.writeable = False
    computation = ReadingsComputation(
        name=name,
        text=str(getattr(query, "text", name)),
        of=of,
        parts=parts,
        shares=shares,
        base=base,
        step=step,
        is_mean=query.is_mean,
        table=table,
        outputs=_read_outputs(query, name, names, table, parts.shape[1]),
        source=query,
        names=names,
    )
    if computation.largest / computation.unit >= 2.0**PART_DIGITS * s:
        raise InputError(
            f"query {name}: weights and levels need {PART_DIGITS} binary digits at most, so that sums are exact; use a "
            "coarser resolution, or weights with fewer binary digits"
        )
    for k in sorted({1, min(2, s), s}):
        moved = computation.undivided_sensitivity(k) / computation.denominator
        _compare_claim(name, k, _read(name, "sensitivity", query.sensitivity, k, table), moved)
    return computation


def _compare_claim(name: str, k: int, claimed: Any, moved: float) -> None:
    """Refuse a declared sensitivity below a change that k records make by the parts."""
    if not (isinstance(claimed, int | float | np.floating | np.integer) and claimed >= moved * (1 - SLACK)):
        raise InputError(
            f"query {name}: sensitivity {claimed!r} given for {k} record{'s' * (k > 1)}, but by its parts the "
            f"answer moves by {moved:g}"
        )


# ---- functions -----------------------------------------------------------------------------------------------------


def _verify_function(
    query: Query, name: str, names: tuple[str, ...], table: Floats, *, on_lattice: bool
) -> FunctionComputation:
    s, m = table.shape
    few = is_enumerable(s, m)
    states = all_snapshots(s, m) if few else _neighbours(_sample(s, m), m)
    plain = _read_twice(name, "evaluate", lambda: np.array(function_answers(query, states, table)))
    plain.flags.writeable = False
    declares = getattr(query, "declared", True) is not None
    if few and not declares:
        declared = None
        if largest_change(plain, 1, table, None) == 0:
            raise InputError("custom: the function is constant; there is nothing to protect or to publish")
    else:
        declared = tuple(_read_sensitivity(query, name, k, table) for k in (range(1, s + 1) if few else (1, s)))
    sensitivities = Sensitivities(query, table, plain if few else None, declared)
    if declared is not None:
        _compare_declared(name, declared, plain, table, few=few)
    step = fine_unit(sensitivities(1)) if on_lattice else None
    answers = round_to_lattice(plain, step) if few else None
    if answers is not None:
        answers.flags.writeable = False
    assumption = ""
    if not few:
        assumption = f"{name} is a function that moves by at most the sensitivity it declares (compared on a sample)"
    computation = FunctionComputation(
        name=name,
        table=table,
        outputs=_read_outputs(query, name, names, table, plain.shape[1]),
        answers=answers,
        step=step,
        plain=sensitivities,
        fingerprint="",
        source=query,
        assumption=assumption,
        names=names,
    )
    object.__setattr__(computation, "fingerprint", fingerprint_function(computation))
    return computation


def _neighbours(states: Indices, m: int) -> Indices:
    """Snapshots, and after them each with one record changed."""
    moved, random = states.copy(), np.random.default_rng(1)
    place = np.arange(len(states)), random.integers(0, states.shape[1], len(states))
    moved[place] = (moved[place] + random.integers(1, m, len(states))) % m
    return np.concatenate([states, moved])


def _read_sensitivity(query: Query, name: str, k: int, table: Floats) -> float:
    claimed = _read_twice(name, "sensitivity", query.sensitivity, k, table)
    if not is_positive(claimed):
        raise InputError(
            f"query {name}: sensitivity {claimed!r} declared for {k} records; it must be positive and finite"
        )
    return float(claimed)


def _compare_declared(name: str, declared: tuple[float, ...], answers: Floats, table: Floats, *, few: bool) -> None:
    """Refuse a declared sensitivity below what enumeration, or a sample, shows."""
    s, m = table.shape
    if few:
        every = (1 + m) ** s * m**s <= ENUMERATED_WORK
        moves = {k: largest_change(answers, k, table, None) for k in (range(1, s + 1) if every else {1, s})}
        claims = {k: declared[k - 1] for k in moves}
    else:
        half = len(answers) // 2
        one, some = answers[:half] - answers[half:], np.diff(answers[:half], axis=0)
        moves = {1: float(np.abs(one).sum(axis=1).max()), s: float(np.abs(some).sum(axis=1).max())}
        claims = {1: declared[0], s: declared[-1]}
    for k, moved in moves.items():
        if claims[k] < moved * (1 - SLACK):
            raise InputError(
                f"query {name}: sensitivity {claims[k]:g} declared for {k} record{'s' * (k > 1)}, but they move the "
                f"answer by {moved:g}; declare at least that, or leave sensitivity= out where snapshots are few"
            )
