from __future__ import annotations

import json
import math
import re

import pytest

from csdp import CoupledChain, JointChain, Max, Mean, leakage, leakage_table
from csdp.bounds.result import BOUNDS, UNSOUND
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
    def test_all_bounds_as_the_library_gives_them(self, run, paper):
        answer = asked(run, paper, "--query", "mean", "--age", "2", "--epsilon-c", "1")
        expected = leakage_table(PAPER, Mean(), ages=2, epsilon_c=1.0)
        assert list(answer["bounds"]) == [bound for bound in BOUNDS if bound != "influence"]
        for row in expected.rows:
            assert answer["bounds"][row.bound]["epsilon"] == row.epsilon
            assert answer["bounds"][row.bound]["sound"] is (row.bound not in UNSOUND)
        assert answer["sharpest"] == "exact"
        assert answer["witness"]["sequence"] == expected["exact"].witness.sequence
        assert answer["components"][0]["sequences"] == ["x1", "x2"]
        assert answer["chain"] == PAPER.digest
        assert answer["ages"] == [2, 2]

    def test_reference_value(self, run, paper):
        answer = asked(run, paper, "--age", "2", "--epsilon-c", "1")
        assert answer["bounds"]["exact"]["epsilon"] == pytest.approx(0.153045546, abs=5e-10)

    def test_one_age_each_and_another_query(self, run, paper):
        answer = asked(run, paper, "--query", "max", "--ages", "1,3", "--epsilon-c", "0.5", "--bound", "exact")
        expected = leakage(PAPER, Max(), ages=[1, 3], epsilon_c=0.5, bound="exact")
        assert answer["bounds"] == {
            "exact": {
                "epsilon": expected.epsilon,
                "sound": True,
                "assumptions": list(expected.assumptions),
                "reason": expected.reason,
            }
        }

    @pytest.mark.parametrize("adversary", ["informed", "uninformed", "any"])
    def test_adversaries(self, run, paper, adversary):
        options = ("--age", "1", "--epsilon-c", "2", "--adversary", adversary)
        answer = asked(run, paper, *options)
        expected = leakage_table(PAPER, Mean(), ages=1, epsilon_c=2.0, adversary=adversary)
        assert {name: row["epsilon"] for name, row in answer["bounds"].items()} == {
            row.bound: row.epsilon for row in expected.rows
        }
        assert answer["adversary"] == adversary

    def test_auto_says_why(self, run, paper):
        answer = asked(run, paper, "--age", "2", "--epsilon-c", "1", "--bound", "auto")
        assert answer["bounds"]["exact"]["reason"]

    def test_infinity_is_a_string_with_a_reason(self, run, paper):
        answer = asked(run, paper, "--age", "0", "--epsilon-c", "1", "--bound", "freshness")
        assert leakage(PAPER, Mean(), ages=0, epsilon_c=1.0, bound="freshness").epsilon == math.inf
        assert answer["bounds"]["freshness"]["epsilon"] == "inf"
        assert answer["bounds"]["freshness"]["reason"]
        assert answer["components"][0]["epsilon"] == "inf"

    def test_an_unsound_bound_is_never_the_sharpest(self, run, paper):
        answer = asked(run, paper, "--age", "2", "--epsilon-c", "1", "--bound", "printed-loose")
        assert answer["bounds"]["printed-loose"]["sound"] is False
        assert answer["sharpest"] is None
        assert answer["protects"].startswith("UNSOUND")

    def test_bounds_that_do_not_apply_say_why(self, run, tmp_path):
        save_model(JointChain(PAPER.kernel(), states=2, sequences=2), tmp_path / "joint.json")
        answer = asked(run, tmp_path / "joint.json", "--age", "2", "--epsilon-c", "1")
        assert "CoupledChain" in answer["missing"]["lineage"]
        assert answer["bounds"]["exact"]["epsilon"] == pytest.approx(0.153045546, abs=5e-10)

    def test_standard_input(self, run, paper):
        answer = asked(run, "-", "--age", "2", "--epsilon-c", "1", stdin=paper.read_text())
        assert answer["chain"] == PAPER.digest


class TestTable:
    def test_marks_unsound_rows_and_says_what_is_protected(self, run, paper):
        output = run("leakage", paper, "--age", "2", "--epsilon-c", "1").stdout
        rows = {line.split("│")[1].strip(): line for line in output.splitlines() if line.startswith("│")}
        for bound in BOUNDS:
            assert ("UNSOUND" in rows[bound]) == (bound in UNSOUND)
        assert "0.153046" in rows["exact"]
        [promise] = [line for line in output.splitlines() if line.startswith("Protects:")]
        assert "the present value" in promise
        assert "every other present value" in promise
        assert "if the model holds" in promise
        assert "Does not protect: old records, which are exposed with noise epsilon_c = 1 (a 50 % guess" in promise

    def test_worst_case_in_the_users_names(self, run, write):
        chain = CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]], values=[0, 20], names=["[red]hall"])
        output = run("leakage", write(chain.to_dict()), "--age", "1", "--epsilon-c", "1").stdout
        assert "Worst case (exact): [red]hall = 20 against 0" in output

    def test_control_characters_in_names_do_not_reach_the_terminal(self, run, write):
        chain = CoupledChain([[1.0]], [[0.99, 0.01], [0.3, 0.7]], names=["\x1b[31mhall"])
        output = run("leakage", write(chain.to_dict()), "--age", "1", "--epsilon-c", "1").stdout
        assert "\x1b" not in output

    def test_unsound_alone_promises_nothing(self, run, paper):
        output = run("leakage", paper, "--age", "2", "--epsilon-c", "1", "--bound", "printed-tight").stdout
        assert "Protects:" not in output
        assert "certifies nothing" in output

    def test_infinite_says_why(self, run, paper):
        output = run("leakage", paper, "--age", "0", "--epsilon-c", "1", "--bound", "freshness").stdout
        assert "Why:" in output

    def test_independent_groups_are_counted(self, run, write):
        chain = CoupledChain([[1, 0], [0, 1]], [[0.7, 0.3], [0.3, 0.7]])
        output = run("leakage", write(chain.to_dict()), "--age", "1", "--epsilon-c", "1").stdout
        assert "Components: 2 independent groups" in output

    def test_ages_in_the_title(self, run, paper):
        for bound in ([], ["--bound", "exact"]):
            output = run("leakage", paper, "--ages", "1,3", "--epsilon-c", "0.5", *bound).stdout
            assert "mean, age 1,3, epsilon_c 0.5, informed adversary" in " ".join(output.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--epsilon-c", "1"], "give --age for all sequences, or --ages"),
        (["--age", "1", "--ages", "1,2", "--epsilon-c", "1"], "give --age for all sequences, or --ages"),
        (["--age", "1"], "--epsilon-c"),
        (["--age", "-1", "--epsilon-c", "1"], "0 or more"),
        (["--age", "1.5", "--epsilon-c", "1"], "--age"),
        (["--ages", "1,2.5", "--epsilon-c", "1"], "whole numbers separated by commas"),
        (["--ages", "1,2,3", "--epsilon-c", "1"], "3 given for 2 sequences"),
        (["--ages", "", "--epsilon-c", "1"], "whole numbers separated by commas"),
        (["--age", "99999999", "--epsilon-c", "1"], "at most 1,000,000"),
        (["--age", "1", "--epsilon-c", "0"], "a finite number above 0 is allowed"),
        (["--age", "1", "--epsilon-c", "-1"], "a finite number above 0 is allowed"),
        (["--age", "1", "--epsilon-c", "nan"], "epsilon"),
        (["--age", "1", "--epsilon-c", "inf"], "epsilon"),
        (["--age", "1", "--epsilon-c", "x"], "--epsilon-c"),
        (["--age", "1", "--epsilon-c", "1", "--query", "median"], "use mean, sum"),
        (["--age", "1", "--epsilon-c", "1", "--query", "count:7"], "unknown state 7"),
        (["--age", "1", "--epsilon-c", "1", "--query", "linear:1,2,3"], "3 weights given for 2 sequences"),
        (["--age", "1", "--epsilon-c", "1", "--bound", "magic"], "bound: 'magic' given; use auto or one of"),
        (["--age", "1", "--epsilon-c", "1", "--adversary", "all"], "--adversary"),
        (["--age", "1", "--epsilon-c", "1", "--format", "xml"], "--format"),
        (["--age", "1", "--epsilon-c", "1", "--colour"], "--colour"),
        (["--age", "1", "--epsilon-c", "1", "--workers", "0"], "greater than or equal to 1"),
    ],
)
def test_bad_input_is_one_line(fails, paper, args, message):
    assert message in fails("leakage", paper, *args)


def test_a_bound_that_does_not_apply_is_an_error_when_asked_for(fails, tmp_path):
    save_model(JointChain(PAPER.kernel(), states=2, sequences=2), tmp_path / "joint.json")
    line = fails("leakage", tmp_path / "joint.json", "--age", "2", "--epsilon-c", "1", "--bound", "lineage")
    assert "needs a CoupledChain" in line


def test_the_help_names_every_bound(run):
    words = re.sub(r"\s+", " ", run("leakage", "--help").stdout)
    for bound in ("auto", *BOUNDS):
        assert bound in words


def test_the_sequences_one_by_one(run, paper):
    args = (paper, "--age", "2", "--epsilon-c", "1", "--per-sequence")
    answer = asked(run, *args)
    assert answer["quantiles"]["1"] == pytest.approx(leakage(PAPER, Mean(), ages=2, epsilon_c=1.0).epsilon, rel=1e-12)
    assert (answer["sequences"], [row["sequence"] for row in answer["worst"]]) == (2, ["x1", "x2"])
    words = run("leakage", *args, "--bound", "slice", "--workers", "2").stdout
    assert "slice for 2" in words
    assert "Protects" in words
