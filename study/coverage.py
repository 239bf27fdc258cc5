"""Beyond the paper: how many truths the printed bands hold, on readings that nothing was learned from.

    python -m study.coverage                  every data set, and simulated sensors
    python -m study.coverage flights sensors  some

It writes the table of docs/estimates.md. The estimator is learned on the public past as `csdp release --past` does, for
a plan whose model is wrong on purpose (independent chains), and the rest of the readings is published with noise.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np

import csdp
from csdp.estimate import Observation
from csdp.estimate.result import About
from csdp.publisher.sources import true_answers
from study import sets

#: Age of the readings, and what the estimate is about.
RELEASES: tuple[tuple[int, About], ...] = ((0, "now"), (1, "now"), (3, "then"))
#: Ticks of the clock where it is not a day of the grid: nights without flights are left out.
PERIODS = {"flights": 5, "sensors": 24}
LEVEL, EPSILON_C = 0.95, 4.0
#: Ticks of simulated sensors: the public past, and the rest.
PAST, REST = 200 * 24, 100 * 24


@dataclass(frozen=True)
class Held:
    """One kind of release of one system: what was promised on the public past, and what held afterwards."""

    name: str
    query: str
    age: int
    about: str
    promised: float  #: coverage that is printed, measured on the end of the public past
    held: float  #: share of the truths of the rest inside the band
    usefulness: float  #: share of the squared error of guessing the usual value that is removed on the rest
    ticks: int


def sensors(ticks: int, seed: int) -> np.ndarray:
    """Twelve sensors: a daily cycle, a common factor that stays for hours, and noise of each."""
    random = np.random.default_rng(seed)
    common = np.zeros(ticks)
    for t in range(1, ticks):
        common[t] = 0.85 * common[t - 1] + 0.5 * random.standard_normal()
    day = np.sin(np.arange(ticks) * 2 * np.pi / 24)
    return np.asarray(day[:, None] + common[:, None] + 0.8 * random.standard_normal((ticks, 12)))


def simulate_parts(past: int, rest: int) -> tuple[csdp.Panel, csdp.Panel, str]:
    """So many ticks of sensors that are public, so many that are not, and the query that is published."""
    readings = csdp.Readings.from_array(sensors(past + rest, seed=1))
    discretiser = csdp.Discretiser.declared(readings.names, edges=[0.0], bounds=(-5.0, 5.0))
    first, second = map(discretiser.apply, readings.split(past))
    return first, second, "mean of readings -5..5 by 0.01"


def load_parts(name: str) -> tuple[csdp.Panel, csdp.Panel, str]:
    """The public past and the rest, and the query that is published: of readings where all have one range."""
    dataset = sets.load(name)
    past, rest = (dataset.discretiser().apply(part) for part in dataset.readings.split(dataset.past_ends))
    ranges = set(dataset.bounds)
    if len(ranges) > 1:
        return past, rest, "mean"
    ((low, high),) = ranges
    return past, rest, f"mean of readings {low:g}..{high:g} by {(high - low) / 1000:g}"


def measure(name: str, *, past: int = PAST, rest: int = REST, epsilon_c: float = EPSILON_C) -> list[Held]:
    """Publish the rest of a system in several ways. `past`, `rest`: ticks of simulated sensors."""
    public, private, text = simulate_parts(past, rest) if name == "sensors" else load_parts(name)
    assert public.values is not None
    m = public.values.shape[1]
    chain = csdp.CoupledChain(
        np.eye(len(public.names)), np.full((m, m), 0.2 / m) + 0.8 * np.eye(m), values=public.values, names=public.names
    )
    plans = [(csdp.Plan(chain, text, age, epsilon_c), about) for age, about in RELEASES]
    return [measure_release(name, plan, about, public, private, PERIODS.get(name)) for plan, about in plans]


def measure_release(
    name: str, plan: csdp.Plan, about: About, public: csdp.Panel, private: csdp.Panel, period: int | None = None
) -> Held:
    """Learn on the public past, publish the rest with noise, and count the truths inside the bands.

    `period`: ticks after which the usual value repeats; by default a day of the grid.
    """
    learned = csdp.learn_from_past(plan, public, period=period, about=about, level=LEVEL)
    truth = dict(zip(private.ticks.tolist(), true_answers(plan, private)[:, 0].tolist(), strict=True))
    random, spread, age = np.random.default_rng(2), np.sqrt(plan.noise_variance / 2), plan.max_age
    seen: list[Observation] = []
    rows = []
    for tick, present in truth.items():
        read = truth.get(tick - age, np.nan)
        wanted, about_tick = (present, tick) if about == "now" else (read, tick - age)
        if np.isnan(read):
            continue
        seen = [*seen, Observation(tick, (read + random.laplace(0.0, spread),), age, plan.noise_variance)]
        seen = seen[-learned.memory :]
        if not np.isnan(wanted):
            found = learned.of(seen)
            inside = found.low[0] <= wanted <= found.high[0]
            usual = learned.usual_at([about_tick])[0, 0]
            rows.append((inside, (found.estimate[0] - wanted) ** 2, (usual - wanted) ** 2))
    held, error, nothing = np.mean(rows, axis=0).tolist()
    return Held(name, plan.query.name, age, about, learned.coverage, held, 1 - error / nothing, len(rows))


def main(arguments: list[str] | None = None) -> None:
    """Print the table of some systems, or of all."""
    parser = argparse.ArgumentParser(prog="python -m study.coverage", description=__doc__)
    known = ["sensors", *sets.NAMES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--epsilon-c", type=float, default=EPSILON_C, help="noise level of every release")
    options = parser.parse_args(arguments)
    sys.stdout.write(
        "| data | query | age, about | printed | held | squared error removed | ticks |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for name in options.names or known:
        for one in measure(name, epsilon_c=options.epsilon_c):
            sys.stdout.write(
                f"| {one.name} | {one.query} | {one.age}, {one.about} | {one.promised:.1%} | {one.held:.1%} | "
                f"{one.usefulness:.1%} | {one.ticks:,} |\n"
            )


if __name__ == "__main__":
    main()
