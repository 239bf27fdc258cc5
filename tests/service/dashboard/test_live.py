"""The dashboard in a real browser: the key, and numbers as they are published."""

import re
from decimal import Decimal

import httpx
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
def test_new_numbers_are_announced_at_a_polite_rate(ward, opened):
    page = opened(key=ward.reader.text)
    page.evaluate(
        """() => { window.said = [];
        new MutationObserver(() => window.said.push(document.getElementById("announce").textContent))
          .observe(document.getElementById("announce"), { childList: true }); }"""
    )
    before = len(ward.get("releases"))
    expect(page.locator("#series-chart circle.published")).to_have_count(before)
    ward.feed(1)
    expect(page.locator("#announce")).not_to_be_empty()
    ward.feed(4)
    expect(page.locator("#series-chart circle.published")).to_have_count(before + 5)
    (said,) = page.evaluate("window.said")  # the next one comes after 15 seconds
    numbers = r"published \S+, estimate \S+ \(\S+ to \S+\), without any release \S+, leakage \S+ \(\S+ %\)\."
    assert re.fullmatch(rf"One new number. Step \d+: {numbers}", said)


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


@pytest.mark.slow
def test_it_leads_with_what_the_numbers_are_worth(ward, opened):
    page = opened(key=ward.reader.text)
    headers = {"Authorization": f"Bearer {ward.reader.text}"}
    estimate = httpx.get(f"{ward.url}api/datasets", headers=headers, timeout=300).json()[0]
    worth = estimate["estimate"]["usefulness"]
    expect(page.locator("#live .heading p:visible").first).to_have_text(estimate["estimate"]["words"])
    assert page.inner_text("#live-verdict") == "Model declared, not tested."
    assert page.locator("#tiles dt").first.inner_text() == "Worth of the numbers"
    assert page.inner_text("#tile-worth") == f"{int(100 * worth)} %"


@pytest.mark.slow
def test_the_no_data_line_is_in_the_picture_and_in_its_legend(ward, opened):
    page = opened(key=ward.reader.text)
    line = page.locator("#series-chart path.nodata")
    expect(line).to_have_count(1)
    usual = {one["usual"][0] for one in ward.get("releases")}
    assert usual == {0.5}  # a symmetric chain: one half is the best that can be said
    assert len({point.split(" ")[1] for point in re.split("[ML]", line.get_attribute("d"))[1:]}) == 1
    expect(page.locator("#live .legend li").filter(has_text="no data")).to_be_visible()


@pytest.mark.slow
def test_it_tells_when_publishing_resumes_and_how_many_numbers_are_left(ward, opened):
    page = opened(key=ward.reader.text)
    status = ward.get("status")
    outlook = status["outlook"]
    assert outlook["ticks"] is not None or outlook["tick"] == status["closed_tick"] + 1
    told = page.inner_text("#tile-allowed"), page.inner_text("#tile-allowed-more")
    if outlook["rests"]:
        assert told == (
            f"in {outlook['rests']} step{'s' * (outlook['rests'] > 1)}",
            f"publishing resumes at step {outlook['tick']}",
        )
        expect(page.locator("#outlook")).to_have_text(outlook["words"])
    else:
        assert told[0] == (
            "any number" if outlook["ticks"] is None else f"{'at least ' * outlook['more']}{outlook['ticks']}"
        )
        expect(page.locator("#outlook")).to_be_hidden()
