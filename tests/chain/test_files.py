"""Models in files and in text: told apart by what they say of themselves, refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import csdp
from csdp.chain.files import load_model, model_from_dict, read_model, save_model
from csdp.errors import InputError

FLIP = [[0.7, 0.3], [0.3, 0.7]]
COUPLED = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], FLIP, values=[0, 2.5], names=["a", "ü"])
JOINT = csdp.JointChain(np.full((4, 4), 0.25), states=2, sequences=2)


@pytest.mark.parametrize("model", [COUPLED, JOINT], ids=["coupled", "joint"])
def test_the_schema_tells_the_kind(model: csdp.CoupledChain | csdp.JointChain, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model.json")
    for back in (
        load_model(tmp_path / "model.json"),
        load_model(str(tmp_path / "model.json")),
        model_from_dict(model.to_dict()),
    ):
        assert type(back) is type(model)
        assert back == model
        assert back.names == model.names
    assert (tmp_path / "model.json").read_text(encoding="utf-8") == model.to_json() + "\n"


def test_what_is_written_by_hand_needs_no_schema() -> None:
    assert read_model(json.dumps({"coupling": [[1]], "transitions": FLIP})) == csdp.CoupledChain([[1.0]], FLIP)
    by_hand = read_model(json.dumps({"kernel": FLIP, "states": 2, "sequences": 1}))
    assert by_hand == csdp.JointChain(FLIP, states=2, sequences=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"chain: not JSON"),
        ("{}", r"chain: the JSON lacks or garbles 'edges'; write it with to_json"),
        ("[" * 100_000, r"chain: not JSON"),
        ('{"schema": "csdp/chain/9"}', r"chain: schema 'csdp/chain/9' given; this version reads csdp/coupled-chain/1"),
        ('{"kernel": [[1]], "states": Infinity, "sequences": 1}', r"chain: the JSON lacks or garbles .* to_json"),
        ('{"coupling": [[1]], "transitions": [[1, 0], [0, 1]], "family": [[]]}', r"chain: the JSON"),
    ],
)
def test_text_that_is_no_model(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_model(text)


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "nothing.json", r"nothing.json: no such file$"),
        (b"\xff\xfe\x00", "binary.json", r"binary.json: not a text file; JSON in UTF-8 expected"),
        (None, "nul\0.json", r"nul\\x00.json': not a path"),
    ],
)
def test_files_that_hold_no_model(tmp_path: Path, content: bytes | None, name: str, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_model(tmp_path / name)
