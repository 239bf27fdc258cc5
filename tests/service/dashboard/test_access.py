"""The dashboard in a real browser: for every screen, with the keyboard, with a screen reader, with honest digits."""

from decimal import Decimal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from service.dashboard.parts import DESKTOP, PHONE, PLAN_LEVEL, up

pytestmark = pytest.mark.slow


def test_leakage_is_never_shown_below_its_value(ward, opened):
    page = opened()
    values = [(0.7391 * k % 9.7) * 10.0 ** (k % 9 - 6) for k in range(1, 400)] + [
        0.3,
        0.1 + 0.2,
        1.0,
        12345.678,
        1e-300,
    ]
    told, less = page.evaluate(
        """async (values) => { const { up, down } = await import(new URL("numbers.js", location.href));
        return [values.map((value) => up(value)), values.map((value) => down(value))]; }""",
        values,
    )
    for value, above, below in zip(values, told, less, strict=True):
        assert Decimal(above.replace(",", "")) == up(value)
        assert Decimal(below.replace(",", "")) <= Decimal(repr(value))
    assert page.evaluate("async () => (await import(new URL('numbers.js', location.href))).up(Infinity)") == "infinite"


def check(page):
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [
        pytest.param(DESKTOP, "light", id="desktop-light"),
        pytest.param(DESKTOP, "dark", id="desktop-dark"),
        pytest.param(PHONE, "light", id="phone-light"),
        pytest.param(PHONE, "dark", id="phone-dark"),
    ],
)
def test_accessible_in_every_view(ward, opened, viewport, scheme):
    page = opened(viewport=viewport, scheme=scheme)
    check(page)
    page.fill("#key", ward.reader.text)
    page.press("#key", "Enter")
    expect(page.locator("#series-chart svg")).to_be_visible()
    expect(page.locator("#connection-text")).to_have_text("Live")
    for view in ("live", "planning", "promise"):
        page.click(f"#to-{view}")
        if view == "planning":
            expect(page.locator("#frontier-chart svg")).to_be_visible()
        if (viewport is PHONE) == (scheme == "dark"):  # tables are long: once for each width, once for each scheme
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        check(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        if view != "promise":
            labels = page.locator(f"#{view} .chart svg").evaluate_all(
                "all => all.map(one => one.getAttribute('aria-label'))"
            )
            assert labels
            assert all("table follows" in label for label in labels)


def test_everything_can_be_done_with_the_keyboard(ward, opened):
    page = opened()
    press = page.keyboard.press

    def focused():
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        return page.evaluate(f"[document.activeElement.id || document.activeElement.textContent.trim(), {outline}]")

    def tab_to(name, most=30):
        for _ in range(most):
            press("Tab")
            where, outline = focused()
            assert outline != "none", where
            if where == name:
                return
        raise AssertionError(f"{name} cannot be reached")

    press("Tab")
    assert focused()[0] == "Skip to the content"
    tab_to("key", most=2)
    page.keyboard.type(ward.reader.text)
    press("Enter")
    expect(page.locator("#live-title")).to_be_focused()
    expect(page.locator("#connection-text")).to_have_text("Live")
    tab_to("window")
    tab_to("Published numbers as a table", most=2)
    press("Enter")
    expect(page.locator("#series-table")).to_be_visible()
    page.evaluate("document.activeElement.blur()")
    page.locator("body").press("Tab")
    page.reload()
    expect(page.locator("#connection-text")).to_have_text("Live")
    tab_to("dataset")
    tab_to("to-planning", most=4)
    press("Enter")
    expect(page.locator("#planning-title")).to_be_focused()
    tab_to("age", most=3)
    press("ArrowRight")
    expect(page.locator("#age-value")).to_have_text("3 steps")
    tab_to("noise", most=1)
    press("ArrowLeft")
    expect(page.locator("#noise-value")).not_to_have_text(f"ε_c = {PLAN_LEVEL}")
    tab_to("reset", most=1)
    press("Enter")
    expect(page.locator("#age-value")).to_have_text("1 step")
