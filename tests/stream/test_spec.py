"""The specification: every mistake is reported with file and key, what was given and what is allowed."""

from __future__ import annotations

import threading

import pytest

from csdp import CoupledChain, Discretiser, Mean, Plan
from csdp.cli.init import first_spec
from csdp.errors import CsdpError, InputError, NotUsefulError
from csdp.planning.plan_file import PlanFile
from csdp.stream import Clock, FileSource, StreamSource
from csdp.stream.mqtt import MqttSource, make_client
from csdp.stream.spec import LimitsSection, load_plan, open_source, open_stream, read_spec, resolve_names

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
    assert found.limits == LimitsSection(budget=0.5)
    assert spec(('"ledger.db"', '"postgresql://me@db/x"')).ledger == "postgresql://me@db/x"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('dataset = "house"\n', "", "dataset: not given; it is needed"),
        ('dataset = "house"', "dataset = 7", "dataset: 7 given; input should be a valid string"),
        ('dataset = "house"', "dataset = ", "not TOML: Invalid value (at line 1"),
        ('plan = "plan.json"', 'plna = "plan.json"', "plna: unknown key (did you mean 'plan'?)"),
        ('plan = "plan.json"', 'plan = "plan.json"\nchain = "chain.json"', "chain: not in a specification any more"),
        ('["hall", "kitchen"]', '["hall", "hall"]', "sequences: the same text twice"),
        ('["hall", "kitchen"]', "7", "sequences: 7 given; input should be a list"),
        ('step = "1h"', 'step = "1 parsec"', "clock.step: '1 parsec' given"),
        ("lateness = 300", "origin = 1.5", "clock.origin: 1.5 given"),
        ("lateness = 300", "lateness = 300\nahead = '6min'", "clock: ahead: 360 given"),
        ("[clock]", "[limits]\nbudget = -1\n[clock]", "limits.budget: -1 given; input should be greater than 0"),
        ("[clock]", "[limits]\nlifetime_limit = 3.5\n[clock]", "limits: lifetime_limit: its name is moment_limit now"),
        ("[clock]", "[limits]\nwindow_limit = 6.0\n[clock]", "limits: window_limit: given without window"),
        (
            "[clock]",
            "[limits]\nwindow = 0\n[clock]",
            "limits.window: 0 given; input should be greater than or equal to 1",
        ),
        ("[clock]", "[limits]\nbuget = 1\n[clock]", "limits: buget: unknown key (did you mean 'budget'?)"),
        ('kind = "stdin"', 'kind = "kafka"', "tags: 'stdin', 'input', 'http', 'file', 'mqtt'"),
        ('kind = "stdin"', 'kind = "stdin"\npath = "x"', "source: path: unknown key; allowed: kind"),
        ('kind = "stdin"', MQTT.replace("home", "home/#"), "source.topic: topic 'home/#' given"),
        ('kind = "stdin"', MQTT + "password = 's3same'", "password: unknown key (did you mean 'password_file'?)"),
        ('kind = "stdin"', MQTT + "password_file = 'nothing'", "source.password_file: path does not point to a file"),
        ('kind = "stdin"', MQTT + "ca_file = 'stream.toml'", "source: ca_file, cert_file or key_file given, but"),
        ('kind = "stdout"', 'kind = "file"', "sink.path: not given"),
        ('[sink]\nkind = "stdout"\n', "[sink]", "sink: unable to extract tag using discriminator 'kind'"),
        ("[clock]", "[extra]\nx = 1\n[clock]", "extra: unknown key"),
    ],
)
def test_every_mistake_names_its_key(spec, old, new, words):
    with pytest.raises(InputError) as error:
        spec((old, new))
    message = str(error.value)
    assert "stream.toml: " in message, message
    assert words in message, message
    assert "s3same" not in message


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
    client = make_client(found, "csdp-house", persistent=True)
    assert (client.username, client.password) == ("me", "s3same")
    assert "s3same" not in repr(found)


class TestOpening:
    def test_the_sources_and_sinks(self, spec, plan, tmp_path):
        with open_stream(spec()) as (runner, source):
            assert runner.names == ("hall", "kitchen")
            assert isinstance(source, StreamSource)
            assert runner.publisher.plan == plan
        assert (tmp_path / "ledger.db").exists()
        with open_stream(spec(('kind = "stdin"', 'kind = "file"\npath = "in"'))) as (_, source):
            assert isinstance(source, FileSource)
        with open_stream(spec(('kind = "stdin"', MQTT), ('kind = "stdout"', MQTT))) as (_, source):
            assert isinstance(source, MqttSource)
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
            with pytest.raises(InputError, match=rf"stream\.toml: plan: .*{words}"):
                load_plan(spec())
            (tmp_path / "plan.json").touch()

    def test_a_plan_that_is_hardly_useful(self, spec, plan):
        with pytest.raises(NotUsefulError, match=r"stream\.toml: a release removes .* or anyway = true"):
            load_plan(spec(("anyway = true", "anyway = false")))

    def test_a_discretiser_of_other_sequences(self, spec, plan, tmp_path):
        other = Discretiser.declared(["kitchen", "attic"], edges=[10], bounds=(0, 40))
        PlanFile(plan, discretiser=other).save(tmp_path / "plan.json")
        with pytest.raises(InputError, match=r"stream\.toml: plan: .*sequences kitchen, attic given"):
            resolve_names(spec(), load_plan(spec()))

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (("ledger.db", "plan.json"), r"stream\.toml: ledger: "),
            (('kind = "stdin"', 'kind = "file"\npath = "no"\nfollow = false'), r"stream\.toml: source: "),
            (('kind = "stdout"', 'kind = "file"\npath = "no/such/folder"'), r"stream\.toml: sink: .*No such"),
        ],
    )
    def test_errors_of_files_name_their_key_too(self, spec, plan, change, words):
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
