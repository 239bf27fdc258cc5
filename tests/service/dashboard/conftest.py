"""One service for all tests of the dashboard."""

import re
from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from service.dashboard.parts import DESKTOP, TAGGED, WARD, Ward

expect.set_options(timeout=60_000)  # machines that build are busy


@pytest.fixture(scope="session")
def ward(tmp_path_factory):
    found = Ward(tmp_path_factory.mktemp("ward"))
    found.start()
    try:
        for dataset in (WARD, TAGGED):
            found.feed(12, dataset)
        yield found
    finally:
        told = found.stop()
    assert "Traceback" not in told


@pytest.fixture
def opened(ward, browser):
    """Opens the page; at the end nothing may have gone wrong in it, and nobody else may have been asked."""
    seen = SimpleNamespace(errors=[], urls=[], allowed=())
    contexts = []

    def go(*, viewport=DESKTOP, scheme="light", key=None, hash_=""):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: seen.errors.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.urls.append(request.url))
        page.goto(f"{ward.url}{hash_}")
        if key is not None:
            page.fill("#key", key)
            page.press("#key", "Enter")
            expect(page.locator("#connection-text")).to_have_text("Live")
        return page

    go.seen = seen
    yield go
    for context in contexts:
        context.close()
    assert [error for error in seen.errors if not re.search("|".join(seen.allowed) or "^$", error)] == []
    assert {url for url in seen.urls if not url.startswith((ward.url, "data:"))} == set()
    assert [url for url in seen.urls if "csdp_" in url] == []
