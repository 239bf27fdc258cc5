"""Plan: what is published, at what age and noise level, and the leakage that this certifies."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from csdp.age_check import compare_with_past
from csdp.aging import check_ages, check_epsilon
from csdp.bounds.leakage import leakage
from csdp.bounds.result import Leakage, as_text
from csdp.bounds.units import Units, read_units
from csdp.chain import Family, Model, Verdict, certified_model, worst_verdict
from csdp.chain.evidence import DECLARED
from csdp.chain.files import model_from_dict
from csdp.chain.model import refuse_initial
from csdp.errors import AlteredPlanError, InputError, TooLargeError
from csdp.noise import variance
from csdp.numbers import parse_json
from csdp.query import OF_READINGS, PerGroup, QueryTable, Sum, parse_query, tabulate
from csdp.query_table import FoldTable, FunctionTable, Query
from csdp.readings import ReadingsEvidence, ReadingsTable, refuse_memory
from csdp.schedule import Schedule

#: Version of the algorithm, increased whenever a certified number could change; ledger entries name it.
ALGORITHM: Final = 2
#: The version of the algorithm of csdp 0.1, whose plans and ledgers are refused.
_FIRST_ALGORITHM: Final = 1
#: Stands in digests in place of ALGORITHM: a plan keeps its name however it is certified.
_DIGEST_VERSION: Final = 1
SCHEMA: Final = "csdp/plan/1"
#: Of plans of version 0.2 whose outputs were drawn from a table, which are refused.
_TABLE_SCHEMA: Final = "csdp/plan/2"
#: Of plans of version 0.2 with a noise level for each phase of a clock, which are refused.
_PHASE_SCHEMA: Final = "csdp/plan/3"
#: What plans of version 0.2 could choose; a digest still names it.
_FIXED: Final = {"adversary": "informed", "bound": "auto"}
#: What a recorded plan of version 0.2 that uses something removed has in its text.
_REMOVED: Final = re.compile(
    rf'{_TABLE_SCHEMA}|{_PHASE_SCHEMA}| memory |"failed"|"initial":\s*\[|"protect"'
    r'|"adversary":\s*"(?!informed")|"bound":\s*"(?!auto")'
)
#: Largest `stale_limit`.
MAX_STALE: Final = 10_000
#: Lattice steps that a float counts exactly.
EXACT_STEPS: Final = 2**53
#: Noise beyond this many scales has a probability below 2^-140.
_FARTHEST: Final = 100.0
#: Scale of the noise in lattice steps that can be drawn.
SCALES: Final = (1e-9, 1e9)


@dataclass(frozen=True, eq=False)
class Plan:
    """One kind of release: query, ages, noise level, and the leakage of the present that a single one certifies.

    Frozen; `digest` names its content together with the version of the algorithm. The certificate is for the
    mechanism as it runs: answers on a lattice, two-sided geometric noise of scale exactly Delta_f / epsilon_c.

    Args:
        chain: the model, or a Family of models (the largest leakage counts). A fitted chain stands for its family.
        query: what is asked, or its text ("mean"). The plan keeps its table for the chain's values. The answers of a
            function are rounded to a lattice, and its sensitivity grows by that rounding.
        ages: one age for all sequences, or one each.
        epsilon_c: noise level.
        stale_limit: how many steps older than planned a reading may be before a tick is left out.
        schedule: noise levels by tick; none may be above epsilon_c.
        units: lists of sequences, by name or number, that belong to one person: the secret is the state of all of them
            at once. By default every sequence is one by itself.
        readings_check: if readings are published, what `check_readings` said of their public past; by default
            as the record of the chain's fit has it.

    >>> from csdp import CoupledChain, Mean
    >>> plan = Plan(CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]]), Mean(), ages=2, epsilon_c=1)
    >>> plan
    Plan(mean, ages 2, epsilon_c 1, certified 0.153046)
    """

    chain: Model | Family
    query: QueryTable
    ages: tuple[int, ...]
    epsilon_c: float
    stale_limit: int = 0
    schedule: Schedule | None = None
    units: Units = ()
    model: Model = field(init=False, repr=False, compare=False)
    #: ages of the newest and the oldest reading that a planned release touches
    min_age: int = field(init=False, repr=False, compare=False)
    max_age: int = field(init=False, repr=False, compare=False)
    #: the lattice on which answers lie, before they are divided by `divisor`
    unit: float = field(init=False, repr=False, compare=False)
    divisor: float = field(init=False, repr=False, compare=False)
    #: Delta_f before the division, exact: a quotient would be rounded, perhaps down
    lattice_sensitivity: float = field(init=False, repr=False, compare=False)
    #: the version of the algorithm that wrote the file which the plan comes from
    written_by: int = field(default=ALGORITHM, init=False, repr=False, compare=False)

    def __init__(
        self,
        chain: Model | Family,
        query: Query | str,
        ages: Any,
        epsilon_c: float,
        *,
        stale_limit: int = 0,
        schedule: Schedule | None = None,
        units: Sequence[Sequence[str | int]] | None = None,
        readings_check: ReadingsEvidence | None = None,
    ) -> None:
        chain = certified_model(chain)
        model = chain.members[0].point
        if isinstance(stale_limit, bool) or not isinstance(stale_limit, int) or not 0 <= stale_limit <= MAX_STALE:
            raise InputError(f"stale_limit: {stale_limit!r} given; a whole number of steps, 0 to {MAX_STALE:,}")
        computation = tabulate(query, model, on_lattice=True, readings_check=readings_check)
        if stale_limit and not computation.of_states:
            raise InputError(
                f"stale_limit: {stale_limit} given for {computation.name}; missing readings are left out and never "
                "replaced by older ones. Leave it out"
            )
        sensitivity = computation.undivided_sensitivity(1)
        if not sensitivity > 0:
            raise InputError(
                f"query: {computation.name} never changes with one record, whatever the states, "
                "so there is nothing to publish; give values that differ, or another query"
            )
        if schedule is not None:
            schedule.check(epsilon_c)
        checked = check_ages(ages, model.sequences)
        values: dict[str, Any] = {
            "chain": chain,
            "query": computation,
            "ages": checked,
            "epsilon_c": check_epsilon(epsilon_c),
            "stale_limit": stale_limit,
            "schedule": schedule,
            "units": read_units(units, model.names),
            "model": model,
            "min_age": min(checked),
            "max_age": max(checked),
            "unit": computation.unit,
            "divisor": computation.denominator,
            "lattice_sensitivity": sensitivity,
            "written_by": ALGORITHM,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def certified(self) -> Leakage:
        """The leakage of the present after one release."""
        assumptions = tuple(dict.fromkeys((*self._planned.assumptions, *self.assumptions)))
        return replace(self._planned, assumptions=assumptions, model=self.verdict)

    @cached_property
    def _planned(self) -> Leakage:
        """The same before the verdict is known."""
        return leakage(self.chain, self.query, ages=self.ages, epsilon_c=self.epsilon_c, units=self.units)

    def one_release(self, passed: int = 0) -> Leakage:
        """The leakage of the present some ticks after one release."""
        ages = [age + passed for age in self.ages]
        if not passed:
            return self._planned
        return leakage(self.chain, self.query, ages=ages, epsilon_c=self.epsilon_c, units=self.units)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the data accept the model, at the ages of this plan; shown wherever its leakage is shown.

        A model that its public past accepts is compared with the k-step transitions of that past, k the plan's ages:
        if a sequence is certain to reveal more than the plan certifies for one release, the model is rejected.
        """
        known = [member for member in (self.model, *self.chain.members) if member.verdict.status != "declared"]
        if not known:
            return DECLARED
        judged = worst_verdict([member.verdict for member in known])
        if judged.status != "accepted":
            return judged
        query, certified = self._additive()
        options: dict[str, Any] = {"ages": self.ages, "epsilon_c": self.epsilon_c, "certified": certified}
        tested = [member.evidence for member in known if member.evidence is not None]
        counted = [each for each in tested if each.sequences] or tested[:1]
        return worst_verdict([compare_with_past(each, self.model, query, **options) for each in counted])

    def _additive(self) -> tuple[FoldTable, float]:
        """A query that adds up contributions of states, and its certificate: the plan's own, or their sum."""
        query = self.query
        if query.of_states and isinstance(query, FoldTable) and query.fold == "sum":
            return query, self._planned.epsilon
        total = tabulate(Sum(), self.model)
        assert isinstance(total, FoldTable)
        return total, leakage(self.chain, total, ages=self.ages, epsilon_c=self.epsilon_c).epsilon

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a certificate assumes of the model (its verdict) and of the query, and whether it was certified anew."""
        again = (
            f"certified anew by version {ALGORITHM} of the algorithm: the plan was written by version {self.written_by}"
        )
        texts = (self.verdict.words, self.query.assumption, again * (self.written_by != ALGORITHM))
        return tuple(words for words in texts if words)

    @property
    def readings_check(self) -> ReadingsEvidence | None:
        """What is known of the assumptions on readings; None if states are published."""
        return self.query.evidence if isinstance(self.query, ReadingsTable) else None

    def with_readings_check(self, evidence: ReadingsEvidence) -> Plan:
        """The same plan with what a public past said of the readings."""
        return self._again(readings_check=evidence)

    # ---- the mechanism as it runs ------------------------------------------------------------------------------------

    @property
    def sensitivity(self) -> float:
        """Delta_f: the largest l1 change of the answer when one record changes."""
        return self.lattice_sensitivity / self.divisor

    @property
    def step(self) -> float:
        """The lattice on which noise lies: the coarsest that holds the answers.

        A finer one has the same leakage and more variance, because the worst output is always a possible answer.
        """
        return self.query.spacing

    @cached_property
    def scale(self) -> Fraction:
        """Scale of the noise in lattice steps, exactly Delta_f / epsilon_c."""
        return Fraction(self.lattice_sensitivity) / (Fraction(self.step) * Fraction(self.epsilon_c))

    @cached_property
    def noise_variance(self) -> float:
        """Variance of the noise of one output, after the division."""
        return variance(self.scale) * (self.step / self.divisor) ** 2

    @property
    def unit_size(self) -> int:
        """Sequences of the largest unit."""
        return max([1, *map(len, self.units)])

    @cached_property
    def unit_level(self) -> float:
        """What the releases that read a unit at one tick reveal of it, under any model; epsilon_c of one sequence.

        Sequences of different ages are read there by different releases, whose costs add up.
        """
        ratios = [1.0]
        for unit in self.units:
            parts = [tuple(i for i in unit if self.ages[i] == age) for age in {self.ages[i] for i in unit}]
            ratios.append(sum(self.query.undivided_sensitivity(len(part), part) for part in parts))
            ratios[-1] /= self.lattice_sensitivity
        return self.epsilon_c * max(ratios)

    def level(self, tick: int) -> float:
        """epsilon_c at a tick; 0 if the schedule publishes nothing."""
        return self.epsilon_c if self.schedule is None else self.schedule.level(tick)

    @property
    def mean_level(self) -> float:
        """The level whose noise is about as wide as that of the releases in the mean; epsilon_c without a schedule."""
        return self.epsilon_c if self.schedule is None else self.schedule.mean_level

    def at_tick(self, tick: int) -> Plan:
        """The same plan with the constant noise level of a tick."""
        return self if self.schedule is None else self.at(self.level(tick))

    def at(self, epsilon_c: float, *, schedule: Schedule | None = None) -> Plan:
        """The same plan with one constant noise level, or with a schedule of levels none of which is above it."""
        if epsilon_c == self.epsilon_c and self.schedule == schedule:
            return self
        return self._again(epsilon_c=epsilon_c, schedule=schedule)

    def under(self, chain: Model | Family) -> Plan:
        """The same plan under another model, such as its own after a test on a public past."""
        return self._again(chain=chain)

    def _again(self, **changes: Any) -> Plan:
        """The same plan with some arguments changed."""
        names = ("stale_limit", "schedule", "units", "readings_check")
        options = {name: getattr(self, name) for name in names} | changes
        chain, epsilon_c = options.pop("chain", self.chain), options.pop("epsilon_c", self.epsilon_c)
        return Plan(chain, self.query, self.ages, epsilon_c, **options)

    def check_noise(self) -> None:
        """Refuse a plan whose noise cannot be drawn, before anything is charged for it."""
        if self.schedule is not None:
            for level in {self.schedule.smallest, self.schedule.largest}:
                self.at(level).check_noise()
            return
        low, high = SCALES
        if not low <= self.scale <= high:
            width = f"{float(self.scale):.3g}" if self.scale < 10**300 else "more than 1e+300"
            raise InputError(
                f"plan: noise {width} lattice steps wide; {low:g} to {high:g} steps can be drawn. "
                "Use a larger epsilon_c, or values and weights with fewer binary digits (such as multiples of 1/8)"
            )
        self.check_exact()

    def check_exact(self) -> None:
        """Refuse a plan whose noisy answers a float could not hold exactly, so that they would leave the lattice."""
        if isinstance(self.query, FunctionTable):
            return
        steps = (self.query.largest + _FARTHEST * float(self.scale) * self.step) / self.unit
        if not steps < EXACT_STEPS:
            raise TooLargeError(
                f"query {self.query.name}: answers of {steps:.3g} lattice steps are not exact; give values and weights "
                "with fewer binary digits (such as multiples of 1/8), or a larger epsilon_c",
                needed=steps,
                limit=float(EXACT_STEPS),
            )

    # ---- identity ----------------------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content.

        It decides what is computed: the query is the built-in one of its text, or the fingerprint of its table is part
        of the content. The version of the algorithm is not part of it, so that a
        dataset goes on under its plan when bounds have become sharper; charges and certificates name the version.
        """
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "algorithm": _DIGEST_VERSION,
            "chain_digest": self.chain.digest,
            "query": self.query.text,
            "ages": self.ages[0] if len(set(self.ages)) == 1 else list(self.ages),
            "epsilon_c": self.epsilon_c,
            **_FIXED,
            "stale_limit": self.stale_limit,
        }
        if self.schedule is not None:
            content["schedule"] = self.schedule.to_dict()
        if self.units:
            content["units"] = [list(unit) for unit in self.units]
        if self.readings_check is not None:
            content["readings_check"] = self.readings_check
        if self.query.groups is not None:
            content["groups"] = [list(group) for group in self.query.groups]
        if isinstance(self.query, FunctionTable):
            content["custom"] = self.query.fingerprint
        elif self.query.custom:
            content["computation"] = self.query.fingerprint
        return content

    def record(self) -> dict[str, Any]:
        """The content as plain data for a ledger, with the fingerprint of what the query computes."""
        chains = [member.to_dict() for member in self.chain.members]
        version = {"algorithm": ALGORITHM, "computation": self.query.fingerprint}
        return {**self._content(), **version, "chain": chains}

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, the chain included."""
        if self.query.custom:
            raise InputError(
                f"a plan with a custom query ({self.query.name}) cannot be written as JSON; make it in a script, or "
                "use a built-in query"
            )
        return self.record()

    def to_json(self, *, indent: int | None = None) -> str:
        """The content as JSON text with a versioned schema."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Rebuild a plan from `to_json`, and check that it is the one that was written.

        A plan of an older version of the algorithm is certified anew, and its certificate says so. A plan of csdp 0.1
        is refused.
        """
        content = parse_json("plan", text)
        if not isinstance(content, dict) or content.get("schema") not in (SCHEMA, _TABLE_SCHEMA, _PHASE_SCHEMA):
            raise InputError(f"plan: this version reads schema {SCHEMA!r}; write plans with Plan.to_json")
        _refuse_removed(content)
        try:
            if content.get("algorithm") == _FIRST_ALGORITHM and content["algorithm"] is not True:
                raise InputError(
                    "plan: written by csdp 0.1, whose plans this version does not read; make the plan again from its "
                    "chain with this version"
                )
            models = [model_from_dict(item) for item in content["chain"]]
            if "custom" in content:
                raise InputError(f"plan: {content['query']!r} is a Python function, which JSON does not hold")
            plan = cls(
                models[0] if len(models) == 1 else Family(models),
                _read_query(content["query"], content.get("groups")),
                content["ages"],
                content["epsilon_c"],
                stale_limit=content["stale_limit"],
                schedule=Schedule.from_dict(content.get("schedule")),
                units=content.get("units"),
                readings_check=content.get("readings_check"),
            )
            plan._check_origin(content)
        except InputError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"plan: the JSON lacks or garbles {error}; write plans with Plan.to_json") from None
        return plan

    def _check_origin(self, content: Mapping[str, Any]) -> None:
        """Refuse content that names another chain, query or version than what was rebuilt from it."""
        if content["chain_digest"] != self.chain.digest:
            raise AlteredPlanError(
                f"plan: it was written for the chain {str(content['chain_digest'])[:12]}, but the chain in it is "
                f"{self.chain.digest[:12]}: altered after it was certified. Make the plan anew from the right chain"
            )
        if content["schema"] != SCHEMA:
            words = f"{content['schema']!r} given, but its content is of {SCHEMA!r}: altered, make the plan anew"
            raise InputError(f"plan: schema {words}")
        if content["computation"] != self.query.fingerprint:
            raise InputError(
                f"plan: its query {content['query']!r} is not the built-in one of that name; a custom query is "
                "Python, which JSON does not hold. Make the plan in a script, with the query itself"
            )
        version = content["algorithm"]
        if isinstance(version, bool) or not isinstance(version, int) or version > ALGORITHM:
            raise InputError(
                f"plan: written by version {version!r} of the algorithm; this is version {ALGORITHM}. "
                "Install the newer csdp, or make the plan anew"
            )
        object.__setattr__(self, "written_by", version)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and other.digest == self.digest and other.query == self.query

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        ages = str(self.ages[0]) if len(set(self.ages)) == 1 else ",".join(map(str, self.ages[:8]))
        doubt = "" if self.verdict.reliable else f", {self.verdict.brief}"
        certified = f"certified {as_text(self.certified.epsilon)}{doubt}"
        return f"Plan({self.query.name}, ages {ages}, epsilon_c {self.epsilon_c:g}, {certified})"


def _read_query(text: str, groups: Any) -> Query:
    """The query of a text, of every group if there are some."""
    return parse_query(text) if groups is None else PerGroup(text, groups)


def refuse_first_version(text: str) -> None:
    """Refuse a plan, as JSON text of a ledger, that csdp 0.1 recorded."""
    recorded = re.search(r'"algorithm":\s*1\b', text)  # do not parse large chains in vain
    if recorded and parse_json("plan", text).get("algorithm") == _FIRST_ALGORITHM:
        raise InputError("recorded by csdp 0.1, whose plans this version does not read")


def check_supported(text: str) -> None:
    """Refuse a plan, as JSON text of a ledger, that this version cannot account for.

    Plans of csdp 0.1, and of version 0.2 those with a table of outputs, levels per phase, a protected distance, another
    adversary or bound, readings with a memory, a rejected check of readings, or a chain with an initial law.
    """
    refuse_first_version(text)
    if not _REMOVED.search(text):
        return  # do not parse large chains in vain
    content = parse_json("plan", text)
    _refuse_removed(content)
    for chain in content["chain"]:
        for part in (chain, *(chain.get("family") or ())):
            refuse_initial(part)
    Schedule.from_dict(content.get("schedule"))
    if OF_READINGS in content["query"]:
        refuse_memory(content["query"])
    if content.get("readings_check") == "failed":
        raise InputError("readings of which the public past speaks against the certificate were published")


def _refuse_removed(content: Mapping[str, Any]) -> None:
    """Refuse the content of a plan of version 0.2 that draws outputs from a table, or has a guarantee of its own."""
    if content["schema"] == _TABLE_SCHEMA or "mechanism" in content:
        raise InputError(
            "plan: a table to draw outputs from given; a plan adds noise to the answers. Make the plan again with "
            "noise, by csdp.find_plan or `csdp plan`"
        )
    if content.get("protect") is not None:
        raise InputError(
            f"plan: only present values at most {content['protect']:g} apart are protected; this version protects any "
            "two values. Make the plan again, by csdp.find_plan or `csdp plan`"
        )
    for name, value in _FIXED.items():
        if content.get(name, value) != value:
            raise InputError(
                f"plan: {name} {content.get(name)!r} given; every plan is certified for the informed adversary by the "
                f"sharpest bound ({name} {value!r}). Make the plan again without it"
            )
