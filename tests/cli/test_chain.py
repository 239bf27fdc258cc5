from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from csdp import CoupledChain, JointChain
from csdp.chain.files import load_model, read_model

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])


def made(run, *args):
    return read_model(run("chain", "new", *args).stdout)


class TestNew:
    def test_two_sequences_by_weights(self, run):
        assert made(run, "--sequences", "2", "--self-coupling", "0.75", "--p", "0.3", "--q", "0.3") == PAPER

    def test_names(self, run):
        chain = made(run, "-s", "2", "--self-coupling", "0.75", "--p", "0.3", "--names", "hall, kitchen")
        assert chain.names == ("hall", "kitchen")

    def test_output_file_round_trip(self, run, tmp_path):
        out = tmp_path / "chain.json"
        result = run("chain", "new", "-s", "2", "--self-coupling", "0.75", "--p", "0.3", "-o", out)
        assert load_model(out) == PAPER
        assert "2 sequences, 2 states" in result.stdout

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["-s", "2", "--self-coupling", "1.5", "--p", "0.3"], "'1.5' given; it should be less than or equal to 1"),
            (["-s", "1", "--self-coupling", "0.5", "--p", "0.3"], "sums to 0.5"),
            (["-s", "3000", "--self-coupling", "0.5", "--p", "0.3"], "'3000' given; it should be less than"),
            (["--p", "1.3"], "'--p': '1.3' given; it should be"),
            (["--p", "0.3", "--names", "a,b"], "names: 2 given for 1"),
        ],
    )
    def test_bad_input_is_one_line(self, fails, args, message):
        assert message in fails("chain", "new", *args)

    def test_output_that_cannot_be_written(self, fails, tmp_path):
        where = tmp_path / "missing" / "chain.json"
        assert str(where) in fails("chain", "new", "--p", "0.3", "-o", where)


class TestShow:
    def test_table(self, run, paper):
        output = run("chain", "show", paper).stdout
        for words in ("mixing time", "0.4 per step", "0.5, 0.5"):
            assert words in output

    def test_several_stationary_laws(self, run, write):
        joint = JointChain([[1, 0], [0, 1]], states=2, sequences=1)
        assert "several stationary laws" in run("chain", "show", write(joint.to_dict())).stdout


class TestSimulate:
    def test_csv(self, run, paper, tmp_path):
        out = tmp_path / "out.csv"
        run("chain", "simulate", paper, "--steps", "50", "--seed", "3", "-o", out)
        rows = list(csv.reader(out.read_text().splitlines()))
        assert rows[0] == ["time", "x1", "x2"]
        table = np.array(rows[1:], dtype=int)
        assert table[:, 0].tolist() == list(range(50))
        assert table[:, 1:].tolist() == PAPER.simulate(50, seed=3).tolist()

    def test_a_sequence_must_not_be_called_time(self, run, fails, write):
        chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], names=["Time"])
        assert "rename it" in fails("chain", "simulate", write(chain.to_dict()), "--steps", "5")

    def test_values_and_names_with_commas_on_standard_output(self, run, write):
        chain = CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]], values=[-1, 0.5], names=['a, "b"'])
        text = run("chain", "simulate", write(chain.to_dict()), "--steps", "20").stdout
        rows = list(csv.reader(io.StringIO(text)))
        assert rows[0] == ["time", 'a, "b"']
        assert {row[1] for row in rows[1:]} == {"-1", "0.5"}

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["--steps", "5", "-o", "out.txt"], "must end in .csv"),
            (["--steps", "0"], "at least 1"),
        ],
    )
    def test_bad_input_is_one_line(self, fails, paper, args, message):
        assert message in fails("chain", "simulate", paper, *args)

    def test_several_stationary_laws(self, fails, write):
        chain = CoupledChain([[1.0]], [[1, 0], [0, 1]])
        assert "several stationary laws" in fails("chain", "simulate", write(chain.to_dict()), "--steps", "5")


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not JSON"), ("3", "a JSON int given"), ({"schema": "csdp/coupled-chain/9"}, "this version reads")],
)
def test_bad_files_are_one_line_that_names_the_file(fails, write, content, message):
    path = write(content)
    line = fails("chain", "show", path)
    assert message in line
    assert path.name in line


def test_files_that_cannot_be_read(fails, tmp_path):
    assert "nofile.json: no such file" in fails("chain", "show", tmp_path / "nofile.json")
    assert "a folder given" in fails("chain", "show", tmp_path)
