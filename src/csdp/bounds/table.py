"""The leakage of a release that is drawn from a table of probabilities, computed from the table itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from csdp.aging import AgedLaw
from csdp.arrays import UNIT, Floats
from csdp.bounds.adversary import Adversary, ProtectedPairs, known_subsets, marginal
from csdp.bounds.result import Leakage, protected_words, round_up
from csdp.chain import Family, Model, worst_verdict
from csdp.computation import Computation, FoldComputation
from csdp.errors import InputError, TooLargeError
from csdp.noise.table import LARGEST, MechanismTable
from csdp.schedule import Schedule

#: Joint states up to which the law of the answer given every present is listed.
TABLE_STATES: Final = 4096


def check_covered(chain: Model | Family, query: Computation) -> FoldComputation:
    """Refuse chains and queries for which no table is made; the query otherwise."""
    if not isinstance(query, FoldComputation) or len(query.outputs) != 1 or query.groups is not None:
        raise InputError(
            f"mechanism: a table is for one output of a query made of parts; {query.name} has {len(query.outputs)} "
            "outputs, or is a function or of readings. Leave mechanism out: noise is then added to every output"
        )
    for model in chain.members:
        if not model.has_law or model.initial is not None or not model.has_one_kernel:
            raise InputError(
                "mechanism: a table needs chains with one law: no environment, initial law or InfluenceFamily. "
                "Leave mechanism out"
            )
        if model.size > TABLE_STATES:
            raise TooLargeError(
                f"mechanism: {model.states}**{model.sequences} joint states; at most {TABLE_STATES:,} for a table. "
                "Leave mechanism out",
                needed=float(min(model.size, 10**300)),
                limit=TABLE_STATES,
            )
    return query


def possible_answers(model: Model, query: FoldComputation) -> Floats:
    """All answers that the parts of a query can give, before the division, in rising order."""
    answers = AgedLaw(model, query.contributions(), ages=[0] * model.sequences, fold=query.fold).classes[:, 0]
    if answers.size > LARGEST:
        raise TooLargeError(
            f"mechanism: {answers.size:,} possible answers; at most {LARGEST} for a table. Leave mechanism out",
            needed=float(answers.size),
            limit=LARGEST,
        )
    return answers


def check_table(chain: Model | Family, query: Computation, table: MechanismTable, epsilon_c: float) -> None:
    """Refuse a table that does not list every possible answer, or tells more of a record than `epsilon_c`."""
    if not isinstance(table, MechanismTable):
        raise InputError(f"mechanism: {type(table).__name__} given; a MechanismTable, or None for noise")
    covered = check_covered(chain, query)
    answers = possible_answers(chain.members[0], covered)
    if not np.array_equal(answers, np.array(table.answers)):
        raise InputError(
            f"mechanism: the table lists {len(table.answers)} answers that are not the {answers.size} possible ones of "
            f"{query.name} on this chain; make it with csdp.optimal_plan"
        )
    told = table.record_epsilon(covered.undivided_sensitivity(1))
    if not told <= epsilon_c:
        raise InputError(
            f"mechanism: by its table a record is told apart by {told:.6g}, above epsilon_c {epsilon_c:g}; give an "
            "epsilon_c of at least that"
        )


def law_of_answer(model: Model, query: FoldComputation, ages: Sequence[int]) -> AgedLaw:
    """The law of the answer that is read, given every present; its classes are the possible answers in order."""
    return AgedLaw(model, query.contributions(), ages=ages, fold=query.fold)


def table_leakage(
    chain: Model | Family,
    query: Computation,
    table: MechanismTable,
    *,
    ages: Sequence[int],
    adversary: Adversary = "informed",
    protect: float | None = None,
) -> Leakage:
    """How much one output of a table tells about the present: the largest over all models, presents and outputs.

    Formal guarantee: as for `csdp.leakage`. The number is the exact maximum of
    `ln sum_v B[x,v] M[v,o] / sum_v B[x',v] M[v,o]`, B[x,v] the probability of answer v given the present x, plus a
    bound on the rounding of both sums. `protect` as for `csdp.leakage`.
    """
    covered = check_covered(chain, query)
    verdict = worst_verdict([model.verdict for model in chain.members])
    values = [_largest_ratio(model, covered, table, ages, adversary, protect) for model in chain.members]
    return Leakage(
        epsilon=round_up(max(values)),
        bound="exact",
        sound=True,
        adversary=adversary,
        assumptions=(
            chain.members[0].assumption
            if len(values) == 1
            else f"the sequences follow one of {len(values)} given models ({verdict.brief})",
            *protected_words(protect, "exact"),
            "one release; computed from the table that outputs are drawn from",
        ),
        point=values[0] if len(values) > 1 else None,
        model=verdict,
        protect=protect,
    )


def _largest_ratio(
    model: Model,
    query: FoldComputation,
    table: MechanismTable,
    ages: Sequence[int],
    adversary: Adversary,
    protect: float | None,
) -> float:
    aged = law_of_answer(model, query, ages)
    form, m = aged.mass, model.states
    # Sums of non-negative products: relative errors of the laws, of the weights and of the sums; logarithms below 64.
    rounding = 2.0 * form.relative + 4.0 * (aged.classes.shape[0] + m**model.sequences + 80.0) * UNIT
    worst, protected = 0.0, ProtectedPairs.of(model.value_table, protect)
    for known in known_subsets(adversary, model.sequences):
        law = marginal(form.law, known, model.sequences, m)
        possible = law > 0
        density: Any = np.full((law.size, len(table.outputs)), np.nan)
        told = marginal(form.measure, known, model.sequences, m)[possible] @ table.probabilities
        density[possible] = np.log(told / law[possible, None])
        cube = density.reshape((m,) * len(known) + (-1,))
        for axis, sequence in enumerate(known):
            for states in protected.windows(sequence):
                chosen = np.take(cube, states, axis=axis)
                # NaN: a present that cannot occur, which is compared with none.
                gaps = np.fmax.reduce(chosen, axis=axis) - np.fmin.reduce(chosen, axis=axis)
                worst = max(worst, float(np.nanmax(gaps, initial=0.0)))
    return float(worst + rounding)


def check_table_options(schedule: Schedule | None, bound: str) -> None:
    """Refuse what a table does not go together with."""
    if schedule is not None:
        raise InputError("plan: a schedule changes the noise level from tick to tick, which a table has not; give one")
    if bound not in {"auto", "exact"}:
        raise InputError(f"plan: bound {bound!r} given; what a table tells is computed exactly: bound='auto'")
