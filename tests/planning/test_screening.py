"""Plans for a release at every tick: ages are screened, finalists certified, and an interrupt keeps the best plan."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from csdp import CoupledChain, Mean, Plan
from csdp.accountant import Accountant
from csdp.cli.app import app
from csdp.planning import find_plan
from csdp.planning.curves import Curves
from csdp.planning.screening import ScalarScreen
from csdp.planning.search import _Search

THREE_STATES = [[0.9, 0.08, 0.02], [0.05, 0.9, 0.05], [0.02, 0.08, 0.9]]


def slow_pair():
    return CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.95, 0.05], [0.1, 0.9]])


def counted(monkeypatch, chain, **options):
    """The plan, and how many accountants were asked for it."""
    asked = []
    follow = Curves._many_releases
    monkeypatch.setattr(Curves, "_many_releases", lambda self, e: asked.append(e) or follow(self, e))
    return find_plan(chain, Mean(), releases="continual", **options), len(asked)


@pytest.mark.parametrize(
    ("chain", "target"),
    [
        (CoupledChain([[1.0]], THREE_STATES), {"budget": 0.6}),
        (slow_pair(), {"budget": 0.3}),
        (slow_pair(), {"max_mse": 0.15}),
    ],
)
def test_screening_finds_what_trying_every_age_finds(monkeypatch, chain, target):
    options = {"estimate": "linear", "min_age": 0, "max_age": 4, **target}
    screened, few = counted(monkeypatch, chain, **options)
    monkeypatch.setattr(_Search, "_screen", None)
    every, many = counted(monkeypatch, chain, **options)
    assert few < many
    objective = (lambda f: f.error.safe) if "budget" in target else (lambda f: f.leakage.epsilon)
    assert objective(screened) <= objective(every) * 1.002


def test_the_screen_is_a_certificate_of_its_own():
    chain = slow_pair()
    screen = ScalarScreen.make(Plan(chain, Mean(), 2, 1.0))
    for age in (0, 1, 4, 9):
        level = screen.level(age, 0.4, limit=10.0)
        scalar = Accountant(Plan(chain, Mean(), age, level), state="scalar")
        assert 0.399 <= scalar.limit().epsilon <= 0.4
        assert screen.leakage(age, level) == pytest.approx(scalar.limit().epsilon, rel=1e-5)
    assert screen.level(0, 1e-12, limit=10.0) == 0.0
    large = CoupledChain(np.full((9, 9), 1 / 9), [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    assert ScalarScreen.make(Plan(large, Mean(), 2, 1.0)) is None


def interrupt_after(monkeypatch, name, calls):
    """Ctrl-C at the next call of a step of the search."""
    step, made = getattr(_Search, name), []

    def impatient(self, *arguments, **options):
        if len(made) == calls:
            raise KeyboardInterrupt
        made.append(1)
        return step(self, *arguments, **options)

    monkeypatch.setattr(_Search, name, impatient)


@pytest.mark.parametrize(
    ("target", "step"),
    [
        ({"budget": 0.6}, "_solve"),
        ({"max_mse": 0.2}, "_solve"),
        ({"budget": 0.3, "releases": "continual"}, "_solve"),
        ({"budget": 1.5, "max_mse": 1.0, "releases": "continual", "about": "then"}, "_within_both"),
    ],
)
def test_an_interrupt_returns_the_best_plan_so_far(monkeypatch, target, step):
    interrupt_after(monkeypatch, step, 1)
    found = find_plan(slow_pair(), Mean(), max_age=6, **target)
    assert "interrupted; this is the best plan so far" in found.note
    assert found.leakage.epsilon <= target.get("budget", 99)
    assert found.error.safe <= target.get("max_mse", 99)


def test_the_scalar_rule_has_a_plan_at_once_and_one_release_has_not(monkeypatch):
    interrupt_after(monkeypatch, "_solve", 0)
    quick = find_plan(slow_pair(), Mean(), releases="continual", budget=0.3, max_age=6)
    assert (quick.leakage.bound, quick.leakage.epsilon <= 0.3) == ("scalar", True)
    assert Accountant(quick.plan).ceiling() <= 0.3
    with pytest.raises(KeyboardInterrupt):
        find_plan(slow_pair(), Mean(), budget=0.3, max_age=6)


def test_the_command_line_prints_the_best_plan_after_an_interrupt(tmp_path, monkeypatch):
    interrupt_after(monkeypatch, "_solve", 1)
    (tmp_path / "chain.json").write_text(slow_pair().to_json())
    command = ["plan", str(tmp_path / "chain.json"), "--budget", "0.5", "--format", "json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "interrupted" in json.loads(done.stdout)["note"]


@pytest.mark.parametrize(("sequences", "at_age_0", "at_age_1"), [(12, 0.175, 0.187), (50, 0.173, 0.183)])
def test_the_chain_of_a_new_user_can_be_planned_for_ever(sequences, at_age_0, at_age_1):
    """Own coupling .75, the rest shared, p .1, q .2, budget 1: the forward cap said that even 1e-6 leaks 3.25."""
    coupling = np.full((sequences, sequences), 0.25 / (sequences - 1))
    np.fill_diagonal(coupling, 0.75)
    chain = CoupledChain(coupling, [[0.9, 0.1], [0.2, 0.8]], direction="backward")
    for age, level in ((0, at_age_0), (1, at_age_1)):
        found = find_plan(chain, Mean(), budget=1.0, releases="continual", min_age=age, max_age=age)
        assert level <= found.plan.epsilon_c < level + 0.001
        assert (found.leakage.bound, found.leakage.epsilon <= 1.0) == ("influence", True)
