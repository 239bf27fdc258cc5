"""`csdp leakage`: how much a release leaks."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import typer

from csdp.bounds.leakage import leakage as compute_leakage
from csdp.bounds.result import Leakage, as_text, in_words
from csdp.cli import options
from csdp.cli.terminal import Format, print_json, print_lines, printable, progress_bar
from csdp.plan import Plan
from csdp.query import parse_query
from csdp.report.certificate import INFORMED


def leakage(
    chain: Annotated[str, options.CHAIN],
    age: Annotated[str, options.AGE],
    epsilon_c: Annotated[float, options.NOISE_LEVEL],
    query: Annotated[str, options.QUERY] = "mean",
    adversary: Annotated[
        Literal["informed", "uninformed"],
        typer.Option(
            help="What the adversary knows besides the model: all other current values (informed), or none "
            "(uninformed)."
        ),
    ] = "informed",
    bound: Annotated[
        str,
        typer.Option(
            help="Bound to compute: auto (the sharpest that applies), exact, metric, profile, freshness, slice, "
            "influence or group.",
        ),
    ] = "auto",
    form: Annotated[Format, options.FORMAT] = "table",
) -> None:
    """Compute how much one noisy, aged release leaks about the present state of any sequence.

    \b
    Example:
      csdp leakage chain.json --query mean --age 2 --epsilon-c 1
      csdp leakage chain.json --query max --age 1,3 --epsilon-c 0.5 --adversary uninformed

    `csdp plan` shows what a release at every tick leaks in the long run.
    """
    asked = Plan(options.read_chain(chain), parse_query(query), options.parse_ages(age), epsilon_c)
    with progress_bar() as progress:
        answer = compute_leakage(
            asked.chain,
            asked.query,
            ages=asked.ages,
            epsilon_c=epsilon_c,
            bound=bound,
            adversary=adversary,
            progress=progress,
        )
    known = INFORMED if adversary == "informed" else "who knows the model but no present value"
    protects = (
        f"the present value of each sequence, against an adversary {known}, if the model holds ({answer.model.brief})."
    )
    exposes = f"old records, which are exposed with noise epsilon_c = {epsilon_c:g} ({in_words(epsilon_c)})."
    if form == "json":
        release = {
            "chain": asked.chain.digest,
            "query": asked.query.name,
            "ages": list(asked.ages),
            "epsilon_c": epsilon_c,
        }
        print_json({**release, **answer.to_dict(), "protects": protects, "does_not_protect": exposes})
        return
    print_lines(_describe(asked, answer))
    print_lines([f"Protects: {protects} Does not protect: {exposes}"])


def _describe(asked: Plan, answer: Leakage) -> list[str]:
    """The number, the release that it is for, why it is infinite, and its worst case."""
    ages = ",".join(map(str, asked.ages[:12])) if len(set(asked.ages)) > 1 else str(asked.ages[0])
    release = f"{asked.query.name}, age {ages}, epsilon_c {asked.epsilon_c:g}, {answer.adversary} adversary"
    lines = [
        f"Leakage of the present: {as_text(answer.epsilon)} ({answer.bound}): {answer.in_words}",
        f"Release: {release}",
    ]
    if answer.reason and math.isinf(answer.epsilon):
        lines.append(f"Why: {printable(answer.reason)}")
    if answer.witness is not None:
        lines.append(f"Worst case: {printable(str(answer.witness))}")
    groups: list[dict[str, Any]] = list(answer.components)
    if len(groups) > 1:
        members = ", ".join(groups[0]["sequences"][:8])
        lines.append(f"Components: {len(groups):,} kinds of independent groups; the worst has {printable(members)}")
    return lines
