"""Many histories, what they covered, and a description of each that found something."""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from attacks.alone import run_alone
from attacks.cases import TABLES, Case, random_case
from attacks.history import Drive, Finding, Outcome
from attacks.library import Tap

#: Histories in one ledger: a file for each would take longer than the histories.
PER_FILE = 50
#: A report takes longer than a history.
REPORTED = 12
#: Findings that are described, of each kind.
SHOWN = 3


def run_case(case: Case, where: Path, *, report: bool = False) -> Outcome:
    """One history against a ledger, with what it covers as tags."""
    if case.alone:
        outcome = run_alone(case)
    else:
        tap = Tap()
        with tap.open():
            outcome = Drive(case, where, tap, report=report).run()
    if outcome.releases:
        outcome.tags |= tags_of(case)
    outcome.findings = [replace(finding, seed=case.seed) for finding in outcome.findings]
    return outcome


def tags_of(case: Case) -> set[str]:
    """What a case covers, as far as its description says."""
    specs = [spec for plan in case.plans for spec in plan.models]
    tags = {f"query {plan.ask.name}" for plan in case.plans}
    tags |= {f"chain {spec.kind.split()[0]}" for spec in specs} | {f"{case.s} of {case.m} states"}
    coupled = [spec for spec in specs if spec.coupling is not None and not spec.windows]
    tags |= {f"coupling {spec.kind.split()[-1]}" for spec in coupled if spec.s > 1}
    present = {
        "schedule": any(plan.levels for plan in case.plans),
        "state asked for": case.alone and case.state != "auto",
        "per group": any(plan.ask.groups for plan in case.plans),
        "sequence by sequence": case.state == "vector"
        or any(
            spec.windows or (plan.large and spec.coupling is not None) for plan in case.plans for spec in plan.models
        ),
        "family": any(len(plan.models) > 1 for plan in case.plans),
        "private fit": any(spec.fit is not None for spec in specs),
        "joint chain": any(spec.coupling is None and not spec.windows for spec in specs),
        "backward chain": any(spec.direction == "backward" and not spec.windows for spec in specs),
        "graph": any(spec.windows for spec in specs),
        "limits of odds": any(spec.levels is not None for spec in specs),
        "longer memory": any(len(spec.windows) > 1 for spec in specs),
        "edges inside a tick": any(edge[2] == 0 for spec in specs for window in spec.windows for edge in window),
        "family at once": any(spec.margin is not None for spec in specs),
        "clock": any(spec.how == "clock" for spec in specs),
        "given environment": any(spec.how == "hidden" for spec in specs),
        "several components": any(len(spec.parts) > 1 for spec in specs),
        "values per sequence": any(spec.values.ndim == 2 for spec in specs),
        "unequal ages": any(len(set(plan.ages)) > 1 for plan in case.plans),
        "age 0": any(0 in plan.ages for plan in case.plans),
        "gaps": len({step.tick for step in case.steps if step.action in {"push", "batch"}})
        < max((step.tick for step in case.steps), default=0),
        "query by its table": any(plan.ask.name in TABLES for plan in case.plans),
        **{limit: value is not None for limit, value in case.limits.items()},
    }
    return tags | {name for name, found in present.items() if found}


@dataclass
class Coverage:
    """What all histories together did."""

    histories: int = 0
    released: int = 0  #: histories with a release
    releases: int = 0
    checks: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    least: dict[str, float] = field(default_factory=dict)  #: by tag
    numbers: dict[str, float] = field(default_factory=dict)  #: by the number that was compared
    findings: list[Finding] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one history."""
        self.histories += 1
        self.released += outcome.releases > 0
        self.releases += outcome.releases
        self.checks += outcome.checks
        if outcome.refused:
            self.refused[outcome.refused.split(":")[0]] += 1
        self.tags.update(outcome.tags)
        for tag in outcome.tags:
            self.least[tag] = min(self.least.get(tag, math.inf), outcome.least)
        for what, ratio in outcome.least_by.items():
            self.numbers[what] = min(self.numbers.get(what, math.inf), ratio)
        self.findings += outcome.findings

    def merge(self, other: Coverage) -> None:
        """Count what another process did."""
        for name in ("histories", "released", "releases", "checks"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.refused.update(other.refused)
        self.tags.update(other.tags)
        for mine, theirs in ((self.least, other.least), (self.numbers, other.numbers)):
            for key, ratio in theirs.items():
                mine[key] = min(mine.get(key, math.inf), ratio)
        self.findings += other.findings

    def lines(self) -> Iterator[str]:
        """The tables that are printed in the end."""
        least = min(self.numbers.values(), default=math.inf)
        yield f"{self.histories:,} histories, {self.released:,} with a release, {self.releases:,} releases"
        yield f"{self.checks:,} numbers compared; smallest certified / true {least:.9f}"
        if self.refused:
            yield "refused as a whole: " + ", ".join(f"{n} {why}" for why, n in self.refused.most_common())
        yield ""
        yield f"{'covered':36}{'histories':>10}{'least ratio':>16}"
        for tag, count in self.tags.most_common():
            yield f"{tag:36}{count:>10,}{self.least.get(tag, math.inf):>16.6f}"
        yield ""
        yield f"{'number':44}{'least ratio':>16}"
        for what, ratio in sorted(self.numbers.items()):
            yield f"{what:44}{ratio:>16.9f}"


def run_seeds(seeds: range, seconds: float = math.inf) -> Coverage:
    """Histories of some seeds, until so many seconds have passed."""
    until = time.monotonic() + seconds
    coverage = Coverage()
    memory = Path("/dev/shm")  # a ledger in memory is as real as one on disk, and does not wait for it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        for number, seed in enumerate(seeds):
            if time.monotonic() > until:
                break
            file = Path(folder) / f"{number // PER_FILE}.db"
            if number % PER_FILE == 0:
                for old in Path(folder).glob(f"{number // PER_FILE - 1}.db*"):
                    if old.is_file():
                        old.unlink()
            case = random_case(seed)
            coverage.add(run_case(case, file, report=seed % REPORTED == 0))
    return coverage


def run_campaign(first: int, count: int, *, seconds: float, jobs: int) -> Coverage:
    """Histories of consecutive seeds on several processes, each with every n-th seed."""
    ranges = [range(first + job, first + count, jobs) for job in range(jobs)]
    if jobs == 1:
        return run_seeds(ranges[0], seconds)
    whole = Coverage()
    with ProcessPoolExecutor(jobs) as pool:
        for coverage in pool.map(run_seeds, ranges, [seconds] * jobs):
            whole.merge(coverage)
    return whole


def describe(case: Case) -> str:
    """A case in a few lines."""
    lines = [f"  {plan}" for plan in case.plans]
    steps = "; ".join(
        f"{step.tick} {step.action}{f' by {step.who}' if step.who else ''}"
        f"{f' without {list(step.missing)}' if step.missing else ''}{f' to {step.plan}' if step.plan else ''}"
        for step in case.steps
    )
    limits = {name: value for name, value in case.limits.items() if value is not None}
    return "\n".join([*lines, f"  steps: {steps}", f"  limits: {limits}; alone {case.alone}, state {case.state}"])


def reported(coverage: Coverage) -> Iterator[str]:
    """What was found: a few of each kind, and a history for each."""
    kinds: dict[str, list[Finding]] = {}
    for finding in coverage.findings:
        kinds.setdefault(finding.what, []).append(finding)
    for what, found in sorted(kinds.items(), key=lambda item: -len({f.seed for f in item[1]})):
        seeds = sorted({finding.seed for finding in found})
        yield f"{what}: {len(seeds)} histories, seeds {seeds[:12]}"
        for finding in sorted(found, key=lambda f: f.certified / f.true if f.true else 0.0)[:SHOWN]:
            yield f"  {finding}"
        yield describe(random_case(found[0].seed))
