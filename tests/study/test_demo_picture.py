"""The caption of the README says what the figures beside the picture say."""

from __future__ import annotations

import json

from study.demo_picture import PAGE, caption

from study import demo_picture

SUMMARY = json.loads(demo_picture.SUMMARY.read_text(encoding="utf-8"))


def test_the_caption_is_computed():
    text = PAGE.read_text(encoding="utf-8")
    assert caption(SUMMARY) in text
    assert caption({**SUMMARY, "now": {**SUMMARY["now"], "usefulness": 0.01}}) not in text


def test_the_picture_is_worth_showing():
    assert SUMMARY["now"]["usefulness"] > 0.65
    assert SUMMARY["now"]["leakage"]["family"] <= 1
    assert 0.92 <= SUMMARY["now"]["coverage"] <= 0.98


def test_the_least_delays_are_those_of_the_documents():
    text = (demo_picture.ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    for kind, words in (("point", "fitted chain"), ("family", "every chain of the family")):
        assert f"| {words} | {' | '.join(f'{one[kind]:.3g}' for one in SUMMARY['delays'])} |" in text
    least = [next(one["delay"] for one in SUMMARY["delays"] if one["family"] <= budget) for budget in (0.5, 0.1)]
    assert least == [3, 5]
    assert "Held back 3 ticks (9 hours) it reveals at most 0.5" in text
    assert "5 ticks (15 hours) at most 0.1" in text
