"""The demonstration on flights: its numbers, and what it says of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from csdp import Accountant, Ledger, Plan, datasets
from csdp.demo.flights import MOMENT_LIMIT, MOMENT_LIMITS
from csdp.demo.page import lead
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


def test_the_limit_on_any_moment_holds_and_costs_more_than_the_chain_alone(flights_demo):
    now = flights_demo.study.now
    assert 0.99 * MOMENT_LIMIT < now.moment <= MOMENT_LIMIT
    assert now.certificate["every_moment"].epsilon <= now.moment
    assert max(record.epsilon for record in now.leakage) <= now.ceiling < now.moment
    alone = Plan(now.plan.model.without_family(), now.plan.query, 0, now.plan.epsilon_c)
    assert Accountant(alone).ceiling() + flights_demo.study.slow_levels < now.ceiling


def test_a_larger_limit_is_worth_more_and_slow_levels_are_its_least(flights_demo):
    moments = flights_demo.study.moments
    assert [one.limit for one in moments] == list(MOMENT_LIMITS)
    kept = [one for one in moments if one.epsilon_c is not None]
    assert all(one.limit > flights_demo.study.slow_levels for one in kept)
    for less, more in pairwise(kept):
        assert less.epsilon_c < more.epsilon_c
        assert less.leakage < more.leakage < more.limit
        assert less.usefulness < more.usefulness
    at_two = next(one for one in moments if one.limit == MOMENT_LIMIT)
    assert at_two.usefulness > 0.6


def test_the_line_follows_the_truth_and_its_band_holds(flights_demo):
    now, late = flights_demo.study.now, flights_demo.study.late
    # The noise of 550 ticks is no test's to choose: usefulness is about 0.82 and 0.99, coverage about 0.95, each with a
    # standard deviation of about 0.01; every limit is eight of them away, or more.
    assert now.usefulness > 0.7
    assert late.usefulness > 0.9
    assert min(now.coverage, late.coverage) > 0.87


def test_the_flights_accept_the_class_and_the_page_says_what_it_assumes(flights_demo):
    study = flights_demo.study
    assert study.now.plan.query.name == "share:1"  # late or not is all that is published
    assert study.now.plan.verdict.status == "accepted"
    assert "accept" not in lead(study)[1]
    assert study.now.certificate.promises[0].name == "present"
    share = (flights_demo.files[0].parent / "share.html").read_text(encoding="utf-8")
    assert study.chain.fitted.assumes[1:] in share
    assert "judged on the last" in share


def test_nothing_to_share_shows_the_truth(flights_demo):
    shared = [path for path in flights_demo.files if path.suffix == ".svg" or path.name == "share.html"]
    assert len(shared) == 4
    for path in shared:
        assert "true value" not in path.read_text(encoding="utf-8"), path.name


@pytest.mark.parametrize("name", ["index.html", "share.html"])
def test_a_clinician_meets_no_words_of_specialists(flights_demo, name):
    text = (flights_demo.files[0].parent / name).read_text(encoding="utf-8")
    assert "nats" in text
    check_plain_words(text)
