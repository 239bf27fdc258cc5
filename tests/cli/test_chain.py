from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from csdp import CoupledChain, JointChain
from csdp.chain.files import load_model, read_model
from csdp.errors import InputError

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


class TestFiles:
    """Every command reads chains through one door."""

    def test_written_by_hand_without_a_schema(self):
        assert read_model('{"kernel": [[0.7, 0.3], [0.3, 0.7]], "states": 2, "sequences": 1}') == JointChain(
            [[0.7, 0.3], [0.3, 0.7]], states=2, sequences=1
        )

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ([1, 2], "a JSON list given"),
            ("3", "a JSON int given"),
            ({"schema": "csdp/coupled-chain/9"}, "schema 'csdp/coupled-chain/9' given; this version reads"),
            ({"schema": ["x"]}, "schema ['x'] given"),
            ({"schema": "csdp/coupled-chain/1"}, "lacks or garbles"),
            ({"schema": "csdp/joint-chain/1"}, "lacks or garbles"),
            ({"schema": "csdp/coupled-chain/1", "edges": [[0, 0]], "transitions": []}, "garble"),
            ({"kernel": [[1]], "states": "x", "sequences": 1}, "garble"),
            ({"coupling": [[1]], "transitions": [[10**400, 0], [0, 1]]}, "garble"),
            ({"coupling": [[0.9]], "transitions": [[1, 0], [0, 1]]}, "row 0 sums to 0.9"),
        ],
    )
    def test_bad_files_are_one_line_that_names_the_file(self, fails, write, content, message):
        path = write(content)
        line = fails("chain", "show", path)
        assert message in line
        assert path.name in line

    def test_missing_file(self, fails, tmp_path):
        assert "nofile.json: no such file" in fails("chain", "show", tmp_path / "nofile.json")

    def test_folder(self, fails, tmp_path):
        assert "a folder given" in fails("chain", "show", tmp_path)

    def test_not_text(self, fails, tmp_path):
        (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
        assert "not a text file" in fails("chain", "show", tmp_path / "x")

    def test_a_path_that_cannot_be(self):
        with pytest.raises(InputError, match="not a path"):
            load_model("a\0b")
