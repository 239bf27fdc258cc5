"""The demonstration on flights: its numbers, and what it says of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from csdp import Accountant, Ledger, Plan, datasets
from csdp.bounds.result import belief
from csdp.demo.flights import BUDGET, LATE_BUDGETS
from csdp.demo.page import lead
from csdp.report.page import percent
from plain_words import check_plain_words


def test_only_the_public_past_decides(flights_demo):
    study = flights_demo.study
    ends = np.datetime64(datasets.load("flights").past_ends)
    assert study.past.times[-1] < ends <= study.rest.times[0]
    assert study.chain.fitted.public
    assert study.now.learned.ticks == len(study.past)


def test_every_tick_is_in_a_ledger_that_verifies(flights_demo):
    study, folder = flights_demo.study, flights_demo.files[0].parent
    for name, dataset, release in (
        ("ledger.db", "flights", study.now),
        ("ledger-late.db", "flights-late", study.late),
    ):
        with Ledger.open(folder / name, read_only=True) as ledger:
            assert ledger.verify() == []
            assert ledger.summary(dataset).committed == len(release.batch) >= 540


def test_the_budget_holds_for_every_chain_of_the_family(flights_demo):
    now = flights_demo.study.now
    assert 0.99 * BUDGET < now.ceiling <= BUDGET
    assert now.point < now.ceiling
    assert max(record.epsilon for record in now.leakage) <= now.ceiling
    for member in now.plan.chain.members:
        assert Accountant(Plan(member, now.plan.query, 0, now.plan.epsilon_c)).ceiling() <= now.ceiling


def test_the_line_follows_the_truth_and_its_band_holds(flights_demo):
    now, late = flights_demo.study.now, flights_demo.study.late
    # The noise of 550 ticks is no test's to choose: usefulness is about 0.88 and 0.99, coverage about 0.96, each with a
    # standard deviation of about 0.01; every limit is eight of them away, or more.
    assert now.usefulness > 0.7
    assert late.usefulness > 0.9
    assert min(now.coverage, late.coverage) > 0.87


def test_older_numbers_tell_less_and_the_least_delays_are_found(flights_demo):
    study = flights_demo.study
    told = [one.family for one in study.delays]
    assert told == sorted(told, reverse=True)
    assert all(one.point <= one.family for one in study.delays)
    for budget in LATE_BUDGETS:
        delay = study.least_delay(budget)
        assert delay is not None
        assert [one.family <= budget for one in study.delays if one.delay in {delay - 1, delay}][-1]
    assert study.late.plan.max_age == study.least_delay(LATE_BUDGETS[0]) == 3
    assert study.late.ceiling <= LATE_BUDGETS[0]


def test_it_says_that_the_flights_reject_the_model(flights_demo):
    study = flights_demo.study
    assert study.chain.fitted.readings_check == "passed"  # late or not is all that is published
    assert study.now.plan.verdict.status == "rejected"
    assert "The flights do not accept the model" in lead(study)[1]
    assert study.now.certificate.promises[0].name == "event"
    share = (flights_demo.files[0].parent / "share.html").read_text(encoding="utf-8")
    assert share.index("the second half moves differently from the first") < share.index("<h1>")


def test_the_summary_is_what_the_page_says(flights_demo):
    study, folder = flights_demo.study, flights_demo.files[0].parent
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["now"]["leakage"] == {"point": study.now.point, "family": study.now.ceiling}
    assert summary["now"]["belief"] == belief(study.now.ceiling)
    text = (folder / "share.html").read_text()
    assert f"removes {percent(summary['now']['usefulness'])} of the squared error" in text
    assert f"contains {percent(summary['now']['coverage'])} of the true shares" in text
    assert "true value" in (folder / "index.html").read_text()


def test_nothing_to_share_shows_the_truth(flights_demo):
    shared = [path for path in flights_demo.files if path.suffix == ".svg" or path.name == "share.html"]
    assert len(shared) == 4
    for path in shared:
        assert "true value" not in path.read_text(encoding="utf-8"), path.name


def test_it_draws_what_is_published(flights_demo):
    for release in (flights_demo.study.now, flights_demo.study.late):
        for published, drawn in zip(release.batch, release.shown, strict=True):
            assert (drawn.estimate, drawn.low, drawn.high) == (
                published.estimate[0],
                published.low[0],
                published.high[0],
            )


@pytest.mark.parametrize("name", ["index.html", "share.html"])
def test_a_clinician_meets_no_words_of_specialists(flights_demo, name):
    text = (flights_demo.files[0].parent / name).read_text(encoding="utf-8")
    assert "nats" in text
    check_plain_words(text)
