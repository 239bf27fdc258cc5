"""What a chain can be fitted on, and what is refused with a way out."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.errors import InputError, TooLargeError
from fitting.systems import random_chain

STATES = random_chain(1, 3, 2).simulate(300, seed=1).astype(np.int64)


def fitted(data, **settings):
    return csdp.fit(data, **{"public": True, "ensemble": 0, **settings})


def test_every_kind_of_table_gives_the_same_chain():
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    names = ["a", "b", "c"]
    columns = {name: STATES[:, i] for i, name in enumerate(names)}
    chains = [
        fitted(table)
        for table in (
            csdp.Panel.from_states(STATES, names=names),
            pd.DataFrame(columns),
            pl.DataFrame(columns),
            pa.table(columns),
        )
    ]
    assert all(chain == chains[0] for chain in chains)
    assert chains[0].names == ("a", "b", "c")
    plain = fitted(STATES)
    np.testing.assert_array_equal(plain.kernel(), chains[0].kernel())
    assert fitted(STATES.tolist()) == plain
    assert fitted(STATES == 1) == plain


def test_nulls_are_missing_readings():
    import pandas as pd
    import polars as pl

    gaps = STATES.copy()
    gaps[5, 0] = gaps[7:9, 2] = -1
    expected = fitted(gaps)
    frame = pl.DataFrame({f"x{i + 1}": [None if v < 0 else v for v in gaps[:, i]] for i in range(3)})
    assert (fitted(frame).kernel() == expected.kernel()).all()
    nullable = pd.DataFrame(gaps, columns=["x1", "x2", "x3"]).astype("Int64").mask(gaps < 0)
    assert (fitted(nullable).kernel() == expected.kernel()).all()


def test_values_of_a_panel_become_those_of_the_chain():
    panel = csdp.Panel.from_states(STATES, values=[10.0, 20.0])
    assert fitted(panel).values.tolist() == [10.0, 20.0]
    each = csdp.Panel.from_states(STATES, values=np.array([[0.0, 1.0], [0.0, 2.0], [5.0, 6.0]]))
    assert fitted(each).values.tolist() == [[0.0, 1.0], [0.0, 2.0], [5.0, 6.0]]


@pytest.mark.parametrize(
    ("data", "settings", "told"),
    [
        (np.zeros((1, 2), int), {}, "at least 2"),
        (np.zeros((5, 0), int), {}, "no sequences"),
        (np.full((5, 2), -1), {}, "every reading is missing"),
        (np.full((5, 2), -3), {}, "below -1"),
        (np.zeros((5, 2)), {}, "discretise"),
        (np.zeros(5, int), {}, "reshape"),
        (np.zeros((5, 2, 2), int), {}, "ticks, sequences"),
        ([[0, 1], [0]], {}, "different lengths"),
        (np.full((5, 2), 2000), {}, "at most 1,024"),
        (np.full((5, 2), 3), {"states": 3}, "beyond the declared 3"),
        (np.zeros((5, 2), int), {"states": 1}, "states"),
        ("text", {}, "a dataframe expected"),
        (np.array([[0, -1], [-1, 1], [0, -1]]), {}, "fill the gaps"),
        (STATES, {"method": "guess"}, "method"),
        (STATES, {"method": "joint", "epsilon": 1.0, "public": False}, "leave method= out"),
        (STATES, {"ensemble": -1}, "ensemble"),
    ],
)
def test_bad_input_is_refused(data, settings, told):
    with pytest.raises(InputError, match=told):
        fitted(data, **settings)


def test_frames_that_are_not_states():
    import pandas as pd
    import polars as pl

    for frame, told in (
        (pl.DataFrame({"a": [0.5, 1.5]}), "'a' holds Float64"),
        (pd.DataFrame({"a": pd.Categorical(["x", "y"])}), "'a' holds Categorical"),
        (pl.DataFrame({"time": [0, 1], "a": [0, 1]}), "'time' is not a sequence"),
        (pl.DataFrame(), "without columns"),
    ):
        with pytest.raises(InputError, match=told):
            fitted(frame)


def test_readings_must_be_discretised_first():
    readings = csdp.Readings.from_array(np.random.default_rng(0).normal(size=(20, 2)))
    with pytest.raises(InputError, match="discretise"):
        fitted(readings)


def test_too_many_joint_states():
    with pytest.raises(TooLargeError, match="method='em'"):
        fitted(np.zeros((9, 11), int), method="joint")


@pytest.mark.parametrize("method", ["em", "joint"])
def test_two_ticks_and_one_sequence_are_enough_to_be_fitted(method):
    chain = fitted(np.array([[0], [1]]), method=method)
    assert chain.sequences == 1
    assert chain.kernel().min() > 0
    if method == "em":
        assert any("parameters" in note for note in chain.fitted.warnings)


def test_messages_hold_no_reading():
    """The state itself is private: only where it is and what is allowed is told."""
    with pytest.raises(InputError) as caught:
        fitted(np.array([[0, 1], [1, 777]]), states=2)
    assert "777" not in str(caught.value)
