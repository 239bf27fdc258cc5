"""What a chain can be fitted on, and what is refused with a way out."""

from __future__ import annotations

import numpy as np
import pytest

import csdp
from csdp.errors import InputError, TooLargeError
from fitting.systems import random_chain

pytestmark = pytest.mark.usefixtures("ungrown")

STATES = random_chain(1, 3, 2).simulate(300, seed=1).astype(np.int64)


def fitted(data, **settings):
    return csdp.fit(data, **{"public": True, **settings})


def test_panels_arrays_and_lists_give_the_same_chain():
    chain = fitted(csdp.Panel.from_states(STATES, names=["a", "b", "c"]))
    assert chain.names == ("a", "b", "c")
    plain = fitted(STATES)
    np.testing.assert_array_equal(plain.kernel(), chain.kernel())
    assert fitted(STATES.tolist()) == fitted(STATES == 1) == plain


@pytest.mark.parametrize(
    ("data", "settings", "told"),
    [
        (np.zeros((1, 2), int), {}, "at least 2"),
        (np.full((5, 2), -1), {}, "every reading is missing"),
        (np.zeros((5, 2)), {}, "Discretise first"),
        (np.zeros((5, 2, 2), int), {}, "ticks, sequences"),
        (np.full((5, 2), 2000), {}, "at most 1,024"),
        (np.full((5, 2), 3), {"states": 3}, "beyond the declared 3"),
        ({"a": [0, 1]}, {}, "dict given; a Panel or .* csdp.read_panel reads files and data frames"),
        (STATES, {"states": 1}, "states: 1 given"),
        (STATES, {"method": "guess"}, "method"),
    ],
)
def test_bad_input_is_refused(data, settings, told):
    with pytest.raises(InputError, match=told):
        fitted(data, **settings)


def test_too_many_joint_states():
    with pytest.raises(TooLargeError, match="method='em'"):
        fitted(np.zeros((9, 11), int), method="joint")


def test_messages_hold_no_reading():
    """The state itself is private: only where it is and what is allowed is told."""
    with pytest.raises(InputError) as caught:
        fitted(np.array([[0, 1], [1, 777]]), states=2)
    assert "777" not in str(caught.value)
