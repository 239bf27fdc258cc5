"""A table of probabilities is drawn exactly, and what is no table is refused."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from csdp.auditing.events import low_bits
from csdp.errors import InputError, UnsafeRandomnessWarning
from csdp.noise import MechanismTable, Randomness
from csdp.noise.table import LARGEST, TOTAL

PROBABILITIES = np.array([[0.6, 0.3, 0.1], [0.25, 0.5, 0.25], [0.05, 0.25, 0.7]])
TABLE = MechanismTable.from_probabilities([0.0, 1.0, 3.0], [0.1, 0.4, 2.5], PROBABILITIES)
#: False-alarm rate of the statistical test with fresh randomness.
ALARM = 1e-10


class _GivenWords:
    """Words that a test chooses, in the place of those of a cipher."""

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def fill(self, buffer: Any, /) -> None:
        buffer[:] = np.array(self._words, dtype=np.uint64)


def draw_at(table: MechanismTable, answer: float, words: list[int], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    randomness = Randomness.secure()
    monkeypatch.setattr(randomness, "words", lambda: _GivenWords(words))
    return table.draw(np.full(len(words), answer), randomness).tolist()


def test_every_output_has_exactly_as_many_words_as_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, weights in zip(TABLE.answers, TABLE.weights, strict=True):
        first, second = weights[0], weights[0] + weights[1]
        words = [0, first - 1, first, second - 1, second, TOTAL - 1]
        expected = [TABLE.outputs[k] for k in (0, 0, 1, 1, 2, 2)]
        assert draw_at(TABLE, answer, words, monkeypatch) == expected


def test_a_weight_of_one_word_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    table = MechanismTable((0.0,), (1.0, 2.0, 3.0), ((1, TOTAL - 2, 1),))
    assert draw_at(table, 0.0, [0, 1, TOTAL - 2, TOTAL - 1], monkeypatch) == [1.0, 2.0, 2.0, 3.0]


def p_value(table: MechanismTable, claimed: MechanismTable, count: int = 200_000) -> float:
    """Of outputs of a table against the law of another, the least over answers."""
    with pytest.warns(UnsafeRandomnessWarning):
        randomness = Randomness.unsafe_seed(5)
    least = 1.0
    for answer, law in zip(table.answers, claimed.probabilities, strict=True):
        drawn = table.draw(np.full(count, answer), randomness)
        observed = [int((drawn == output).sum()) for output in table.outputs]
        least = min(least, float(stats.chisquare(observed, law * count).pvalue))
    return least


def test_outputs_follow_the_table_and_no_other() -> None:
    wrong = PROBABILITIES + np.array([[0.02, -0.01, -0.01]])
    assert p_value(TABLE, TABLE) > ALARM
    assert p_value(TABLE, MechanismTable.from_probabilities(TABLE.answers, TABLE.outputs, wrong)) < ALARM


def test_distances_and_record_epsilon_are_those_of_exact_fractions() -> None:
    exact = [[Fraction(weight, TOTAL) for weight in row] for row in TABLE.weights]
    for v, row in enumerate(exact):
        for w, other in enumerate(exact):
            truth = max(abs(math.log(a / b)) for a, b in zip(row, other, strict=True))
            assert truth <= TABLE.distances[v, w] <= truth + 1e-12 or v == w
    rates = [TABLE.distances[v, w] / abs(TABLE.answers[v] - TABLE.answers[w]) for v in range(3) for w in range(v)]
    assert TABLE.record_epsilon(2.0) == pytest.approx(2.0 * max(rates), rel=1e-11)
    assert TABLE.record_epsilon(2.0) >= 2.0 * max(rates)


@pytest.mark.parametrize(
    ("answers", "outputs", "weights", "message"),
    [
        ((0.0, 1.0), (0.0, 1.0), ((TOTAL, 0), (1, TOTAL - 1)), "1 or more"),
        ((0.0, 1.0), (0.0, 1.0), ((TOTAL + 1, -1), (1, TOTAL - 1)), "1 or more"),
        ((0.0, 1.0), (0.0, 1.0), ((1, TOTAL), (1, TOTAL - 1)), "sum to"),
        ((0.0, 1.0), (0.0, 1.0), ((1, TOTAL - 2), (1, TOTAL - 1)), "sum to"),
        ((0.0, 1.0), (0.0, 1.0), ((0.5, 0.5), (1, TOTAL - 1)), "whole numbers"),
        ((0.0, 1.0), (0.0, 1.0), ((True, TOTAL - 1), (1, TOTAL - 1)), "whole numbers"),
        ((0.0, 1.0), (0.0, 1.0), ((1, TOTAL - 1),), "a row for each"),
        ((0.0,), (0.0, 1.0), ((1, 1, TOTAL - 2),), "a number for each"),
        ((1.0, 0.0), (0.0, 1.0), ((1, TOTAL - 1),) * 2, "must rise"),
        ((0.0, 0.0), (0.0, 1.0), ((1, TOTAL - 1),) * 2, "must rise"),
        ((0.0, 1.0), (1.0, 1.0), ((1, TOTAL - 1),) * 2, "must rise"),
        ((0.0, math.nan), (0.0, 1.0), ((1, TOTAL - 1),) * 2, "finite"),
        ((0.0, 1.0), (0.0, math.inf), ((1, TOTAL - 1),) * 2, "finite"),
        ((0.0, "1"), (0.0, 1.0), ((1, TOTAL - 1),) * 2, "no numbers"),
        (None, (0.0, 1.0), ((1, TOTAL - 1),) * 2, "finite"),
        ((), (0.0,), (), "finite"),
        (tuple(map(float, range(LARGEST + 1))), (0.0,), ((TOTAL,),) * (LARGEST + 1), "finite numbers"),
    ],
)
def test_hostile_tables_are_refused(answers: Any, outputs: Any, weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MechanismTable(answers, outputs, weights)


def test_numbers_of_a_table_cannot_be_changed_by_whoever_reads_them() -> None:
    """An accountant takes them from the same place: half the distances were half the charge."""
    for numbers in (TABLE.distances, TABLE.probabilities):
        with pytest.raises(ValueError, match="read-only"):
            numbers[:] = 0.5


def test_the_file_holds_the_table_to_the_last_word() -> None:
    text = json.dumps(TABLE.to_dict())
    assert MechanismTable.from_dict(json.loads(text)) == TABLE
    content = TABLE.to_dict()
    for change in (
        {**content, "weights": [[1.5] * 3] * 3},
        {**content, "weights": [["1e9"] * 3] * 3},
        {**content, "weights": [["-5", "5", "5"]] * 3},
        {**content, "weights": [["9" * 5000, "1", "1"]] * 3},
        {**content, "weights": 3},
        {**content, "more": 1},
        {"answers": [0.0]},
        [],
    ):
        with pytest.raises(InputError, match="table"):
            MechanismTable.from_dict(change)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [[[0.5, -0.5]], [[0.0, 0.0]], [[math.nan, 1.0]], [0.5, 0.5]])
def test_probabilities_that_are_none_are_refused(bad: Any) -> None:
    with pytest.raises(InputError, match="probabilities"):
        MechanismTable.from_probabilities([0.0], [0.0, 1.0], np.array(bad))


def test_answers_and_outputs_that_are_not_listed_are_refused() -> None:
    with pytest.raises(InputError, match="does not list"):
        TABLE.draw(np.array([2.0]), Randomness.secure())
    with pytest.raises(InputError, match="Randomness"):
        TABLE.draw(np.array([1.0]), None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="output"):
        TABLE.likelihood(np.array([1.0]), 0.3)
    assert TABLE.likelihood(np.array([3.0, 0.0]), 0.4).tolist() == pytest.approx([0.25, 0.3])


def test_low_bits_tell_no_more_than_the_outputs_do() -> None:
    def sampler(exact: Any, generator: np.random.Generator) -> Any:
        return TABLE.draw(exact, Randomness.from_key(generator.bytes(32)))

    epsilon = float(TABLE.distances[0, 1])
    assert not low_bits(sampler, answers=(0.0, 1.0), epsilon=epsilon, samples=40_000, seed=2).violated
    assert low_bits(sampler, answers=(0.0, 1.0), epsilon=epsilon / 3, samples=40_000, seed=2).violated
