"""EnvironmentChain: coupled chains whose law depends on an environment, by a clock, or hidden."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices, freeze
from csdp.chain import checks, stationary
from csdp.chain.coupled import CoupledChain
from csdp.chain.environment_steps import (
    SwitchedStep,
    check_members,
    check_path,
    draw_environments,
    draw_snapshots,
    find_environment_law,
    find_periodic_laws,
    iterate_marginals,
    make_joint_kernel,
    refuse_large_joint,
    unroll_clock,
)
from csdp.chain.model import Model, States
from csdp.chain.steps import KERNEL_STATES, ReversedStep, Step
from csdp.errors import InputError

#: How the environment of a tick becomes known: by the clock, not at all, or (for certificates) as a given path.
EnvironmentKind = Literal["clock", "hidden", "given"]
#: Ticks that a simulation lets pass before it counts, where the long-run law is too large to draw from.
_BURN_IN = 200
_NOT_PROTECTED = (
    "Facts about the environment itself (a storm, a strike) are not protected: the numbers for the present hold given "
    "the environment of every tick, whatever it is."
)


class EnvironmentChain(Model):
    """Coupled chains, one for each environment: the step that leads to tick t happens under the environment of t.

    Given the path of environments, the sequences follow a coupled chain whose numbers change from tick to tick:
    `Pr(x_t | x_{t-1})` is that of member e_t, and with backward members `Pr(x_{t-1} | x_t)` is. So sequences may move
    together within a step (a common shock), and mornings may differ from nights. Give one of:

    - `cycle`, a public clock: e_t = cycle[t mod H]; the phase of a tick is t mod H.
    - `switching`, a hidden Markov environment: `switching[e][e'] = Pr(e_{t+1} = e' | e_t = e)`.

    A clock may be given with a hidden environment, which then has G environments for each class of the clock:
    e_t = cycle[t mod H] * G + g_t, with g_t hidden (`switching` is G x G).

    Certificates that are given the environment do not protect facts about the environment itself.

    Args:
        members: CoupledChains, all forward or all backward, with the same names, states and values.
        cycle: number of the member at each phase, or of its class. switching: row-stochastic.

    >>> day, night = (CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.1))
    >>> chain = EnvironmentChain([day, night], cycle=(0, 0, 1))
    >>> chain
    EnvironmentChain(2 environments by a clock of 3 ticks, 1 sequence, 2 states, digest 1d59b84e)
    >>> chain.environment_at(5), chain.kernel(phase=2).tolist()
    (1, [[0.9, 0.1], [0.1, 0.9]])
    >>> EnvironmentChain.from_json(chain.to_json()) == chain
    True
    """

    schema: ClassVar[str] = "csdp/environment-chain/1"
    has_one_kernel: ClassVar[bool] = False
    environments: tuple[CoupledChain, ...]  #: the chain of each environment
    cycle: tuple[int, ...] | None
    switching: Floats | None
    _is_given: bool
    #: environments that may hold at one tick given the clock: all without one, 1 with nothing but a clock
    regimes: int

    def __init__(
        self,
        members: Iterable[CoupledChain],
        *,
        cycle: Sequence[int] | None = None,
        switching: Any = None,
    ) -> None:
        environments = check_members(members)
        if cycle is None and switching is None:
            raise InputError(
                "EnvironmentChain: neither cycle= nor switching= given; give a public clock, a hidden environment, or "
                "both"
            )
        self._make(environments, cycle, switching, given=False)

    def _make(self, environments: tuple[CoupledChain, ...], cycle: Any, switching: Any, *, given: bool) -> None:
        """Set everything; `given`: the path of the environment that is not the clock's is known."""
        first = environments[0]
        others = given or switching is not None
        phases, regimes = checks.check_cycle(cycle, len(environments), shared=others)
        self._set(
            environments=environments,
            direction=first.direction,
            cycle=phases,
            regimes=regimes,
            switching=checks.check_switching(switching, regimes),
            _is_given=given,
        )
        if not others:
            self._set(given=", given the phase of the clock")
        else:
            self._set(given=", given the environment of every tick", not_protected=(_NOT_PROTECTED,))
        shared = ("sequences", "states", "values", "unit", "_names")
        self._set(**{name: getattr(first, name) for name in shared})

    # ---- the environment ---------------------------------------------------------------------------------------

    @property
    def kind(self) -> EnvironmentKind:
        """How the environment becomes known; of two, the one that is not the clock."""
        if self._is_given:
            return "given"
        return "clock" if self.switching is None else "hidden"

    @property
    def period(self) -> int:
        """H, the number of phases of the clock."""
        if self.cycle is None:
            raise InputError(
                f"period: the environment of this chain is {self._kind_text}, not by a clock; there are no phases"
            )
        return len(self.cycle)

    def _clock(self, what: str) -> tuple[int, ...]:
        """The cycle, where the clock alone says which environment holds."""
        if self.cycle is None or self.kind != "clock":
            why = "there are no phases" if self.cycle is None else "the clock alone does not tell it"
            raise InputError(f"{what}: the environment of this chain is {self._kind_text}, not by a clock; {why}")
        return self.cycle

    def environment_numbers(self, phase: int | None = None) -> tuple[int, ...]:
        """Numbers of the members that may hold at a tick: all of them, or those of a phase of the clock."""
        if phase is None or self.cycle is None:
            return tuple(range(len(self.environments)))
        first = self.cycle[phase % len(self.cycle)] * self.regimes
        return tuple(range(first, first + self.regimes))

    def environment_at(self, tick: int) -> int:
        """Number of the member under which the step that leads to a tick happens, by the clock."""
        cycle = self._clock("environment_at")
        return cycle[tick % len(cycle)]

    def at_phase(self, phase: int | None) -> CoupledChain:
        """The chain of the step that leads to a tick of this phase (back from it, for backward members)."""
        cycle = self._clock("phase")
        return self.environments[cycle[checks.check_phase(phase, len(cycle))]]

    @cached_property
    def environment_law(self) -> Floats:
        """Long-run share of each environment: of the clock's phases, or of the hidden environment's ticks."""
        if self._is_given:
            raise InputError("environment_law: an environment that is given has no law; ask the hidden one")
        if self.switching is None:
            return freeze(np.bincount(self._clock("environment_law"), minlength=len(self.environments)) / self.period)
        return freeze(find_environment_law(self.switching))

    def given_path(self) -> EnvironmentChain:
        """The same chains under environments that are known, tick by tick; a public environment is known already."""
        return self if self.switching is None else self._given_path

    @cached_property
    def _given_path(self) -> EnvironmentChain:
        known = EnvironmentChain.__new__(EnvironmentChain)
        known._make(self.environments, self.cycle, None, given=True)
        return known.carrying(fit_cost=self.fit_cost, evidence=self.derived_evidence)

    @cached_property
    def unclocked(self) -> EnvironmentChain:
        """The same process without a clock beside its hidden environment, which holds the phase too: h * G + g."""
        if self.cycle is None or self.switching is None:
            return self
        members = [self.environments[e] for phase in range(self.period) for e in self.environment_numbers(phase)]
        following = np.roll(np.eye(self.period), 1, axis=1)
        one = EnvironmentChain(members, switching=np.kron(following, self.switching))
        return one.carrying(fit_cost=self.fit_cost, evidence=self.derived_evidence)

    # ---- law ---------------------------------------------------------------------------------------------------

    def kernel(self, *, phase: int | None = None) -> Floats:
        """K[x, y] = Pr(y at a tick of this phase | x one tick before), for a clock; up to 4,096 joint states."""
        own = self.at_phase(phase)._small_kernel()
        return own if self.direction == "forward" else stationary.reverse_kernel(own, self.stationary(phase=phase))

    def backward_kernel(self, *, phase: int | None = None) -> Floats:
        """R[x, w] = Pr(w one tick before | x at a tick of this phase), for a clock; up to 4,096 joint states."""
        own = self.at_phase(phase)._small_kernel()
        if self.direction == "backward" or phase is None:
            return own
        return stationary.reverse_kernel(own, self.stationary(phase=(phase - 1) % self.period))

    def stationary(self, *, phase: int | None = None) -> Floats:
        """Periodic stationary law of the snapshot at ticks of this phase, (m**s,), for a clock."""
        self.at_phase(phase)
        return np.asarray(self.periodic_with_error[0][int(phase or 0)])

    @cached_property
    def periodic_with_error(self) -> tuple[Floats, float]:
        """The periodic stationary law of every phase (H, m**s), and an estimate of its largest relative error."""
        cycle = self._clock("stationary")
        self.refuse_large()
        members = [self.environments[e] for e in cycle]
        laws, error = find_periodic_laws(members, positive=self.is_positive)
        return freeze(laws), error

    def marginals(self, *, phase: int | None = None) -> Floats:
        """Law of every sequence (s, m) at ticks of one phase, for a clock; any number of sequences."""
        self.at_phase(phase)
        return np.asarray(self._periodic_marginals[int(phase or 0)])

    @cached_property
    def _periodic_marginals(self) -> Floats:
        cycle = self._clock("marginals")
        if self.size <= KERNEL_STATES:
            laws = self.periodic_with_error[0]
            shape = (self.states,) * self.sequences
            return freeze(np.array([stationary.margins(law.reshape(shape)) for law in laws]))
        return freeze(iterate_marginals([self.environments[e] for e in cycle]))

    # ---- joint states (e, x) of a hidden environment -----------------------------------------------------------

    @cached_property
    def joint_own_step(self) -> Step:
        """One step of the law of (environment, snapshot) in the members' own direction, for a hidden environment."""
        self._hidden()
        steps = [chain.own_step for chain in self.environments]
        return SwitchedStep(self.own_switching, steps, environment_first=self.direction == "forward")

    @cached_property
    def joint_step(self) -> Step:
        """One step forward in time of the law of (environment, snapshot), for a hidden environment."""
        if self.direction == "forward":
            return self.joint_own_step
        return ReversedStep(self.joint_own_step, self.joint_law_with_error[0])

    @cached_property
    def joint_law_with_error(self) -> tuple[Floats, float]:
        """Long-run law of (environment, snapshot), (E m**s,) with the environment first, and its relative error."""
        self.refuse_large_joint()
        size = len(self.environments) * self.size
        law, error = stationary.stationary_law(
            self.joint_own_step,
            start=np.full(size, 1.0 / size),
            positive=self.is_positive and bool((np.asarray(self.switching) > 0).all()),
            kernel=self.joint_own_kernel,
        )
        return freeze(law), error

    def refuse_large_joint(self) -> None:
        """TooLargeError where the law of (environment, snapshot) has too many entries to be made."""
        self._hidden()
        refuse_large_joint(len(self.environments), self.sequences, self.states)

    def joint_own_kernel(self) -> Floats:
        """Kernel on (environment, snapshot) in the members' own direction, (E m**s, E m**s), environment first."""
        kernels = np.array([chain._own_kernel() for chain in self.environments])
        return make_joint_kernel(self.own_switching, kernels, environment_first=self.direction == "forward")

    @cached_property
    def own_switching(self) -> Floats:
        """`switching` in the members' own direction of time."""
        assert self.switching is not None
        forward = self.direction == "forward"
        return self.switching if forward else freeze(stationary.reverse_kernel(self.switching, self.environment_law))

    def _hidden(self) -> Floats:
        if self.switching is None or self.cycle is not None:
            raise InputError(
                f"joint law: the environment of this chain is {self._kind_text}; only a hidden one has a law together "
                "with the snapshot (with a clock: that of `unclocked`)"
            )
        return self.switching

    # ---- simulation --------------------------------------------------------------------------------------------

    def simulate(self, steps: int, *, seed: int, burn_in: int = _BURN_IN) -> States:
        """Snapshots (steps, s) drawn from the model, tick 0 first; `simulate_with_environments` tells which were met.

        >>> day, night = (CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.1))
        >>> EnvironmentChain([day, night], switching=[[0.9, 0.1], [0.1, 0.9]]).simulate(5, seed=1).shape
        (5, 1)
        """
        return self.simulate_with_environments(steps, seed=seed, burn_in=burn_in)[0]

    def simulate_with_environments(self, steps: int, *, seed: int, burn_in: int = _BURN_IN) -> tuple[States, Indices]:
        """Snapshots (steps, s), and the environments (steps,) under which the step that leads to each tick happened."""
        if steps < 1:
            raise InputError(f"simulate: {steps} steps asked for; at least 1")
        random = np.random.default_rng(seed)
        burn_in = burn_in - burn_in % len(self.cycle or (0,))  # whole days, so that tick 0 keeps phase 0
        path = self._draw_environments(steps + 2 * burn_in, -burn_in, random)
        states = draw_snapshots(self.environments, path, random)
        return states[burn_in : burn_in + steps], path[burn_in : burn_in + steps]

    def simulate_given(self, environments: Sequence[int], *, seed: int, burn_in: int = _BURN_IN) -> States:
        """Snapshots (T, s) given the environment of every tick; before and after these their ends repeat."""
        path, ends = check_path(environments, len(self.environments)), max(burn_in, 1)
        states = draw_snapshots(self.environments, np.pad(path, ends, mode="edge"), np.random.default_rng(seed))
        return states[ends:-ends]

    def _draw_environments(self, count: int, first: int, random: np.random.Generator) -> Indices:
        if self._is_given:
            raise InputError("simulate: the environment is given; use simulate_given(environments, ...)")
        classes = np.zeros(count, dtype=np.intp)
        if self.cycle is not None:
            classes = np.asarray(self.cycle, dtype=np.intp)[(first + np.arange(count)) % self.period]
        if self.switching is None:
            return classes
        return classes * self.regimes + draw_environments(self.switching, self.environment_law, count, random)

    # ---- structure ---------------------------------------------------------------------------------------------

    def components(self) -> list[tuple[int, ...]]:
        """Sets of sequences that are independent of each other, in every environment.

        A hidden environment ties all its sequences together: there is one component.
        """
        if self.kind == "hidden":
            return [tuple(range(self.sequences))]
        return stationary.connected_parts(sum(chain.sparse_coupling for chain in self.environments))

    def distinct_components(self, labels: npt.NDArray[np.integer[Any]]) -> list[tuple[tuple[int, ...], int]]:
        """One component of each kind with the number of its copies: alike in every environment."""
        chains = self.environments
        return stationary.count_kinds(
            self.components(), lambda part: tuple(chain.signature(part, labels) for chain in chains)
        )

    def subchain(self, members: Iterable[int]) -> EnvironmentChain:
        """The chain of some sequences, under the same environments; of a hidden environment all of them."""
        if (inside := tuple(sorted(set(members)))) == tuple(range(self.sequences)):
            return self
        if self.kind == "hidden":
            raise InputError("subchain: a hidden environment ties its sequences together; take all of them")
        known: dict[tuple[int, ...], EnvironmentChain] = self.__dict__.setdefault("_subchains", {})
        if inside not in known:  # every accountant of a search asks for them again
            chains = check_members(chain.subchain(inside) for chain in self.environments)
            part = EnvironmentChain.__new__(EnvironmentChain)
            part._make(chains, self.cycle, None, given=self._is_given)
            known[inside] = part.carrying(fit_cost=self.fit_cost, evidence=self.part_evidence(inside))
        return known[inside]

    @property
    def phases(self) -> int:  # type: ignore[override] # a constant of models without a clock
        """Blocks of sequences that the chain of `step_chains` has: one for each phase of a clock."""
        return 1 if self.cycle is None else len(self.cycle)

    @cached_property
    def step_chains(self) -> tuple[CoupledChain, ...]:
        """The chains of which any may come next: members, or under a clock chains of all phases; none if hidden."""
        if self.switching is not None:
            return ()
        if self.cycle is None:
            return self.environments
        of_phase = [self.environment_numbers(phase) for phase in range(self.period)]
        return tuple(unroll_clock([self.environments[e] for e in path]) for path in zip(*of_phase, strict=True))

    @cached_property
    def is_positive(self) -> bool:
        """Whether every transition between snapshots is known to have positive probability in every environment."""
        return all(chain.is_positive for chain in self.environments)

    def spectrum(self) -> tuple[tuple[complex, ...], float]:
        """Eigenvalues of every environment's Q, and the factor by which differences shrink in the slowest of them."""
        each = [chain.spectrum() for chain in self.environments]
        return stationary.sort_eigenvalues(v for values, _ in each for v in values), max(rate for _, rate in each)

    # ---- what a single kernel would answer -----------------------------------------------------------------------

    @property
    def own_step(self) -> Step:
        """Refused: the step depends on the environment."""
        self._refuse_one_kernel()

    def _own_kernel(self) -> NoReturn:
        self._refuse_one_kernel()

    def advance(self, snapshot: States, uniform: Floats) -> NoReturn:
        """Refused: the step depends on the environment."""
        self._refuse_one_kernel()

    def _refuse_one_kernel(self) -> NoReturn:
        self.require_one_kernel()
        raise AssertionError("an environment chain has several kernels")

    # ---- identity ----------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        hasher = hashlib.sha256("|".join([self.schema, *(chain.digest for chain in self.environments)]).encode())
        hasher.update(repr((self.kind, self.cycle, None)).encode())
        hasher.update(b"" if self.switching is None else self.switching.astype("<f8").tobytes())
        return self._finish_digest(hasher)

    @property
    def _written_schema(self) -> str:
        return self.schema

    def _law_content(self) -> dict[str, Any]:
        shared = ("values", "names")
        members = [chain.to_dict() for chain in self.environments]
        return {
            "environments": [{k: v for k, v in member.items() if k not in shared} for member in members],
            "cycle": None if self.cycle is None else list(self.cycle),
            "switching": None if self.switching is None else self.switching.tolist(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> EnvironmentChain:
        """Rebuild a chain from `to_dict`."""
        shared = {"values": content.get("values"), "names": content.get("names")}
        try:
            members = [CoupledChain.from_dict({**member, **shared}) for member in content["environments"]]
            if content.get("series") is not None:
                raise InputError(
                    f"chain: it follows the public series {content['series']!r}, which is not followed any more; fit a "
                    "clock or a hidden environment instead"
                )
            return cls(members, cycle=content.get("cycle"), switching=content.get("switching"))._restore_fit(content)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"chain: the JSON lacks or garbles {error}; write it with to_json") from None

    def __getstate__(self) -> dict[str, Any]:
        carried = {
            "fitted": self.fitted,
            "family": self.family,
            "fit_cost": self.fit_cost,
            "evidence": self.evidence,
        }
        how = {"cycle": self.cycle, "switching": self.switching, "given": self._is_given}
        return {"environments": self.environments, "how": how, "carried": carried}

    def __setstate__(self, state: dict[str, Any]) -> None:
        chain = EnvironmentChain.__new__(EnvironmentChain)
        chain._make(state["environments"], **state["how"])
        self.__dict__.update(chain.carrying(**state["carried"]).__dict__)

    @property
    def _kind_text(self) -> str:
        clock = "" if self.cycle is None else f"by a clock of {len(self.cycle)} ticks"
        if self.kind == "clock":
            return clock
        other = "given" if self._is_given else "hidden"
        return f"{clock} and {other}" if clock else other

    def __repr__(self) -> str:
        backward, comma = "backward, " * (self.direction == "backward"), "," * (self.cycle is None)
        size = f"{self.sequences} sequence{'s' * (self.sequences > 1)}, {self.states} states, digest {self.digest[:8]}"
        return f"EnvironmentChain({backward}{len(self.environments)} environments{comma} {self._kind_text}, {size})"
