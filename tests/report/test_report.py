from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from csdp import (
    Accountant,
    CoupledChain,
    InfluenceGraph,
    Ledger,
    Mean,
    NoModel,
    Panel,
    Plan,
    Publisher,
    leakage,
    learn_from_past,
)
from csdp.bounds.result import as_text
from csdp.errors import InputError
from csdp.report import figures, page
from csdp.report.certificate import certify
from csdp.report.page import report_ledger
from csdp.report.series import (
    LeakageRecord,
    ReleaseRecord,
    TruthRecord,
    leakage_records,
    release_records,
    truth_records,
)
from plain_words import check_plain_words

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
HISTORY = [LeakageRecord(tick, 0.1 * tick, True) for tick in (1, 2, 3)]
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "link", "img", "hr", "input"}


class Outline(HTMLParser):
    """Tags that open and close, links, ids and text of a page."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids, self.text, self.tags = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.note(attrs)

    def note(self, attrs):
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "action", "data", "srcset"}:
                self.links.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def outline(ledger_report):
    found = Outline()
    found.feed(ledger_report.files[-1].read_text(encoding="utf-8"))
    found.close()
    return found


class TestPage:
    def test_tags_are_balanced_and_ids_are_unique(self, outline):
        assert outline.open == []
        assert len(outline.ids) == len(set(outline.ids))

    def test_self_contained(self, ledger_report, outline):
        assert all(link.startswith("#") for link in outline.links)
        assert {link[1:] for link in outline.links} <= set(outline.ids)
        assert not {"script", "link", "iframe", "img"} & set(outline.tags)
        text = ledger_report.files[-1].read_text(encoding="utf-8")
        assert "@import" not in text
        assert not re.search(r"url\((?!#)", text)
        for address in re.findall(r"""["'(]\s*((?:https?:)?//[^"')]*)""", text):
            assert address in {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses

    def test_says_on_its_face_that_it_is_private(self, ledger_report, outline):
        text = ledger_report.files[-1].read_text(encoding="utf-8")
        assert text.index("Contains private data") < text.index("<h1>")
        assert "true value" in text

    def test_the_page_to_share_has_no_true_value(self, ledger_report):
        [path] = [path for path in ledger_report.files if path.name == "share.html"]
        text = path.read_text(encoding="utf-8")
        for words in ("true value", "private data", "(private)"):
            assert words not in text.lower()
        outline = Outline()
        outline.feed(text)
        assert outline.open == []
        assert outline.tags.count("svg") == 2
        assert ledger_report.certificate.sentence in "".join(outline.text)

    @pytest.mark.parametrize("name", ["share.html", "index.html"])
    def test_a_clinician_meets_no_words_of_specialists(self, ledger_report, name):
        [path] = [path for path in ledger_report.files if path.name == name]
        check_plain_words(path.read_text(encoding="utf-8"))

    def test_every_page_explains_its_words(self, ledger_report, outline):
        assert {f"word-{word.replace(' ', '-')}" for word in page.GLOSSARY} <= set(outline.ids)
        assert {"#words", "#word-the-present", "#word-any-moment", "#word-event", "#word-group"} <= set(outline.links)
        glossary = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
        known = {
            word.strip() for row in re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE) for word in row.split(",")
        }
        assert set(page.GLOSSARY) <= known

    def test_everything_given_is_escaped(self, tmp_path):
        evil = "<script>alert('x')</script>&"
        chain = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]], names=[f"{evil} 1", f"{evil} 2"])
        with Publisher(Plan(chain, Mean(), 2, 1.0), dataset=evil, ledger=tmp_path / "ledger.db") as publisher:
            publisher.publish(Panel.from_states(chain.simulate(10, seed=5), names=chain.names))
        report = report_ledger(tmp_path / "ledger.db", tmp_path / "out", dataset=evil, version=evil)
        text = report.files[-1].read_text(encoding="utf-8")
        assert "<script" not in text
        outline = Outline()
        outline.feed(text)
        assert "".join(outline.text).count(evil) > 3

    @pytest.mark.parametrize("value", [0.1234561, 0.1234569, 1e-300, 123456.7, 1e9 + 1, 3.0000011])
    def test_shown_numbers_are_rounded_up(self, value):
        assert value <= float(as_text(value)) <= value * 1.00002


class TestFigures:
    def test_files_have_data(self, ledger_report):
        names = {path.name: path for path in ledger_report.files}
        assert names["history.png"].read_bytes().startswith(b"\x89PNG")
        for name, lines, points in (("release.svg", 1, 50),):
            tree = ElementTree.parse(names[name])
            drawn = [
                group
                for group in tree.iter(f"{SVG}g")
                if re.match(r"line2d_\d+$", group.get("id", ""))
                for path in group.findall(f"{SVG}path")
                if len(re.findall("[ML]", path.get("d", ""))) >= points
            ]
            assert len(drawn) == lines, name

    def test_inline_figures_follow_the_page(self):
        svg = figures.inline_svg(figures.leakage_history_figure(HISTORY), name="one", description='a "b" <c>')
        tree = ElementTree.fromstring(svg)
        assert tree.get("aria-label") == 'a "b" <c>'
        assert tree.get("width") is None
        assert tree.get("viewBox")
        assert "var(--ink, " in svg
        assert all(node.get("id").startswith("one-") for node in tree.iter() if node.get("id"))


def released(tmp_path, *, steps=30, **options):
    plan = Plan(PAPER, Mean(), 2, 1.0)
    panel = Panel.from_states(PAPER.simulate(steps, seed=5))
    with Ledger.open(tmp_path / "ledger.db") as ledger, Publisher(plan, dataset="d", ledger=ledger, **options) as gate:
        batch = gate.publish(panel)
        certificate = certify(gate, ledger, skipped=batch.skipped)
        return plan, panel, batch, certificate, leakage_records(gate, ledger, until=steps + 3)


class TestReleases:
    def test_leakage_by_tick_is_replayed_from_the_ledger(self, tmp_path):
        _, _, batch, certificate, records = released(tmp_path, budget=0.2, on_refusal="skip")
        charged = {r.tick: r.epsilon_s for r in batch}
        assert {r.tick: r.epsilon for r in records if r.published} == charged
        assert [r.tick for r in records] == list(range(2, 34))
        assert max(r.epsilon for r in records) <= 0.2
        assert [r.epsilon for r in records][-4:] == sorted((r.epsilon for r in records[-4:]), reverse=True)
        assert certificate["present"].ceiling == 0.2
        assert certificate.counts["without_output"] == {
            "not enough old readings yet": 2,
            "refused by a limit": 28 - len(batch),
        }

    def test_figures_of_a_release(self, tmp_path):
        plan, panel, batch, _, records = released(tmp_path)
        truth = truth_records(plan, panel)
        assert [r.value for r in truth] == panel.states.mean(axis=1).tolist()
        gaps = panel.states.copy()
        gaps[5, 1] = -1
        assert truth_records(plan, Panel.from_states(gaps))[5].value == panel.states[5, 0]  # of those that were read
        drawn = release_records(batch)
        private = figures.inline_svg(figures.release_figure(drawn, what="mean", truth=truth), name="a", description="")
        shared = figures.inline_svg(figures.release_figure(drawn, what="mean"), name="a", description="")
        assert "(private)" in private
        assert "(private)" not in shared
        over_time = figures.leakage_history_figure(records, budget=0.5)
        assert "budget 0.5" in figures.inline_svg(over_time, name="a", description="")
        assert figures.leakage_history_figure(records).axes
        with pytest.raises(InputError, match="nothing was published"):
            figures.release_figure([], what="mean")
        with pytest.raises(InputError, match="no finite leakage"):
            figures.leakage_history_figure([LeakageRecord(1, math.inf, True)])


class TestCertificate:
    def test_without_a_limit_the_ceiling_is_the_long_run(self, tmp_path):
        plan, _, _, certificate, _ = released(tmp_path)
        accountant = Accountant(plan)
        assert certificate["present"].epsilon <= certificate["present"].ceiling
        assert certificate["present"].ceiling >= accountant.limit().epsilon
        assert certificate["present"].ceiling == pytest.approx(accountant.limit().epsilon, rel=1e-6)
        assert certificate["event"].ceiling == 1.0
        assert certificate["group"].ceiling is None
        assert certificate["every_moment"].ceiling == accountant.every_moment()

    def test_with_late_readings_the_ceiling_is_the_cap(self, tmp_path):
        plan = Plan(PAPER, Mean(), 2, 1.0, stale_limit=3)
        with Ledger.open(tmp_path / "l.db") as ledger, Publisher(plan, dataset="d", ledger=ledger) as gate:
            certificate = certify(gate, ledger)
        freshness = leakage(PAPER, Mean(), ages=2, epsilon_c=1.0, bound="freshness").epsilon
        assert certificate["present"].ceiling == pytest.approx(freshness, rel=1e-9)
        assert certificate["event"].ceiling == 4.0
        assert certificate.sentence == "Nothing has been published of d yet."

    def test_after_a_change_of_plan_only_records_have_a_ceiling(self, tmp_path):
        """Releases under an earlier plan may have read newer data; what records cost is followed across changes."""
        plan = Plan(PAPER, Mean(), 2, 1.0)
        with Ledger.open(tmp_path / "l.db") as ledger, Publisher(plan, dataset="d", ledger=ledger) as gate:
            gate.publish(Panel.from_states(PAPER.simulate(5, seed=5)))
            changed = gate.change_plan(Plan(PAPER, Mean(), 4, 1.0), from_tick=10)
            certificate = certify(changed, ledger)
        assert certificate["present"].ceiling is None
        moment = Accountant(plan).every_moment()
        assert certificate["every_moment"].ceiling == pytest.approx(moment)  # no reading is read by both plans
        assert certificate["event"].ceiling == 1.0

    def test_words_and_numbers(self, tmp_path):
        *_, certificate, _ = released(tmp_path)
        content = certificate.to_dict()
        assert list(content["guarantees"]) == ["present", "every_moment", "event", "group"]
        assert as_text(certificate["present"].epsilon) in certificate.sentence
        assert "if the sequences follow the model" in certificate.sentence
        assert any("missing" in words for words in certificate.assumptions)
        assert not any("one release" in words for words in certificate.assumptions)
        assert str(tmp_path) not in json.dumps(content)


def test_a_certificate_says_what_its_plan_protects(tmp_path):
    *_, certificate, _ = released(tmp_path, budget=0.5)
    assert certificate.to_dict()["protects"]["what"] == "present"
    assert "at most 0.5 (63 %) of the present, but up to 4.9 (99.3 %) of any moment" in certificate.protects["words"]


def test_a_limit_on_any_moment_protects_every_moment(tmp_path):
    *_, certificate, _ = released(tmp_path, moment_limit=2.5, on_refusal="skip")
    assert certificate["every_moment"].ceiling > 4
    assert certificate.protects["what"] == "every_moment"  # no release is made that passes the limit
    assert "2.5 (93 %) of any moment" in certificate.protects["words"]


def test_a_page_without_a_model_says_nothing_of_the_present(tmp_path):
    panel = Panel.from_states(PAPER.simulate(80, seed=1))
    plan = Plan(NoModel.of(PAPER), "mean", 0, 1.0)
    estimator = learn_from_past(plan, panel)
    with Publisher(
        plan, dataset="d", ledger=tmp_path / "l.db", event_limit=1.0, window=5, estimator=estimator
    ) as publisher:
        publisher.publish(panel)
    report = report_ledger(tmp_path / "l.db", tmp_path / "out", dataset="d", version="9.9")
    assert [path.name for path in report.files] == ["certificate.json", "release.svg", "release.png", "share.html"]
    text = report.files[-1].read_text(encoding="utf-8")
    assert text.index("No model: plain differential privacy only.") < text.index("<h1>")
    assert "Protects single readings" in text
    assert "The leakage stays under its budget" not in text
    assert "what the model expects" not in text
    check_plain_words(text)


def test_a_report_of_a_ledger_has_plain_words_first(tmp_path):
    backward = CoupledChain([[0.8, 0.2], [0.2, 0.8]], [[0.7, 0.3], [0.3, 0.7]], direction="backward")
    plan = Plan(InfluenceGraph.around(backward, 0.01), "mean", ages=8, epsilon_c=1.0)
    with Publisher(plan, dataset="d", ledger=tmp_path / "ledger.db", budget=0.5) as publisher:
        publisher.publish(Panel.from_states(backward.simulate(20, seed=1)))
    report_ledger(tmp_path / "ledger.db", tmp_path / "out", dataset="d", version="9.9")
    text = (tmp_path / "out" / "share.html").read_text(encoding="utf-8")
    assert "influence" in text
    check_plain_words(text)


def test_noise_does_not_stretch_the_scale():
    rng = np.random.default_rng(1)
    values = 20 + rng.normal(0, 1, 100)
    values[[10, 60]] = 500.0, -300.0
    released = [ReleaseRecord(t, float(v), 20.0, 19.0, 21.0) for t, v in enumerate(values)]
    truth = [TruthRecord(t, 20.0 + (t % 2)) for t in range(100)]
    axes = figures.release_figure(released, what="mean", truth=truth, usual=[(0, 20.2), (99, 20.2)]).axes[0]
    low, high = axes.get_ylim()
    assert 15 < low < 20
    assert 21 < high < 25
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "no data: mean" in labels
    beyond = int(((values < low) | (values > high)).sum())
    assert f"published ({beyond} beyond the scale, at its edges)" in labels
    assert beyond >= 2
