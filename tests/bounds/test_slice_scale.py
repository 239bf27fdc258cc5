"""Certificates for many sequences: giants, curves over ages, processes, and the summary over sequences."""

import io
import re
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array

import csdp
from csdp.bounds.leakage import Setting
from csdp.bounds.lineage import lineage
from csdp.bounds.overview import age_curve, leakage_summary
from csdp.bounds.slice import dependence, local_numbers
from csdp.bounds.slice.bound import slice_bound
from csdp.bounds.slice.local_numbers import LocalNumbers
from csdp.errors import InputError, TooLargeError

FORMS = ("matrix", "shared", "row-sum")
FLIP = [[0.7, 0.3], [0.3, 0.7]]
THREE = [[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]]


def giant(s, degree=8, own=0.8):
    steps = np.concatenate([[0], np.random.default_rng(0).choice(s - 1, degree, replace=False) + 1])
    target = np.repeat(np.arange(s), degree + 1)
    weight = np.tile([own, *[(1 - own) / degree] * degree], s)
    return csr_array((weight, (target, (target + np.tile(steps, s)) % s)), shape=(s, s))


def blocks(seed, groups, size=3):
    """Independent groups, no two alike."""
    rng = np.random.default_rng(seed)
    coupling = np.zeros((groups * size, groups * size))
    for g in range(groups):
        part = slice(g * size, (g + 1) * size)
        coupling[part, part] = rng.dirichlet(np.ones(size), size)
    return csdp.CoupledChain(coupling, rng.dirichlet([3, 3], (groups * size, groups * size, 2)))


# ---------------------------------------------------------------- giants


def test_twenty_thousand_sequences_by_row_sums():
    chain = csdp.CoupledChain(giant(20_000), FLIP)
    tracemalloc.start()
    answer = csdp.leakage(chain, csdp.Mean(), ages=6, epsilon_c=1.0, bound="slice")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150e6
    assert answer.reason == "row-sum form, age 6"
    # every sequence has the same surroundings: a small system of the same kind gives the same numbers
    small = slice_bound(csdp.CoupledChain(giant(1000), FLIP), 6, form="row-sum")
    assert answer.epsilon == pytest.approx(float(small.ranges.max()), rel=1e-3)
    assert answer.epsilon < 0.1 * csdp.leakage(chain, csdp.Mean(), ages=6, epsilon_c=1.0, bound="lineage").epsilon


@pytest.mark.parametrize("transitions", [FLIP, THREE])
def test_forms_are_ordered_where_all_fit(transitions):
    rng = np.random.default_rng(4)
    s = 60
    coupling = np.where(np.eye(s) > 0, 0.75, 0.0)
    for j in range(s):
        coupling[j, rng.choice(np.delete(np.arange(s), j), 3, replace=False)] += rng.dirichlet(np.ones(3)) * 0.25
    chain = csdp.CoupledChain(coupling, transitions)
    for age in (2, 4, 7):
        matrix, shared, row_sum = (
            slice_bound(chain, age, form=form).ranges for form in ("matrix", "shared", "row-sum")
        )
        assert (matrix <= shared * (1 + 1e-9)).all()
        assert (shared <= row_sum * (1 + 1e-9)).all()
        assert shared.max() < matrix.max() * 2


def test_what_the_shared_form_does_not_keep_still_counts(monkeypatch):
    chain = csdp.CoupledChain(giant(400, 4), FLIP)
    fine = slice_bound(chain, 5, form="shared").ranges
    monkeypatch.setattr(dependence, "_KEPT", 0.5)
    coarse = slice_bound(chain, 5, form="shared").ranges
    row_sum = slice_bound(chain, 5, form="row-sum").ranges
    assert (fine <= coarse * (1 + 1e-9)).all()
    assert (coarse <= row_sum * (1 + 1e-9)).all()
    assert fine.max() < coarse.max()


def test_row_sums_of_kappa_hold_in_every_way_they_are_made(monkeypatch):
    chain = csdp.CoupledChain(np.random.default_rng(1).dirichlet(np.ones(30), 30), FLIP)
    exact = LocalNumbers.of(chain).kappa_row_sums()
    monkeypatch.setattr(local_numbers, "SORTED_PAIRS", 0)
    by_child = LocalNumbers.of(chain).kappa_row_sums()
    monkeypatch.setattr(local_numbers, "_MANY_PARENTS", 2)
    together = LocalNumbers.of(chain).kappa_row_sums()
    assert (exact <= by_child * (1 + 1e-9)).all()
    assert (by_child <= together * (1 + 1e-9)).all()
    assert together.max() < exact.max() * 1.5


def test_row_sums_of_an_endless_kappa_hold_child_by_child_too(monkeypatch):
    """A state that some parents rule out tells without bound which of them it was."""
    moves = np.broadcast_to(np.array(FLIP), (3, 3, 2, 2)).copy()
    moves[0] = [[1.0, 0.0], [0.4, 0.6]]
    chain = csdp.CoupledChain(np.full((3, 3), 1 / 3), moves)
    exact = LocalNumbers.of(chain).kappa_row_sums()
    assert exact.max() >= 2  # of either of the two others, whole
    monkeypatch.setattr(local_numbers, "SORTED_PAIRS", 0)
    assert (exact <= LocalNumbers.of(chain).kappa_row_sums() * (1 + 1e-9)).all()


def test_what_does_not_move_has_no_distance_however_rare():
    low = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.3]])
    assert local_numbers.logit_distance(low, np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert local_numbers.logit_distance(low, np.full(3, 0.1))[:2].tolist() == [np.inf, np.inf]


def test_a_matrix_per_edge():
    rng = np.random.default_rng(0)
    coupling = giant(300, 3)
    kinds = 0.3 * rng.dirichlet([2, 2], (4, 2)) + 0.35
    chain = csdp.CoupledChain(coupling, kinds[rng.integers(0, 4, coupling.nnz)])
    shared, row_sum = (slice_bound(chain, 4, form=form) for form in ("shared", "row-sum"))
    assert (shared.ranges <= row_sum.ranges * (1 + 1e-9)).all()
    assert row_sum.curve[-1] < 0.1 * row_sum.curve[0]


@pytest.mark.slow
def test_a_million_sequences():
    chain = csdp.CoupledChain(giant(1_000_000), FLIP)
    ranges = lineage(chain, 10).ranges
    assert ranges.shape == (1_000_000,)
    # Every sequence has the same surroundings: a small system of the same kind gives the same numbers.
    assert float(ranges.max()) == pytest.approx(float(lineage(csdp.CoupledChain(giant(1000), FLIP), 10).ranges.max()))


# ---------------------------------------------------------------- curves


@pytest.mark.parametrize("chain", [csdp.CoupledChain(giant(30, 3), FLIP), csdp.CoupledChain(giant(300, 3), THREE)])
def test_curves_are_the_values_age_by_age(chain):
    for bound, adversary in (("slice", "informed"), ("lineage", "uninformed")):
        curve = age_curve(chain, max_age=5, bound=bound, adversary=adversary)
        options = {"epsilon_c": 1.0, "bound": bound, "adversary": adversary}
        each = [csdp.leakage(chain, csdp.Mean(), ages=age, **options).epsilon for age in range(1, 6)]
        assert curve == pytest.approx(each, rel=1e-12)
        assert (np.diff(curve) <= 0).all()


def test_curves_of_a_family_and_bad_questions():
    chains = [csdp.CoupledChain(giant(20, 3), [[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.4)]
    family = age_curve(csdp.Family(chains), max_age=4)
    assert family.tolist() == np.max([age_curve(c, max_age=4) for c in chains], axis=0).tolist()
    for options, message in (
        ({"max_age": 0}, "max_age: 0 given"),
        ({"max_age": 2.5}, "max_age: 2.5 given"),
        ({"max_age": 2, "bound": "exact"}, "bound: 'exact' given"),
        ({"max_age": 2, "adversary": "me"}, "adversary: 'me' given"),
    ):
        with pytest.raises(InputError, match=message):
            age_curve(chains[0], **options)
    joint = csdp.JointChain(np.full((4, 4), 0.25), states=2, sequences=2)
    with pytest.raises(InputError, match="needs a CoupledChain"):
        age_curve(joint, max_age=2)


# ---------------------------------------------------------------- processes and the summary


def test_processes_change_nothing():
    chain = blocks(0, 6)
    options = {"ages": 2, "epsilon_c": 1.0}
    told = []
    alone = csdp.leakage(chain, csdp.Mean(), **options)
    spread = csdp.leakage(chain, csdp.Mean(), workers=2, progress=lambda *what: told.append(what), **options)
    assert spread == alone
    assert told[-1] == ("components", 6, 6)
    assert leakage_summary(chain, csdp.Mean(), workers=2, **options) == leakage_summary(chain, csdp.Mean(), **options)


class Here:
    """Workers of one's own: anything that says how many it is and maps in order."""

    workers = 3

    def map(self, work, items):
        return map(work, items)


def test_any_workers_will_do_and_refuse_as_one_does():
    """Groups of 2 and of 11 sequences: the larger one is beyond the bounds over pairs, and says so alike everywhere."""
    rows = np.zeros((15, 15))
    rows[:2, :2] = rows[2:4, 2:4] = [[0.6, 0.4], [0.3, 0.7]]
    for i in range(11):
        rows[4 + i, [4 + i, 4 + (i + 1) % 11]] = 0.5
    chain = csdp.CoupledChain(rows, [[0.8, 0.2], [0.4, 0.6]])
    told = []
    options = {"ages": 2, "epsilon_c": 1.0}
    answer = csdp.leakage(chain, csdp.Mean(), workers=Here(), progress=lambda *what: told.append(what), **options)
    assert answer == csdp.leakage(chain, csdp.Mean(), **options)
    assert told[-1][1:] == (2, 2)
    with pytest.raises(TooLargeError) as alone:
        csdp.leakage(chain, csdp.Mean(), bound="profile", **options)
    with pytest.raises(TooLargeError, match=re.escape(str(alone.value))):
        csdp.leakage(chain, csdp.Mean(), bound="profile", workers=Here(), **options)


def test_bad_workers():
    chain = blocks(0, 2)
    for workers in (0, -1, 1.5, True, "two"):
        with pytest.raises(InputError, match="a whole number of processes"):
            csdp.leakage(chain, csdp.Mean(), ages=1, epsilon_c=1.0, workers=workers)


@pytest.mark.parametrize("adversary", ["informed", "uninformed"])
@pytest.mark.parametrize("bound", ["auto", "exact", "lineage", "slice", "profile"])
def test_the_largest_of_the_summary_is_the_leakage(adversary, bound):
    chain = blocks(1, 3)
    options = {"ages": 2, "epsilon_c": 1.0, "bound": bound, "adversary": adversary}
    summary = leakage_summary(chain, csdp.Mean(), worst=9, **options)
    answer = csdp.leakage(chain, csdp.Mean(), **options)
    assert summary.epsilon == pytest.approx(answer.epsilon, rel=1e-9)
    assert (summary.sequences, summary.sound, len(summary.worst)) == (9, True, 9)
    assert summary.worst[0].epsilon == pytest.approx(summary.epsilon, rel=1e-9)
    if answer.witness is not None:
        assert summary.worst[0].sequence == answer.witness.sequence
    assert list(summary.quantiles.values()) == pytest.approx(sorted(summary.quantiles.values()), rel=1e-9)


def test_each_sequence_against_its_own_pairs():
    """Exact, by hand: only presents that differ in that sequence count."""
    import oracle as o

    chain = blocks(3, 1)
    summary = leakage_summary(chain, csdp.Sum(), ages=1, epsilon_c=1.0)
    aged, law = o.aged_law(chain.kernel(), 3, 2, [1] * 3)
    snaps, answers = o.snapshots(3, 2), o.query_values("sum", 3, 2, [0, 1])
    for row in summary.worst:
        i = chain.names.index(row.sequence)
        pairs = [(n, k) for n, k in o.neighbour_pairs(3, 2, law) if snaps[n][i] != snaps[k][i]]
        want, _ = o.worst_output(aged, pairs, answers, o.product_outputs(answers), 1.0, 1.0)
        assert row.epsilon == pytest.approx(want, rel=1e-9)


def test_like_components_are_counted_and_families_compared():
    chain = csdp.CoupledChain(np.eye(1000), FLIP)
    summary = leakage_summary(chain, csdp.Sum(), ages=1, epsilon_c=1.0)
    assert (summary.sequences, summary.worst[0].alike, summary.bounds) == (1000, 1000, {"exact": 1000})
    calm = csdp.CoupledChain(np.eye(40), [[0.6, 0.4], [0.4, 0.6]])
    few = csdp.CoupledChain(np.eye(40), FLIP)
    family = leakage_summary(csdp.Family([calm, few]), csdp.Sum(), ages=1, epsilon_c=1.0, worst=2)
    assert (family.sequences, family.epsilon, len(family.worst)) == (40, pytest.approx(summary.epsilon), 2)
    assert family.quantiles[0.0] == pytest.approx(summary.epsilon)


def test_a_giant_summary_and_its_words():
    import rich.console

    chain = csdp.CoupledChain(giant(3000), FLIP)
    ages = np.full(3000, 4)
    summary = leakage_summary(chain, csdp.Mean(), ages=ages.tolist(), epsilon_c=1.0, worst=2)
    assert summary.bounds == {"slice": 3000}
    screen = io.StringIO()
    rich.console.Console(width=100, file=screen).print(summary)
    text = screen.getvalue()
    assert "3,000 sequences" in text
    assert text.count("worst: x") == 2
    assert summary.to_dict()["quantiles"]["1"] == summary.epsilon
    for options, message in (({"worst": 0}, "worst: 0 given"), ({"bound": "best"}, "bound: 'best' given")):
        with pytest.raises(InputError, match=message):
            leakage_summary(chain, csdp.Mean(), ages=4, epsilon_c=1.0, **options)


def test_bounds_free_of_the_noise_are_kept():
    """Planning asks for many noise levels: slice and lineage are computed once."""
    setting = Setting.make(
        csdp.CoupledChain(giant(300), FLIP), csdp.Mean(), ages=3, epsilon_c=1.0, adversary="uninformed"
    )
    first = setting.answer("slice")
    moved = setting.at(0.5)
    assert moved.components[0]._slice_result is setting.components[0]._slice_result
    assert moved.answer("slice").epsilon == first.epsilon
