"""The specification: every mistake is reported with file and line, what was given and what is allowed."""

from __future__ import annotations

import threading

import pytest

from csdp import CoupledChain, Discretiser, Mean, Plan
from csdp.errors import CsdpError, InputError, NotUsefulError
from csdp.planning.plan_file import PlanFile
from csdp.stream import Clock, FileSource, StreamSource
from csdp.stream.from_spec import load_plan, open_source, open_stream, resolve_names
from csdp.stream.mqtt import MqttSource
from csdp.stream.spec import read_spec
from csdp.stream.template import first_spec

GOOD = """\
dataset = "house"
ledger = "ledger.db"
plan = "plan.json"
sequences = ["hall", "kitchen"]
anyway = true

[clock]
step = "1h"
lateness = 300

[source]
kind = "stdin"

[sink]
kind = "stdout"
"""
MQTT = """kind = "mqtt"
topic = "home"
"""


@pytest.fixture
def plan(tmp_path):
    chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=["hall", "kitchen"])
    made = Plan(chain, Mean(), 2, 1.0)
    PlanFile(made).save(tmp_path / "plan.json")
    return made


@pytest.fixture
def spec(tmp_path):
    """Write a specification, some of its text replaced, and read it."""

    def call(*changes):
        text = GOOD
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "stream.toml").write_text(text)
        return read_spec(tmp_path / "stream.toml")

    return call


def test_a_good_one(spec, tmp_path):
    found = spec(
        ("lateness = 300", 'lateness = "90s"\norigin = "2024-01-01"\nahead = 60\nadvance = "wall"'),
        ("[clock]", "[limits]\nbudget = 0.5\n[clock]"),
    )
    assert found.clock == Clock(step=3600, lateness=90, origin=1704067200, ahead=60)
    assert (found.ledger, found.plan) == (str(tmp_path / "ledger.db"), tmp_path / "plan.json")
    assert (found.source.kind, found.sink.kind, found.by_wall_clock) == ("stdin", "stdout", True)
    assert found.limits == {"budget": 0.5, "event_limit": None, "lifetime_limit": None}
    assert spec(('"ledger.db"', '"postgresql://me@db/x"')).ledger == "postgresql://me@db/x"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('dataset = "house"\n', "", 1, "no 'dataset'; it is needed"),
        ('dataset = "house"', "dataset = 7", 1, "dataset: 7 given; a text"),
        ('dataset = "house"', "dataset = ", 1, "not TOML"),
        ('plan = "plan.json"', 'plna = "plan.json"', 3, "unknown key (did you mean 'plan'?)"),
        ('plan = "plan.json"', 'plan = "plan.json"\nchain = "chain.json"', 4, "are in the plan file"),
        ('["hall", "kitchen"]', '["hall", "hall"]', 4, "the same text twice"),
        ('step = "1h"', 'step = "1 parsec"', 8, "clock.step: '1 parsec' given"),
        ("lateness = 300", "origin = 1.5", 9, "clock.origin: 1.5 given"),
        ("lateness = 300", "lateness = 300\nahead = '6min'", 7, "360 given, lateness 300; ahead is at most"),
        ("[clock]", "[limits]\nbudget = -1\n[clock]", 8, "limits.budget: -1 given; more than 0"),
        ('kind = "stdin"', 'kind = "kafka"', 12, "source.kind: 'kafka' given; one of 'stdin'"),
        ('kind = "stdin"', 'kind = "stdin"\npath = "x"', 13, "source.path: unknown key; allowed: kind"),
        ('kind = "stdin"', MQTT.replace("home", "home/#"), 13, "topic 'home/#' given"),
        ('kind = "stdin"', MQTT + "password = 'x'", 14, "no secrets in this file"),
        ('kind = "stdin"', MQTT + "password_file = 'nothing'\nusername = 'me'", 14, "it cannot be read"),
        ('kind = "stdout"', 'kind = "file"', 14, "sink: no 'path'"),
        ('[sink]\nkind = "stdout"\n', "[sink]", 14, "no 'kind' in [sink]"),
        ("[clock]", "[extra]\nx = 1\n[clock]", 7, "extra: unknown key"),
    ],
)
def test_every_mistake_has_its_line(spec, old, new, line, words):
    with pytest.raises(InputError) as error:
        spec((old, new))
    message = str(error.value)
    assert f"stream.toml:{line}: " in message, message
    assert words in message, message


def test_no_file_and_no_text(tmp_path):
    with pytest.raises(InputError, match="csdp init"):
        read_spec(tmp_path / "stream.toml")
    (tmp_path / "stream.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_spec(tmp_path / "stream.toml")


def test_secrets_come_from_elsewhere(spec, tmp_path):
    (tmp_path / "secret").write_text("s3same\n")
    options = MQTT + "tls = true\nusername = 'me'\nhost = 'broker.example'\n"
    found = spec(('kind = "stdin"', options + "password_file = 'secret'")).source
    assert (found.broker.password, found.broker.port) == ("s3same", 8883)
    assert "s3same" not in repr(found)


class TestOpening:
    def test_the_sources_and_sinks(self, spec, plan, tmp_path):
        with open_stream(spec()) as live:
            assert live.runner.names == ("hall", "kitchen")
            assert isinstance(live.source, StreamSource)
            assert live.runner.publisher.plan == plan
        assert (tmp_path / "ledger.db").exists()
        with open_stream(spec(('kind = "stdin"', 'kind = "file"\npath = "in"'))) as live:
            assert isinstance(live.source, FileSource)
        with open_stream(spec(('kind = "stdin"', MQTT), ('kind = "stdout"', MQTT))) as live:
            assert isinstance(live.source, MqttSource)
        with open_stream(spec(('kind = "stdout"', 'kind = "file"\npath = "out"'))):
            assert (tmp_path / "out").exists()

    def test_a_replay_starts_after_the_public_past(self, spec, plan, tmp_path):
        (tmp_path / "data.csv").write_text("time,hall,kitchen\n" + "".join(f"{t},1,0\n" for t in range(9)))
        PlanFile(plan, until=4).save(tmp_path / "plan.json")
        found = spec(('kind = "stdin"', 'kind = "input"\n[input]\nfile = "data.csv"'))
        seen = []
        open_source(found, load_plan(found)).run(
            lambda message, done=None: seen.append(message.time) or True, threading.Event()
        )
        assert seen == [4, 5, 6, 7, 8]

    def test_a_plan_that_is_not_one(self, spec, plan, tmp_path):
        for text, words in (("{}", "schema"), ("damaged", "JSON"), (None, "no such file")):
            (tmp_path / "plan.json").unlink()
            if text is not None:
                (tmp_path / "plan.json").write_text(text)
            with pytest.raises(InputError, match=rf"stream\.toml:3: plan: .*{words}"):
                load_plan(spec())
            (tmp_path / "plan.json").touch()

    def test_a_plan_that_is_hardly_useful(self, spec, plan):
        with pytest.raises(NotUsefulError, match=r"stream\.toml: a release removes .* or anyway = true"):
            load_plan(spec(("anyway = true", "anyway = false")))

    def test_a_discretiser_of_other_sequences(self, spec, plan, tmp_path):
        other = Discretiser.declared(["kitchen", "attic"], edges=[10], bounds=(0, 40))
        PlanFile(plan, discretiser=other).save(tmp_path / "plan.json")
        with pytest.raises(InputError, match=r"stream\.toml:3: plan: .*sequences kitchen, attic given"):
            resolve_names(spec(), load_plan(spec()))

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (("ledger.db", "plan.json"), r"stream\.toml:2: ledger: "),
            (('kind = "stdin"', 'kind = "file"\npath = "no"\nfollow = false'), r"stream\.toml:13: source\.path: "),
            (('kind = "stdout"', 'kind = "file"\npath = "no/such/folder"'), r"stream\.toml:16: sink\.path: .*No such"),
        ],
    )
    def test_errors_of_files_have_lines_too(self, spec, plan, change, words):
        found = spec(change)
        with pytest.raises(CsdpError, match=words), open_stream(found):
            pass


class TestFirstSpec:
    @pytest.mark.parametrize(
        ("header", "rows", "step"),
        [
            ("time,hall,kitchen", ["2024-01-01T00:00:00,1,0", "2024-01-01T00:15:00,0,1"], 900),
            ("time,sequence,value", ["0,hall,1", "60,hall,0", "0,kitchen,1", "60,kitchen,1"], 60),
        ],
    )
    def test_it_is_a_specification(self, tmp_path, header, rows, step):
        (tmp_path / "data.csv").write_text("\n".join([header, *rows]) + "\n")
        (tmp_path / "stream.toml").write_text(first_spec(tmp_path / "data.csv"))
        found = read_spec(tmp_path / "stream.toml")
        assert found.clock.step == step
        assert found.sequences == ("hall", "kitchen")
        assert found.dataset == "data"

    def test_no_reading_is_in_it(self, tmp_path):
        (tmp_path / "data.csv").write_text("time,a\n0,47.110815\n1,12.5\n")
        assert "47.11" not in first_spec(tmp_path / "data.csv")
