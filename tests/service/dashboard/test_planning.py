"""The dashboard in a real browser: what other settings would give."""

from decimal import Decimal

import pytest
from playwright.sync_api import expect

from service.dashboard.parts import BUDGET, MINUTE, PLAN_LEVEL, answered, chance, rows, table, up


def test_sliders_change_the_numbers_to_what_the_service_says(ward, opened):
    page = opened(key=ward.reader.text, hash_="#planning")
    expect(page.locator("#age-value")).to_have_text("1 step")
    expect(page.locator("#noise-value")).to_have_text(f"ε_c = {PLAN_LEVEL}")
    first = answered(page)
    expect(page.locator("#setting-mark")).to_be_visible()
    mark = page.locator("#setting-mark").get_attribute("d")
    page.press("#age", "ArrowRight")
    for _ in range(6):
        page.press("#noise", "ArrowRight")
    expect(page.locator("#age-value")).to_have_text("2 steps")
    told = answered(page)
    level = float(page.inner_text("#noise-value").removeprefix("ε_c = "))
    assert level > PLAN_LEVEL
    assert told["leakage"] != first["leakage"]
    asked = {"age": 2, "epsilon_c": level}
    once, often = (ward.get("what-if", **asked, releases=many) for many in ("1", "continual"))
    assert Decimal(told["leakage"]) == up(often["certified"]) > Decimal(told["once"]) == up(once["certified"])
    for name, mse in (("raw", once["mse"]["raw"]), ("linear", once["mse"]["history"]), ("none", once["no_data"])):
        assert abs(Decimal(told[name]) - up(mse**0.5)) <= Decimal("0.0001")
    assert Decimal(told["event"].removeprefix("ε = ")) == up(often["event_level"])
    assert page.locator("#setting-mark").get_attribute("d") != mark

    bounds = {name: Decimal(value) for name, value, *_ in table(page, "Bounds as a table", "bounds-table")}
    assert bounds == {name: up(value) for name, value in often["leakage"].items()}
    page.check("text=once")
    expect(page.locator("#answer-leakage")).to_have_text(told["once"])
    shown = rows(page, "bounds-table")
    assert {name: Decimal(value) for name, value, *_ in shown} == {
        name: up(value) for name, value in (once["leakage"] | once["unproven"]).items()
    }
    assert {name for name, _, _, status, _ in shown if status == "not proven"} == set(once["unproven"])
    assert [name for name, _, _, status, _ in shown if "smallest" in status] == [once["bound"]]

    line = ward.get("frontier", releases="1")
    shown = table(page, "The trade-off as a table", "frontier-table")
    assert [Decimal(row[2]) for row in shown] == [up(point["leakage"]) for point in line["points"]]
    assert [row[3] for row in shown] == [chance(point["leakage"]) for point in line["points"]]
    assert [row[5] for row in shown] == ["yes" if point["best"] else "no" for point in line["points"]]
    expect(page.locator("#frontier-chart line.nodata")).to_have_count(1)


def test_an_infinite_leakage_is_called_infinite_and_the_settings_in_use_come_back(ward, opened):
    page = opened(key=ward.reader.text, hash_="#planning")
    first = answered(page)
    page.press("#age", "Home")
    expect(page.locator("#age-value")).to_have_text("0 steps")
    answered(page)
    assert ["freshness", "infinite"] in [line[:2] for line in table(page, "Bounds as a table", "bounds-table")]
    expect(page.locator("#answer-verdict")).to_contain_text("numbers would be refused")
    page.click("#reset")
    expect(page.locator("#age-value")).to_have_text("1 step")
    assert answered(page) == first


def test_a_dragged_slider_asks_once_and_never_twice(ward, opened):
    page = opened(key=ward.reader.text, hash_="#planning")
    answered(page)
    page.check("text=once")
    answered(page)
    opened.seen.urls.clear()
    for value in (30, 34, 38, 42):
        page.locator("#noise").fill(str(value))
    answered(page)
    page.locator("#noise").fill("41")
    answered(page)
    page.locator("#noise").fill("42")
    answered(page)
    assert len([url for url in opened.seen.urls if "what-if" in url]) == 2


def test_a_busy_service_is_asked_again(ward, opened):
    opened.seen.allowed = ("status of 503",)
    page = opened(key=ward.reader.text)
    refused = []

    def once(route):
        if refused:
            route.continue_()
            return
        refused.append(route.request.url)
        problem = {"title": "Service Unavailable", "status": 503, "detail": "busy"}
        route.fulfill(status=503, json=problem, content_type="application/problem+json")

    page.route("**/what-if?**", once)
    page.click("#to-planning")
    expect(page.locator("#answer-error")).to_contain_text("The service is busy")
    answered(page)
    expect(page.locator("#answer-error")).to_be_empty()


@pytest.mark.slow
def test_the_trade_off_without_end_is_worked_out_on_request(ward, opened):
    opened.seen.allowed = ("status of 503",)  # it takes the service longer than one request may
    page = opened(key=ward.reader.text, hash_="#planning")
    answered(page)
    expect(page.locator("#frontier-note")).to_contain_text("For one number alone")
    page.click("#frontier-more")
    expect(page.locator("#frontier-note")).to_contain_text("at every step", timeout=10 * MINUTE)
    shown = table(page, "The trade-off as a table", "frontier-table")
    line = ward.get("frontier", releases="continual")
    assert [Decimal(row[2]) for row in shown] == [up(point["leakage"]) for point in line["points"]]
    expect(page.locator("#frontier-chart .limit-text")).to_have_text(f"limit {BUDGET} ({chance(BUDGET)})")


def test_the_first_question_is_how_long_to_hold_back(ward, opened):
    page = opened(key=ward.reader.text, hash_="#planning")
    assert page.locator("#planning section h2").first.inner_text() == "How long must numbers be held back?"
    page.fill("#delay-error", "0.2")
    page.fill("#delay-budget", "0.5")
    page.click("text=Find the delay")
    expect(page.locator("#delay-answer")).to_contain_text("Hold every number back by", timeout=MINUTE)
    found = ward.get("delay", budget=0.5, max_error=0.2)
    told = page.inner_text("#delay-answer")
    assert f"by {found['delay']} step" in told
    assert f"removes {int(100 * found['usefulness'])} %" in told
    assert found["leakage"] <= 0.5
    expect(page.locator("#live-worth")).to_contain_text("of the squared error of guessing the usual value")
