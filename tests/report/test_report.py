from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from csdp import CoupledChain, JointChain, Mean, leakage, leakage_table
from csdp.errors import InputError
from csdp.leakage import shown
from csdp.report import figures, page, sweeps
from csdp.report.demo import run_demo
from csdp.report.words import guarantee

PAPER = CoupledChain([[0.75, 0.25], [0.25, 0.75]], [[0.7, 0.3], [0.3, 0.7]])
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
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo") / "new" / "folder", version="9.9")


@pytest.fixture(scope="module")
def outline(demo):
    found = Outline()
    found.feed(demo.files[-1].read_text(encoding="utf-8"))
    found.close()
    return found


class TestPage:
    def test_tags_are_balanced_and_ids_are_unique(self, outline):
        assert outline.open == []
        assert len(outline.ids) == len(set(outline.ids))

    def test_self_contained(self, demo, outline):
        assert all(link.startswith("#") for link in outline.links)
        assert {link[1:] for link in outline.links} <= set(outline.ids)
        assert not {"script", "link", "iframe", "img"} & set(outline.tags)
        text = demo.files[-1].read_text(encoding="utf-8")
        assert "@import" not in text
        assert not re.search(r"url\((?!#)", text)
        for address in re.findall(r"""["'(]\s*((?:https?:)?//[^"')]*)""", text):
            assert address in {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses

    def test_says_what_matters(self, outline):
        text = " ".join(outline.text)
        assert text.count("UNSOUND") >= 2
        assert "0.153046" in text
        assert "Not protected" in text
        assert "0.69; the true leakage is 0.772692" in text
        assert outline.tags.count("svg") == 2

    def test_light_dark_and_paper(self, demo):
        text = demo.files[-1].read_text(encoding="utf-8")
        assert "prefers-color-scheme: dark" in text
        assert "@media print" in text
        for variable in figures.THEME.values():
            assert text.count(f"{variable}:") == 3

    def test_no_place_of_the_machine_is_told(self, demo):
        text = demo.files[-1].read_text(encoding="utf-8")
        assert str(demo.files[-1].parent) not in text

    def test_everything_given_is_escaped(self):
        table = leakage_table(PAPER, Mean(), ages=1, epsilon_c=1.0)
        evil = "<script>alert('x')</script>&\""
        hostile = type(table)(table.rows, {evil: evil}, evil)
        words = type(guarantee(adversary="any", epsilon_c=1.0))(evil, evil)
        body = page.leakage_block(hostile) + page.guarantee_block(words, [evil]) + page.facts([(evil, evil)])
        body += page.figure_block("<svg></svg>", evil) + page.paragraph(evil)
        text = page.page(evil, lead=evil, sections=[page.Section(evil, body)], footer=evil)
        assert "<script" not in text
        found = Outline()
        found.feed(text)
        assert evil in "".join(found.text)

    def test_bounds_that_do_not_apply_say_why(self):
        joint = JointChain(PAPER.kernel(), states=2, sequences=2)
        assert "needs a CoupledChain" in page.leakage_block(leakage_table(joint, Mean(), ages=1, epsilon_c=1.0))

    @pytest.mark.parametrize("value", [0.1234561, 0.1234569, 1e-300, 5e-324, 123456.7, 1e9 + 1, 3.0000011])
    def test_shown_numbers_are_rounded_up(self, value):
        assert value <= float(shown(value)) <= value * 1.00002

    def test_infinite(self):
        assert shown(math.inf) == "infinite"


class TestFigures:
    def test_files_have_data(self, demo):
        names = {path.name: path for path in demo.files}
        assert names["leakage.png"].read_bytes().startswith(b"\x89PNG")
        for name, lines in (("leakage.svg", 10), ("coupling.svg", 9)):
            tree = ElementTree.parse(names[name])
            drawn = [
                group
                for group in tree.iter(f"{SVG}g")
                if re.match(r"line2d_\d+$", group.get("id", ""))
                for path in group.findall(f"{SVG}path")
                if len(re.findall("[ML]", path.get("d", ""))) >= 8
            ]
            assert len(drawn) == lines

    def test_words_on_the_axes_and_the_unsound_are_named_and_dashed(self, demo):
        text = demo.files[0].read_text(encoding="utf-8")
        assert "Age of the published data (steps)" in text
        assert "Leakage of the present, epsilon (log scale)" in text
        for bound in ("printed-loose", "printed-tight"):
            assert f"{bound}: printed (unsound)" in text
        assert len(re.findall(r"stroke-dasharray: \d", text)) == 2

    def test_same_records_give_the_same_file(self, tmp_path):
        records = sweeps.leakage_by_age(PAPER, Mean(), ages=[1, 2], epsilon_c=1.0)
        for name in ("a.svg", "b.svg"):
            figures.save_figure(figures.leakage_by_age_figure(records), tmp_path / name)
        assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()

    def test_infinite_points_are_left_out(self):
        records = sweeps.leakage_by_age(PAPER, Mean(), ages=[0, 1], epsilon_c=1.0)
        assert math.inf in {record.epsilon for record in records}
        assert figures.leakage_by_age_figure(records).axes

    def test_nothing_to_draw(self):
        with pytest.raises(InputError, match="no finite leakage"):
            figures.leakage_by_age_figure([sweeps.AgeRecord("freshness", 0, math.inf, True)])
        with pytest.raises(InputError, match="no records"):
            figures.coupling_figure([])

    def test_labels_never_overlap_or_leave_the_figure(self):
        placed = figures._apart([0.9, 0.91, 0.92, 0.93, 0.99], gap=0.05)
        gaps = [b - a for a, b in pairwise(placed)]
        assert min(gaps) >= 0.05 - 1e-12
        assert max(placed) <= 1.0

    def test_inline_figures_follow_the_page(self):
        records = sweeps.leakage_by_age(PAPER, Mean(), ages=[1, 2], epsilon_c=1.0)
        figure = figures.leakage_by_age_figure(records)
        svg = figures.inline_svg(figure, name="one", description='a "b" <c>')
        tree = ElementTree.fromstring(svg)
        assert tree.get("aria-label") == 'a "b" <c>'
        assert tree.get("width") is None
        assert tree.get("viewBox")
        assert "var(--ink, " in svg
        assert all(node.get("id").startswith("one-") for node in tree.iter() if node.get("id"))


class TestSweeps:
    def test_by_age_is_the_library(self):
        for record in sweeps.leakage_by_age(PAPER, Mean(), ages=[1, 3], epsilon_c=0.5):
            expected = leakage(PAPER, Mean(), ages=record.age, epsilon_c=0.5, bound=record.bound)
            assert (record.epsilon, record.sound) == (expected.epsilon, expected.sound)

    def test_correlation_falls_with_coupling_while_leakage_grows(self):
        records = sweeps.leakage_by_coupling(
            [[0.7, 0.3], [0.3, 0.7]], Mean(), weights=[0.0, 0.25, 0.5], ages=[1], epsilon_c=1.0
        )
        assert [round(r.coefficient, 9) for r in records] == [0.4, 0.4, 0.4]
        assert [round(r.correlation, 4) for r in records] == [0.4, 0.3, 0.24]
        assert [round(r.epsilon, 4) for r in records] == [0.3740, 0.4002, 0.4088]

    def test_progress_is_told(self):
        told = []
        sweeps.leakage_by_age(PAPER, Mean(), ages=[1, 2], epsilon_c=1.0, progress=lambda *t: told.append(t))
        sweeps.leakage_by_coupling(
            [[0.7, 0.3], [0.3, 0.7]], Mean(), weights=[0.1], ages=[1], epsilon_c=1.0, progress=lambda *t: told.append(t)
        )
        assert told == [("leakage by age", 1, 2), ("leakage by age", 2, 2), ("leakage by coupling", 1, 1)]


def test_words_for_every_adversary():
    for adversary in ("informed", "uninformed", "any"):
        assert "if the model holds" in guarantee(adversary=adversary, epsilon_c=1.0).protects
    with pytest.raises(InputError, match="adversary: 'all' given"):
        guarantee(adversary="all", epsilon_c=1.0)
