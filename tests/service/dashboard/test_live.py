"""The dashboard in a real browser: the key, and numbers as they are published."""

from decimal import Decimal

import pytest
from playwright.sync_api import expect

from service.dashboard.parts import BEDS, BUDGET, MINUTE, TAGGED, WARD, chance, near, rows, up


@pytest.mark.slow
def test_a_wrong_key_is_told_clearly_and_not_kept(ward, opened):
    opened.seen.allowed = ("status of 40[13]",)  # the browser's own words on our answer
    page = opened()
    for given, told in (
        ("csdp_000000000000_" + "x" * 43, "This key is not known to the service"),
        ("", "Enter an access key"),
        (ward.writer.text, "may not read published numbers"),
    ):
        page.fill("#key", given)
        page.click("text=Show the numbers")
        expect(page.locator("#key-error")).to_contain_text(told)
        expect(page.locator("#key")).to_be_focused()
        expect(page.locator("#live")).to_be_hidden()
        assert page.evaluate("sessionStorage.getItem('csdp-key')") is None


@pytest.mark.slow
def test_the_key_stays_in_the_tab_and_is_forgotten_on_demand(ward, opened):
    page = opened(key=ward.reader.text)
    page.reload()
    expect(page.locator("#connection-text")).to_have_text("Live")
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    page.click("#leave")
    expect(page.locator("#sign-in")).to_be_visible()
    page.reload()
    expect(page.locator("#sign-in")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('csdp-key')") is None


@pytest.mark.slow
def test_a_key_that_is_taken_away_ends_the_view(ward, opened):
    opened.seen.allowed = ("status of 401",)
    key = ward.new_key("reader", WARD)
    page = opened(key=key.text)
    assert page.locator("#dataset option").all_inner_texts() == [WARD]
    ward.keys.remove(key.id)
    ward.feed(1)
    expect(page.locator("#key-error")).to_contain_text("not known")
    expect(page.locator("#live")).to_be_hidden()


def test_the_live_chart_moves_and_shows_what_the_service_says(ward, opened):
    page = opened(key=ward.reader.text)
    dots, line = page.locator("#series-chart circle.published"), page.locator("#series-chart path.estimate")
    before = len(ward.get("releases"))
    expect(dots).to_have_count(before)
    drawn = line.first.get_attribute("d")
    ward.feed(3)
    expect(dots).to_have_count(before + 3)
    assert line.first.get_attribute("d") != drawn

    newest = ward.get("releases", limit=1)[0]
    page.click("text=Published numbers as a table")
    expect(page.locator("#series-table tr th").first).to_have_text(str(newest["tick"]))
    told = rows(page, "series-table")[0]
    assert Decimal(told[2]) == near(newest["values"][0])
    assert Decimal(told[3]) == near(newest["estimate"][0])
    assert Decimal(told[4]) == near(newest["standard_error"][0], 3)
    assert Decimal(told[5]) == up(newest["epsilon_s"])

    status = ward.get("status")
    expect(page.locator("#tile-published")).to_have_text(str(status["published"]))
    assert Decimal(page.inner_text("#tile-present")) == up(status["present"])
    gauge = page.locator("#gauge")
    assert float(gauge.get_attribute("aria-valuenow")) == status["present"]
    assert float(gauge.get_attribute("aria-valuemax")) == BUDGET
    assert page.inner_text("#tile-belief") == told[6] == chance(status["present"])
    expect(page.locator("#leak-chart text.limit-text")).to_have_text(f"limit {BUDGET} ({chance(BUDGET)})")
    expect(page.locator("#ledger-table tr").first).to_contain_text(str(newest["tick"]))
    page.click("text=Ages as a table")
    ages = {line["sequence"]: [str(line["planned"]), str(line["age"])] for line in status["age_of_information"]}
    assert {name: figures for name, *figures in rows(page, "ages-table")} == ages


@pytest.mark.slow
def test_several_datasets_with_names_that_are_not_markup(ward, opened):
    page = opened(key=ward.both.text)
    page.select_option("#dataset", WARD)
    expect(page.locator("#live-title")).to_have_text(WARD)
    expect(page.locator("#output")).to_be_hidden()
    page.select_option("#dataset", TAGGED)
    expect(page.locator("#live-title")).to_have_text(TAGGED)
    expect(page.locator("#connection-text")).to_have_text("Live")
    assert page.locator("main i, main b").count() == 0
    expect(page.locator("#ages-chart")).to_contain_text(BEDS[1])
    expect(page.locator("#tile-present-more")).to_have_text("no limit is set")
    newest = ward.get("releases", TAGGED, limit=1)[0]
    page.click("text=Published numbers as a table")
    for place in range(2):
        page.select_option("#output", str(place))
        told = f"{near(newest['values'][place]).normalize():f}"
        expect(page.locator("#series-table tr td").nth(1)).to_have_text(told)


@pytest.mark.slow
def test_the_page_goes_on_after_the_service_was_away(ward, opened):
    opened.seen.allowed = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    page = opened(key=ward.reader.text)
    before = len(ward.get("releases"))
    expect(page.locator("#series-chart circle.published")).to_have_count(before)
    ward.kill()
    expect(page.locator("#connection-text")).to_have_text("Reconnecting …")
    ward.start()
    ward.feed(4)  # readings were in memory only: the first ones fill the ages again
    expect(page.locator("#connection-text")).to_have_text("Live", timeout=MINUTE)
    newest = ward.get("releases", limit=1)[0]
    expect(page.locator("#ledger-table tr").first).to_contain_text(str(newest["tick"]))
    shown = len([one for one in ward.get("releases") if one["tick"] > newest["tick"] - 60])
    assert shown > before
    expect(page.locator("#series-chart circle.published")).to_have_count(shown)  # drawn after the ledger's table
