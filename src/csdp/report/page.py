"""Pages of a report: sections that reports share, in one HTML file without scripts or network, for screen and paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from csdp.bounds.overview import LeakageTable
from csdp.bounds.result import as_text, chance, in_words, with_chance
from csdp.report import figures
from csdp.report.certificate import UNPAID_WORDS, Certificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from csdp.chain import Model

#: The head of a column of probabilities.
GUESS = "a 50 % guess becomes at most"
#: The notice at the top of a page that draws true values.
PRIVATE = (
    "Contains private data: the true values are drawn on this page. Do not pass it on; share.html is the same without "
    "them."
)


#: Words of a report, as the glossary of the documentation has them.
GLOSSARY = {
    "sequence": "a person or thing whose state changes over time, and whose present state is protected",
    "tick": "one step of time; all sequences share the ticks",
    "reading": "the state of one sequence at one tick",
    "release": "what is published at one tick: a number with noise, and an estimate with a band",
    "estimate": "the best guess of the true number that can be made from what was published; it costs no more privacy",
    "model": "how likely each next state is, given the present ones; it was fitted or declared",
    "adversary": "somebody who tries to find out a present state, and what they are assumed to know",
    "epsilon": "how much is revealed at most: the odds between two possibilities change by at most a factor of "
    "e^epsilon. 0.1 is a change of 11 %, 1 a factor of 2.7",
    "present": "what everything published so far tells about the state that a sequence is in now",
    "event": "what the releases tell about one single reading, whatever the model",
    "group": "what they tell about all readings of sequences that depend on each other, together",
    "lifetime": "what all releases, earlier and later ones, tell about one state, if the model holds",
    "budget": "the most that may be revealed about the present at any time; a release that would exceed it is refused",
    "ledger": "the record in which every release is charged before any data is read",
}

# ---- HTML ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PageSection:
    """A heading and its HTML, which is already escaped; `is_detail` for what only specialists need, behind a click."""

    title: str
    body: str
    is_detail: bool = False

    @classmethod
    def detail(cls, title: str, body: str) -> PageSection:
        """A section behind a click."""
        return cls(title, body, is_detail=True)


def percent(share: float) -> str:
    """A share in words.

    >>> percent(0.884)
    '88 %'
    """
    return f"{100 * share:.0f} %"


def paragraph(text: str) -> str:
    """Make a paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{escape(text)}</p>"


def figure_block(figure: Figure, caption: str, *, name: str, description: str) -> str:
    """Make an inline figure with its caption; `name` prefixes its ids, `description` is for screen readers.

    It can have the focus, because on a narrow screen it scrolls.
    """
    svg = figures.inline_svg(figure, name=name, description=description)
    return f'<figure tabindex="0">{svg}<figcaption>{escape(caption)}</figcaption></figure>'


def definition_list(pairs: Iterable[tuple[str, str]]) -> str:
    """Make a list of names and values."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{rows}</dl>"


def number_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a small table with a name, a number and a note in each row.

    >>> number_table(("a", "b", "c"), [("x", "1", "<y>")])[-74:]
    '<td class="n" data-label="b">1</td><td>&lt;y&gt;</td></tr></tbody></table>'
    """
    name, number, note = (escape(text) for text in head)
    body = "".join(
        f'<tr class="sound"><th scope="row">{escape(first)}</th>'
        f'<td class="n" data-label="{number}">{escape(second)}</td>'
        f"<td>{_join_percent_signs(escape(third))}</td></tr>"
        for first, second, third in rows
    )
    top = f"<tr><th>{name}</th><th class='n'>{number}</th><th>{note}</th></tr>"
    return f'<table class="stack"><thead>{top}</thead><tbody>{body}</tbody></table>'


def _join_percent_signs(text: str) -> str:
    """A text whose percent signs stay on the line of their numbers."""
    return text.replace(" %", "&nbsp;%")


def leakage_block(table: LeakageTable) -> str:
    """Make the table of bounds; unproven formulas are marked UNSOUND."""
    rows = []
    for row in table.rows:
        mark = "proven" if row.sound else "<strong>UNSOUND</strong>"
        words = row.assumptions[-1] if row.bound != "exact" else "one release; exact under the model"
        kind = "best" if row.bound == "exact" else "sound" if row.sound else "unsound"
        rows.append(
            f'<tr class="{kind}"><th scope="row">{escape(row.bound)}</th><td class="n">{as_text(row.epsilon)}</td>'
            f'<td class="n">{chance(row.epsilon) if row.sound else "–"}</td>'
            f"<td>{mark}</td><td>{escape(words)}</td></tr>"
        )
    for bound, reason in table.missing.items():
        rows.append(
            f'<tr class="unsound"><th scope="row">{escape(bound)}</th><td class="n">–</td><td class="n">–</td><td></td>'
            f"<td>{escape(reason)}</td></tr>"
        )
    figure_heads = f"<th class='n'>epsilon</th><th class='n'>{GUESS}</th>"
    head = f"<tr><th>bound</th>{figure_heads}<th>status</th><th>holds for</th></tr>"
    return (
        f'<div class="wide" tabindex="0"><table><caption>{escape(table.title)}</caption>'
        f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def guarantees_section(certificate: Certificate) -> PageSection:
    """Make the verdict on the model, the table of guarantees, what is not promised, and the sentence to quote."""
    rows = "".join(
        f'<tr class="{"best" if promise == certificate.promises[0] else "sound"}">'
        f'<th scope="row">{_link_word(promise.name)}</th>'
        f'<td class="n" data-label="epsilon now">{as_text(promise.epsilon)}</td>'
        f'<td class="n" data-label="{GUESS}">{chance(promise.epsilon)}</td>'
        f'<td class="n" data-label="never above">'
        f"{'grows' if promise.ceiling is None else _join_percent_signs(with_chance(promise.ceiling))}</td>"
        f"<td>{escape(promise.protects[:1].upper() + promise.protects[1:])}; {escape(promise.holds)}.</td></tr>"
        for promise in certificate.promises
    )
    heads = "".join(f"<th class='n'>{name}</th>" for name in ("epsilon now", GUESS, "never above"))
    head = f"<tr><th>guarantee</th>{heads}<th>protects</th></tr>"
    missing = "".join(f"<li>{escape(words)}</li>" for words in certificate.not_promised)
    body = (
        f"{paragraph(certificate.model['words'])}"
        f'<table class="stack"><thead>{head}</thead><tbody>{rows}</tbody></table>'
        f'<div class="pair single"><div class="limit"><h3>Not promised</h3><ul>{missing}</ul></div></div>'
        f"<h3 class='quote'>One sentence to quote</h3><blockquote>{escape(certificate.sentence)}</blockquote>"
    )
    return PageSection("What is promised, and what is not", body)


def make_page(
    sections: Sequence[PageSection], *, title: str, lead: str, footer: str, notices: Sequence[str] = ()
) -> str:
    """Make a whole page.

    Args:
        sections: Sections in order; their HTML is taken as it is.
        title: Heading of the page; this and the other texts are escaped.
        lead: First paragraphs, with an empty line between them.
        footer: Last line.
        notices: Warnings above the heading.
    """
    shown = [_section(each) for each in sections if not each.is_detail]
    behind = [each for each in sections if each.is_detail]
    if behind:
        titles = ", ".join(each.title[:1].lower() + each.title[1:] for each in behind)
        inside = "\n".join(map(_section, behind))
        shown.append(f"<details><summary>Details: {escape(titles)}</summary>\n{inside}</details>")
    body = "\n".join([*shown, _glossary()])
    return _PAGE.substitute(
        title=escape(title),
        notice="".join(f'<p class="notice" role="note">{escape(words)}</p>\n' for words in notices),
        lead="\n".join(f'<p class="lead">{escape(part)}</p>' for part in lead.split("\n\n")),
        body=body,
        footer=escape(footer),
        style=_STYLE.strip(),
    )


def _section(section: PageSection) -> str:
    return f"<section><h2>{escape(section.title)}</h2>\n{section.body}</section>"


def _link_word(word: str) -> str:
    """A word of the glossary as a link to its meaning."""
    return f'<a href="#word-{word}">{word}</a>' if word in GLOSSARY else escape(word)


def _glossary() -> str:
    rows = "".join(f'<dt id="word-{word}">{word}</dt><dd>{escape(words)}</dd>' for word, words in GLOSSARY.items())
    return f'<section id="words"><h2>Words on this page</h2><dl>{rows}</dl></section>'


# ---- sections that reports share -----------------------------------------------------------------------------------


def save_report(
    out: Path,
    drawings: Mapping[str, Figure],
    shared: Sequence[PageSection],
    private: Sequence[PageSection],
    *,
    certificate: Certificate,
    **texts: str,
) -> list[str]:
    """Write all figures but private ones as SVG and PNG, and the pages; returns the names of the files.

    Args:
        out: Folder to write to.
        drawings: Figures by name; those whose name ends in "private" are drawn on the private page only.
        shared: Sections of share.html.
        private: Sections of index.html, which is not written if there are none.
        certificate: If the data do not accept its model, both pages say so first.
        texts: Title, lead and footer of the pages.
    """
    names = [f"{name}.{kind}" for name in drawings if not name.endswith("private") for kind in ("svg", "png")]
    for name in names:
        figures.save_figure(drawings[name.partition(".")[0]], out / name)
    doubt = [_doubt(certificate)] if certificate.promises[0].name != "present" else []
    doubt += [words for words in certificate.not_promised if words == UNPAID_WORDS]
    pages = {"share.html": make_page(shared, **texts, notices=doubt)}
    if private:
        pages["index.html"] = make_page(private, **texts, notices=[*doubt, PRIVATE])
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
    return [*names, *pages]


def _doubt(certificate: Certificate) -> str:
    """What a reader of a page must know first if the data do not accept the model."""
    event = certificate["event"].epsilon
    return (
        f"{certificate.model['words']} Rely on the event level alone, epsilon {as_text(event)} ({in_words(event)}): it "
        "holds under any model. Every other epsilon on this page is an example."
    )


def leakage_history_section(figure: Figure, budget: float | None) -> PageSection:
    """The leakage by tick."""
    limit = "" if budget is None else f" A release that would exceed {budget:g} is refused before it is computed."
    caption = (
        f"The leakage of everything published so far about the present, by tick.{limit} While nothing is published the "
        "leakage falls."
    )
    description = "Leakage of the present by tick, under the budget"
    block = figure_block(figure, caption, name="history", description=description)
    return PageSection("The leakage stays under its budget", block)


def age_section(figure: Figure) -> PageSection:
    """Leakage against age by every bound."""
    caption = (
        "One release at other ages, by every bound that applies. The thick line is exact. Dashed lines are formulas as "
        "printed in the literature (unsound): they can be below the true leakage, and never certify."
    )
    description = "Leakage of one release against age, one line per bound"
    block = figure_block(figure, caption, name="age", description=description)
    return PageSection.detail("Older data leaks less about the present", block)


def frontier_section(figure: Figure, caption: str) -> PageSection:
    """Leakage against error."""
    description = "Leakage against error by age, with the no-data line"
    block = figure_block(figure, caption, name="frontier", description=description)
    return PageSection.detail("What more or less privacy would buy", block)


def coupling_block(model: Model, figure: Figure | None) -> str:
    """The drawing of the coupling, or a line that it would be too large to read."""
    if figure is None:
        return paragraph(f"{model.sequences:,} sequences: too many to draw (at most {figures.DRAWN_SEQUENCES}).")
    caption = (
        "An arrow: how much the next state of one sequence depends on the present of another; the filled part of a "
        "node: how much it depends on itself. Sequences without a path between them are independent in the model."
    )
    return figure_block(figure, caption, name="coupling", description="Which sequence depends on which in the model")


def ledger_facts(certificate: Certificate) -> list[tuple[str, str]]:
    """Counts and head hash of a dataset in its ledger, as names and values."""
    counts = certificate.counts
    without = "; ".join(f"{ticks:,}: {reason}" for reason, ticks in counts["without_output"].items())
    return [
        ("Published", f"{counts['published']:,} ticks; {counts['refused']:,} refused, {counts['lost']:,} lost"),
        *([("Without output", without)] if without else []),
        ("Ledger", f"dataset {certificate.dataset}, head {certificate.ledger['head_hash']}"),
    ]


# ---- style and template --------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f4f6f8; --ink: #1b2733; --quiet: #5c6670; --grid: #d9dee3;
  --blue: #0072b2; --sky: #3d9bd1; --green: #00835f; --purple: #b4568a; --orange: #b87d00; --red: #c65000; }
@media (prefers-color-scheme: dark) { :root { --paper: #14191f; --card: #1e252d; --ink: #e8edf2; --quiet: #a3adb8;
  --grid: #36404a; --blue: #5ab0e8; --sky: #8fd0f5; --green: #35c79a; --purple: #e39cc2; --orange: #f0b93a;
  --red: #ff8a4c; } }
@media print { :root { --paper: #ffffff; --card: #ffffff; --ink: #000000; --quiet: #444444; --grid: #cccccc;
  --blue: #0072b2; --sky: #3d9bd1; --green: #00835f; --purple: #b4568a; --orange: #b87d00; --red: #c65000; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 17px/1.55 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 2.5rem 1.25rem 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
.lead { font-size: 1.1rem; margin: 0 0 .6rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
caption { text-align: left; color: var(--quiet); padding-bottom: .5rem; }
th, td { text-align: left; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
tbody th { font-weight: 500; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; padding-right: 1.4rem; }
tr.best th, tr.best .n { font-weight: 700; }
tr.unsound th, tr.unsound td { color: var(--quiet); }
tr.unsound strong { color: var(--red); }
figure { margin: .5rem 0 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { color: var(--quiet); font-size: .92rem; margin-top: .4rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem; }
.pair > div { background: var(--card); border-radius: .5rem; padding: 1rem 1.2rem;
  border-left: 5px solid var(--green); }
.pair > .limit { border-left-color: var(--red); }
.pair p { margin: 0; }
.pair.single { margin-top: 1.2rem; }
.pair ul { margin: 0; padding-left: 1.1rem; }
.pair li + li { margin-top: .35rem; }
.quote { margin-top: 1.4rem; }
blockquote { margin: 0; padding: .2rem 0 .2rem 1.2rem; border-left: 5px solid var(--blue); }
.notice { margin: 0 0 1.6rem; padding: .7rem 1.2rem; border: 2px solid var(--red); border-radius: .5rem;
  color: var(--red); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.5rem; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
a { color: var(--blue); }
summary { margin-top: 2.6rem; padding: .7rem 1.2rem; background: var(--card); border-radius: .5rem; cursor: pointer; }
footer { margin-top: 3rem; color: var(--quiet); font-size: .88rem; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .6rem; }
  .wide table { min-width: 32rem; } figure { overflow-x: auto; } figure svg { min-width: 30rem; }
  .stack thead { display: none; } .stack tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--grid); }
  .stack th { font-weight: 700; } .stack th, .stack td { display: block; border: 0; padding: 0; text-align: left; }
  .stack td[data-label]::before { content: attr(data-label) ": "; color: var(--quiet); font-weight: 400; } }
@media print { details::details-content { content-visibility: visible; height: auto; } body { font-size: 11pt; }
  main { max-width: none; padding: 0; }
  figure, tr, .pair > div { break-inside: avoid; } h2 { break-after: avoid; }
  .pair > div { border: 1px solid var(--grid); } }
"""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
<main>
<header>$notice<h1>$title</h1>
$lead
<p><a href="#words">What the words on this page mean</a></p></header>
$body
<footer>$footer</footer>
</main>
</body>
</html>
""")
