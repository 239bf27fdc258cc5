"""Model: what CoupledChain, JointChain, EnvironmentChain and InfluenceGraph have in common."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt

from csdp import check
from csdp.chain import stationary
from csdp.chain.evidence import DECLARED, Evidence, FitRecord, Verdict
from csdp.chain.steps import KERNEL_STATES, MAX_STATES, ReversedStep, Step, joint_states
from csdp.errors import InputError, TooLargeError
from csdp.numbers import Floats, common_unit, freeze, on_lattice

if TYPE_CHECKING:
    from csdp.chain.coupled import CoupledChain
    from csdp.chain.family import Family
    from csdp.chain.graph import InfluenceGraph

Direction = Literal["forward", "backward"]
States = npt.NDArray[np.int8] | npt.NDArray[np.int16]

#: Schema of a backward chain: a reader that knows forward chains only must not take it for one.
BACKWARD_SCHEMA = "csdp/backward-chain/1"
#: Of fits that were made before models were tested.
NOT_TESTED = Evidence("untested", "fitted by a version of csdp that did not test models; fit it again")
#: Largest difference of a row sum from 1; such rows are scaled to sum to 1.
ROW_TOLERANCE = 1e-8
_OF_A_FIT = frozenset({"digest", "_subchains"})  #: what is cached of a model and depends on what it carries


class Model(ABC):
    """A Markov law of s sequences with m states each; frozen, equal by content.

    Snapshots are numbered with the first sequence as the most significant digit. A model stands for the models that
    might be true as a `Family` does: `members` is the model alone, `plausible` its family if a fit left one.
    """

    sequences: int
    states: int
    values: Floats  #: (m,), or (s, m) if sequences carry different values
    unit: float  #: every value is a multiple of this power of two
    #: how it was fitted; None if it was written by hand. Not in the digest: it changes nothing that is certified
    fitted: FitRecord | None = None
    #: what a public past showed of it; part of the digest
    evidence: Evidence | None = None
    #: the chains that the data leaves possible, this one first; part of the digest, as plans certify over it
    family: Family | InfluenceGraph | None = None
    schema: ClassVar[str]
    #: whether it is one law; otherwise it stands for many, and only bounds that need no law apply
    has_law: ClassVar[bool] = True
    #: whether coupling and transitions lead from the present to the next snapshot, or to the previous one
    direction: Direction = "forward"
    _names: tuple[str, ...] | None
    _fit_cost: dict[str, Any] | None = None

    def _set(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; make a new one to change {name!r}")

    def _set_common(self, *, sequences: int, states: int, values: Any, names: Sequence[str] | None) -> None:
        table, unit = _lattice_values(values, sequences, states)
        self._set(
            sequences=sequences,
            states=states,
            values=freeze(table),
            unit=unit,
            _names=_check_names(names, sequences),
        )

    # ---- defined by each model ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def is_positive(self) -> bool:
        """Whether every transition between snapshots is known to have positive probability."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of the content: equal models have equal digests."""

    @abstractmethod
    def components(self) -> list[tuple[int, ...]]:
        """Sets of sequences that are independent of each other."""

    def distinct_components(self, labels: npt.NDArray[np.integer[Any]]) -> list[tuple[tuple[int, ...], int]]:
        """One component of each kind with the number of its copies; labels of the sequences must agree as well."""
        return [(component, 1) for component in self.components()]

    @abstractmethod
    def subchain(self, members: Iterable[int]) -> Model:
        """The model of some sequences that do not depend on the others, with the cost of its fit, without a family."""

    @classmethod
    @abstractmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild from `to_dict`."""

    @abstractmethod
    def _law_content(self) -> dict[str, Any]:
        """The law alone, as plain data."""

    # ---- refused by models whose steps are not all alike ---------------------------------------------------------

    @property
    def own_step(self) -> Step:
        """One step of the joint law in the model's own direction."""
        self._refuse_law()

    def _own_kernel(self) -> Floats:
        self._refuse_law()

    def marginals(self) -> Floats:
        """Stationary law of every sequence (s, m)."""
        self._refuse_law()

    def advance(self, snapshot: States, uniform: Floats) -> States:
        """The snapshot that follows in the model's own direction, from one number in [0, 1) for each sequence."""
        self._refuse_law()

    def _refuse_law(self) -> NoReturn:
        raise InputError(
            f"chain: {self!r} has no single kernel; what was asked for works with a CoupledChain or JointChain "
            "only (docs/fitting.md lists what carries environments)"
        )

    @property
    def step_chains(self) -> tuple[CoupledChain, ...]:
        """Coupled chains one of which every step follows; under a clock one, with a block of sequences a phase."""
        return ()

    has_one_kernel: ClassVar[bool] = True  #: whether one kernel leads from every tick to the next
    given: str = ""  #: what certificates are conditional on, in words to quote
    not_protected: tuple[str, ...] = ()  #: and what that leaves without protection
    #: blocks of sequences that the chains of `step_chains` have
    phases: ClassVar[int] = 1

    def require_one_kernel(self) -> None:
        """Refuse a model whose steps are not all alike."""
        if not self.has_one_kernel:
            self._refuse_law()

    def given_path(self) -> Model:
        """The model for an adversary who knows the path of environments; the model itself without environments."""
        return self

    # ---- the models that might be true ---------------------------------------------------------------------------

    @property
    def members(self) -> tuple[Model, ...]:
        """This model alone; the members of a `Family` are several."""
        return (self,)

    @property
    def point(self) -> Model:
        """One law to simulate, to estimate and to predict errors with: the model itself if it is one law."""
        return self

    @property
    def assumption(self) -> str:
        """What a certificate assumes about the model, in words."""
        return f"the sequences follow the given model ({self.verdict.brief})"

    @property
    def plausible(self) -> Model | Family:
        """What certificates rest on: the family that a fit left with the chain, else the model."""
        return self.family or self

    # ---- what a fit leaves with a model --------------------------------------------------------------------------

    @property
    def fit_cost(self) -> dict[str, Any] | None:
        """What a private fit cost, charged when a publisher opens a dataset with this chain; a copy."""
        return deepcopy(self._fit_cost)

    def carrying(
        self,
        *,
        fitted: FitRecord | None = None,
        family: Family | InfluenceGraph | None = None,
        fit_cost: Mapping[str, Any] | None = None,
        evidence: Evidence | None = None,
    ) -> Self:
        """The same law, carrying the record of its fit, the family of plausible chains, its cost and its evidence.

        Cost, family and evidence enter the digest, so that no chain passes for one that cost less, promises less, or
        was accepted by its data.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update({key: value for key, value in self.__dict__.items() if key not in _OF_A_FIT})
        cost = None if fit_cost is None else deepcopy(dict(fit_cost))
        copy._set(fitted=fitted, family=None, evidence=evidence, _fit_cost=cost)
        if family is None:
            return copy
        if copy != family.point:
            raise InputError(
                "family: the chain itself, with the cost of its fit and its evidence, must be its first member"
            )
        del copy.__dict__["digest"]  # computed for the comparison, without the family
        copy._set(family=family)
        return copy

    def without_family(self) -> Self:
        """The point estimate alone, with record and cost of its fit; not tested if its past accepts the class."""
        if self.family is None:
            return self
        return self.carrying(fitted=self.fitted, fit_cost=self.fit_cost, evidence=self.derived_evidence)

    @property
    def verdict(self) -> Verdict:
        """Whether the data accept the model; "declared" if it was written by hand."""
        if self.evidence is not None:
            return self.evidence.verdict
        return DECLARED if self.fitted is None else NOT_TESTED.verdict

    @property
    def derived_evidence(self) -> Evidence | None:
        """The evidence that a model made of this one carries: what a past accepts with a family is the family."""
        if self.evidence is None:
            return None if self.fitted is None else NOT_TESTED
        if self.family is None or self.evidence.status != "accepted":
            return self.evidence
        reason = (
            "its public past accepts the class that was grown around it, not the chain alone; use it with its family"
        )
        return replace(self.evidence, status="untested", reason=reason)

    def part_evidence(self, members: Sequence[int]) -> Evidence | None:
        """The evidence that some sequences of this model carry."""
        evidence = self.derived_evidence
        return None if evidence is None else evidence.part(members)

    def with_values_of(self, model: Model, members: Sequence[int]) -> Self:
        """The same law with the values of some sequences of another model, on its lattice; they may all be equal."""
        copy = self.carrying(fit_cost=self.fit_cost, evidence=self.derived_evidence)
        values = model.values if model.values.ndim == 1 else model.values[list(members)]
        # A subset of the values may lie on a coarser lattice; the noise is that of the whole model.
        copy._set(values=freeze(np.array(values)), unit=model.unit)
        return copy

    def _finish_digest(self, hasher: hashlib._Hash) -> str:
        """Digest of the law and of what a fit left that certificates rest on; the law's own without a fit."""
        hasher.update(json.dumps(self._names).encode())
        law = hasher.hexdigest()
        if self.fit_cost is None and self.family is None and self.evidence is None:
            return law
        cost = json.dumps(self.fit_cost, sort_keys=True)
        family = "" if self.family is None else self.family.digest
        evidence = "" if self.evidence is None else f"|{self.evidence.digest()}"
        return hashlib.sha256(f"{law}|{cost}|{family}{evidence}".encode()).hexdigest()

    def _fit_content(self) -> dict[str, Any]:
        """Cost, record, evidence and family as plain data; the family's members without what all of them share."""
        record = None if self.fitted is None else self.fitted.to_dict()
        family = None if self.family is None else self.family.beside_point()
        evidence = None if self.evidence is None else self.evidence.to_dict()
        content = {"fit_cost": self.fit_cost, "fitted": record, "evidence": evidence, "family": family}
        return {key: value for key, value in content.items() if value is not None}

    def _restore_fit(self, content: Mapping[str, Any]) -> Self:
        """The same law with what `_fit_content` wrote."""
        from csdp.chain.family import family_of_point

        if not {"fit_cost", "fitted", "evidence", "family"} & set(content):
            return self
        cost, record = content.get("fit_cost"), content.get("fitted")
        if (cost is not None and not isinstance(cost, Mapping)) or not isinstance(record, Mapping | None):
            raise InputError("chain: fit_cost and fitted must be JSON objects")
        fitted = None if record is None else FitRecord.from_dict(record)
        evidence = None if content.get("evidence") is None else Evidence.from_dict(content["evidence"])
        if evidence is not None and not set(evidence.sequences) <= set(range(self.sequences)):
            raise InputError(f"chain: its evidence counts sequences that it does not have (0 to {self.sequences - 1})")
        point = self.carrying(fitted=fitted, fit_cost=cost, evidence=evidence)
        if content.get("family") is None:
            return point
        shared = {"values": content.get("values"), "names": content.get("names")}
        family = family_of_point(point, content["family"], shared)
        return self.carrying(fitted=fitted, fit_cost=cost, evidence=evidence, family=family)

    # ---- shared --------------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the sequences."""
        return self._names or tuple(f"x{i + 1}" for i in range(self.sequences))

    @property
    def size(self) -> int:
        """Number of joint states, m**s."""
        return int(pow(self.states, self.sequences))

    @property
    def value_table(self) -> Floats:
        """Values of the states of every sequence, (s, m)."""
        return np.broadcast_to(self.values, (self.sequences, self.states))

    @cached_property
    def step(self) -> Step:
        """How the joint law is pushed one step forward in time."""
        if self.direction == "forward":
            return self.own_step
        return ReversedStep(self.own_step, self.stationary())

    def kernel(self) -> Floats:
        """Joint kernel K[x, y] = Pr(next snapshot is y | present is x); up to 4,096 joint states."""
        own = self._small_kernel()
        return own if self.direction == "forward" else stationary.reverse_kernel(own, self.stationary())

    def backward_kernel(self) -> Floats:
        """R[x, w] = Pr(previous snapshot is w | present is x), in the long run; up to 4,096 joint states."""
        own = self._small_kernel()
        return own if self.direction == "backward" else stationary.reverse_kernel(own, self.stationary())

    def _small_kernel(self) -> Floats:
        if self.size > KERNEL_STATES:
            advice = "Leakage does not need it: csdp.leakage works without storing a kernel"
            raise self._too_large(KERNEL_STATES, "kernel: {} joint states; at most {}. " + advice)
        return self._own_kernel()

    def stationary(self) -> Floats:
        """Stationary law of the snapshot, (m**s,); NoStationaryLawError if there are several.

        >>> from csdp import CoupledChain
        >>> CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]]).stationary().round(4).tolist()
        [0.9677, 0.0323]
        """
        return self.stationary_with_error[0]

    @cached_property
    def stationary_with_error(self) -> tuple[Floats, float]:
        """The stationary law and an estimate of its largest relative error."""
        self.refuse_large()
        start = stationary.product_law(self.marginals()) if self.size > 512 else np.full(self.size, 1.0 / self.size)
        law, error = stationary.stationary_law(
            self.own_step, start=np.maximum(start, 1e-300), positive=self.is_positive, kernel=self._own_kernel
        )
        return freeze(law), error

    # ---- seen from one tick, like an EnvironmentView ----------------------------------------------------------------

    copies: ClassVar[int] = 1
    is_stationary: ClassVar[bool] = True  #: whether the law stays the same
    step_depth = property(lambda self: self.step.depth, doc="How much rounding one step adds.")

    def law_at(self, age: int) -> tuple[Floats, float]:
        """The stationary law, whatever the age, and its relative error."""
        return self.stationary_with_error

    def step_to(self, age: int) -> Step:
        """The step forward in time that leads to a snapshot of this age: the same for all."""
        return self.step

    def rate(self) -> float:
        """The factor by which differences between laws shrink in one step."""
        return min(1.0, float(np.sort(np.abs(np.linalg.eigvals(self.kernel())))[-2]))

    def refuse_large(self) -> None:
        """TooLargeError if the joint law has too many entries to be made."""
        if self.size > MAX_STATES:
            advice = "Use marginals(), or bound='auto'"
            raise self._too_large(MAX_STATES, "the joint law has {} entries; at most {} are made. " + advice)

    def _too_large(self, limit: int, message: str) -> TooLargeError:
        text = message.format(f"{self.states}**{self.sequences}", f"{limit:,}")
        return TooLargeError(text, needed=joint_states(self.sequences, self.states), limit=limit)

    def simulate(self, steps: int, *, seed: int, burn_in: int = 200) -> States:
        """Snapshots (steps, s) of small integers, drawn from the model; memory of the output plus a constant.

        Starts from the stationary law: exactly for small models, otherwise from independent stationary marginals
        followed by `burn_in` steps that are thrown away.

        >>> from csdp import CoupledChain
        >>> CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]).simulate(5, seed=1).shape
        (5, 1)
        """
        steps = check.whole("steps", steps, least=1)
        random = np.random.default_rng(seed)
        snapshot = stationary.draw_snapshot(self, random, burn_in=burn_in)
        out = np.empty((steps, self.sequences), dtype=snapshot.dtype)
        out[0] = snapshot
        for n in range(1, steps):
            snapshot = self.advance(snapshot, random.random(self.sequences))
            out[n] = snapshot
        return out if self.direction == "forward" else np.ascontiguousarray(out[::-1])

    # ---- identity --------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data with a versioned schema; `from_dict` gives an equal model back."""
        return {
            "schema": self._written_schema,
            **({} if self.direction == "forward" else {"direction": self.direction}),
            "sequences": self.sequences,
            "states": self.states,
            **self._law_content(),
            "values": self.values.tolist(),
            "names": None if self._names is None else list(self._names),
            **self._fit_content(),
        }

    @property
    def _written_schema(self) -> str:
        return self.schema if self.direction == "forward" else BACKWARD_SCHEMA

    def to_json(self, *, indent: int | None = None) -> str:
        """The content as JSON text with a versioned schema."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Rebuild a model from `to_json`; the schema is checked."""
        from csdp.chain.files import read_model

        model = read_model(text)
        if not isinstance(model, cls):
            raise InputError(f"chain: a {type(model).__name__} given; a {cls.__name__} expected")
        return model

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Model) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        cached = {name for name in self.__dict__ if isinstance(getattr(kind, name, None), cached_property)}
        return {name: value for name, value in self.__dict__.items() if name not in cached | _OF_A_FIT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Copies of arrays can be written to.
        self._set(**{name: freeze(v) if isinstance(v, np.ndarray) else v for name, v in state.items()})


@contextmanager
def reading_json() -> Iterator[None]:
    """Turn whatever goes wrong with plain data, as JSON gives it, into an InputError."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"chain: the JSON lacks or garbles {error}; write it with to_json or `csdp chain new`"
        ) from None


def check_rows(what: str, rows: Floats) -> Floats:
    """Check that the last axis holds probability rows, and scale away rounding in the input."""
    if (rows < 0).any():
        at = tuple(int(v) for v in np.argwhere(rows < 0)[0])
        raise InputError(f"{what}: negative probability {rows[at]:.6g} at {at}; probabilities lie in [0, 1]")
    sums = rows.sum(axis=-1)
    off = np.abs(sums - 1.0)
    if off.size and off.max() > ROW_TOLERANCE:
        at = tuple(int(v) for v in np.argwhere(off > ROW_TOLERANCE)[0])
        hint = "each row (from -> to) must sum to 1"
        square = rows.ndim >= 2 and rows.shape[-1] == rows.shape[-2]
        if square and np.abs(rows.sum(axis=-2) - 1.0).max() <= ROW_TOLERANCE:
            hint += "; here the columns do: the matrix seems to be transposed, pass its transpose"
        where = f"row {at[-1]}" if len(at) < 2 else f"row {at[-1]} of matrix {at[:-1]}"
        raise InputError(f"{what}: {where} sums to {float(sums[at]):.6g}; {hint}")
    # Scaling only if needed keeps a JSON round trip bit for bit the same.
    needs = off > 1e-15 * rows.shape[-1]
    return np.where(needs[..., None], rows / np.where(sums > 0, sums, 1.0)[..., None], rows)


def refuse_initial(content: Mapping[str, Any]) -> None:
    """Refuse a chain of csdp 0.2 that has a law of its oldest snapshot."""
    if content.get("initial") is not None:
        raise InputError(
            "initial: a law of the oldest snapshot given; chains follow their stationary law. Make the chain again "
            "without it"
        )


def _lattice_values(values: Any, sequences: int, states: int) -> tuple[Floats, float]:
    """Values of the states on a power-of-two lattice, and its step.

    Exact noise needs every query value to be a multiple of one power of two. Values that already are (with at
    most 20 binary digits, such as integers and halves) stay as they are; others move by at most 2^-21 of the largest.
    """
    if values is None:
        return np.arange(states, dtype=np.float64), 1.0
    table = check.floats("values", values)
    if table.shape not in {(states,), (sequences, states)}:
        raise InputError(
            f"values: shape {table.shape} given; one value per state ({states},), "
            f"or one row per sequence ({sequences}, {states})"
        )
    if np.ptp(table) == 0:
        raise InputError("values: all states carry the same value; at least two must differ")
    table = on_lattice(table) + 0.0  # turns -0.0 into 0.0, so equal chains have equal digests
    return table, common_unit(table)


def _check_names(names: Sequence[str] | None, sequences: int) -> tuple[str, ...] | None:
    """Names of the sequences: distinct, one each."""
    if names is None:
        return None
    labels = tuple(str(name) for name in names)
    if len(labels) != sequences:
        raise InputError(f"names: {len(labels)} given for {sequences} sequences; give one each")
    check.distinct("names", labels)
    return labels
