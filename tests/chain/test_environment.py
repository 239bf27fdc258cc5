"""EnvironmentChain: laws by tick, simulation, files, identity, and what is refused."""

import pickle

import numpy as np
import pytest

from csdp import CoupledChain, EnvironmentChain, Family
from csdp.chain.files import load_model, read_model, save_model
from csdp.chain.stationary import margins
from csdp.errors import InputError, NoStationaryLawError, TooLargeError
from oracle import hidden_law, member_kernel, periodic_laws, random_member

PAIR = [[0.75, 0.25], [0.25, 0.75]]
HOW = {"clock": {"cycle": (0, 1, 1)}, "hidden": {"switching": [[0.9, 0.1], [0.3, 0.7]]}}
LAWS = ((0.3, 0.3), (0.1, 0.4))


def binary(p: float, q: float) -> list[list[float]]:
    return [[1 - p, p], [q, 1 - q]]


def make(kind: str, direction: str = "forward", **options) -> EnvironmentChain:
    members = [CoupledChain(PAIR, binary(p, q), direction=direction, **options) for p, q in LAWS]
    return EnvironmentChain(members, **HOW[kind])


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("kind", HOW)
def test_files_pickles_and_digests_keep_a_chain(tmp_path, kind, direction):
    chain = make(kind, direction, values=[0, 2], names=["a", "b"])
    save_model(chain, tmp_path / "chain.json")
    for again in (load_model(tmp_path / "chain.json"), read_model(chain.to_json()), pickle.loads(pickle.dumps(chain))):
        assert again == chain
        assert (again.kind, again.direction, again.names) == (kind, direction, ("a", "b"))
        assert (again.cycle is not None) == ("clock" in kind)
        assert again.values.tolist() == [0, 2]
    assert len({make(k, d).digest for k in HOW for d in ("forward", "backward")}) == 4
    assert chain != chain.environments[0]
    assert repr(direction) not in repr(chain)
    assert ("backward" in repr(chain)) == (direction == "backward")
    assert chain.members == (chain,)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("seed", range(4))
def test_the_law_of_a_clock_is_the_periodic_one(direction, seed):
    rng = np.random.default_rng(seed)
    s, m = ((2, 2), (1, 3), (3, 2), (1, 2))[seed]
    members = [random_member(rng, s, m, kind) for kind in ("plain", "skewed", "persistent")]
    cycle = (0, 1, 2, 1)
    chain = EnvironmentChain([CoupledChain(c, t, direction=direction) for c, t in members], cycle=cycle)
    laws = periodic_laws([member_kernel(members[e]) for e in cycle], backward=direction == "backward")
    for phase, law in enumerate(laws):
        before = laws[phase - 1]
        assert np.allclose(chain.stationary(phase=phase), law, atol=1e-12)
        assert np.allclose(law @ chain.backward_kernel(phase=phase), before, atol=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_joint_law_and_its_step_of_a_hidden_environment(direction):
    chain = make("hidden", direction)
    kernels = [member.own_step.pull(np.eye(4)) for member in chain.environments]
    _, law = hidden_law(np.array(HOW["hidden"]["switching"]), kernels, backward=direction == "backward")
    assert np.allclose(chain.joint_law_with_error[0], law, atol=1e-12)
    own, some = chain.joint_own_kernel(), np.random.default_rng(0).random((8, 3))
    assert np.allclose(chain.joint_own_step.push(some), own.T @ some)
    assert np.allclose(chain.joint_own_step.pull(some), own @ some)
    assert np.allclose(chain.joint_step.push(law[:, None])[:, 0], law)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_simulation_follows_the_law(direction):
    """Means of 20,000 ticks, over six standard errors apart for a chain with the environments exchanged."""
    clock = make("clock", direction)
    states, environments = clock.simulate_with_environments(20_000, seed=3)
    means = [margins(clock.stationary(phase=phase).reshape(2, 2))[:, 1] for phase in range(3)]
    for phase in range(3):
        assert np.allclose(states[phase::3].mean(axis=0), means[phase], atol=0.03)
        assert set(environments[phase::3].tolist()) == {clock.cycle[phase]}
    swapped = EnvironmentChain(clock.environments[::-1], cycle=(0, 1, 1))
    assert abs(swapped.stationary(phase=0).reshape(2, 2)[:, 1].sum() - states[::3].mean()) > 0.05
    hidden = make("hidden", direction)
    states, environments = hidden.simulate_with_environments(20_000, seed=3)
    seen = np.bincount(environments * 4 + states[:, 0] * 2 + states[:, 1], minlength=8) / 20_000
    assert np.allclose(seen, hidden.joint_law_with_error[0], atol=0.03)


def test_components_are_those_of_all_environments_and_one_where_hidden():
    own, tied = CoupledChain(np.eye(3), binary(0.3, 0.3)), CoupledChain(np.eye(3)[[1, 1, 2]], binary(0.3, 0.3))
    clock = EnvironmentChain([own, tied], cycle=(0, 1))
    assert clock.components() == [(0, 1), (2,)]
    assert clock.subchain([2]).sequences == 1
    hidden = EnvironmentChain([own, tied], switching=[[0.5, 0.5], [0.5, 0.5]])
    assert hidden.components() == [(0, 1, 2)]
    assert hidden.given_path().components() == [(0, 1), (2,)]
    assert EnvironmentChain([own, own], cycle=(0, 1)).distinct_components(np.zeros(3, dtype=int)) == [((0,), 3)]
    with pytest.raises(InputError, match="take all of them"):
        hidden.subchain([2])


@pytest.mark.parametrize(
    ("members", "how", "words"),
    [
        ([], {"cycle": (0,)}, "no members"),
        ([CoupledChain([[1.0]], binary(0.3, 0.3))], {}, "neither of cycle="),
        ([CoupledChain([[1.0]], binary(0.3, 0.3))], {"cycle": (1,)}, "members 0 to 0 exist"),
        ([CoupledChain([[1.0]], binary(0.3, 0.3))], {"switching": [[0.5]]}, "sums to 0.5"),
        (
            [CoupledChain([[1.0]], binary(0.3, 0.3)), CoupledChain([[1.0]], binary(0.3, 0.3), direction="backward")],
            {"cycle": (0, 1)},
            "both directions",
        ),
        (
            [CoupledChain([[1.0]], binary(0.3, 0.3)), CoupledChain(PAIR, binary(0.3, 0.3))],
            {"cycle": (0, 1)},
            "must agree",
        ),
    ],
)
def test_what_is_no_environment_chain_is_refused(members, how, words):
    with pytest.raises(InputError, match=words):
        EnvironmentChain(members, **how)


@pytest.mark.parametrize("kind", HOW)
def test_nothing_takes_it_for_a_chain_with_one_kernel(kind):
    chain = make(kind)
    for ask in (
        chain.kernel,
        chain.backward_kernel,
        chain.stationary,
        chain.marginals,
        chain.require_one_kernel,
        lambda: chain.step,
        lambda: chain.own_step,
        lambda: chain.stationary_with_error,
        lambda: chain.law_at(1),
    ):
        with pytest.raises(InputError):
            ask()
    with pytest.raises(InputError, match="agree"):
        Family([chain, CoupledChain(PAIR, binary(0.3, 0.3), names=["a", "b"])])


def test_limits_and_missing_laws_are_said():
    with pytest.raises(NoStationaryLawError):
        EnvironmentChain([CoupledChain([[1.0]], np.eye(2))] * 2, cycle=(0, 1)).stationary(phase=0)
    many = EnvironmentChain([CoupledChain(np.eye(24), binary(0.3, 0.3))] * 2, switching=[[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(TooLargeError, match="joint states"):
        _ = many.joint_law_with_error
    with pytest.raises(InputError, match="no phases"):
        _ = many.period
    with pytest.raises(InputError, match="simulate the hidden one"):
        make("hidden").given_path().simulate(5, seed=1)
    with pytest.raises(InputError, match="no law"):
        _ = make("hidden").given_path().environment_law


def test_a_file_that_follows_a_public_series_is_refused():
    content = {**make("hidden").to_dict(), "switching": None, "series": "rain"}
    with pytest.raises(InputError, match=r"follows the public series 'rain'.* fit a clock or a hidden environment"):
        EnvironmentChain.from_dict(content)
