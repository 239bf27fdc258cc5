"""`--check` of `csdp stream` and `csdp serve`: what a specification asks for, without opening a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from csdp.cli.output import printable

if TYPE_CHECKING:
    from csdp.plan import Plan
    from csdp.stream.spec import StreamSpec


@dataclass(frozen=True)
class Checked:
    """A specification whose files were read and whose plan was made; it shows no secret that it names."""

    path: str
    spec: StreamSpec
    plan: Plan
    names: tuple[str, ...]

    def __str__(self) -> str:
        limits = ", ".join(f"{name} {value:g}" for name, value in self.spec.limits.items() if value is not None)
        clock = self.spec.clock
        return printable(
            f"{self.path}: dataset {self.spec.dataset}, {len(self.names):,} sequences, {self.plan!r}, limits "
            f"{limits or 'none'}, step {clock.step}, lateness {clock.lateness:g}, times {clock.times}, from "
            f"{self.spec.source.kind} to {self.spec.sink.kind}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The content as plain data, for JSON."""
        return {
            "spec": self.path,
            "dataset": self.spec.dataset,
            "sequences": list(self.names),
            "plan": self.plan.digest,
            "query": self.plan.query.name,
            "ages": list(self.plan.ages),
            "epsilon_c": self.plan.epsilon_c,
            "adversary": self.plan.adversary,
            "leakage": self.plan.certified.epsilon,
            "limits": self.spec.limits,
            "step": self.spec.clock.step,
            "lateness": self.spec.clock.lateness,
            "times": self.spec.clock.times,
            "source": self.spec.source.kind,
            "sink": self.spec.sink.kind,
        }


def checked(path: str) -> Checked:
    """Read a specification and all that it names, as a start would."""
    from csdp.stream.from_spec import make_plan, resolve_sequences
    from csdp.stream.spec import read_spec

    spec = read_spec(path)
    plan = make_plan(spec)
    names, _ = resolve_sequences(spec, plan)
    return Checked(path, spec, plan, names)
