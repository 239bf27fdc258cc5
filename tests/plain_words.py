"""What a reader sees of a report at first has no words of specialists."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from csdp.bounds.result import BOUNDS

#: Names of bounds and units; a guarantee has the name "group" too, and "exact" is plain English.
SPECIAL = ("metric", "nats", *(bound for bound in BOUNDS if bound not in {"exact", "group"}))


class _Visible(HTMLParser):
    """The text of a page without its style, and of details only their summary."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag in {"details", "summary", "style"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in {"details", "summary", "style"}:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] == "summary":
            self.text.append(data)


def check_plain_words(page):
    """Assert that no name of a bound and no unit of information is met before a click."""
    visible = _Visible()
    visible.feed(page)
    seen = " ".join(visible.text)
    found = [word for word in SPECIAL if re.search(rf"\b{word}\b", seen, re.IGNORECASE)]
    assert not found, f"a reader meets {', '.join(found)}"
