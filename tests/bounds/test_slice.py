"""`slice` against enumeration of Pr(x_i | what is known of the others, past), and the values it must give."""

import itertools

import numpy as np
import pytest

import csdp
import oracle as o
from csdp.bounds import dependence
from csdp.bounds.slice import one_step, slice_bound
from csdp.errors import InputError
from laws.strategies import COUPLINGS, random_coupling, random_transitions

FLIP = [[0.7, 0.3], [0.3, 0.7]]
THREE = [[0.44, 0.32, 0.24], [0.32, 0.36, 0.32], [0.24, 0.32, 0.44]]
FORMS = ("matrix", "shared", "row-sum")
ROWS = (
    ("smooth",),
    ("smooth", "uniform"),
    ("skewed", "smooth"),
    ("skewed",),
    ("zeros", "smooth"),
    ("deterministic", "smooth"),
    ("deterministic",),
    ("zeros",),
)
SIZES = ((1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (3, 2), (4, 2), (3, 3), (2, 4))


def ring(s, own=0.8, transitions=FLIP):
    eye = np.eye(s)
    side = (1 - own) / 2
    return csdp.CoupledChain(own * eye + side * (np.roll(eye, 1, axis=1) + np.roll(eye, -1, axis=1)), transitions)


def enumerated(coupling, transitions, age, least_known=0):
    """Per sequence: the range over pasts of ln Pr(a | known, z) / Pr(b | known, z), over all that may be known."""
    s, m = len(coupling), np.shape(transitions)[-1]
    power = np.linalg.matrix_power(o.joint_kernel(coupling, transitions), age).reshape(-1, *(m,) * s)
    out = np.zeros(s)
    for i in range(s):
        others = [j for j in range(s) if j != i]
        for size in range(least_known, s):
            for known in itertools.combinations(others, size):
                unknown = tuple(1 + j for j in others if j not in known)
                law = np.moveaxis(power.sum(axis=unknown), 1 + sum(j < i for j in known), -1)
                for a, b in itertools.combinations(range(m), 2):
                    out[i] = max(out[i], _range(o.safe_log(law[..., a]), o.safe_log(law[..., b])))
    return out


def _range(first, second):
    """Pasts that lead to neither say nothing; a present that follows no past is no secret."""
    with np.errstate(invalid="ignore"):
        odds = first - second
        high, low = np.fmax.reduce(odds, axis=0), np.fmin.reduce(odds, axis=0)
        both = np.isfinite(first).any(axis=0) & np.isfinite(second).any(axis=0)
        return float(np.where(both, high - low, 0.0).max())


def random_chain(rng):
    s, m = SIZES[rng.integers(len(SIZES))]
    coupling = random_coupling(rng, str(rng.choice(COUPLINGS)), s)
    transitions = random_transitions(rng, ROWS[rng.integers(len(ROWS))], s, m, shared=bool(rng.integers(2)))
    weaker = (0.0, 0.0, 0.5, 0.8)[rng.integers(4)]
    transitions = (1 - weaker) * transitions + weaker / m
    return coupling, np.broadcast_to(transitions, (s, s, m, m))


def check_laws(coupling, transitions, ages=(1, 2, 3, 5)):
    """Never below the truth, ordered by form, never above one step, never growing."""
    chain = csdp.CoupledChain(coupling, transitions)
    first, _ = one_step(chain)
    before = {form: np.full(len(coupling), np.inf) for form in FORMS}
    for age in ages:
        truth = enumerated(coupling, transitions, age)
        sharper = truth * (1 - 1e-9) - 1e-12
        for form in FORMS:
            ranges = slice_bound(chain, age, form=form).ranges
            assert (ranges >= sharper).all(), (form, age)
            assert (ranges <= first).all()
            assert (ranges <= before[form]).all()
            sharper, before[form] = ranges * (1 - 1e-9), ranges


def check_many(count):
    for seed in range(count):
        check_laws(*random_chain(np.random.default_rng(seed)), ages=(2, 3))


@pytest.mark.parametrize("seed", range(60))
def test_never_below_enumeration(seed):
    check_laws(*random_chain(np.random.default_rng(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_never_below_enumeration_in_full(block):
    for seed in range(100):
        check_laws(*random_chain(np.random.default_rng([block, seed])))


@pytest.mark.parametrize("seed", range(3))
def test_five_sequences_with_unequal_couplings(seed):
    rng = np.random.default_rng(seed)
    coupling = rng.dirichlet(np.ones(5), 5)
    check_laws(coupling, 0.4 * rng.dirichlet([1, 1], (5, 5, 2)) + 0.3, ages=(2, 4))


def test_periodic_and_deterministic_chains():
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    for coupling in (np.eye(2), swap, np.full((2, 2), 0.5)):
        check_laws(coupling, np.broadcast_to(swap, (2, 2, 2, 2)))
        check_laws(coupling, np.broadcast_to([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], (2, 2, 3, 3)))


@pytest.mark.parametrize("factor", [8.0, 5.0])
def test_a_wrong_contraction_is_caught(monkeypatch, factor):
    """tanh(G/8), or tanh(G/5), in the place of tanh(G/4): the law above must reject it."""
    monkeypatch.setattr(dependence, "distance", lambda ranges: np.tanh(ranges / factor))
    with pytest.raises(AssertionError):
        check_many(60)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("chain", "form", "expected"),
    [
        (ring(6), "matrix", [1.6946, 0.6755, 0.3030, 0.1387, 0.0638, 0.0294]),
        (ring(40), "matrix", [1.6946, 0.6755, 0.3030, 0.1387, 0.0638, 0.0294]),
        (ring(6), "row-sum", [1.6946, 0.6963, 0.3734, 0.2137, 0.1249, 0.0736]),
        (ring(6, 0.8, THREE), "shared", [1.21227, 0.36601, 0.12143, 0.04100, 0.01392, 0.00473]),
        (ring(6, 0.8, THREE), "row-sum", [1.21227, 0.36601, 0.13096, 0.04813, 0.01781, 0.00661]),
        (
            csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], FLIP),
            "matrix",
            [1.6946, 0.6702, 0.2982, 0.1349, 0.0613, 0.0279],
        ),
    ],
)
def test_reference_values(chain, form, expected):
    assert slice_bound(chain, 6, form=form).curve == pytest.approx(expected, abs=5e-5)
    each = [float(slice_bound(chain, age, form=form).ranges.max()) for age in range(1, 7)]
    assert each[0] == pytest.approx(slice_bound(chain, 6, form=form).curve[0], rel=1e-13)  # one step by itself
    assert slice_bound(chain, 6, form=form).curve.tolist()[1:] == each[1:]


@pytest.mark.parametrize("transitions", [FLIP, [[0.99, 0.01], [0.3, 0.7]], [[0.1, 0.9], [0.6, 0.4]]])
@pytest.mark.parametrize("form", FORMS)
def test_exact_for_one_binary_sequence(transitions, form):
    chain = csdp.CoupledChain([[1.0]], transitions)
    up, down = transitions[0][1], transitions[1][0]
    for age in (1, 2, 3, 10, 60):
        left = abs(1 - up - down) ** age  # of what the past state says; both odds in closed form, accurate when tiny
        sign = np.sign(1 - up - down) ** age
        rest = left / (1 - sign * left)
        want = abs(sum(np.log1p(sign * rest * (up + down) / rate) for rate in (up, down)))
        assert slice_bound(chain, age, form=form).ranges[0] == pytest.approx(want, rel=1e-9, abs=0)


def test_strongly_persistent_chains_stop_decaying_and_the_answer_says_so():
    answer = csdp.leakage(ring(20, 0.8, [[0.9, 0.1], [0.1, 0.9]]), csdp.Mean(), ages=9, epsilon_c=1.0, bound="slice")
    assert "hardly any decay" in answer.reason
    weak = csdp.leakage(ring(20), csdp.Mean(), ages=9, epsilon_c=1.0, bound="slice")
    assert weak.reason == "matrix form, age 9"


def test_independent_sequences_are_as_one():
    alone = slice_bound(csdp.CoupledChain([[1.0]], FLIP), 4).ranges[0]
    for form in FORMS:
        several = slice_bound(csdp.CoupledChain(np.eye(3), FLIP), 4, form=form).ranges
        assert several == pytest.approx(np.full(3, alone), rel=1e-9)


def test_constant_and_impossible_states_tell_nothing():
    constant = csdp.CoupledChain(np.full((3, 3), 1 / 3), [[0.2, 0.8], [0.2, 0.8]])
    never = csdp.CoupledChain(np.full((2, 2), 0.5), [[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.3, 0.7, 0.0]])
    for form in FORMS:
        assert slice_bound(constant, 3, form=form).ranges.tolist() == [0.0] * 3
        assert np.isfinite(slice_bound(never, 3, form=form).ranges).all()


def test_numbers_beyond_the_smallest_float():
    chain = csdp.CoupledChain([[0.5, 0.5], [0.5, 0.5]], [[0.5 + 1e-12, 0.5 - 1e-12], [0.5, 0.5]])
    bound = slice_bound(chain, 200)
    assert (bound.ranges > 0).all()
    assert np.isfinite(bound.curve).all()
    tiny = csdp.CoupledChain(np.eye(1), [[1 - 1e-200, 1e-200], [0.5, 0.5]])
    assert not np.isnan(slice_bound(tiny, 5).curve).any()


# ---------------------------------------------------------------- through the front door


def test_a_record_like_the_others():
    answer = csdp.leakage(
        ring(6), csdp.Max(), ages=[2, 3, 2, 5, 9, 2], epsilon_c=1.0, bound="slice", adversary="uninformed"
    )
    assert (answer.bound, answer.adversary) == ("slice", "uninformed")
    assert answer.epsilon == pytest.approx(0.6755, abs=5e-5)  # the smallest age
    assert answer.reason == "matrix form, age 2"
    assert answer.witness is not None
    assert "any law of the past" in answer.assumptions[-1]
    fresh = csdp.leakage(ring(6), csdp.Max(), ages=[0, 3, 2, 5, 9, 2], epsilon_c=1.0, bound="slice")
    assert fresh.epsilon == float("inf")


def test_a_family_and_a_joint_chain():
    chains = [ring(4, 0.8, [[1 - p, p], [p, 1 - p]]) for p in (0.2, 0.4, 0.3)]
    alone = [csdp.leakage(c, csdp.Mean(), ages=3, epsilon_c=1.0, bound="slice").epsilon for c in chains]
    family = csdp.leakage(csdp.Family(chains), csdp.Mean(), ages=3, epsilon_c=1.0, bound="slice")
    assert family.epsilon == max(alone)
    joint = csdp.JointChain(ring(2, 0.8).kernel(), states=2, sequences=2)
    with pytest.raises(InputError, match="independent given the present"):
        csdp.leakage(joint, csdp.Mean(), ages=3, epsilon_c=1.0, bound="slice")
    with pytest.raises(InputError, match="JointChain given"):
        slice_bound(joint, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="form: 'dense' given"):
        slice_bound(ring(4), 3, form="dense")


def test_auto_takes_it_for_giants_and_is_never_worse():
    for s, form in ((40, "matrix"), (300, "shared"), (12_000, "row-sum")):
        coupling = {(j, j): 0.8 for j in range(s)} | {(j, (j + d) % s): 0.1 for j in range(s) for d in (1, -1)}
        chain = csdp.CoupledChain(coupling, FLIP)
        for adversary in ("informed", "uninformed"):
            options = {"ages": 3, "epsilon_c": 1.0, "adversary": adversary}
            auto = csdp.leakage(chain, csdp.Mean(), **options)
            others = {b: csdp.leakage(chain, csdp.Mean(), bound=b, **options) for b in ("slice", "group")}
            assert auto.epsilon == min(other.epsilon for other in others.values())
            assert others["slice"].reason == f"{form} form, age 3"
            assert auto.bound == "slice"
