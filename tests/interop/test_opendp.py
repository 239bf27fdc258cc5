"""A plan as a measurement, against OpenDP itself."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import opendp.prelude as dp
import pytest

import csdp
from csdp.errors import InputError, UnsafeRandomnessWarning
from csdp.interop import opendp_measurement
from csdp.noise import variance

CHAIN = csdp.CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
PLAN = csdp.Plan(CHAIN, csdp.Mean(), ages=2, epsilon_c=0.5)


@pytest.fixture(autouse=True)
def _features():
    dp.enable_features("contrib", "honest-but-curious")
    yield
    dp.disable_features("contrib", "honest-but-curious")


@pytest.fixture
def publisher(tmp_path):
    with csdp.Publisher(PLAN, dataset="wards", ledger=tmp_path / "ledger.db") as made:
        yield made


def readings(ticks, seed=1):
    return CHAIN.simulate(ticks, seed=seed).ravel().tolist()


def test_the_map_is_the_event_level(publisher):
    level = csdp.Accountant(PLAN).event_level()
    for made in (opendp_measurement(PLAN, ticks=10), opendp_measurement(publisher, ticks=10)):
        assert made.map(1) == level
        assert made.map(0) == 0.0
        assert made.map(7) == pytest.approx(7 * level)
        assert made.map(7) >= 7 * level
        assert made.check(1, level)
        assert not made.check(1, level * 0.99)


def test_a_level_that_is_no_sum_of_powers_of_two_is_rounded_up():
    plan = csdp.Plan(CHAIN, csdp.Mean(), ages=2, epsilon_c=0.1)
    assert all(opendp_measurement(plan, ticks=3).map(d) >= d * 0.1 for d in range(1, 20))


def test_from_a_publisher_it_publishes_through_the_gate(publisher, tmp_path):
    batch = opendp_measurement(publisher, ticks=20)(readings(20))
    assert [release.tick for release in batch] == list(range(2, 20))
    with csdp.Ledger.open(tmp_path / "ledger.db", read_only=True) as book:
        assert [found.output["values"] for found in book.published("wards")] == [list(r.values) for r in batch]
        assert book.summary("wards").committed == 18
        assert book.verify() == []


def test_other_readings_at_published_ticks_tell_nothing_more(publisher):
    made = opendp_measurement(publisher, ticks=20)
    assert made(readings(20)) == made(readings(20, seed=2))


def test_later_ticks(publisher):
    opendp_measurement(publisher, ticks=5)(readings(5))
    batch = opendp_measurement(publisher, ticks=5, start=100)(readings(5))
    assert [release.tick for release in batch] == [102, 103, 104]


def test_limits_hold_inside_opendp(tmp_path):
    with csdp.Publisher(PLAN, dataset="wards", ledger=tmp_path / "ledger.db", budget=1e-6) as publisher:
        made = opendp_measurement(publisher, ticks=5)
        with pytest.raises(dp.OpenDPException, match="above its limit"):
            made(readings(5))


def test_what_is_released_has_the_law_of_the_plan(tmp_path):
    """Mean square of the noise over 8,000 releases: within 7 standard errors (a false alarm in 1e11), and it would
    notice noise that is a third less or more.
    """
    plan = csdp.Plan(csdp.CoupledChain([[1.0]], [[0.7, 0.3], [0.3, 0.7]]), csdp.Sum(), ages=0, epsilon_c=0.5)
    ticks = 8000
    with csdp.Publisher(plan, dataset="law", ledger=tmp_path / "ledger.db") as publisher:
        batch = opendp_measurement(publisher, ticks=ticks)([1] * ticks)
    noise = np.array([release.values[0] for release in batch]) - 1.0
    assert len(noise) == ticks
    steps = noise / plan.step
    assert np.array_equal(steps, np.round(steps))

    def away(scale):
        expected = variance(scale)
        return abs(float((steps**2).mean()) - expected) / (expected * np.sqrt(5 / ticks))

    assert away(plan.scale) < 7
    assert away(plan.scale * 2 / 3) > 7
    assert away(plan.scale * 3 / 2) > 7


def test_composed_with_a_measurement_of_opendp(publisher):
    made = opendp_measurement(publisher, ticks=6)
    space = made.input_domain, made.input_metric
    total = space >> dp.t.then_unordered() >> dp.t.then_metric_unbounded() >> dp.t.then_sum()
    other = total >> dp.m.then_laplace(scale=4.0)
    both = dp.c.make_adaptive_composition(*space, dp.max_divergence(), d_in=1, d_mids=[made.map(1), other.map(1)])
    assert both.map(1) == pytest.approx(0.5 + 0.25)
    asked = both(readings(6))
    assert len(asked(made)) == 4
    assert isinstance(asked(other), int)
    with pytest.raises(dp.OpenDPException):
        asked(made)  # both budgets are spent


def test_from_a_plan_it_is_for_accounting_only():
    made = opendp_measurement(PLAN, ticks=3)
    with pytest.raises(dp.OpenDPException, match="make it from a Publisher"):
        made(readings(3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0] * 5, r"5 given; 3 ticks of 2 sequences expected"),
        ([0, 0, 0, 0, 0, 2], "every one must be a state number, 0 to 1"),
        ([0, 0, 0, 0, 0, -1], "none may be missing"),
    ],
)
def test_readings_outside_of_the_domain_are_refused_before_a_charge(publisher, given, message):
    made = opendp_measurement(publisher, ticks=3)
    with pytest.raises(dp.OpenDPException, match=message):
        made(given)
    assert publisher.summary()["published"] == 0


def test_bad_input(publisher):
    with pytest.raises(InputError, match="ticks: 0 given"):
        opendp_measurement(PLAN, ticks=0)
    with pytest.raises(InputError, match="start: -1 given"):
        opendp_measurement(PLAN, ticks=1, start=-1)
    with pytest.raises(InputError, match="source: str given"):
        opendp_measurement("plan.json", ticks=1)


def test_a_seeded_publisher_is_refused(tmp_path):
    with pytest.warns(UnsafeRandomnessWarning):
        publisher = csdp.Publisher(PLAN, dataset="wards", ledger=tmp_path / "ledger.db", unsafe_seed=1)
    with publisher:
        assert publisher.unsafe
        with pytest.raises(InputError, match="from a seed, which gives no protection"):
            opendp_measurement(publisher, ticks=1)


def test_the_switches_of_opendp_are_not_turned_for_the_caller():
    dp.disable_features("honest-but-curious")
    with pytest.raises(InputError, match="enable_features"):
        opendp_measurement(PLAN, ticks=1)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    sys.path_importer_cache.clear()
    with pytest.raises(InputError, match="pip install opendp"):
        opendp_measurement(PLAN, ticks=1)


def test_neighbours_load_when_they_are_used():
    code = (
        "import sys, csdp; csdp.interop.dp_accounting_event; "
        "print([n for n in ('opendp', 'dp_accounting', 'pandas', 'polars', 'pyarrow') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
