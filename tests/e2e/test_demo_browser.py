"""The demonstration's pages in a real browser: every figure is drawn, nothing is fetched, nothing complains."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

FIGURES = {
    "index.html": ("private", "history", "coupling", "frontier", "age"),
    "share.html": ("open", "history", "coupling", "frontier", "age"),
}
#: Every two of page, width and scheme meet in half of all combinations; the other half is slow.
SHOWN = [
    pytest.param(name, width, scheme, marks=[pytest.mark.slow] * ((width == 390) ^ (scheme == "dark") ^ open_to_all))
    for open_to_all, name in enumerate(FIGURES)
    for width in (1200, 390)
    for scheme in ("light", "dark")
]


@pytest.mark.parametrize(("name", "width", "scheme"), SHOWN)
def test_every_figure_is_shown_with_data(parking_demo, browser, name, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    file = (parking_demo.files[0].parent / name).as_uri()
    page.goto(file)
    assert asked == [file]
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    details = page.locator("details")
    assert not details.locator("figure").first.is_visible()
    details.locator("summary").click()
    figures = page.locator("figure svg")
    assert figures.count() == len(FIGURES[name])
    for figure, prefix in zip(figures.all(), FIGURES[name], strict=True):
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
    assert noticed[0].startswith("MODEL REJECTED by its public past")
    if name == "index.html":
        assert "Contains private data" in noticed[1]
        assert page.get_by_text("true value").count() >= 1
    else:
        assert len(noticed) == 1
        assert page.get_by_text("true value").count() == 0
    context.close()


def test_colours_follow_the_page(parking_demo, browser):
    looks = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto((parking_demo.files[0].parent / "share.html").as_uri())
        looks[scheme] = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
        context.close()
    assert looks["light"] != looks["dark"]


def test_it_prints(parking_demo, browser):
    context = browser.new_context()
    page = context.new_page()
    page.goto((parking_demo.files[0].parent / "share.html").as_uri())
    assert page.pdf().startswith(b"%PDF")
    context.close()
