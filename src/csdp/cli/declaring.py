"""What is to be released: the plan in a file, or the one that the options of a command describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from csdp.cli import inputs
from csdp.errors import InputError

if TYPE_CHECKING:
    from csdp.aging import Adversary
    from csdp.plan import Plan


@dataclass(frozen=True)
class Described:
    """The options that describe a plan; None where one was not given."""

    chain: str | None
    query: str | None
    age: int | None
    ages: str | None
    epsilon_c: float | None
    adversary: Adversary | None
    stale_limit: int | None = None

    def plan(self) -> Plan:
        """The plan that they describe."""
        from csdp.plan import Plan
        from csdp.queries import parse_query

        if self.chain is None:
            raise InputError("chain: give a model with --age and --epsilon-c, or --plan")
        ages = given_ages(self.age, self.ages)
        if self.epsilon_c is None:
            raise InputError("epsilon-c: give --epsilon-c, the noise level of a release")
        return Plan(
            inputs.read_chain(self.chain),
            parse_query(self.query or "mean"),
            ages,
            self.epsilon_c,
            adversary=self.adversary or "informed",
            stale_limit=self.stale_limit or 0,
        )


def declared_plan(file: str | None, described: Described) -> Plan:
    """The plan of a file, with nothing described beside it; or the plan that is described."""
    if file is None:
        return described.plan()
    named = {f"--{name.replace('_', '-')}": given for name, given in asdict(described).items()}
    refuse_beside({"the model": named.pop("--chain"), **named}, "--plan")
    return inputs.read_plan(file)


def refuse_beside(options: Mapping[str, Any], source: str) -> None:
    """Refuse options that say again, or otherwise, what a file says.

    >>> refuse_beside({"--query": None, "--age": 2}, "--plan")
    Traceback (most recent call last):
      ...
    csdp.errors.InputError: --age: given beside --plan, which says it all; leave out --age
    """
    both = ", ".join(name for name, given in options.items() if given is not None)
    if both:
        raise InputError(f"{both}: given beside {source}, which says it all; leave out {both}")


def given_ages(age: int | None, ages: str | None) -> int | list[int]:
    """One age for all sequences, or one for each.

    >>> given_ages(2, None), given_ages(None, "1,3"), given_ages(None, "2")
    (2, [1, 3], 2)
    """
    if ages is None:
        if age is None:
            raise InputError("age: give --age for all sequences, or --ages with one each")
        return age
    if age is not None:
        raise InputError("age: both given; give --age for all sequences, or --ages with one each")
    several = inputs.whole_numbers("ages", ages)
    return several[0] if len(several) == 1 else several
