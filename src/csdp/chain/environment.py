"""EnvironmentChain: coupled chains whose law depends on an environment, by a clock or hidden; and its views.

Under environments steps differ from tick to tick, so the law of aged readings asks for a view from one tick.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import stationary
from csdp.chain.coupled import CoupledChain
from csdp.chain.model import Model, States, check_rows, reading_json
from csdp.chain.steps import (
    MAX_STATES,
    ComposedStep,
    KernelStep,
    ReversedStep,
    Step,
    SwitchedStep,
    joint_states,
)
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats, Indices, freeze

#: How the environment of a tick becomes known: by the clock, not at all, or (for certificates) as a given path.
EnvironmentKind = Literal["clock", "hidden", "given"]
#: Ticks that a simulation lets pass before it counts, if the long-run law is too large to draw from.
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

    Certificates that are given the environment do not protect facts about the environment itself.

    Args:
        members: CoupledChains, all forward or all backward, with the same names, states and values.
        cycle: number of the member at each phase. switching: row-stochastic.

    >>> day, night = (CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.1))
    >>> chain = EnvironmentChain([day, night], cycle=(0, 0, 1))
    >>> chain
    EnvironmentChain(2 environments by a clock of 3 ticks, 1 sequence, 2 states, digest 1d59b84e)
    >>> chain.at_phase(2).kernel().tolist()
    [[0.9, 0.1], [0.1, 0.9]]
    >>> EnvironmentChain.from_json(chain.to_json()) == chain
    True
    """

    schema: ClassVar[str] = "csdp/environment-chain/1"
    has_one_kernel: ClassVar[bool] = False
    environments: tuple[CoupledChain, ...]  #: the chain of each environment
    cycle: tuple[int, ...] | None
    switching: Floats | None
    _is_given: bool

    def __init__(
        self,
        members: Iterable[CoupledChain],
        *,
        cycle: Sequence[int] | None = None,
        switching: Any = None,
    ) -> None:
        environments = _check_members(members)
        if (cycle is None) == (switching is None):
            raise InputError(
                f"EnvironmentChain: {'neither' if cycle is None else 'both'} of cycle= and switching= given; give a "
                "public clock or a hidden environment, and fit the chain again if it comes from a file of csdp 0.2"
            )
        self._make(environments, cycle, switching, given=False)

    def _make(self, environments: tuple[CoupledChain, ...], cycle: Any, switching: Any, *, given: bool) -> None:
        """Set everything; `given`: the path of environments is known, and it is not by a clock."""
        first = environments[0]
        self._set(
            environments=environments,
            direction=first.direction,
            cycle=_check_cycle(cycle, len(environments)),
            switching=_check_switching(switching, len(environments)),
            _is_given=given,
        )
        if cycle is not None:
            self._set(given=", given the phase of the clock")
        else:
            self._set(given=", given the environment of every tick", not_protected=(_NOT_PROTECTED,))
        shared = ("sequences", "states", "values", "unit", "_names")
        self._set(**{name: getattr(first, name) for name in shared})

    # ---- the environment ---------------------------------------------------------------------------------------

    @property
    def kind(self) -> EnvironmentKind:
        """How the environment becomes known."""
        if self._is_given:
            return "given"
        return "clock" if self.switching is None else "hidden"

    @property
    def period(self) -> int:
        """H, the number of phases of the clock."""
        return len(self._clock("period"))

    def _clock(self, what: str) -> tuple[int, ...]:
        """The cycle of the clock; refused without one."""
        if self.cycle is None:
            raise InputError(f"{what}: the environment of this chain is {self.kind}, not by a clock; it has no phases")
        return self.cycle

    def at_phase(self, phase: int | None) -> CoupledChain:
        """The chain of the step that leads to a tick of this phase (back from it, for backward members)."""
        cycle = self._clock("phase")
        hint = f"The law depends on the phase of the clock: give phase=0 to {len(cycle) - 1}"
        return self.environments[cycle[check.whole("phase", phase, most=len(cycle) - 1, hint=hint)]]

    @cached_property
    def environment_law(self) -> Floats:
        """Long-run share of each environment: of the clock's phases, or of the hidden environment's ticks."""
        if self._is_given:
            raise InputError("environment_law: an environment that is given has no law; ask the hidden one")
        if self.switching is None:
            return freeze(np.bincount(self._clock("environment_law"), minlength=len(self.environments)) / self.period)
        return freeze(
            stationary.stationary_law(
                KernelStep(self.switching),
                start=np.full(self.switching.shape[0], 1.0 / self.switching.shape[0]),
                positive=bool((self.switching > 0).all()),
                kernel=lambda: np.asarray(self.switching),
            )[0]
        )

    def given_path(self) -> EnvironmentChain:
        """The same chains under environments that are known, tick by tick; a public environment is known already."""
        return self if self.switching is None else self._given_path

    @cached_property
    def _given_path(self) -> EnvironmentChain:
        known = EnvironmentChain.__new__(EnvironmentChain)
        known._make(self.environments, None, None, given=True)
        return known.carrying(fit_cost=self.fit_cost, evidence=self.derived_evidence)

    # ---- law ---------------------------------------------------------------------------------------------------

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
        laws, error = _find_periodic_laws(members, positive=self.is_positive)
        return freeze(laws), error

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
        """TooLargeError if the law of (environment, snapshot) has too many entries to be made."""
        self._hidden()
        count, size = len(self.environments), joint_states(self.sequences, self.states)
        if count * size > MAX_STATES:
            raise TooLargeError(
                f"{count} environments times {self.states}**{self.sequences} snapshots; at most {MAX_STATES:,} joint "
                "states are made. Use fewer sequences",
                needed=count * size,
                limit=MAX_STATES,
            )

    def joint_own_kernel(self) -> Floats:
        """Kernel on (environment, snapshot) in the members' own direction, (E m**s, E m**s), environment first."""
        kernels = np.array([chain._own_kernel() for chain in self.environments])
        axes = "ef,fxy->exfy" if self.direction == "forward" else "ef,exy->exfy"
        whole = np.einsum(axes, self.own_switching, kernels)
        return np.asarray(whole.reshape(whole.shape[0] * whole.shape[1], -1))

    @cached_property
    def own_switching(self) -> Floats:
        """`switching` in the members' own direction of time."""
        assert self.switching is not None
        forward = self.direction == "forward"
        return self.switching if forward else freeze(stationary.reverse_kernel(self.switching, self.environment_law))

    def _hidden(self) -> Floats:
        if self.switching is None:
            raise InputError(
                f"joint law: the environment of this chain is {self._kind_text}; only a hidden one has a law together "
                "with the snapshot"
            )
        return self.switching

    # ---- simulation --------------------------------------------------------------------------------------------

    def simulate(self, steps: int, *, seed: int, burn_in: int = _BURN_IN) -> States:
        """Snapshots (steps, s) drawn from the model, tick 0 first.

        >>> day, night = (CoupledChain([[1.0]], [[1 - p, p], [p, 1 - p]]) for p in (0.3, 0.1))
        >>> EnvironmentChain([day, night], switching=[[0.9, 0.1], [0.1, 0.9]]).simulate(5, seed=1).shape
        (5, 1)
        """
        return self.simulate_with_environments(steps, seed=seed, burn_in=burn_in)[0]

    def simulate_with_environments(self, steps: int, *, seed: int, burn_in: int = _BURN_IN) -> tuple[States, Indices]:
        """Snapshots (steps, s), and the environments (steps,) under which the step that leads to each tick happened."""
        steps = check.whole("steps", steps, least=1)
        random = np.random.default_rng(seed)
        burn_in = burn_in - burn_in % len(self.cycle or (0,))  # whole days, so that tick 0 keeps phase 0
        path = self._draw_environments(steps + 2 * burn_in, -burn_in, random)
        states = _draw_snapshots(self.environments, path, random)
        return states[burn_in : burn_in + steps], path[burn_in : burn_in + steps]

    def _draw_environments(self, count: int, first: int, random: np.random.Generator) -> Indices:
        if self._is_given:
            raise InputError("simulate: the environment is given and has no law; simulate the hidden one")
        if self.cycle is not None:
            return np.asarray(self.cycle, dtype=np.intp)[(first + np.arange(count)) % self.period]
        cumulative = np.cumsum(self._hidden(), axis=1)[:, :-1]
        path = np.empty(count, dtype=np.intp)
        before = np.cumsum(self.environment_law)[:-1]
        for n, uniform in enumerate(random.random(count)):
            path[n] = int((uniform >= before).sum())
            before = cumulative[path[n]]
        return path

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
            chains = _check_members(chain.subchain(inside) for chain in self.environments)
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
        """The chains of which any may come next: members, or under a clock one chain of all phases; none if hidden."""
        if self.switching is not None:
            return ()
        return self.environments if self.cycle is None else (_unroll_clock([self.environments[e] for e in self.cycle]),)

    @cached_property
    def is_positive(self) -> bool:
        """Whether every transition between snapshots is known to have positive probability in every environment."""
        return all(chain.is_positive for chain in self.environments)

    def rate(self) -> float:
        """The factor by which differences between marginal laws shrink in the slowest environment."""
        return max(chain.rate() for chain in self.environments)

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
        with reading_json():
            members = [CoupledChain.from_dict({**member, **shared}) for member in content["environments"]]
            if content.get("series") is not None:
                raise InputError(
                    f"chain: it follows the public series {content['series']!r}, which is not followed any more; fit a "
                    "clock or a hidden environment instead"
                )
            return cls(members, cycle=content.get("cycle"), switching=content.get("switching"))._restore_fit(content)

    @property
    def _kind_text(self) -> str:
        return self.kind if self.cycle is None else f"by a clock of {len(self.cycle)} ticks"

    def __repr__(self) -> str:
        backward, comma = "backward, " * (self.direction == "backward"), "," * (self.cycle is None)
        size = f"{self.sequences} sequence{'s' * (self.sequences > 1)}, {self.states} states, digest {self.digest[:8]}"
        return f"EnvironmentChain({backward}{len(self.environments)} environments{comma} {self._kind_text}, {size})"


def _walk_clock(members: Sequence[CoupledChain]) -> list[tuple[int, CoupledChain]]:
    """From phase 0 once round the clock in the members' own direction: (phase reached, member of the step)."""
    count = len(members)
    if members[0].direction == "forward":
        return [(n % count, members[n % count]) for n in range(1, count + 1)]
    return [((n - 1) % count, members[n % count]) for n in range(count, 0, -1)]


def _find_periodic_laws(members: Sequence[CoupledChain], *, positive: bool) -> tuple[Floats, float]:
    """Periodic stationary law (H, m**s) of a clock's members, one for each phase, and its relative error."""
    walk, size = _walk_clock(members), members[0].size
    law, error = stationary.stationary_law(
        ComposedStep([chain.own_step for _, chain in walk]),
        start=np.full(size, 1.0 / size),
        positive=positive,
        kernel=lambda: reduce(np.matmul, [chain._own_kernel() for _, chain in walk]),
    )
    laws = np.empty((len(members), size))
    for phase, chain in walk:
        pushed = chain.own_step.push(law[:, None])[:, 0]
        laws[phase] = law = pushed / pushed.sum()
        error += (chain.own_step.depth + 2) * np.finfo(np.float64).eps
    return laws, error


def _unroll_clock(members: Sequence[CoupledChain]) -> CoupledChain:
    """One chain of a copy of all sequences for each phase: at every tick block h holds the copy whose phase is h.

    A step leads from each block to the next phase's (from the block of a phase back to that before it, for backward
    members), under the member of the step. So what holds for coupled chains holds for each copy, phase by phase.
    """
    from scipy.sparse import csr_array

    h, s, first = len(members), members[0].sequences, members[0]
    rows, columns, weights, tables = [], [], [], []
    for phase, member in enumerate(members):
        later, earlier = phase * s, (phase - 1) % h * s
        forward = member.direction == "forward"
        rows.append(member.edge_targets + (later if forward else earlier))
        columns.append(member.edge_sources + (earlier if forward else later))
        weights.append(member.edge_weights)
        table, which = member.transition_table
        tables.append(table[which])
    row, column = np.concatenate(rows), np.concatenate(columns)
    coupling = csr_array((np.concatenate(weights), (row, column)), shape=(h * s, h * s))
    order = np.lexsort((column, row))
    chain = CoupledChain(coupling, np.concatenate(tables)[order], direction=first.direction)
    return chain.with_values_of(first, [0]) if first.values.ndim == 1 else chain


def _draw_snapshots(environments: Sequence[CoupledChain], path: Indices, random: np.random.Generator) -> States:
    """Snapshots along a path of environments, from one drawn evenly, in the direction of the chains."""
    first = environments[0]
    kind: Any = np.int8 if first.states <= 127 else np.int16
    out = np.empty((path.size, first.sequences), dtype=kind)
    ahead = first.direction == "forward"
    snapshot: Any = random.integers(first.states, size=first.sequences).astype(kind)
    for n in range(path.size) if ahead else range(path.size - 1, -1, -1):
        # Forward: the step into n is under path[n]; backward: the step back from n + 1 is under path[n + 1].
        environment = path[n] if ahead else path[min(n + 1, path.size - 1)]
        snapshot = environments[environment].advance(snapshot, random.random(first.sequences))
        out[n] = snapshot
    return out


def _check_members(members: Iterable[CoupledChain]) -> tuple[CoupledChain, ...]:
    """At least one coupled chain, alike in everything but the law."""
    chains = tuple(members)
    if not chains:
        raise InputError("EnvironmentChain: no members given; give a CoupledChain for each environment")
    for chain in chains:
        if not isinstance(chain, CoupledChain):
            raise InputError(f"EnvironmentChain: {type(chain).__name__} given; members are CoupledChain")
        if chain.family is not None or chain.fit_cost is not None:
            raise InputError(
                "EnvironmentChain: a fitted member that carries a family or a cost given; make the environment chain "
                "of plain chains and let the whole carry them"
            )
    first = chains[0]
    for chain in chains[1:]:
        if chain.direction != first.direction:
            raise InputError("EnvironmentChain: members of both directions given; all forward or all backward")
        same = (chain.sequences, chain.states, chain.names) == (first.sequences, first.states, first.names)
        if not same or chain.values.tolist() != first.values.tolist():
            raise InputError("EnvironmentChain: members must agree in sequences, states, names and values")
    return tuple(chain.carrying() for chain in chains)


def _check_cycle(cycle: Any, environments: int) -> tuple[int, ...] | None:
    """The number of the environment at each phase of a clock."""
    if cycle is None:
        return None
    numbers = np.asarray(cycle)
    if numbers.ndim != 1 or not numbers.size or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(f"cycle: {cycle!r} given; the number of a member for each phase of the clock expected")
    if numbers.min() < 0 or numbers.max() >= environments:
        raise InputError(f"cycle: members 0 to {environments - 1} exist; {cycle!r} given")
    return tuple(int(number) for number in numbers)


def _check_switching(switching: Any, environments: int) -> Floats | None:
    """Probabilities of the next environment given the present one, rows from -> to."""
    if switching is None:
        return None
    rows = check.floats("switching", switching)
    if rows.shape != (environments, environments):
        raise InputError(
            f"switching: shape {rows.shape} given; ({environments}, {environments}) expected, one row for each member"
        )
    return freeze(check_rows("switching", rows))


# ---- views from one tick ---------------------------------------------------------------------------------------------


class EnvironmentView(ABC):
    """A chain with environments, seen from one tick; a view has what the law of aged readings asks a model for.

    Ages count back from the tick. `copies` is 1, or the number of hidden environments, which come first in a law.
    """

    is_stationary = False
    copies = 1

    def __init__(self, chain: EnvironmentChain) -> None:
        self.chain = chain
        self.sequences, self.states, self.size = chain.sequences, chain.states, chain.size

    @property
    def step_depth(self) -> int:
        """The largest depth of the steps."""
        return max(chain.own_step.depth for chain in self.chain.environments) + 3

    def refuse_large(self) -> None:
        """TooLargeError if a law has too many entries to be made."""
        self.chain.refuse_large()

    @abstractmethod
    def law_at(self, age: int) -> tuple[Floats, float]:
        """The law of the snapshot of this age, and its relative error."""

    @abstractmethod
    def step_to(self, age: int) -> Step:
        """The step forward in time that leads to this age."""


#: What the law of aged readings asks of a model. A plain model is its own view: all its steps are alike.
View = Model | EnvironmentView


class ClockView(EnvironmentView):
    """A chain under a clock, seen from a tick of one phase."""

    def __init__(self, chain: EnvironmentChain, phase: int) -> None:
        super().__init__(chain)
        chain.at_phase(phase)
        self.phase = phase
        self._steps: dict[int, Step] = {}

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The periodic law of that phase."""
        laws, error = self.chain.periodic_with_error
        return laws[(self.phase - age) % len(laws)], error

    def step_to(self, age: int) -> Step:
        """The step that leads to a tick of that phase."""
        phase = (self.phase - age) % self.chain.period
        if phase not in self._steps:
            step = self.chain.at_phase(phase).own_step
            if self.chain.direction == "backward":
                laws = self.chain.periodic_with_error[0]
                step = ReversedStep(step, laws[phase], laws[phase - 1])
            self._steps[phase] = step
        return self._steps[phase]


class PathView(EnvironmentView):
    """A chain whose environments are given, the present first: `path[a]` is the environment of the tick of age a.

    The law of the oldest snapshot (of the present one, for backward members) is evenly spread, which assumes
    nothing if any law may hold, or of backward members if the adversary knows the present.
    """

    def __init__(self, chain: EnvironmentChain, path: Sequence[int]) -> None:
        super().__init__(chain)
        self.refuse_large()  # before a law is made
        self._path = tuple(path)
        given = np.full(self.size, 1.0 / self.size)
        steps = [chain.environments[e].own_step for e in path]
        if chain.direction == "forward":
            self._start, self._steps = given, steps
            return
        laws = [given]
        for step in steps:
            pushed = step.push(laws[-1][:, None])[:, 0]
            laws.append(pushed / pushed.sum())
        self._start = laws[-1]
        self._steps = [ReversedStep(step, laws[age], laws[age + 1]) for age, step in enumerate(steps)]

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The law at the beginning of the path; `age` is its length."""
        return self._start, (len(self._path) + 1) * (self.step_depth + 2) * float(np.finfo(np.float64).eps) + 1e-13

    def step_to(self, age: int) -> Step:
        """The step that leads to the tick of that age."""
        return self._steps[age]


class JointView(EnvironmentView):
    """A chain with a hidden environment: laws are of (environment, snapshot), environment first."""

    def __init__(self, chain: EnvironmentChain) -> None:
        super().__init__(chain)
        self.copies = len(chain.environments)

    @property
    def step_depth(self) -> int:
        """The depth of the joint step."""
        return self.chain.joint_step.depth

    def refuse_large(self) -> None:
        """TooLargeError if the joint law has too many entries to be made."""
        self.chain.refuse_large_joint()

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The long-run law, whatever the age."""
        return self.chain.joint_law_with_error

    def step_to(self, age: int) -> Step:
        """The joint step."""
        return self.chain.joint_step


def long_run_views(model: Model) -> list[View]:
    """Views whose average is the long run: the model, each phase of its clock, or its joint law if hidden."""
    if not isinstance(model, EnvironmentChain):
        return [model]
    if model.kind == "given":
        raise InputError(
            "an environment that is given has no law, so there is no long run: ask the chain with its clock or hidden "
            "environment"
        )
    return [JointView(model)] if model.kind == "hidden" else [ClockView(model, h) for h in range(model.period)]
