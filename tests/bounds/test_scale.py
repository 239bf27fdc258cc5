"""Sizes: steps that agree, giants that run, and refusals that name the alternatives."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import csdp
from csdp.bounds import exact
from csdp.chain.steps import KernelStep, SplitStep, TensorStep, choose_step
from csdp.errors import TooLargeError

FLIP = [[0.7, 0.3], [0.3, 0.7]]


def ring(s, own=0.8, transitions=FLIP):
    eye = np.eye(s)
    side = (1 - own) / 2
    return csdp.CoupledChain(own * eye + side * (np.roll(eye, 1, axis=1) + np.roll(eye, -1, axis=1)), transitions)


def equal(s, own=0.8, transitions=FLIP):
    coupling = np.full((s, s), (1 - own) / (s - 1))
    np.fill_diagonal(coupling, own)
    return csdp.CoupledChain(coupling, transitions)


def sparse_giant(s, degree=8):
    """Every sequence follows itself and its next neighbours."""
    target = np.repeat(np.arange(s), degree + 1)
    source = (target + np.tile(np.arange(degree + 1), s)) % s
    weight = np.tile([0.6, *[0.4 / degree] * degree], s)
    return csr_array((weight, (target, source)), shape=(s, s))


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("s", "m", "links"), [(2, 2, 1), (5, 2, 1), (7, 2, 2), (7, 2, 6), (4, 3, 1), (4, 3, 3), (3, 4, 1)]
)
@pytest.mark.parametrize("seed", range(4))
def test_three_ways_to_push_agree(s, m, links, seed):
    rng = np.random.default_rng(seed)
    coupling = np.zeros((s, s))
    for j in range(s):
        coupling[j, rng.choice(s, min(s, links + 1), replace=False)] = rng.random(min(s, links + 1)) + 0.05
    coupling /= coupling.sum(axis=1, keepdims=True)
    local = csdp.CoupledChain(coupling, rng.dirichlet(np.ones(m), (s, s, m))).local
    kernel = local.kernel()
    assert kernel.sum(axis=1) == pytest.approx(np.ones(m**s), rel=1e-12)
    h = rng.normal(size=(m**s, 5))
    want = KernelStep(kernel).push(h)
    for step in (TensorStep(local), SplitStep(local), choose_step(local)):
        assert np.abs(step.push(h) - want).max() <= step.depth * 2.0**-52 * (kernel.T @ np.abs(h)).max()


def test_pushing_in_turns_gives_the_same(monkeypatch):
    from csdp.chain import steps

    local = ring(8).local
    h = np.random.default_rng(0).random((256, 9))
    want = [step.push(h) for step in (TensorStep(local), SplitStep(local))]
    monkeypatch.setattr(steps, "WORK_BYTES", 20_000)
    monkeypatch.setattr(steps, "TENSOR_BYTES", 20_000)
    got = [step.push(h) for step in (TensorStep(local), SplitStep(local))]
    for one, other in zip(want, got, strict=True):
        assert one == pytest.approx(other, rel=1e-13)


def test_sparse_couplings_use_contractions_and_dense_ones_halves():
    assert isinstance(choose_step(ring(12).local), TensorStep)
    assert isinstance(choose_step(equal(11).local), SplitStep)


def test_a_ring_of_16_is_exact():
    answer = csdp.leakage(ring(16), csdp.Mean(), ages=5, epsilon_c=1.0)
    assert answer.bound == "exact"
    assert answer.epsilon == pytest.approx(csdp.leakage(ring(9), csdp.Mean(), ages=5, epsilon_c=1.0).epsilon, rel=1e-3)


@pytest.mark.parametrize("moves", [[[0.99, 0.01], [0.3, 0.7]], [[0.7, 0.3], [0.01, 0.99]]])
def test_outputs_that_do_not_fit_together_are_looked_at_in_turns(monkeypatch, moves):
    """The worst output is at the first end of the answers, or at the last: it counts wherever it is."""
    chain, asked = equal(6, 0.7, moves), {"ages": 2, "epsilon_c": 2.0, "bound": "exact"}
    together = csdp.leakage(chain, csdp.Mean(), **asked)
    monkeypatch.setattr(exact, "_BLOCK", 1)
    answer = csdp.leakage(chain, csdp.Mean(), **asked)
    assert answer.epsilon == pytest.approx(together.epsilon, rel=1e-9)
    assert answer.witness.output == pytest.approx(together.witness.output)


# ---------------------------------------------------------------- giants


def test_auto_falls_back_to_slice_or_group_and_says_why():
    chain = csdp.CoupledChain(sparse_giant(2000), FLIP)
    for epsilon_c, bound in ((1.0, "slice"), (1e-4, "group")):
        answer = csdp.leakage(chain, csdp.Mean(), ages=3, epsilon_c=epsilon_c)
        assert answer.bound == bound
        assert "exact does not fit" in answer.reason
        assert bound in answer.reason
    assert answer.epsilon == pytest.approx(2000 * 1e-4)
    assert any("may change at once" in words for words in answer.assumptions)


def test_many_like_components_are_computed_once():
    source = np.arange(4000) % 2 + np.repeat(np.arange(1000) * 2, 4)
    blocks = csr_array((np.full(4000, 0.5), (np.repeat(np.arange(2000), 2), source)))
    chain = csdp.CoupledChain(blocks, FLIP)
    assert len(chain.components()) == 1000
    answer = csdp.leakage(chain, csdp.Sum(), ages=1, epsilon_c=1.0)
    assert answer.epsilon == pytest.approx(0.4088, abs=5e-5)
    assert [(part["size"], part["copies"]) for part in answer.components] == [(2, 1000)]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: csdp.leakage(ring(30), csdp.Mean(), ages=1, epsilon_c=1.0, bound="exact"), r"bound='auto'"),
        (lambda: ring(30).stationary(), r"marginals\(\), or bound='auto'"),
        (lambda: ring(30).step, r"Use bound='auto', which has bounds for any number of sequences"),
        (lambda: ring(13).kernel(), r"csdp.leakage works without storing a kernel"),
        (
            lambda: csdp.leakage(ring(11), csdp.Mean(), ages=1, epsilon_c=1.0, bound="profile"),
            r"Use bound='exact' \(no pairs are stored\) or 'slice'",
        ),
        (
            lambda: csdp.leakage(ring(14), csdp.Linear(2.0 ** np.arange(14)), ages=1, epsilon_c=1.0, bound="exact"),
            r"Ask for bound='auto', or a query with fewer values",
        ),
        (lambda: csdp.JointChain([[1.0]], states=2, sequences=13), r"Use CoupledChain for more sequences"),
    ],
)
def test_refusals_name_the_alternatives(ask, message):
    with pytest.raises(TooLargeError, match=message) as refused:
        ask()
    assert refused.value.needed > refused.value.limit > 0


def test_too_many_output_values_are_refused(monkeypatch):
    monkeypatch.setattr(exact, "OUTPUT_LIMIT", 10)
    with pytest.raises(TooLargeError, match=r"Use bound='profile' \(any query\), or a query with fewer outputs"):
        csdp.leakage(ring(4), csdp.Identity(), ages=1, epsilon_c=1.0, bound="exact")


def test_too_much_work_for_one_step_is_refused(monkeypatch):
    monkeypatch.setattr("csdp.chain.steps.MAX_PUSH_OPERATIONS", 1e3)
    with pytest.raises(TooLargeError, match=r"one step of 8 sequences .* Use bound='auto'"):
        csdp.leakage(ring(8), csdp.Mean(), ages=1, epsilon_c=1.0, bound="exact")


def test_components_bounded_in_different_ways_are_named():
    coupling = np.zeros((42, 42))
    coupling[:2, :2] = [[0.6, 0.4], [0.3, 0.7]]
    for i in range(40):
        coupling[2 + i, 2 + i], coupling[2 + i, 2 + (i + 1) % 40] = 0.8, 0.2
    mixed = csdp.leakage(csdp.CoupledChain(coupling, FLIP), csdp.Mean(), ages=3, epsilon_c=1.0)
    assert mixed.assumptions[-1] == "by component: exact, slice"
    alike = csdp.leakage(csdp.CoupledChain(coupling[:2, :2], FLIP), csdp.Mean(), ages=3, epsilon_c=1.0)
    assert not any("component" in words for words in alike.assumptions)
    parts = csdp.leakage(csdp.CoupledChain(np.eye(2), FLIP), csdp.Mean(), ages=3, epsilon_c=1.0)
    assert any("several independent components" in words for words in parts.assumptions)
    bounded = csdp.leakage(csdp.CoupledChain(np.eye(2), FLIP), csdp.Mean(), ages=3, epsilon_c=1.0, bound="profile")
    assert not any("several independent components" in words for words in bounded.assumptions)


def test_progress_is_told():
    told = []
    csdp.leakage(ring(4), csdp.Mean(), ages=(1, 2, 3, 3), epsilon_c=1.0, progress=lambda *what: told.append(what))
    assert {name for name, *_ in told} == {"aging", "comparing"}
    assert all(0 < done <= total for _, done, total in told)


def test_like_components_at_different_ages_are_not_confused():
    chain = csdp.CoupledChain(np.eye(4), FLIP)
    young, old = (csdp.leakage(chain, csdp.Sum(), ages=age, epsilon_c=1.0).epsilon for age in (1, 3))
    answer = csdp.leakage(chain, csdp.Sum(), ages=(3, 3, 1, 3), epsilon_c=1.0)
    assert answer.epsilon == young
    assert [(part["copies"], part["epsilon"]) for part in answer.components] == [(1, young), (3, old)]
    assert answer.witness is not None
    assert answer.witness.sequence == "x3"
    weights = csdp.leakage(chain, csdp.Linear([1, 2, 1, 1]), ages=1, epsilon_c=1.0)
    assert [part["copies"] for part in weights.components] == [1, 3]
    assert weights.witness is not None
    assert weights.witness.sequence == "x2"
    own = csdp.CoupledChain(np.eye(3), FLIP, values=[[0, 1], [0, 5], [0, 1]])
    for query in (csdp.Identity(), csdp.Max(), csdp.Mean()):
        answer = csdp.leakage(own, query, ages=1, epsilon_c=1.0)
        assert answer.witness is not None
        assert answer.witness.sequence == "x2"
