"""The numbers behind the figures of the explanation (docs/theory.md, docs/guarantees.md), on the public API only.

A lesson's numbers are plain lists by name: they are drawn, written into the figure's file, and held against the text.
"""

from __future__ import annotations

import json
import tempfile
import warnings

import numpy as np

import csdp
from study.mechanism import large_ring
from study.setting import MEAN, leak, pair, ring

Numbers = dict[str, list[float]]

#: The two wards of the tutorial: the paper's chain, its mean, age 2.
AGE, LEVEL = 2, 1.0
AGES = tuple(range(1, 9))
#: One sequence that changes state once in twenty steps.
SLOW = csdp.CoupledChain([[1.0]], [[0.95, 0.05], [0.05, 0.95]])
FRONTIER_AGES = (0, 1, 2, 4, 8)
LEVELS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
RING = 6


def _accountant(age: int) -> csdp.Accountant:
    return csdp.Accountant(csdp.Plan(pair(0.75), MEAN, ages=age, epsilon_c=LEVEL))


#: Sequences that all follow each other with equal weight and change state with 0.02, and ages at which they are read.
TIED, TIED_CHANGE, TIED_AGES = tuple(range(1, 9)), 0.02, (0, 1, 2, 4, 8, 16, 32)


def correlation() -> Numbers:
    """What one release of the mean tells somebody who knows the model alone: by the number of sequences, and by age."""
    step = [[1 - TIED_CHANGE, TIED_CHANGE], [TIED_CHANGE, 1 - TIED_CHANGE]]

    def told(coupling: np.ndarray, age: int) -> float:
        chain = csdp.CoupledChain(coupling, step)
        return csdp.leakage(chain, MEAN, ages=age, epsilon_c=LEVEL, adversary="uninformed").epsilon

    return {
        "epsilon_c": [LEVEL],
        "tied": [told(np.full((count, count), 1 / count), 0) for count in TIED],
        "independent": [told(np.eye(count), 0) for count in TIED],
        "four tied, by age": [told(np.full((4, 4), 0.25), age) for age in TIED_AGES],
    }


def guarantee() -> Numbers:
    """What all releases so far tell of the state at each tick, when data is `AGE` ticks old before it is read.

    Of the tick n steps before the present the newest reading used is AGE - n steps old: the same accountant, a smaller
    age. Ticks that were read are told of by later releases too: their lifetime leakage, in the end.
    """
    return {
        "ticks ago": [0.0, 1.0, 2.0],
        "told so far": [_accountant(AGE - ago).limit().epsilon for ago in range(AGE + 1)],
        "told in the end": [_accountant(AGE).every_moment()],
        "event": [_accountant(AGE).event_level()],
    }


#: Chain, noise level and first age of each panel, and the bounds drawn in it.
PANELS = {
    "paper": (pair(0.75), 1.0, 1, ("exact", "profile", "freshness", "printed-loose")),
    "rare": (pair(0.75, 0.01, 0.3), 2.0, 1, ("exact", "profile", "loose", "printed-loose")),
    "slow": (pair(0.5, 0.001, 0.1), 4.0, 0, ("exact", "profile", "printed-loose")),
}


def by_age() -> Numbers:
    """Leakage of one release against the age, by bound, on three chains."""
    return {
        f"{name}, {bound}": [leak(chain, age, level, bound) for age in range(first, AGES[-1] + 1)]
        for name, (chain, level, first, bounds) in PANELS.items()
        for bound in bounds
    }


def trade_off() -> Numbers:
    """Error of the best linear estimate, as a share of that of publishing nothing, against leakage."""
    numbers: Numbers = {"epsilon_c": list(LEVELS)}
    for name, chain in (("paper", pair(0.75)), ("slow", SLOW)):
        line = csdp.frontier(chain, MEAN, ages=FRONTIER_AGES, levels=LEVELS, estimate="linear")
        for age in FRONTIER_AGES:
            points = sorted((p for p in line.points if p.age == age), key=lambda p: p.epsilon_c)
            numbers[f"{name}, age {age}, leakage"] = [p.leakage for p in points]
            numbers[f"{name}, age {age}, error"] = [p.mse / line.no_data for p in points]
            numbers[f"{name}, fresh at the end of age {age}"] = [_fresh(chain, points[-1].leakage) / line.no_data]
    return numbers


def _fresh(chain: csdp.CoupledChain, leakage: float) -> float:
    """Error of fresh data with that leakage, which is its epsilon_c."""
    return float(csdp.mse(chain, MEAN, ages=0, epsilon_c=leakage, estimate="linear").mse)


#: A release at every tick but these, whose readings are missing.
QUIET = (9, 10, 11, 12)
#: A strongly coupled, slow pair, fresh readings: chain, noise level, budget.
HELD = (pair(0.5, 0.02, 0.02), 0.7, 1.5)


def budget() -> Numbers:
    """Leakage of the present tick by tick: with a gap, and as a publisher with a budget records it."""
    accountant = _accountant(AGE)
    state, path = accountant.start(0), []
    for tick in range(1, 17):
        state = state if tick in QUIET else accountant.release(state, tick)
        path.append(accountant.leakage(state, tick).epsilon)
    return {"path": path, "limit": [accountant.limit().epsilon], **_ledger_record()}


def _ledger_record() -> Numbers:
    """Return published ticks with their leakage and its peak, and refused ticks with the leakage they requested."""
    chain, level, ceiling = HELD
    plan = csdp.Plan(chain, MEAN, ages=0, epsilon_c=level)
    still = csdp.Panel.from_states(np.zeros((24, 2), dtype=int))
    with tempfile.TemporaryDirectory() as folder, csdp.Ledger.open(f"{folder}/ledger.db") as ledger:
        csdp.Publisher(plan, dataset="pair", ledger=ledger, budget=ceiling, on_refusal="skip").publish(still)
        entries = [(entry.kind, entry.tick, json.loads(entry.payload)) for entry in ledger.entries("pair")]
    published = [(tick, content["charge"]) for kind, tick, content in entries if kind == "reserve"]
    refused = [(tick, content) for kind, tick, content in entries if kind == "refuse"]
    return {
        "budget": [ceiling],
        "published": [float(tick or 0) for tick, _ in published],
        "present": [charge["present"] for _, charge in published],
        "peak": [charge["peak"] for _, charge in published],
        "refused": [float(tick or 0) for tick, _ in refused],
        "meanwhile": [content["spent"] for _, content in refused],
        "asked for": [content["requested"] for _, content in refused],
    }


def network() -> Numbers:
    """How far a present state reaches into the past of its neighbours on a ring, and what bounds it at every age."""
    chain = ring(RING)
    large = large_ring(100_000)
    numbers = {f"reach, age {age}": _reach(chain, age) for age in (1, 2, 4)}
    return numbers | {
        "freshness": [leak(chain, age, 1.0, "freshness") for age in AGES],
        "slice": [leak(chain, age, 1.0, "slice") for age in AGES],
        "slice of 100,000": [leak(large, age, 1.0, "slice") for age in AGES],
        "one step": [leak(chain, 1, 1.0, "slice")] * len(AGES),
    }


def _reach(chain: csdp.CoupledChain, age: int) -> list[float]:
    """By how much the first one's present moves the law of what each other was, given all other presents."""
    joint = chain.stationary()[:, None] * np.linalg.matrix_power(chain.kernel(), age)  # Pr(z, x)
    law_given = (joint / joint.sum(axis=0)).reshape((2,) * RING + (2, 2 ** (RING - 1)))  # z, first of x, rest of x
    moved = []
    for distance in range(RING // 2 + 1):
        law = law_given.sum(axis=tuple(i for i in range(RING) if i != distance))
        moved.append(float(abs(law[1, 1] - law[1, 0]).max()))
    return moved


DRAWS = 1000
#: A bin around each point of the lattice, which is that of the answers: 0, 0.5 and 1 are all that two readings give.
EDGES = tuple(np.arange(-3.25, 4.0, 0.5).tolist())


def noise() -> Numbers:
    """Real releases of two answers half apart, and the place of the lowest bit that is set in each output."""
    plan = csdp.Plan(pair(0.75), MEAN, ages=0, epsilon_c=LEVEL)
    random = np.random.default_rng(1)
    ours = {answer: _publish_answer(plan, answer) for answer in (0.0, 0.5)}
    floats = {answer: answer + random.laplace(scale=0.5, size=DRAWS) for answer in (0.0, 0.5)}
    numbers: Numbers = {"step": [plan.step / plan.divisor], "scale": [0.5]}
    for answer in (0.0, 0.5):
        numbers[f"seen, {answer:g}"] = (np.histogram(ours[answer], EDGES)[0] / DRAWS).tolist()
        numbers[f"law, {answer:g}"] = _law(plan, answer)
        for kind, outputs in (("lattice", ours), ("float", floats)):
            numbers[f"{kind}, {answer:g}"] = _lowest_bits(outputs[answer])
    return numbers


def _publish_answer(plan: csdp.Plan, answer: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Outputs of a publisher whose readings always have this mean. The seed makes the figure the same every time."""
    states = np.tile([int(2 * answer), 0], (DRAWS, 1))
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # that a seed gives no protection
        publisher = csdp.Publisher(plan, dataset="noise", ledger=f"{folder}/ledger.db", unsafe_seed=int(2 * answer) + 1)
        with publisher:
            return np.array([release.values[0] for release in publisher.publish(csdp.Panel.from_states(states))])


def _law(plan: csdp.Plan, answer: float) -> list[float]:
    """Probability of each bin: the two-sided geometric law on the plan's lattice, `Pr(n) = (1-q)/(1+q) q^|n|`."""
    step = plan.step / plan.divisor
    q = np.exp(-1 / float(plan.scale))
    steps = np.arange(-int(8 / step), int(8 / step) + 1)
    shares = (1 - q) / (1 + q) * q ** abs(steps)
    return np.histogram(answer + steps * step, EDGES, weights=shares)[0].tolist()


BITS = tuple(range(-60, 4))


def _lowest_bits(outputs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Share of outputs whose lowest bit set is worth 2^k, for each k of BITS; 0, which has none, counts as the last."""
    mantissa, exponent = np.frexp(np.where(outputs == 0, 2.0 ** BITS[-1], abs(outputs)))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = exponent - 53 + np.frexp((digits & -digits).astype(np.float64))[1] - 1
    places = np.clip(lowest, BITS[0], BITS[-1]) - BITS[0]
    return [float(share) for share in np.bincount(places, minlength=len(BITS)) / DRAWS]


# ---- graph -----------------------------------------------------------------------------------------------------------

#: Ticks of the graph that is drawn, and the one that a release reads.
TICKS, READ = 5, 3


def graph() -> Numbers:
    """What one release reveals of every value given all newer ones, on a declared graph of two sequences."""
    both = csdp.InfluenceGraph.declared(["hall", "kitchen"], own=0.4, others={("hall", "kitchen"): 0.15})
    alone = csdp.InfluenceGraph.declared(["hall"], own=0.4)  # nobody depends on the hall but itself
    numbers = {}
    for name, rooms in (("hall", alone), ("kitchen", both)):
        revealed = [csdp.leakage(rooms, "sum", ages=age, epsilon_c=0.5).epsilon for age in range(READ + 1)]
        numbers[name] = [0.0] * (TICKS - 1 - READ) + revealed
    return numbers
