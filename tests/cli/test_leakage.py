from __future__ import annotations

import json
import math
import re

import pytest

from csdp import CoupledChain, JointChain, Max, Mean, leakage
from csdp.bounds.result import BOUNDS
from csdp.chain.files import save_model

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def strict(text):
    """JSON as the standard has it: NaN and Infinity are errors."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def asked(run, *args, **options):
    return strict(run("leakage", *args, "--format", "json", **options).stdout)


class TestJson:
    @pytest.mark.parametrize("adversary", ["informed", "uninformed"])
    def test_as_the_library_gives_it(self, run, paper, adversary):
        answer = asked(run, paper, "--age", "2", "--epsilon-c", "1", "--adversary", adversary)
        expected = leakage(PAPER, Mean(), ages=2, epsilon_c=1.0, adversary=adversary)
        assert (answer["epsilon"], answer["bound"], answer["reason"]) == (
            expected.epsilon,
            expected.bound,
            expected.reason,
        )
        assert answer["witness"]["sequence"] == expected.witness.sequence
        assert answer["components"][0]["sequences"] == ["x1", "x2"]
        assert (answer["chain"], answer["ages"], answer["adversary"]) == (PAPER.digest, [2, 2], adversary)

    def test_one_age_each_and_another_query(self, run, paper):
        answer = asked(run, paper, "--query", "max", "--age", "1,3", "--epsilon-c", "0.5", "--bound", "exact")
        assert answer["epsilon"] == leakage(PAPER, Max(), ages=[1, 3], epsilon_c=0.5, bound="exact").epsilon

    def test_standard_input(self, run, paper):
        given = ("--age", "2", "--epsilon-c", "1")
        assert asked(run, "-", *given, stdin=paper.read_text()) == asked(run, paper, *given)

    def test_infinity_is_a_string_with_a_reason(self, run, paper):
        answer = asked(run, paper, "--age", "0", "--epsilon-c", "1", "--bound", "freshness")
        assert leakage(PAPER, Mean(), ages=0, epsilon_c=1.0, bound="freshness").epsilon == math.inf
        assert answer["epsilon"] == answer["components"][0]["epsilon"] == "inf"
        assert answer["reason"]
        assert "Why:" in run("leakage", paper, "--age", "0", "--epsilon-c", "1", "--bound", "freshness").stdout


class TestWords:
    def test_the_number_the_release_and_the_worst_case(self, run, paper):
        output = run("leakage", paper, "--age", "1,3", "--epsilon-c", "0.5").stdout
        assert output.startswith("Leakage of the present: ")
        for words in ("mean, age 1,3, epsilon_c 0.5, informed adversary", "Worst case: x", "Protects: the present"):
            assert words in output

    def test_names_cannot_control_the_terminal(self, run, write):
        chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], names=["\x1b[31mhall"])
        assert "\x1b" not in run("leakage", write(chain.to_dict()), "--age", "1", "--epsilon-c", "1").stdout

    def test_the_help_names_every_bound(self, run):
        words = re.sub(r"\s+", " ", run("leakage", "--help").stdout)
        for bound in ("auto", *BOUNDS):
            assert bound in words


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--epsilon-c", "1"], "missing option '--age'"),
        (["--age", "1"], "missing option '--epsilon-c'"),
        (["--age", "1,2.5", "--epsilon-c", "1"], "whole numbers separated by commas"),
        (["--age", "1", "--epsilon-c", "0"], "a finite number above 0 is allowed"),
        (["--age", "1", "--epsilon-c", "1", "--query", "median"], "use mean, sum"),
        (["--age", "1", "--epsilon-c", "1", "--bound", "magic"], "bound: 'magic' given; one of 'auto', 'exact'"),
    ],
)
def test_bad_input_is_one_line(fails, paper, args, message):
    assert message in fails("leakage", paper, *args)


def test_a_bound_that_does_not_apply_is_an_error_when_asked_for(fails, tmp_path):
    save_model(JointChain(PAPER.kernel(), states=2, sequences=2), tmp_path / "joint.json")
    line = fails("leakage", tmp_path / "joint.json", "--age", "2", "--epsilon-c", "1", "--bound", "slice")
    assert "needs a CoupledChain" in line
