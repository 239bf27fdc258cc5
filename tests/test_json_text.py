"""A number of more digits than Python reads is refused at every door where JSON comes in, never a traceback."""

from __future__ import annotations

import json
import sqlite3

import pytest

import csdp
from csdp.chain.files import load_model, read_model
from csdp.errors import CsdpError, InputError, LedgerError
from csdp.ledger.records import decode
from csdp.numbers import parse_json
from csdp.panel import Discretiser
from csdp.planning.plan_file import PlanFile
from csdp.stream.messages import Bad, decode_message
from csdp.stream.spec import read_spec

DIGITS = "9" * 5000
CHAIN = csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]])
PLAN = csdp.Plan(CHAIN, csdp.Mean(), ages=1, epsilon_c=0.5)


@pytest.mark.parametrize("text", [DIGITS, f'{{"a": -{DIGITS}}}', f"[{DIGITS}]"])
@pytest.mark.parametrize(
    "read",
    [
        lambda text: parse_json("text", text),
        read_model,
        csdp.CoupledChain.from_json,
        csdp.Plan.from_json,
        Discretiser.from_json,
    ],
)
def test_a_long_number_is_refused_in_words(read, text):
    with pytest.raises(InputError, match="a number of more than 4,300 digits"):
        read(text)


def put_digits(text, name, digits):
    """A JSON object with a number in the place of a field."""
    content = json.loads(text)
    content[name] = "HERE"
    return json.dumps(content).replace('"HERE"', digits)


@pytest.mark.parametrize("digits", [DIGITS, "9" * 400, "1e999"])
def test_files_with_long_numbers(tmp_path, digits):
    chain, plan = tmp_path / "chain.json", tmp_path / "plan.json"
    chain.write_text(put_digits(CHAIN.to_json(), "coupling", f"[[{digits}]]"))
    plan.write_text(put_digits(PLAN.to_json(), "epsilon_c", digits))
    with pytest.raises(InputError, match=r"chain\.json"):
        load_model(chain)
    with pytest.raises(InputError, match=r"plan\.json"):
        PlanFile.load(plan)
    with pytest.raises(CsdpError):
        csdp.Plan.from_json(plan.read_text())


def test_messages_with_long_numbers():
    for text in (f'{{"time": {DIGITS}, "values": [0]}}', f'{{"time": 1, "values": [{DIGITS}]}}', DIGITS):
        assert isinstance(decode_message(text.encode()), Bad)
    assert isinstance(decode_message(f'{{"time": 1, "value": {DIGITS}}}'.encode(), sequence="a"), Bad)


def test_a_specification_with_a_long_number(tmp_path):
    (tmp_path / "stream.toml").write_text(f'dataset = "d"\n[clock]\nstep = {DIGITS}\n')
    with pytest.raises(InputError, match=r"stream\.toml: not TOML"):
        read_spec(tmp_path / "stream.toml")


def test_a_ledger_with_a_long_number(tmp_path):
    with pytest.raises(LedgerError, match="cannot be read"):
        decode(f'{{"a": {DIGITS}}}')
    book = tmp_path / "ledger.db"
    with csdp.Publisher(PLAN, dataset="d", ledger=book) as publisher:
        for tick in range(4):
            publisher.push([0], time=tick)
    with sqlite3.connect(book) as raw:
        for [name] in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            raw.execute(f"DROP TRIGGER {name}")
        raw.execute("UPDATE csdp_entries SET payload = ? WHERE seq = 4", (f'{{"state": {DIGITS}}}',))
    raw.close()
    with csdp.Ledger.open(book, read_only=True) as ledger:
        assert any("payload that cannot be read" in str(problem) for problem in ledger.verify())
