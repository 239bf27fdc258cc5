"""Queries that strangers write: what is published is what was certified and charged for, or the query is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import csdp
import oracle as o
from csdp import CoupledChain, Custom, Ledger, Plan, Publisher, fran
from csdp.accountant import Accountant
from csdp.auditing.replay import replay
from csdp.computation import verify_query
from csdp.errors import InputError, LedgerConflictError
from csdp.noise import Randomness
from csdp.panel import Panel
from csdp.plan import ALGORITHM
from csdp.publisher import PanelSource
from csdp.tables import EngineSource, open_table

from contracts.outsiders import HONEST, HOSTILE, MISNAMED, Average, Each, Remainder, Stranger, Weighted  # isort: skip

FILES = Path(__file__).parents[1] / "files"
COUPLING = [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.25, 0.25, 0.5]]
MOVES = [[0.8, 0.2], [0.3, 0.7]]
TIED = CoupledChain(COUPLING, MOVES, values=[0.0, 2.0])
OWN = CoupledChain(COUPLING, MOVES, values=[[0.0, 2.0], [1.0, -3.0], [5.0, 5.5]])
APART = CoupledChain(np.eye(3), MOVES, values=[5.0, 6.0])
CHAINS = {"one component": TIED, "values of their own": OWN, "independent": APART}
SNAPS = np.array(o.snapshots(3, 2))


def seen(plan: Plan) -> list[tuple[float, ...]]:
    """The answer behind what is published for every snapshot: released with next to no noise."""
    fine = plan.at(2.0**22)
    released = fran.batch(fine, SNAPS.astype(np.int8), Randomness.from_key(bytes(32)))
    assert all(output is not None for output in released)
    return [tuple(np.round(np.array(output.values) * 2.0**12) / 2.0**12) for output in released if output]


def published_width(plan: Plan) -> float:
    """Delta_f as the noise has it: its scale times epsilon_c."""
    return float(plan.scale) * plan.step / plan.divisor * plan.epsilon_c


def truth(chain: CoupledChain, plan: Plan, answers: list[tuple[float, ...]], ages: list[int]) -> float:
    """Brute force for what is published, with the noise that is drawn."""
    coupling = np.eye(3) if chain is APART else COUPLING
    law_of_aged, law = o.aged_law(o.joint_kernel(coupling, MOVES), 3, 2, ages)
    width = published_width(plan)
    return o.exact_leakage(law_of_aged, answers, 3, 2, plan.epsilon_c, width, plan.adversary, law)


def named(query: Any) -> str:
    return query.name if not isinstance(query, Stranger) else f"{type(query).__name__} {query.name}"


# ---------------------------------------------------------------- honest ones are right


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
@pytest.mark.parametrize("query", [*HONEST, *MISNAMED], ids=named)
def test_what_is_published_is_certified(query: Stranger, chain: CoupledChain) -> None:
    table = chain.value_table
    for ages, adversary in (([1, 1, 1], "informed"), ([1, 2, 1], "uninformed")):
        plan = Plan(chain, query, ages, 1.0, adversary=adversary)  # type: ignore[arg-type]
        answers = [tuple(query.answer(table.tolist(), z)) for z in SNAPS.tolist()]
        flat = Plan(chain, query, 0, 1.0)
        assert np.allclose(seen(flat), answers, rtol=0, atol=2.0**-11)
        width = o.sensitivity(answers, 3, 2, 1)
        assert published_width(plan) == pytest.approx(width, rel=1e-12)
        assert plan.sensitivity == pytest.approx(width, rel=1e-12)
        real = truth(chain, plan, answers, ages)
        assert plan.certified.epsilon >= real * (1 - 1e-9)
        if chain is not APART:
            assert plan.certified.epsilon == pytest.approx(real, rel=1e-6)
        for k in (1, 2, 3):
            assert plan.query.undivided_sensitivity(k) / plan.divisor >= o.sensitivity(answers, 3, 2, k) * (1 - 1e-12)


def test_a_weighted_sum_of_ones_own_is_not_counted() -> None:
    """Weights (4, 1): it published 4, 4, 8 for the answers 1, 4, 5."""
    chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
    plan = Plan(chain, Weighted((4.0, 1.0)), 1, 1.0)
    asked = plan.query.lattice_answers(np.array([[0, 1], [1, 0], [1, 1]]))
    assert asked.ravel().tolist() == [1.0, 4.0, 5.0]
    assert plan.certified.epsilon == csdp.leakage(chain, csdp.Linear([4, 1]), ages=1, epsilon_c=1.0).epsilon


def test_noise_is_not_divided_twice() -> None:
    """An average over 4: the noise was four times too small, charged 1 where it is 4."""
    plan = Plan(TIED, Average(), 1, 1.0)
    assert plan.lattice_sensitivity == 2.0
    released = fran.batch(plan, np.zeros((20_000, 3), dtype=np.int8), Randomness.from_key(bytes([7]) * 32))
    drawn = np.array([output.values[0] for output in released if output])
    step = plan.step / plan.divisor
    mean = step / np.sinh(step / 0.5)  # of |noise| of scale 1/2; 20,000 draws miss it by 10 % once in 10^30
    assert abs(np.abs(drawn).mean() / mean - 1) < 0.1


def test_the_largest_of_other_parts_is_clipped_by_those_parts() -> None:
    """Clipped by the values 5 and 6, parts of 0 and 1 were constant: certified 5e-324."""
    plan = Plan(APART, Remainder(), 1, 1.0)
    alone = Plan(CoupledChain([[1.0]], MOVES, values=[5.0, 6.0]), csdp.Sum(), 1, 1.0).certified.epsilon
    assert plan.certified.epsilon == pytest.approx(alone, rel=1e-9)
    accountant = Accountant(plan)
    assert accountant.leakage(accountant.release(accountant.start(), 1)).epsilon >= alone * (1 - 1e-12)


def test_a_stranger_that_computes_a_built_in_is_that_one() -> None:
    """Names differ, computations do not: all numbers agree to the last bit, and the fast ways are taken."""

    class Same(Stranger):
        name = "sum"

    stranger, own = Plan(TIED, Same(), 1, 0.5), Plan(TIED, csdp.Sum(), 1, 0.5)
    assert stranger.digest == own.digest
    assert stranger.certified == own.certified
    assert verify_query(Same(), TIED).is_symmetric
    assert not verify_query(Same(), OWN).is_symmetric
    assert verify_query(Each(), OWN).per_sequence
    assert not verify_query(Weighted(name="identity"), OWN).per_sequence


# ---------------------------------------------------------------- hostile ones are refused


@pytest.mark.parametrize("kind", HOSTILE)
def test_refused_before_anything_is_charged(kind: str, tmp_path: Path) -> None:
    query, message = HOSTILE[kind]
    with pytest.raises(InputError, match=message):
        Plan(TIED, query, 1, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        csdp.leakage(TIED, query, ages=1, epsilon_c=1.0)  # type: ignore[arg-type]
    with Ledger.open(tmp_path / "ledger.db") as ledger, pytest.raises(InputError, match=message):
        Publisher(Plan(TIED, query, 1, 1.0), dataset="d", ledger=ledger)  # type: ignore[arg-type]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.datasets() == []


def test_a_lie_in_a_giant_system_is_found_by_sampling() -> None:
    giant = CoupledChain(np.eye(400), MOVES, values=[0.0, 2.0])

    class Many(Stranger):
        def parts(self, values: Any, members: Any = None) -> Any:
            return np.array(values if members is None else values[list(members)])[:, :, None]

        def evaluate(self, snapshots: Any, values: Any) -> Any:
            return np.asarray(values)[np.arange(400), np.asarray(snapshots)].sum(axis=-1, keepdims=True)

        def sensitivity(self, k: int, values: Any, *, members: Any = None) -> float:
            return 2.0 * k

    assert Plan(giant, Many(), 1, 1.0).sensitivity == 2.0  # type: ignore[arg-type]

    class Liar(Many):
        def evaluate(self, snapshots: Any, values: Any) -> Any:
            return super().evaluate(snapshots, values) % 7

    with pytest.raises(InputError, match="evaluate and the sum of the parts"):
        Plan(giant, Liar(), 1, 1.0)  # type: ignore[arg-type]


def test_parts_that_change_afterwards_change_nothing(tmp_path: Path) -> None:
    query = Weighted()
    plan = Plan(TIED, query, 1, 1.0)  # type: ignore[arg-type]
    digest, certified = plan.digest, plan.certified.epsilon
    answers = plan.query.lattice_answers(SNAPS)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        with Publisher(plan, dataset="d", ledger=ledger) as publisher:
            publisher.push([0, 1, 1], time=0)
            query.weights = (400.0, 100.0, 200.0)
            assert isinstance(publisher.push([1, 1, 1], time=1), csdp.publisher.Release)
            assert np.array_equal(plan.query.lattice_answers(SNAPS), answers)
            assert (plan.digest, plan.certified.epsilon, plan.at(0.5).lattice_sensitivity) == (digest, certified, 8.0)
        changed = Plan(TIED, query, 1, 1.0)  # type: ignore[arg-type]
        assert changed.digest != digest
        with pytest.raises(LedgerConflictError, match="published under other terms: plan"):
            Publisher(changed, dataset="d", ledger=ledger)


class Blocks:
    """The sum of each block of sequences; it hands out its own list of blocks."""

    name, fold = "blocks", "sum"

    def __init__(self) -> None:
        self.numbers = np.array([0, 0, 1])

    def blocks(self, values: Any) -> Any:
        return values[:, :, None], self.numbers

    def parts(self, values: Any, members: Any = None) -> Any:
        chosen = np.arange(3) if members is None else np.asarray(members)
        return values[chosen][:, :, None] * np.eye(2)[self.numbers[chosen]][:, None, :]

    def divisor(self, values: Any) -> float:
        return 1.0

    def evaluate(self, snapshots: Any, values: Any) -> Any:
        return values[np.arange(3), np.asarray(snapshots)] @ np.eye(2)[self.numbers]

    def sensitivity(self, k: int, values: Any, *, members: Any = None) -> float:
        return float(k * np.ptp(values, axis=1).max())

    def output_names(self, names: Any, values: Any) -> Any:
        return ("first", "second")


def test_blocks_that_change_afterwards_change_nothing() -> None:
    query = Blocks()
    plan, same = (Plan(TIED, query, 1, 1.0) for _ in range(2))  # type: ignore[arg-type]
    before = same.query.lattice_answers(SNAPS), same.digest, same.certified.epsilon
    query.numbers[:] = [0, 1, 1]
    assert np.array_equal(plan.query.lattice_answers(SNAPS), before[0])
    assert (plan.digest, plan.certified.epsilon) == before[1:]


def test_answers_in_a_list_that_is_used_again_change_nothing() -> None:
    """A query that fills one array at every call changed what plans made before it took for its answers."""

    class Reused:
        name = "reused"
        declared = None

        def __init__(self) -> None:
            self.room = np.empty((8, 1))

        def evaluate(self, snapshots: Any, values: Any) -> Any:
            rows = values[np.arange(3), np.asarray(snapshots)].reshape(-1, 3)
            self.room[: len(rows), 0] = rows.max(axis=1) * rows.min(axis=1)
            return self.room[: len(rows)].reshape(*np.shape(snapshots)[:-1], 1)

        def sensitivity(self, k: int, values: Any, *, members: Any = None) -> float:
            raise NotImplementedError

        def output_names(self, names: Any, values: Any) -> Any:
            return ("reused",)

    query, kernel = Reused(), [[0.7, 0.3], [0.3, 0.7]]
    large, small = (CoupledChain(np.eye(3), kernel, values=[1.0, v]) for v in (3.0, 1.25))
    computations = [verify_query(query, large), verify_query(query, large)]  # type: ignore[arg-type]
    expected = [computations[0].undivided_sensitivity(k) for k in (1, 2, 3)]
    verify_query(query, small)  # type: ignore[arg-type]
    assert expected == [6.0, 6.0, 8.0]
    assert [computations[1].undivided_sensitivity(k) for k in (1, 2, 3)] == expected


# ---------------------------------------------------------------- a digest says what is computed


def test_no_two_computations_share_a_dataset(tmp_path: Path) -> None:
    """Two queries of one name took each other's place, with and without a restart."""
    one, other = Weighted((4.0, 1.0, 2.0), name="load"), Weighted((1.0, 4.0, 2.0), name="load")
    plans = [Plan(TIED, query, 1, 0.5) for query in (one, other)]  # type: ignore[arg-type]
    assert plans[0].digest != plans[1].digest
    assert plans[0].digest == Plan(TIED, Weighted((4.0, 1.0, 2.0), name="load"), 1, 0.5).digest  # type: ignore[arg-type]
    path = tmp_path / "ledger.db"
    with Publisher(plans[0], dataset="d", ledger=path) as publisher:
        publisher.push([0, 1, 1], time=0)
        publisher.push([0, 1, 1], time=1)
    with pytest.raises(LedgerConflictError, match="published under other terms: plan"):
        Publisher(plans[1], dataset="d", ledger=path)
    with Ledger.open(path) as ledger:
        record = json.loads(ledger.dataset("d").terms.plan_json)
        assert record["computation"] == plans[0].query.fingerprint
        with pytest.raises(InputError, match=r"query: 'load' given|a custom query"):
            Plan.from_json(ledger.dataset("d").terms.plan_json)
        assert "give it with plans" in " ".join(replay(ledger).notes)
        assert replay(ledger, plans=[plans[0]]).findings == ()
        with Publisher(plans[0], dataset="d", ledger=ledger) as publisher:
            after = publisher.change_plan(plans[1], from_tick=5)
            assert ledger.dataset("d").terms.plan_digest == plans[1].digest
            after.push([1, 1, 1], time=5)


@pytest.mark.parametrize("name", ["mean", "sum", "identity", "histogram", "max", "linear:1,1,1", "count:1"])
def test_the_name_of_a_built_in_is_not_that_built_in(name: str, tmp_path: Path) -> None:
    plan = Plan(TIED, Weighted(name=name), 1, 0.5)  # type: ignore[arg-type]
    assert plan.digest != Plan(TIED, csdp.queries.parse_query(name), 1, 0.5).digest
    with pytest.raises(InputError, match="cannot be written as JSON"):
        plan.to_json()
    with pytest.raises(InputError, match="is not the built-in one of that name"):
        Plan.from_json(json.dumps(plan.record()))
    function = Plan(TIED, Custom(lambda v: v[0] * v[1], name=name), 1, 0.5)
    with pytest.raises(InputError, match="is a Python function, which JSON does not hold"):
        Plan.from_json(json.dumps(function.record()))
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db"):
        pass
    with pytest.raises(LedgerConflictError, match="published under other terms: plan"):
        Publisher(Plan(TIED, csdp.queries.parse_query(name), 1, 0.5), dataset="d", ledger=tmp_path / "ledger.db")


def spread(v: Any) -> float:
    return float(v.max() - v.min())


def test_a_ledger_whose_states_have_another_form_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written when a component was followed by one number; today it has one for every pair of snapshots."""
    plan = Plan(CoupledChain(COUPLING, [[0.7, 0.3], [0.3, 0.7]]), csdp.Sum(), 1, 0.3)
    path = tmp_path / "ledger.db"
    with monkeypatch.context() as before:
        for module in ("component", "components"):
            before.setattr(f"csdp.accountant.{module}.METRIC_STATES", 1)
        with Publisher(plan, dataset="wards", ledger=path, budget=4.0) as publisher:
            for tick in (0, 1, 2, 5, 6, 7):
                publisher.push([0] * plan.model.sequences, time=tick)
    with Ledger.open(path) as ledger:
        again = replay(ledger)
        assert again.ok
        old = ledger.summary("wards").state
        accountant = csdp.Accountant(plan)
        with pytest.raises(InputError, match="another chain, plan or version"):
            accountant.restore(old.accountant)
        with Publisher(plan, dataset="wards", ledger=ledger, budget=4.0) as publisher:
            # What the recorded state meant is not known any more: its history counts whole, under any model.
            present = publisher.summary()["present"]
            assert again.charges["wards"][-1].recomputed < present <= old.cost
            assert present == accountant.leakage(accountant.restore(old.accountant, cost=old.cost)).epsilon
            assert publisher.remaining(time=8)["budget"] > 0
            publisher.observe([0] * plan.model.sequences, time=7)
            assert isinstance(publisher.push([0] * plan.model.sequences, time=8), csdp.publisher.Release)
        assert replay(ledger).ok
        assert accountant.leakage(accountant.restore(ledger.summary("wards").state.accountant)).epsilon > 0


# ---------------------------------------------------------------- plan files


def test_an_altered_plan_file_is_refused() -> None:
    content = json.loads(Plan(TIED, csdp.Sum(), 1, 0.5).to_json())
    other = CoupledChain(COUPLING, [[0.6, 0.4], [0.4, 0.6]], values=[0.0, 2.0])
    with pytest.raises(InputError, match=r"but the chain in it is .*: altered after it was certified"):
        Plan.from_json(json.dumps({**content, "chain": [other.to_dict()]}))
    for changed, message in (
        ({"query": "count:1"}, "is not the built-in one of that name"),
        ({"algorithm": ALGORITHM + 1}, rf"written by version {ALGORITHM + 1} of the algorithm; this is {ALGORITHM}"),
        ({"algorithm": "newest"}, "written by version 'newest'"),
        ({"algorithm": True}, "written by version True"),
    ):
        with pytest.raises(InputError, match=message.replace("this is", "this is version")):
            Plan.from_json(json.dumps({**content, **changed}))
    for lost in ("chain_digest", "algorithm"):
        with pytest.raises(InputError, match=f"lacks or garbles '{lost}'"):
            Plan.from_json(json.dumps({name: value for name, value in content.items() if name != lost}))
    with pytest.raises(InputError, match="not JSON"):
        Plan.from_json('{"schema": ' + "1" * 5000 + "}")


# ---------------------------------------------------------------- functions


def product_of(v: Any) -> float:
    return float(np.prod(v))


def test_a_function_that_declares_too_little_is_refused() -> None:
    real = Custom(product_of).sensitivity(1, TIED.value_table)
    assert real == 8.0
    for declared in (7.9, lambda k: 7.9 * k, lambda k: 8.0 if k < 3 else 7.0):
        with pytest.raises(InputError, match=r"sensitivity .* declared for . records?, but they move the answer by 8"):
            Plan(TIED, Custom(product_of, declared), 1, 1.0)
        with pytest.raises(InputError, match="move the answer by 8"):
            csdp.leakage(TIED, Custom(product_of, declared), ages=1, epsilon_c=1.0)
    assert Plan(TIED, Custom(product_of, 8.0), 1, 1.0).sensitivity == pytest.approx(8.0, rel=1e-5)
    assert not any("declares" in text for text in Plan(TIED, Custom(product_of, 8.0), 1, 1.0).certified.assumptions)


def test_what_a_large_function_declares_is_an_assumption_or_refuted_by_a_sample() -> None:
    giant = CoupledChain(np.eye(20), MOVES, values=[0.0, 2.0])
    plan = Plan(giant, Custom(np.sum, 2.0, name="total"), 1, 1.0)
    assert any("total is a function that moves by at most" in text for text in plan.certified.assumptions)
    with pytest.raises(InputError, match=r"sensitivity 0.5 declared for 1 record, but they move the answer by 2"):
        Plan(giant, Custom(np.sum, 0.5, name="total"), 1, 1.0)
    with pytest.raises(InputError, match="sensitivity 2 declared for 20 records"):
        Plan(giant, Custom(np.sum, lambda k: 2.0, name="total"), 1, 1.0)
    curved = [
        Plan(giant, Custom(np.sum, how, name="total"), 1, 1.0) for how in (lambda k: 2.0 * k + 8 * (1 < k < 20), 2.0)
    ]
    assert curved[0].digest != curved[1].digest


def test_a_restless_function_is_refused_and_a_small_one_is_asked_once() -> None:
    calls: list[int] = []

    def restless(v: Any) -> float:
        calls.append(1)
        return float(v.sum()) + len(calls)

    with pytest.raises(InputError, match="evaluate differs from call to call"):
        Plan(TIED, Custom(restless, 1e6), 1, 1.0)
    state = {"weight": 1.0}
    plan = Plan(TIED, Custom(lambda v: state["weight"] * v.sum(), name="state"), 1, 1.0)
    before = plan.query.lattice_answers(SNAPS)
    state["weight"] = 100.0
    assert np.array_equal(plan.query.lattice_answers(SNAPS), before)


class Whole:
    """Neither a fold nor a Custom: a function of the snapshot, by the protocol."""

    name = "identity"

    def __init__(self, declared: float) -> None:
        self._declared = declared

    def evaluate(self, snapshots: Any, values: Any) -> Any:
        chosen = np.asarray(values)[np.arange(len(values)), np.asarray(snapshots)]
        return chosen.prod(axis=-1, keepdims=True)

    def sensitivity(self, k: int, values: Any, *, members: Any = None) -> float:
        return self._declared

    def output_names(self, names: Any, values: Any) -> tuple[str, ...]:
        return ("product",)


def test_any_function_of_the_snapshot_is_a_query() -> None:
    plan = Plan(TIED, Whole(8.0), 1, 1.0)
    same = Plan(TIED, Custom(product_of, lambda k: 8.0), 1, 1.0)
    assert plan.certified.epsilon == same.certified.epsilon
    with pytest.raises(InputError, match="move the answer by 8"):
        Plan(TIED, Whole(1.0), 1, 1.0)


# ---------------------------------------------------------------- engines


def table_of(chain: CoupledChain, states: Any, path: Path) -> Path:
    ticks, s = states.shape
    values = chain.value_table[np.arange(s), states]
    columns = {
        "time": np.repeat(np.arange(ticks) * 60, s),
        "sequence": list(chain.names) * ticks,
        "value": values.ravel(),
    }
    pq.write_table(pa.table(columns), path)
    return path


ENGINE_QUERIES = [
    *HONEST,
    *MISNAMED,
    Custom(product_of, name="identity"),
    Custom(lambda v: [v[0], v[1] * v[2]], name="linear:1,1,1"),
    csdp.Mean(),
    csdp.Max(),
    csdp.Linear([4, 1, 2]),
    csdp.Count(0),
    csdp.Identity(),
]


@pytest.mark.parametrize("chain", [TIED, OWN], ids=["shared values", "values of their own"])
def test_every_engine_answers_as_memory_does(chain: CoupledChain, tmp_path: Path) -> None:
    states = chain.simulate(12, seed=5).astype(np.int8)
    panel = Panel.from_states(states, names=chain.names)
    path = table_of(chain, states, tmp_path / "table.parquet")
    with open_table(path, names=chain.names, values=chain.values, engine="duckdb") as table:
        for query in ENGINE_QUERIES:
            for ages in (1, [1, 3, 2]):
                plan = Plan(chain, query, ages, 1.0)  # type: ignore[arg-type]
                want = PanelSource(panel, plan).answers(plan, range(3, 12))
                source = EngineSource(table, plan)
                assert np.array_equal(source.answers(plan, range(3, 12)), want), query.name
                assert source.draws(plan) == plan.query.per_sequence
                if source.draws(plan):
                    # Noise of scale 1e-9 at most: the rows hold the parts, not the values.
                    fine = plan.at(1e9)
                    rows = table.noisy_answers(fine, {tick: bytes(32) for tick in (5, 6)})
                    assert np.allclose(rows, want[2:4], rtol=0, atol=1e-6)


@pytest.mark.parametrize("query", [Custom(product_of, name="identity"), Weighted(name="identity"), Each()], ids=named)
def test_a_query_called_identity_is_published_by_an_engine(query: Any, tmp_path: Path) -> None:
    states = OWN.simulate(8, seed=6).astype(np.int8)
    path = table_of(OWN, states, tmp_path / "table.parquet")
    plan = Plan(OWN, query, 1, 1.0)
    with (
        open_table(path, names=OWN.names, values=OWN.values, engine="duckdb") as table,
        Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db", time_step=60) as publisher,
    ):
        batch = publisher.publish(EngineSource(table, plan))
        assert len(batch.releases) == 7
        assert publisher.summary()["lost"] == 0


@pytest.mark.parametrize("values", [TIED, OWN], ids=["shared values", "values of their own"])
def test_spark_answers_as_memory_does(spark: Any, values: CoupledChain, tmp_path: Path) -> None:
    from csdp.tables.spark import SparkEngine

    states = values.simulate(8, seed=5).astype(np.int8)
    panel = Panel.from_states(states, names=values.names)
    path = table_of(values, states, tmp_path / "table.parquet")
    table = SparkEngine(path, names=values.names, values=np.asarray(values.values), session=spark)
    for query in (Weighted(name="mean"), Remainder(), Each(), Custom(product_of, name="identity")):
        plan = Plan(values, query, [1, 2, 1], 1.0)  # type: ignore[arg-type]
        want = PanelSource(panel, plan).answers(plan, range(2, 8))
        assert np.array_equal(EngineSource(table, plan).answers(plan, range(2, 8)), want), named(query)
