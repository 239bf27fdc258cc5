"""Pages of the demonstration and of a ledger in a real browser: every figure is drawn, nothing is fetched."""

from __future__ import annotations

from itertools import product

import pytest
from axe_playwright_python.sync_playwright import Axe

#: Fixture and page, with the names of the page's figures.
FIGURES = {
    ("flights_demo", "index.html"): ("release", "belief", "late"),
    ("flights_demo", "share.html"): ("release", "belief", "late"),
    ("ledger_report", "index.html"): ("private", "history"),
    ("ledger_report", "share.html"): ("open", "history"),
}
#: Words in the figures of the flights that must be in sight on every screen.
WORDS = ("estimate and band", "no data", "nothing published", "with these releases")
SHOWN = [
    pytest.param(made, name, width, scheme, marks=[] if number == 0 else [pytest.mark.slow])
    for number, ((made, name), width, scheme) in enumerate(product(FIGURES, (1200, 390), ("light", "dark")))
]


@pytest.mark.parametrize(("made", "name", "width", "scheme"), SHOWN)
def test_every_figure_is_shown_with_data(request, browser, made, name, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    file = (request.getfixturevalue(made).files[0].parent / name).as_uri()
    page.goto(file)
    assert asked == [file]
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for words in WORDS if made == "flights_demo" else ():
        assert_in_sight(page.locator("figure svg").get_by_text(words).first, width)
    details = page.locator("details")
    assert not details.locator("h2").first.is_visible()
    details.locator("summary").click()
    assert details.locator("h2").first.is_visible()
    figures = page.locator("figure svg")
    expected = FIGURES[made, name]
    assert figures.count() == len(expected)
    for figure, prefix in zip(figures.all(), expected, strict=True):
        figure.scroll_into_view_if_needed()
        box = figure.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 120
        assert figure.evaluate("e => e.querySelector('[id]').id").startswith(f"{prefix}-")
        # Drawn lines: paths with a stroke that cover a part of the figure, not just ticks of an axis.
        drawn = figure.evaluate(
            "e => [...e.querySelectorAll('path')].filter(p => p.getTotalLength() > 60 && "
            "getComputedStyle(p).stroke !== 'none').length"
        )
        assert drawn >= 3, prefix
        assert figure.get_attribute("aria-label")
    assert [each["id"] for each in Axe().run(page).response["violations"]] == []
    noticed = page.locator(".notice").all_inner_texts()
    if name == "index.html":
        [private] = noticed
        assert "Contains private data" in private
        assert page.get_by_text("true value").count() >= 1
    else:
        assert noticed == []
        assert page.get_by_text("true value").count() == 0
    context.close()


def assert_in_sight(words, width):
    """Shown without scrolling to the side, and large enough to be read."""
    words.scroll_into_view_if_needed()
    box = words.bounding_box()
    assert box is not None
    assert 0 <= box["x"] < box["x"] + box["width"] <= width
    assert box["height"] >= 6
