"""Discretisers: edges against numpy, streams against batches, JSON, and the warning that data is about to leak."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from csdp import CoupledChain, Discretiser, Panel, Readings, read_panel, read_readings
from csdp.errors import InputError, PrivacyLeakWarning

RNG = np.random.default_rng(7)
NUMBERS = RNG.normal(50, 20, size=(400, 3))
NAN = float("nan")

#: A column of readings with ties and gaps.
COLUMN = st.lists(st.one_of(st.just(NAN), st.integers(-4, 4).map(float), st.floats(-100, 100)), min_size=1, max_size=40)


def test_quantile_edges_are_numpys() -> None:
    gappy = NUMBERS.copy()
    gappy[RNG.random(gappy.shape) < 0.2] = NAN
    for states in (2, 4, 7):
        found = Discretiser.fit(gappy, states=states, public=True)
        expected = np.nanquantile(gappy, np.arange(1, states) / states, axis=0).T
        np.testing.assert_allclose(found.edges, expected, rtol=1e-12)
        panel = found.apply(gappy)
        for i in range(3):
            there = ~np.isnan(gappy[:, i])
            assert panel.states[there, i].tolist() == np.digitize(gappy[there, i], expected[i]).tolist()
            assert (panel.states[~there, i] == -1).all()
            counts = np.bincount(panel.states[there, i], minlength=states)
            assert counts.max() - counts.min() <= states
            for k in range(states):
                median = np.median(gappy[there, i][panel.states[there, i] == k])
                assert abs(found.values[i, k] - median) <= 2.0**-20 * np.abs(gappy[~np.isnan(gappy)]).max() * 2


@given(COLUMN, st.integers(2, 6))
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_ties_and_few_numbers(column: list[float], states: int) -> None:
    """Every usable state is taken by some reading, whatever ties there are; equal readings share a state."""
    cells = np.array(column)[:, None]
    known = cells[~np.isnan(cells)]
    assume(known.size)
    assume(np.diff(np.unique(known)).min(initial=1) > 1e-3)  # distinct values must survive the lattice
    found = Discretiser.fit(cells, states=states, public=True)
    distinct = np.unique(known).size
    taken = found.apply(cells).states
    assert sorted(set(taken[taken >= 0].tolist())) == list(range(min(states, distinct)))
    order = np.argsort(known, kind="stable")
    assert (np.diff(taken[taken >= 0][order]) >= 0).all()
    assert (np.diff(found.values[0]) >= 0).all()
    again = Discretiser.from_json(found.to_json())
    assert again == found
    np.testing.assert_array_equal(again.edges, found.edges)


def test_ties_by_hand() -> None:
    zeros = np.array([[0.0]] * 6 + [[1.0], [2.0], [3.0]])
    found = Discretiser.fit(zeros, states=3, public=True)
    assert found.edges.tolist() == [[1.0, 2.0]]
    assert np.bincount(found.apply(zeros).states[:, 0]).tolist() == [6, 1, 2]
    two = Discretiser.fit(np.array([[5.0], [9.0]] * 4), states=4, public=True)
    assert two.edges.tolist() == [[9.0, np.inf, np.inf]]
    assert two.values.tolist() == [[5.0, 9.0, 9.0, 9.0]]


@pytest.mark.parametrize("strategy", ["quantile", "uniform", "categories"])
def test_constant_columns(strategy: str) -> None:
    cells = np.column_stack([np.full(5, 3.0), np.arange(5.0)])
    found = Discretiser.fit(cells, states=3, strategy=strategy, public=True)  # type: ignore[arg-type]
    assert set(found.apply(cells).states[:, 0].tolist()) == {0}
    assert set(found.values[0].tolist()) == {3.0}
    CoupledChain(np.eye(2), np.full((2, 2, *[found.state_count] * 2), 1 / found.state_count), values=found.values)


def test_given_edges_and_their_values() -> None:
    found = Discretiser.declared(["a"], edges=[10, 20, 30])
    assert found.values.tolist() == [[5, 15, 25, 35]]
    assert Discretiser.declared(["a"], edges=[10, 20], bounds=(0, 100)).values.tolist() == [[5, 15, 60]]
    rows = Discretiser.declared(["a", "b"], edges=[[1, 2], [10, 20]])
    assert rows.states_of({"a": 5, "b": 10}).tolist() == [2, 1]
    cells = np.array([[1.0], [2.0], [12.0], [13.0], [14.0]])
    assert Discretiser.fit(cells, edges=[10, 20], public=True).values.tolist() == [[1.5, 13, 20]]  # none above 20
    assert Discretiser.fit(cells, edges=[10, 20]).values.tolist() == [[5, 15, 25]]
    # Medians are taken from the data, also where the edges are not.
    assert Discretiser.fit(cells, edges=[10, 20], public=True).source == "public"


def test_the_edges_belong_to_the_state_above() -> None:
    found = Discretiser.declared(["a"], edges=[10, 20])
    below = np.nextafter(10, 0)
    assert [found.states_of([x])[0] for x in (below, 10, np.nextafter(20, 0), 20, -1e300, 1e300)] == [0, 1, 1, 2, 0, 2]


def test_edges_stay_although_the_table_behind_them_changes() -> None:
    """A view was made read-only, and not the table that it shows."""
    table = np.array([[0.0, 10.0, 20.0, 30.0]])
    cut = Discretiser(("a",), table[:, 1:3], table[:, :3], "edges", "declared", bounds=table[:, [0, 3]])
    table[:] = 25.0
    assert cut.edges.tolist() == [[10.0, 20.0]]
    assert cut.values.tolist() == [[0.0, 10.0, 20.0]]
    assert cut.states_of(np.array([15.0])).tolist() == [1]
    for numbers in (cut.edges, cut.values, cut.bounds):
        with pytest.raises(ValueError, match="read-only"):
            numbers[:] = 0.0


def test_categories() -> None:
    words = Discretiser.declared(["a", "b"], categories=["low", "mid", "high"])
    frame = pd.DataFrame({"time": [0, 1], "a": ["high", "low"], "b": ["mid", None]})
    assert words.apply(frame).states.tolist() == [[2, 1], [0, -1]]
    assert read_panel(frame, discretiser=words).states.tolist() == [[2, 1], [0, -1]]
    assert Discretiser.fit(frame, categories=["low", "mid", "high"]) == words
    assert words.states_of({"a": " mid "}).tolist() == [1, -1]
    with pytest.warns(PrivacyLeakWarning, match="distinct numbers"):
        found = Discretiser.fit(np.array([[1.0, 3.0], [2.0, NAN], [9.0, 3.0]]), strategy="categories")
    assert found.values.tolist() == [[1, 2, 9], [3, 3, 3]]
    with pytest.raises(InputError, match="none of the declared categories") as caught:
        words.states_of({"a": "sick"})
    assert "sick" not in str(caught.value)
    with pytest.raises(InputError, match="distinct numbers"):
        Discretiser.fit(RNG.random((300, 1)), strategy="categories", public=True)


LEAKS = [
    ({}, "quantiles"),
    ({"bounds": (0, 100)}, "quantiles"),
    ({"strategy": "uniform"}, "smallest and largest"),
    ({"strategy": "categories"}, "distinct"),
]
SAFE = [
    {"strategy": "uniform", "bounds": (0, 100)},
    {"edges": [10, 20]},
    {"edges": [10, 20], "strategy": "edges", "bounds": (0, 100)},
]


@pytest.mark.parametrize(("settings_", "what"), LEAKS)
def test_what_comes_from_private_data_is_said(settings_: dict, what: str) -> None:
    cells = np.round(NUMBERS / 10)
    with pytest.warns(PrivacyLeakWarning, match=what) as caught:
        found = Discretiser.fit(cells, **settings_)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert found.source == "private"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Discretiser.fit(cells, public=True, **settings_).source == "public"


@pytest.mark.parametrize("settings_", SAFE)
def test_declarations_take_nothing_from_private_data(settings_: dict) -> None:
    """No warning, and what comes out does not depend on the readings at all."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = (Discretiser.fit(cells, **settings_) for cells in (NUMBERS, NUMBERS * 1e3 + 7))
    assert one == other
    assert one.source == "declared"


def test_readings_outside_the_bounds_are_clamped() -> None:
    cells = np.array([[-5.0, 1.0], [3.0, 99.0], [12.0, NAN]])
    found = Discretiser.declared(["x1", "x2"], states=2, bounds=(0, 10))
    readings = Readings.from_array(cells)
    assert found.apply(readings).states.tolist() == [[0, 0], [0, 1], [1, -1]]
    with_bounds = Discretiser.fit(np.array([[0.0], [1.0], [2.0], [1e9]]), states=2, bounds=(0, 4), public=True)
    assert with_bounds.edges.tolist() == [[1.5]]
    assert with_bounds.values.tolist() == [[0.5, 3.0]]  # the far reading counts as 4


@given(
    st.lists(st.lists(st.one_of(st.just(NAN), st.floats(-200, 200)), min_size=3, max_size=3), min_size=1, max_size=9)
)
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_a_stream_gives_what_a_batch_gives(rows: list[list[float]]) -> None:
    found = Discretiser.fit(NUMBERS, states=5, public=True)
    batch = found.apply(np.array(rows)).states
    for row, expected in zip(rows, batch.tolist(), strict=True):
        assert found.states_of(row).tolist() == expected
        assert found.states_of(dict(zip(found.names, row, strict=True))).tolist() == expected
    for i in range(3):
        known = ~np.isnan(np.array(rows)[:, i])
        assert batch[known, i].tolist() == np.searchsorted(found.edges[i], np.array(rows)[known, i], "right").tolist()


def test_a_snapshot_of_many_sequences_is_fast() -> None:
    """100,000 sequences; a search for each would take a tenth of a second and more."""
    many = Discretiser.declared([f"s{i}" for i in range(100_000)], states=4, bounds=(0, 1))
    snapshot = RNG.random(100_000)
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        found = many.states_of(snapshot)
        best = min(best, time.process_time() - begun)
    assert found.tolist() == np.floor(snapshot * 4).astype(int).tolist()
    assert best < 0.05


def test_it_is_saved(tmp_path: Path) -> None:
    made = [
        Discretiser.fit(NUMBERS, public=True),
        Discretiser.fit(np.array([[1.0, 2.0], [3.0, 2.0]]), states=3, public=True),
        Discretiser.declared(["ä", "b"], states=3, bounds=[(0, 1), (0, 2)]),
        Discretiser.declared(["a"], categories=["low", "high"]),
    ]
    for one in made:
        one.save(tmp_path / "d.json")
        again = Discretiser.load(tmp_path / "d.json")
        assert again == one
        assert again.to_dict() == one.to_dict()
        json.loads(one.to_json(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert made[0] != made[1]
    assert made[0] != "something else"
    assert repr(made[0]) == "Discretiser(quantile, 3 sequences, 4 states, public)"
    with pytest.raises(ValueError, match="read-only"):
        made[0].edges[0, 0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "csdp.discretiser/2"}, "schema 'csdp.discretiser/2' given; this version reads csdp.discretiser/1"),
        ({"edges": [[2, 1]]}, "rise"),
        ({"names": ["a", "b"]}, "garbled"),
        ({"strategy": "magic"}, "unknown strategy"),
        ({"bounds": [1, 0]}, "below high"),
        ({"categories": ["x"]}, "1 given for 3"),
    ],
)
def test_files_that_are_none(tmp_path: Path, change: dict, message: str) -> None:
    content = Discretiser.declared(["a"], edges=[1, 2]).to_dict() | change
    (tmp_path / "d.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        Discretiser.load(tmp_path / "d.json")


def test_files_that_are_no_discretiser_at_all(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    for raw, message in ((b"{", "not JSON"), (b"[]", "list given"), (b"{}", "schema None"), (b"\xff", "UTF-8")):
        file.write_bytes(raw)
        with pytest.raises(InputError, match=message):
            Discretiser.load(file)
    with pytest.raises(InputError, match="no such file"):
        Discretiser.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"states": 1}, "at least 2 and at most 256"),
        ({"strategy": "kmeans"}, "'quantile', 'uniform', 'edges', 'categories'"),
        ({"strategy": "edges"}, "needs them"),
        ({"strategy": "uniform", "edges": [1, 2]}, "leave one out"),
        ({"edges": [1], "categories": ["a", "b"]}, "one of the two"),
        ({"edges": [2, 1]}, "rise"),
        ({"edges": [1, np.nan]}, "finite"),
        ({"edges": [1, 2], "bounds": (1.5, 3)}, "inside the bounds"),
        ({"bounds": (1, 1)}, "below high"),
        ({"bounds": "wide"}, "one row of numbers"),
        ({"categories": ["a"]}, "at least two"),
        ({"categories": "ab"}, "list of labels"),
        ({"categories": ["a", "b"], "bounds": (0, 1)}, "leave out"),
    ],
)
def test_bad_settings(settings_: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Discretiser.fit(Readings.from_array(NUMBERS), public=True, **settings_)


def test_private_readings_do_not_show_how_wide_the_outer_states_are() -> None:
    with pytest.raises(InputError, match="outer states"):
        Discretiser.fit(Readings.from_array(NUMBERS), public=False, edges=[1])


def test_bad_declarations() -> None:
    for settings_, message in (
        ({}, "give edges="),
        ({"states": 3}, "need bounds"),
        ({"states": 3, "edges": [1, 2]}, "one of the two"),
    ):
        with pytest.raises(InputError, match=message):
            Discretiser.declared(["a"], **settings_)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="twice"):
        Discretiser.declared(["a", "a"], states=2, bounds=(0, 1))


def test_bad_readings() -> None:
    found = Discretiser.declared(["a", "b"], states=2, bounds=(0, 1))
    for call, message in (
        (lambda: found.states_of([0.1]), "each of 2 sequences"),
        (lambda: found.states_of([0.1, np.inf]), "infinite"),
        (lambda: found.states_of(["x", "y"]), "numbers expected"),
        (lambda: found.states_of({"c": 1}), "unknown sequence 'c'"),
        (lambda: found.states_of({"a": [1]}), "list given"),
        (lambda: found.apply(np.zeros((2, 3))), "names"),
        (lambda: found.apply({"time": [0, 1], "a": [1, 2]}), "'b' is in the readings or in the discretiser"),
        (lambda: found.apply(Panel.from_states([[0, 1]])), "states already"),
        (lambda: read_panel(np.zeros((2, 2)), discretiser=found, values=[0, 1]), "one of the two"),
        (lambda: read_readings(Readings.from_array([[1.0]])), "already"),
        (lambda: Discretiser.fit(np.array([[1.0, NAN]]), public=True), "'x2' has none"),
        (lambda: Discretiser.fit(np.zeros((0, 2)), public=True), "has none"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert found.states_of({"a": None, "b": NAN}).tolist() == [-1, -1]
    assert found.states_of(np.ma.array([0.9, 0.9], mask=[True, False])).tolist() == [-1, 1]


def test_sequences_are_matched_by_name() -> None:
    found = Discretiser.declared(["a", "b"], edges=[[1, 2], [10, 20]])
    swapped = read_readings({"time": [0, 1], "b": [15, 25], "a": [0, 5]})
    panel = found.apply(swapped)
    assert panel.names == ("a", "b")
    assert panel.states.tolist() == [[0, 1], [2, 2]]
    more = pd.DataFrame({"time": [0, 1], "c": [0, 0], "b": [15, 25], "a": [0, 5]})
    assert read_panel(more, discretiser=found).states.tolist() == panel.states.tolist()


@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 4)), min_size=8, max_size=8))
@settings(max_examples=100, derandomize=True, database=None, deadline=None)
def test_a_chain_takes_the_values_as_they_are(numbers: list[float]) -> None:
    """What a state carries is on the chain's lattice already: to_states finds every state again."""
    assume(np.diff(np.unique(numbers)).min(initial=np.inf) > 2**-19 * max(map(abs, numbers)))
    assume(len(set(numbers)) > 1)
    found = Discretiser.fit(np.array(numbers)[:, None], states=3, public=True)
    assume(np.ptp(found.values) > 0)
    chain = CoupledChain([[1.0]], np.full((3, 3), 1 / 3), values=found.values)
    assert chain.value_table.tolist() == found.values.tolist()
    panel = found.apply(np.array(numbers)[:, None])
    carried = found.values[0][panel.states]
    assert read_panel(carried, values=chain.value_table).states.tolist() == panel.states.tolist()


def test_values_that_a_lattice_would_merge_are_refused() -> None:
    cells = np.column_stack([np.arange(8) * 1e-9, np.arange(8) * 1e3])
    with pytest.raises(InputError, match=r"sequence 1 lie too close together.*one scale"):
        Discretiser.fit(cells, states=4, public=True)
