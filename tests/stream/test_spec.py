"""The specification: every mistake is told with file and line, what was given and what is allowed."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdp import Accountant, CoupledChain, Discretiser, Family, Mean, Panel, Plan
from csdp.chain.files import save_model
from csdp.errors import CsdpError, InputError, NotUsefulError, PrivacyLeakWarning
from csdp.publisher import learn_from_past
from csdp.stream import Clock, FileSource, StreamSource
from csdp.stream.from_spec import make_estimator, make_plan, open_stream, resolve_sequences
from csdp.stream.mqtt import MqttSource
from csdp.stream.spec import ExplicitPlan, PlanTarget, read_spec
from csdp.stream.template import first_spec
from csdp.toml_text import key_lines

GOOD = """\
dataset = "house"
ledger = "ledger.db"
chain = "chain.json"
sequences = ["hall", "kitchen"]
anyway = true
[plan]
query = "mean"
age = 2
epsilon_c = 1.0

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
def chain(tmp_path):
    made = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=["hall", "kitchen"])
    save_model(made, tmp_path / "chain.json")
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
    found = spec()
    assert found.clock == Clock(step=3600, lateness=300)
    assert found.plan == ExplicitPlan("mean", 2, 1.0, "informed", None, 0)
    assert found.ledger == str(tmp_path / "ledger.db")
    assert found.chain == tmp_path / "chain.json"
    assert (found.source.kind, found.sink.kind, found.by_wall_clock) == ("stdin", "stdout", False)
    assert found.limits == {"budget": None, "event_limit": None, "lifetime_limit": None}


def test_a_server_as_ledger_and_a_target(spec):
    found = spec(
        ('"ledger.db"', '"postgresql://me@db/x"'),
        ("[plan]", "[target]"),
        ("age = 2\nepsilon_c = 1.0", "budget = 0.3\nvector = true"),
        ('"stdout"', '"none"'),
        ("lateness = 300", 'lateness = "90s"\norigin = "2024-01-01"\nahead = 60\nadvance = "wall"'),
    )
    assert found.ledger == "postgresql://me@db/x"
    assert isinstance(found.plan, PlanTarget)
    assert found.limits["budget"] == 0.3
    assert found.clock == Clock(step=3600, lateness=90, origin=1704067200, ahead=60)
    assert found.by_wall_clock


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('dataset = "house"\n', "", 1, "no 'dataset'; it is needed"),
        ('dataset = "house"', "dataset = 7", 1, "dataset: 7 given; a text expected"),
        ('dataset = "house"', "dataset = ", 1, "not TOML"),
        ('ledger = "ledger.db"', 'ledger = ""', 2, "ledger: '' given"),
        ('chain = "chain.json"', 'chian = "chain.json"', 1, "no 'chain'"),
        ('["hall", "kitchen"]', '["hall", "hall"]', 4, "the same text twice"),
        ('["hall", "kitchen"]', '"hall"', 4, "sequences: 'hall' given; a list of texts"),
        ('query = "mean"', 'query = "median"', 7, "plan.query: "),
        ("age = 2", "age = -2", 8, "plan.age: -2 given; a whole number from 0"),
        ("age = 2", "age = 2\nages = [1, 2]", 9, "give one of 'age'"),
        ("age = 2\n", "", 6, "give one of 'age'"),
        ("age = 2", "ages = [1, 2.5]", 8, "plan.ages: 2.5 given"),
        ("epsilon_c = 1.0", "epsilon_c = 0", 9, "plan.epsilon_c: 0 given; a positive number"),
        ("epsilon_c = 1.0", "epsilon_c = nan", 9, "a positive number"),
        ("epsilon_c = 1.0\n", "", 6, "plan: no 'epsilon_c' in [plan]"),
        ("epsilon_c = 1.0", "epsilon_c = 1.0\nadversary = 'nobody'", 10, "one of 'informed', 'uninformed', 'any'"),
        ("epsilon_c = 1.0", "epsilonc = 1.0", 6, "no 'epsilon_c'"),
        ("epsilon_c = 1.0", "epsilon_c = 1.0\nstale = 1", 10, "did you mean 'stale_limit'?"),
        ("[plan]", "[target]\nbudget = 1\n[plan]", 6, "both of [plan] and [target]"),
        ("[plan]", "[plam]", 1, "neither of [plan] and [target]"),
        ("[plan]", "[plan]\nfile = 'plan.json'", 8, "plan.query: unknown key; allowed: file"),
        ('step = "1h"', 'step = "1 parsec"', 12, "clock.step: '1 parsec' given"),
        ('step = "1h"', "step = 0.5", 12, "clock.step: 0.5 given; a whole number"),
        ('step = "1h"\n', "", 11, "clock: no 'step'"),
        ("lateness = 300", "lateness = -1", 13, "clock.lateness: -1 given"),
        ("lateness = 300", "origin = 1.5", 13, "clock.origin: 1.5 given"),
        ("lateness = 300", "origin = '1970-01-01T00:00:00.5'", 13, "a timestamp of a whole second"),
        ("lateness = 300", "advance = 'never'", 13, "one of 'readings', 'wall'"),
        ("lateness = 300", "lateness = 300\nahead = '6min'", 14, "360 given, lateness 300; ahead is at most"),
        ("lateness = 300", "times = 'logical'", 13, "one of 'wall', 'data'"),
        ("lateness = 300", "times = 'data'\njump = 0", 14, "clock.jump: 0 given; a whole number from 1"),
        ("lateness = 300", "times = 'data'\nahead = 0", 14, "with times='data' nothing says"),
        ("[clock]", "[limits]\nbudget = -1\n[clock]", 12, "limits.budget: -1 given; a positive number"),
        ("[clock]", "limits = 5\n[clock]", 11, "plan.limits: unknown key"),
        ('kind = "stdin"', 'kind = "kafka"', 16, "source.kind: 'kafka' given; one of 'stdin', 'file', 'input', 'mqtt'"),
        ('kind = "stdin"', 'kind = "file"', 15, "source: no 'path'"),
        ('kind = "stdin"', 'kind = "stdin"\npath = "x"', 17, "source.path: unknown key; allowed: kind"),
        ('kind = "stdin"', 'kind = "file"\npath = "x"\nfollow = 1', 18, "true or false"),
        ('kind = "stdin"', MQTT.replace("home", "home/#"), 17, "topic 'home/#' given"),
        ('kind = "stdin"', MQTT + "port = 70000", 18, "a whole number from 1 to 65,535"),
        ('kind = "stdin"', MQTT + "password = 'x'", 18, "no secrets in this file"),
        ('kind = "stdin"', MQTT + "password_file = 'nothing'\nusername = 'me'", 18, "it cannot be read"),
        ('kind = "stdin"', MQTT + "password_env = 'CSDP_NO_SUCH'", 18, "no variable 'CSDP_NO_SUCH'"),
        ('kind = "stdin"', MQTT + "password_env = 'HOME'", 15, "a password without a username"),
        ('kind = "stdin"', MQTT + "ca_file = 'nothing'", 18, "no such file"),
        ('kind = "stdin"', MQTT + "ca_file = 'stream.toml'", 18, "not used without tls"),
        ('kind = "stdin"', MQTT + "retain = true", 18, "unknown key"),
        ('kind = "stdout"', 'kind = "file"', 18, "sink: no 'path'"),
        ('[sink]\nkind = "stdout"\n', "", 1, "no 'kind'"),
        ("[clock]", "[[clock]]", 11, "clock: a list given; a table such as [clock]"),
        ("[clock]", "[clokc]", 1, "no 'step'"),
        ("[clock]", "[extra]\nx = 1\n[clock]", 11, "extra: unknown key"),
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


def test_secrets_come_from_elsewhere(spec, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("s3same\n")
    options = MQTT + "tls = true\nusername = 'me'\nhost = 'broker.example'\n"
    found = spec(('kind = "stdin"', options + "password_file = 'secret'")).source
    assert (found.broker.password, found.broker.port, found.client_id) == ("s3same", 8883, "csdp-house")
    assert "s3same" not in repr(found)
    monkeypatch.setenv("MQTT_SECRET", "other")
    assert spec(('kind = "stdin"', options + "password_env = 'MQTT_SECRET'")).source.broker.password == "other"


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=4)
values = st.sampled_from(
    [
        '"a = 1"',
        "'[x]'",
        "3",
        '"""\nk = 1\n[t]\n"""',
        "'''\n# ]\n'''",
        "[1, 2]",
        "[\n  1, # [\n  2,\n]",
        '{a = "}"}',
        '"\\"]"',
    ]
)


@given(st.lists(st.tuples(st.booleans(), names, values), max_size=12, unique_by=lambda item: item[1]))
def test_lines_of_keys_are_found_whatever_the_values_hold(items):
    table, text, expected, line = (), "# a comment = [\n", {}, 2
    for is_table, name, value in items:
        if is_table:
            table = (name,)
            text += f"[ {name} ] # x = 1\n"
            expected[table] = line
            line += 1
        else:
            text += f"{name} = {value}\n"
            expected[(*table, name)] = line
            line += value.count("\n") + 1
    tomllib.loads(text)
    assert key_lines(text) == expected


class TestBuilding:
    def test_it_runs(self, spec, chain, tmp_path):
        with open_stream(spec()) as live:
            assert live.runner.names == ("hall", "kitchen")
            assert isinstance(live.source, StreamSource)
            assert live.runner.publisher.plan == Plan(chain, Mean(), 2, 1.0)
        assert (tmp_path / "ledger.db").exists()

    def test_the_sources(self, spec, chain, tmp_path):
        with open_stream(spec(('kind = "stdin"', 'kind = "file"\npath = "in"'))) as live:
            assert isinstance(live.source, FileSource)
        with open_stream(spec(('kind = "stdin"', MQTT), ('kind = "stdout"', MQTT))) as live:
            assert isinstance(live.source, MqttSource)
        with open_stream(spec(('kind = "stdout"', 'kind = "file"\npath = "out"'))):
            assert (tmp_path / "out").exists()

    def test_a_target_is_met_found_once_and_kept(self, spec, chain, tmp_path, monkeypatch):
        changes = (
            ("[plan]", "[target]"),
            (
                "age = 2\nepsilon_c = 1.0",
                'budget = 0.3\nstale_limit = 1\nmax_age = 3\nevent_limit = 1\nfile = "plan.json"',
            ),
        )
        plan = make_plan(spec(*changes))
        assert plan.stale_limit == 1
        assert Accountant(plan).limit().epsilon <= 0.3
        assert Plan.from_json((tmp_path / "plan.json").read_text()) == plan  # also for `csdp release --plan`
        searched = []
        monkeypatch.setattr(
            "csdp.planning.find_plan", lambda *_args, **_named: searched.append(1) or SimpleNamespace(plan=plan)
        )
        with open_stream(spec(*changes)) as live:
            assert live.runner.publisher.plan == plan
            assert live.runner.publisher.limits["budget"] == 0.3
        assert not searched
        make_plan(spec(*changes, ("budget = 0.3", "budget = 0.2")))  # another target: another search
        assert searched
        for other in ("damaged", "[]", plan.to_json()):
            (tmp_path / "plan.json").write_text(other)  # somebody else's file is not replaced
            with pytest.raises(InputError, match=r"stream\.toml:6: target: file: .*holds something else"):
                make_plan(spec(*changes))
            assert (tmp_path / "plan.json").read_text() == other

    def test_a_plan_in_a_file(self, spec, chain, tmp_path):
        change = ('query = "mean"\nage = 2\nepsilon_c = 1.0', 'file = "plan.json"')
        plan = Plan(chain, Mean(), 3, 0.7)
        (tmp_path / "plan.json").write_text(plan.to_json())
        assert make_plan(spec(change)) == plan
        (tmp_path / "plan.json").write_text("{}")
        with pytest.raises(InputError, match=r"stream\.toml:7: plan\.file: .*schema"):
            make_plan(spec(change))
        other = CoupledChain([[1.0]], [[0.5, 0.5], [0.5, 0.5]])
        (tmp_path / "plan.json").write_text(Plan(other, Mean(), 3, 0.7).to_json())
        with pytest.raises(InputError, match="made for another chain"):
            make_plan(spec(change))
        (tmp_path / "plan.json").unlink()
        with pytest.raises(InputError, match="no such file"):
            make_plan(spec(change))

    def test_a_plan_of_a_fit_with_its_family(self, spec, chain, tmp_path):
        change = ('query = "mean"\nage = 2\nepsilon_c = 1.0', 'file = "plan.json"')
        near = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.6, 0.4], [0.4, 0.6]], names=["hall", "kitchen"])
        fitted = chain.carrying(family=Family([chain, near]))
        save_model(fitted, tmp_path / "chain.json")
        plan = Plan(fitted, Mean(), 3, 0.7)
        (tmp_path / "plan.json").write_text(plan.to_json())
        assert make_plan(spec(change)) == plan
        save_model(chain.carrying(family=Family([chain])), tmp_path / "chain.json")
        (tmp_path / "plan.json").write_text(Plan(near, Mean(), 3, 0.7).to_json())
        with pytest.raises(InputError, match="made for another chain"):
            make_plan(spec(change))

    def test_a_discretiser(self, spec, chain, tmp_path):
        change = ('chain = "chain.json"', 'chain = "chain.json"\ndiscretiser = "d.json"')
        with pytest.raises(InputError, match=r"stream\.toml:4: discretiser: .*no such file"):
            resolve_sequences(spec(change), make_plan(spec(change)))
        made = Discretiser.declared(["hall", "kitchen"], edges=[20.5], bounds=(0, 40))
        made.save(tmp_path / "d.json")
        _, states = resolve_sequences(spec(change), make_plan(spec(change)))
        import numpy as np

        assert states.states_of(np.array([20.0, 21.0])).tolist() == [0, 1]
        assert states.states_of(np.array([np.nan, 999.0])).tolist() == [-1, 1]
        Discretiser.declared(["hall", "kitchen"], edges=[10, 20], bounds=(0, 40)).save(tmp_path / "d.json")
        with pytest.raises(InputError, match="3 states; the chain has 2"):
            resolve_sequences(spec(change), make_plan(spec(change)))
        with pytest.warns(PrivacyLeakWarning):
            learned = Discretiser.fit({"time": [0, 1], "hall": [1, 2], "kitchen": [3, 4]}, states=2)
        learned.save(tmp_path / "d.json")
        with pytest.raises(InputError, match=r"stream\.toml:4: discretiser: .*come from private readings"):
            resolve_sequences(spec(change), make_plan(spec(change)))
        # Another order is put in order, by name; other sequences are refused.
        Discretiser.declared(["kitchen", "hall"], edges=[[10], [30]], bounds=(0, 40)).save(tmp_path / "d.json")
        _, states = resolve_sequences(spec(change), make_plan(spec(change)))
        assert states.states_of(np.array([20.0, 20.0])).tolist() == [0, 1]
        Discretiser.declared(["kitchen", "attic"], edges=[10], bounds=(0, 40)).save(tmp_path / "d.json")
        with pytest.raises(InputError, match="discretiser: sequences kitchen, attic given"):
            resolve_sequences(spec(change), make_plan(spec(change)))

    def test_names_of_the_sequences(self, spec, chain):
        found = spec(('["hall", "kitchen"]', '["room-1", "room-2"]'))
        names, states = resolve_sequences(found, make_plan(found))
        assert names == ("room-1", "room-2")
        assert states is None  # the runner takes the nearest value
        found = spec(('["hall", "kitchen"]', '["kitchen", "hall"]'))
        assert resolve_sequences(found, make_plan(found))[0] == ("kitchen", "hall")  # the order of lists
        for wrong, words in (
            ('["kitchen", "attic"]', r"stream\.toml:4: .*kitchen, attic given; the chain has hall, kitchen"),
            ('["hall"]', "1 sequences hall given; the chain has 2"),
        ):
            found = spec(('["hall", "kitchen"]', wrong))
            with pytest.raises(InputError, match=words):
                resolve_sequences(found, make_plan(found))

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (("chain.json", "nothing.json"), r"stream\.toml:3: chain: .*csdp fit"),
            (("chain.json", "stream.toml"), r"stream\.toml:3: chain: "),
            (("age = 2", "ages = [1, 2, 3]"), r"stream\.toml:6: plan: "),
            (("ledger.db", "chain.json"), r"stream\.toml:2: ledger: "),
            (('"ledger.db"', '"mysql://x"'), r"stream\.toml:2: ledger: "),
            (('kind = "stdin"', 'kind = "file"\npath = "no"\nfollow = false'), r"stream\.toml:17: source\.path: "),
            (('kind = "stdout"', 'kind = "file"\npath = "no/such/folder"'), r"stream\.toml:20: sink\.path: .*No such"),
        ],
    )
    def test_errors_of_files_have_lines_too(self, spec, chain, change, words):
        found = spec(change)
        with pytest.raises(CsdpError, match=words), open_stream(found):
            pass


class TestFirstSpec:
    @pytest.mark.parametrize(
        ("header", "rows", "step"),
        [
            ("time,hall,kitchen", ["0,1,0", "1,0,1", "3,1,1"], 1),
            ("time,hall,kitchen", ["2024-01-01T00:00:00,1,0", "2024-01-01T00:15:00,0,1"], 900),
            ("time,sequence,value", ["0,hall,1", "60,hall,0", "0,kitchen,1", "60,kitchen,1"], 60),
        ],
    )
    def test_it_is_a_specification(self, tmp_path, chain, header, rows, step):
        (tmp_path / "data.csv").write_text("\n".join([header, *rows]) + "\n")
        (tmp_path / "stream.toml").write_text(first_spec(tmp_path / "data.csv"))
        found = read_spec(tmp_path / "stream.toml")
        assert found.clock.step == step
        assert found.sequences == ("hall", "kitchen")
        assert found.dataset == "data"

    def test_it_runs(self, tmp_path, chain):
        (tmp_path / "data.csv").write_text("time,hall,kitchen\n0,1,0\n1,0,1\n")
        text = first_spec(tmp_path / "data.csv")
        assert "max_age = 10" in text
        text = text.replace("max_age = 10", "max_age = 2")
        (tmp_path / "stream.toml").write_text(text)
        with pytest.raises(NotUsefulError, match=r"stream\.toml: a release removes .* or anyway = true"):
            open_stream(read_spec(tmp_path / "stream.toml")).__enter__()
        (tmp_path / "stream.toml").write_text(text.replace("# anyway = true", "anyway = true"))
        with open_stream(read_spec(tmp_path / "stream.toml")) as live:
            assert Accountant(live.runner.publisher.plan).limit().epsilon <= 0.5

    def test_no_reading_is_in_it(self, tmp_path):
        (tmp_path / "data.csv").write_text("time,a\n0,47.110815\n1,12.5\n")
        assert "47.11" not in first_spec(tmp_path / "data.csv")

    def test_odd_names_and_many(self, tmp_path):
        many = [f'n"{i}' if i else "größe [1]" for i in range(60)]
        (tmp_path / "data.csv").write_text(
            "time,"
            + ",".join('"' + n.replace('"', '""') + '"' for n in many)
            + "\n"
            + "0"
            + ",1" * 60
            + "\n1"
            + ",0" * 60
        )
        (tmp_path / "stream.toml").write_text(first_spec(tmp_path / "data.csv", dataset='my "set"'))
        found = read_spec(tmp_path / "stream.toml")
        assert set(found.sequences) == set(many)
        assert found.dataset == 'my "set"'


def test_an_estimator_of_another_plan_is_refused_at_its_line(spec, tmp_path, chain):
    past = Panel.from_states(chain.simulate(200, seed=1), names=chain.names)
    learn_from_past(Plan(chain, Mean(), 2, 5.0), past).save(tmp_path / "estimator.json")
    found = spec(("[clock]", '[estimate]\nfile = "estimator.json"\n\n[clock]'))
    with pytest.raises(InputError, match=r"stream\.toml.*made for the plan .*learn_from_past"):
        make_estimator(found, make_plan(found))
