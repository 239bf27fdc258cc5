"""EnvironmentChain: coupled chains whose law depends on an environment, by a clock, by a series, or hidden."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from csdp.arrays import Floats, Indices
from csdp.chain import checks
from csdp.chain.coupled import CoupledChain, connected_parts, count_kinds
from csdp.chain.environment_steps import (
    ComposedStep,
    SwitchedStep,
    draw_environments,
    draw_snapshots,
    iterate_marginals,
    unroll_clock,
)
from csdp.chain.laws import margins, reverse_kernel, sort_eigenvalues
from csdp.chain.model import Model, States
from csdp.chain.stationary import stationary_law
from csdp.chain.steps import KERNEL_STATES, MAX_STATES, KernelStep, ReversedStep, Step, joint_states
from csdp.errors import InputError, TooLargeError

#: How the environment of a tick becomes known: by the clock, by a public series, or not at all.
EnvironmentKind = Literal["clock", "series", "hidden"]
#: Ticks that a simulation lets pass before it counts, where the long-run law is too large to draw from.
_BURN_IN = 200


class EnvironmentChain(Model):
    """Coupled chains, one for each environment: the step that leads to tick t happens under the environment of t.

    Given the path of environments, the sequences follow a coupled chain whose numbers change from tick to tick:
    `Pr(x_t | x_{t-1})` is that of member e_t, and with backward members `Pr(x_{t-1} | x_t)` is. So sequences may move
    together within a step (a common shock), and mornings may differ from nights. Give exactly one of:

    - `cycle`, a public clock: e_t = cycle[t mod H]; the phase of a tick is t mod H.
    - `switching`, a hidden Markov environment: `switching[e][e'] = Pr(e_{t+1} = e' | e_t = e)`.
    - `series`, the name of a public series that is given with the readings and is not driven by the sequences.

    Certificates that are given the environment do not protect facts about the environment itself.

    Args:
        members: CoupledChains, all forward or all backward, with the same names, states and values, and no initial law.
        cycle: number of the member at each phase. switching: (E, E) row-stochastic. series: a name.

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
    environments: tuple[CoupledChain, ...]  #: the chain of each environment
    cycle: tuple[int, ...] | None
    switching: Floats | None
    series: str | None

    def __init__(
        self,
        members: Iterable[CoupledChain],
        *,
        cycle: Sequence[int] | None = None,
        switching: Any = None,
        series: str | None = None,
    ) -> None:
        environments = _check_members(members)
        given = [cycle is not None, switching is not None, series is not None]
        if sum(given) != 1:
            raise InputError(
                f"EnvironmentChain: {sum(given)} of cycle=, switching= and series= given; give exactly one: a public "
                "clock, a hidden environment, or a public series that comes with the readings"
            )
        first = environments[0]
        self._set(
            environments=environments,
            direction=first.direction,
            cycle=checks.check_cycle(cycle, len(environments)),
            switching=checks.check_switching(switching, len(environments)),
            series=checks.check_series(series),
        )
        shared = ("sequences", "states", "values", "unit", "_names", "initial")
        self._set(**{name: getattr(first, name) for name in shared})

    # ---- the environment ---------------------------------------------------------------------------------------

    @property
    def kind(self) -> EnvironmentKind:
        """How the environment becomes known: "clock", "series" or "hidden"."""
        return "clock" if self.cycle is not None else "hidden" if self.switching is not None else "series"

    @property
    def period(self) -> int:
        """H, the number of phases of the clock."""
        return len(self._clock("period"))

    def _clock(self, what: str) -> tuple[int, ...]:
        if self.cycle is None:
            raise InputError(
                f"{what}: the environment of this chain is {self._kind_text}, not by a clock; there are no phases"
            )
        return self.cycle

    def environment_at(self, tick: int) -> int:
        """Number of the member under which the step that leads to a tick happens, by the clock."""
        cycle = self._clock("environment_at")
        return cycle[tick % len(cycle)]

    def at_phase(self, phase: int | None) -> CoupledChain:
        """The chain of the step that leads to a tick of this phase (back from it, for backward members)."""
        cycle = self._clock("phase")
        if phase is None or isinstance(phase, bool) or not 0 <= phase < len(cycle) or phase != int(phase):
            raise InputError(
                f"phase: {phase!r} given; the law depends on the phase of the clock: give phase=0 to {len(cycle) - 1}"
            )
        return self.environments[cycle[int(phase)]]

    @cached_property
    def environment_law(self) -> Floats:
        """Long-run share of each environment: of the clock's phases, or of the hidden environment's ticks."""
        if self.cycle is not None:
            return np.bincount(self.cycle, minlength=len(self.environments)) / len(self.cycle)
        if self.switching is None:
            raise InputError("environment_law: a public series has no law; it is given with the readings")
        return stationary_law(
            KernelStep(self.switching),
            start=np.full(len(self.environments), 1.0 / len(self.environments)),
            positive=bool((self.switching > 0).all()),
            kernel=lambda: np.asarray(self.switching),
        )[0]

    def given_path(self) -> EnvironmentChain:
        """The same chains under environments that are known, tick by tick; a public environment is known already."""
        return self if self.switching is None else EnvironmentChain(self.environments, series="environment")

    # ---- law ---------------------------------------------------------------------------------------------------

    def kernel(self, *, phase: int | None = None) -> Floats:
        """K[x, y] = Pr(y at a tick of this phase | x one tick before), for a clock; up to 4,096 joint states."""
        self._refuse_large_kernel()
        own = self.at_phase(phase)._own_kernel()
        return own if self.direction == "forward" else reverse_kernel(own, self.stationary(phase=phase))

    def backward_kernel(self, *, phase: int | None = None) -> Floats:
        """R[x, w] = Pr(w one tick before | x at a tick of this phase), for a clock; up to 4,096 joint states."""
        self._refuse_large_kernel()
        own = self.at_phase(phase)._own_kernel()
        if self.direction == "backward" or phase is None:
            return own
        return reverse_kernel(own, self.stationary(phase=(phase - 1) % self.period))

    def stationary(self, *, phase: int | None = None) -> Floats:
        """Periodic stationary law of the snapshot at ticks of this phase, (m**s,), for a clock."""
        self.at_phase(phase)
        return np.asarray(self.periodic_with_error[0][int(phase or 0)])

    @cached_property
    def periodic_with_error(self) -> tuple[Floats, float]:
        """The periodic stationary law of every phase (H, m**s), and an estimate of its largest relative error."""
        cycle = self._clock("stationary")
        self.refuse_large()
        # From phase 0 round the clock, in the members' own direction: each pair is (phase reached, member).
        ahead = [((n + 1) % len(cycle), cycle[(n + 1) % len(cycle)]) for n in range(len(cycle))]
        back = [((-n - 1) % len(cycle), cycle[-n % len(cycle)]) for n in range(len(cycle))]
        walk = [(phase, self.environments[e]) for phase, e in (ahead if self.direction == "forward" else back)]
        law, error = stationary_law(
            ComposedStep([chain.own_step for _, chain in walk]),
            start=np.full(self.size, 1.0 / self.size),
            positive=self.is_positive,
            kernel=lambda: reduce(np.matmul, [chain._own_kernel() for _, chain in walk]),
        )
        laws = np.empty((len(cycle), self.size))
        for phase, chain in walk:
            pushed = chain.own_step.push(law[:, None])[:, 0]
            laws[phase] = law = pushed / pushed.sum()
            error += (chain.own_step.depth + 2) * np.finfo(np.float64).eps
        return checks.freeze(laws), error

    def marginals(self, *, phase: int | None = None) -> Floats:
        """Law of every sequence (s, m) at ticks of one phase, for a clock; any number of sequences."""
        self.at_phase(phase)
        return np.asarray(self._periodic_marginals[int(phase or 0)])

    @cached_property
    def _periodic_marginals(self) -> Floats:
        cycle = self._clock("marginals")
        if self.size <= KERNEL_STATES:
            laws = self.periodic_with_error[0]
            return np.array([margins(law.reshape((self.states,) * self.sequences)) for law in laws])
        return checks.freeze(iterate_marginals([self.environments[e] for e in cycle]))

    # ---- joint states (e, x) of a hidden environment -----------------------------------------------------------

    @cached_property
    def joint_own_step(self) -> Step:
        """One step of the law of (environment, snapshot) in the members' own direction, for a hidden environment."""
        switching = self._hidden()
        steps = [chain.own_step for chain in self.environments]
        if self.direction == "forward":
            return SwitchedStep(switching, steps, environment_first=True)
        return SwitchedStep(reverse_kernel(switching, self.environment_law), steps, environment_first=False)

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
        law, error = stationary_law(
            self.joint_own_step,
            start=np.full(size, 1.0 / size),
            positive=self.is_positive and bool((np.asarray(self.switching) > 0).all()),
            kernel=self.joint_own_kernel,
        )
        return checks.freeze(law), error

    def refuse_large_joint(self) -> None:
        """TooLargeError where the law of (environment, snapshot) has too many entries to be made."""
        self._hidden()
        size = len(self.environments) * joint_states(self.sequences, self.states)
        if size > MAX_STATES:
            raise TooLargeError(
                f"{len(self.environments)} environments times {self.states}**{self.sequences} snapshots; at most "
                f"{MAX_STATES:,} joint states are made. Ask for environment='path', which needs no joint law",
                needed=size,
                limit=MAX_STATES,
            )

    def joint_own_kernel(self) -> Floats:
        """Kernel on (environment, snapshot) in the members' own direction, (E m**s, E m**s), environment first."""
        switching, n = self._hidden(), self.size
        kernels = np.array([chain._own_kernel() for chain in self.environments])
        if self.direction == "forward":
            return np.asarray(np.einsum("ef,fxy->exfy", switching, kernels).reshape(len(kernels) * n, -1))
        back = reverse_kernel(switching, self.environment_law)
        return np.asarray(np.einsum("ef,exy->exfy", back, kernels).reshape(len(kernels) * n, -1))

    def _hidden(self) -> Floats:
        if self.switching is None:
            raise InputError(
                f"joint law: the environment of this chain is {self._kind_text}; only a hidden one has a law together "
                "with the snapshot"
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
        path = np.asarray(environments, dtype=np.intp)
        if path.ndim != 1 or not path.size or path.min() < 0 or path.max() >= len(self.environments):
            raise InputError(
                f"environments: one number from 0 to {len(self.environments) - 1} for each tick expected, at least one"
            )
        ends = max(burn_in, 1)
        states = draw_snapshots(self.environments, np.pad(path, ends, mode="edge"), np.random.default_rng(seed))
        return states[ends:-ends]

    def _draw_environments(self, count: int, first: int, random: np.random.Generator) -> Indices:
        if self.cycle is not None:
            return np.array([self.environment_at(first + n) for n in range(count)], dtype=np.intp)
        if self.switching is None:
            raise InputError(
                f"simulate: the environment is the public series {self.series!r}; use simulate_given(environments, ...)"
            )
        return draw_environments(self.switching, self.environment_law, count, random)

    # ---- structure ---------------------------------------------------------------------------------------------

    def components(self) -> list[tuple[int, ...]]:
        """Sets of sequences that are independent of each other, in every environment.

        A hidden environment ties all its sequences together: there is one component.
        """
        if self.kind == "hidden":
            return [tuple(range(self.sequences))]
        return connected_parts(sum(chain.sparse_coupling for chain in self.environments))

    def distinct_components(self, labels: npt.NDArray[np.integer[Any]]) -> list[tuple[tuple[int, ...], int]]:
        """One component of each kind with the number of its copies: alike in every environment."""
        return count_kinds(
            self.components(), lambda part: tuple(chain.signature(part, labels) for chain in self.environments)
        )

    def subchain(self, members: Iterable[int]) -> EnvironmentChain:
        """The chain of some sequences, under the same environments; of a hidden environment all of them."""
        inside = sorted(set(members))
        if self.kind == "hidden" and inside != list(range(self.sequences)):
            raise InputError("subchain: a hidden environment ties its sequences together; take all of them")
        if inside == list(range(self.sequences)):
            return self
        chains = [chain.subchain(inside) for chain in self.environments]
        return EnvironmentChain(chains, cycle=self.cycle, switching=self.switching, series=self.series)

    @property
    def phases(self) -> int:  # type: ignore[override] # a constant of models without a clock
        """Blocks of sequences that the chain of `step_chains` has: one for each phase of a clock."""
        return 1 if self.cycle is None else len(self.cycle)

    @cached_property
    def step_chains(self) -> tuple[CoupledChain, ...]:
        """The members, of which any may come next; under a clock one chain that holds all phases; none if hidden."""
        if self.cycle is None:
            return self.environments if self.series is not None else ()
        return (unroll_clock([self.environments[e] for e in self.cycle]),)

    @cached_property
    def is_positive(self) -> bool:
        """Whether every transition between snapshots is known to have positive probability in every environment."""
        return all(chain.is_positive for chain in self.environments)

    def spectrum(self) -> tuple[tuple[complex, ...], float]:
        """Eigenvalues of every environment's Q, and the factor by which differences shrink in the slowest of them."""
        each = [chain.spectrum() for chain in self.environments]
        return sort_eigenvalues(v for values, _ in each for v in values), max(rate for _, rate in each)

    # ---- what a single kernel would answer -----------------------------------------------------------------------

    @property
    def own_step(self) -> Step:
        """Refused: the step depends on the environment."""
        self._refuse_one_kernel()

    @property
    def step(self) -> NoReturn:
        """Refused: the step depends on the environment."""
        self._refuse_one_kernel()

    @property
    def stationary_with_error(self) -> NoReturn:
        """Refused: the law depends on the environment."""
        self._refuse_one_kernel()

    def oldest_law(self) -> NoReturn:
        """Refused: the law depends on the environment."""
        self._refuse_one_kernel()

    def with_initial(self, law: npt.ArrayLike | None) -> NoReturn:
        """Refused: the law of the oldest snapshot depends on the environment."""
        self._refuse_one_kernel()

    def _own_kernel(self) -> NoReturn:
        self._refuse_one_kernel()

    def advance(self, snapshot: States, uniform: Floats) -> NoReturn:
        """Refused: the step depends on the environment."""
        self._refuse_one_kernel()

    def _refuse_one_kernel(self) -> NoReturn:
        raise InputError(
            f"chain: an EnvironmentChain has no single kernel, its environment is {self._kind_text}; what was asked "
            "for works with a CoupledChain or JointChain only (docs/environments.md lists what carries environments)"
        )

    # ---- identity ----------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        hasher = hashlib.sha256("|".join([self.schema, *(chain.digest for chain in self.environments)]).encode())
        hasher.update(repr((self.kind, self.cycle, self.series)).encode())
        hasher.update(b"" if self.switching is None else self.switching.astype("<f8").tobytes())
        return self._finish_digest(hasher)

    @property
    def _written_schema(self) -> str:
        return self.schema

    def _law_content(self) -> dict[str, Any]:
        shared = ("values", "names", "initial")
        members = [chain.to_dict() for chain in self.environments]
        return {
            "environments": [{k: v for k, v in member.items() if k not in shared} for member in members],
            "cycle": None if self.cycle is None else list(self.cycle),
            "switching": None if self.switching is None else self.switching.tolist(),
            "series": self.series,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> EnvironmentChain:
        """Rebuild a chain from `to_dict`."""
        shared = {"values": content.get("values"), "names": content.get("names")}
        try:
            members = [CoupledChain.from_dict({**member, **shared}) for member in content["environments"]]
            how = {key: content.get(key) for key in ("cycle", "switching", "series")}
            return cls(members, **how)._restore_fit(content)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"chain: the JSON lacks or garbles {error}; write it with to_json") from None

    @property
    def _kind_text(self) -> str:
        if self.cycle is not None:
            return f"by a clock of {len(self.cycle)} ticks"
        return "hidden" if self.series is None else f"the public series {self.series!r}"

    def __repr__(self) -> str:
        backward = "backward, " * (self.direction == "backward")
        kind = f"{'' if self.kind == 'clock' else ','} {self._kind_text}"
        return (
            f"EnvironmentChain({backward}{len(self.environments)} environments{kind}, {self.sequences} "
            f"sequence{'s' * (self.sequences > 1)}, {self.states} states, digest {self.digest[:8]})"
        )


def _check_members(members: Iterable[CoupledChain]) -> tuple[CoupledChain, ...]:
    """At least one coupled chain, alike in everything but the law."""
    chains = tuple(members)
    if not chains:
        raise InputError("EnvironmentChain: no members given; give a CoupledChain for each environment")
    for chain in chains:
        if not isinstance(chain, CoupledChain):
            raise InputError(f"EnvironmentChain: {type(chain).__name__} given; members are CoupledChain")
        if chain.initial is not None:
            raise InputError("EnvironmentChain: a member with an initial law given; leave initial= out")
        if chain.family is not None or chain.fit_cost is not None:
            raise InputError(
                "EnvironmentChain: a fitted member that carries a family or a cost given; make the environment chain "
                "of plain chains and let the whole carry them"
            )
    checks.check_alike("EnvironmentChain", chains)
    return tuple(chain.carrying() for chain in chains)
