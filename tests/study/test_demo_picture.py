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
    assert SUMMARY["model"]["status"] == "accepted"
    assert SUMMARY["now"]["every_moment"] <= 2
    assert SUMMARY["now"]["usefulness"] > 0.6
    assert 0.92 <= SUMMARY["now"]["coverage"] <= 0.98


def test_the_tables_of_the_documents_are_those_of_the_picture():
    text = (demo_picture.ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    delays, moments = SUMMARY["delays"], SUMMARY["moments"]
    assert f"| delay in ticks | {' | '.join(str(one['delay']) for one in delays)} |" in text
    assert f"| the present | {' | '.join(format(one['leakage'], '.3g') for one in delays)} |" in text
    assert f"| limit on any moment | {' | '.join(format(one['limit'], 'g') for one in moments)} |" in text
    assert f"| the present | {' | '.join(format(one['leakage'], '.3g') for one in moments)} |" in text
    assert f"| {' | '.join(format(one['usefulness'], '.0%') for one in moments)} |" in text
    assert f"Slow levels add {SUMMARY['slow_levels']:.3g} to every number" in text
