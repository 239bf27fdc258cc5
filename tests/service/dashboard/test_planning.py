"""The dashboard in a real browser: what other settings would give, from the points that are stored with the plan."""

from decimal import Decimal

import pytest
from playwright.sync_api import expect

from service.dashboard.parts import BUDGET, PLAN_LEVEL, TAGGED, chance, table, up

pytestmark = pytest.mark.slow


def test_sliders_show_the_stored_points_and_between_them_the_worse_number(ward, opened):
    page = opened(key=ward.reader.text, hash_="#planning")
    expect(page.locator("#age-value")).to_have_text("1 step")
    expect(page.locator("#noise-value")).to_have_text(f"ε_c = {PLAN_LEVEL}")
    line = ward.frontier()
    by_level = sorted((p for p in line["points"] if p["age"] == 1), key=lambda p: p["epsilon_c"])
    own = next(point for point in by_level if point["epsilon_c"] == PLAN_LEVEL)
    after = by_level[by_level.index(own) + 1]
    assert Decimal(page.inner_text("#answer-leakage")) == up(own["leakage"])
    mark = page.locator("#setting-mark").get_attribute("d")
    page.press("#noise", "ArrowRight")
    assert PLAN_LEVEL < float(page.inner_text("#noise-value").removeprefix("ε_c = ")) < after["epsilon_c"]
    assert Decimal(page.inner_text("#answer-leakage")) == up(after["leakage"])
    assert Decimal(page.inner_text("#answer-linear")) == up(own["mse"] ** 0.5)
    assert page.locator("#setting-mark").get_attribute("d") != mark
    page.click("#reset")
    expect(page.locator("#answer-leakage")).to_have_text(str(up(own["leakage"])))

    shown = table(page, "The trade-off as a table", "frontier-table")
    assert [Decimal(row[2]) for row in shown] == [up(point["leakage"]) for point in line["points"]]
    assert [row[3] for row in shown] == [chance(point["leakage"]) for point in line["points"]]
    assert [row[5] for row in shown] == ["yes" if point["best"] else "no" for point in line["points"]]
    expect(page.locator("#frontier-chart line.nodata")).to_have_count(1)
    expect(page.locator("#frontier-chart .limit-text")).to_have_text(f"limit {BUDGET} ({chance(BUDGET)})")


def test_a_plan_without_points_says_where_they_come_from(ward, opened):
    page = opened(key=ward.both.text, hash_="#planning")
    page.select_option("#dataset", TAGGED)
    expect(page.locator("#no-frontier")).to_contain_text("csdp plan")
    expect(page.locator("#planner")).to_be_hidden()
