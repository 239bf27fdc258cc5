"""A report as one HTML file: no network, readable on paper, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from string import Template

from csdp.bounds.overview import LeakageTable
from csdp.bounds.result import as_text
from csdp.report.certificate import Certificate


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading and HTML that is already escaped."""

    title: str
    body: str


def paragraph(text: str) -> str:
    """A paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{escape(text)}</p>"


def figure_block(svg: str, caption: str) -> str:
    """An inline figure with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, as a list of definitions."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{rows}</dl>"


def numbers_block(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A small table: a name, a number and a note in each row.

    >>> numbers_block(("a", "b", "c"), [("x", "1", "<y>")])[-74:]
    '<td class="n" data-label="b">1</td><td>&lt;y&gt;</td></tr></tbody></table>'
    """
    name, number, note = (escape(text) for text in head)
    body = "".join(
        f'<tr class="sound"><th scope="row">{escape(first)}</th>'
        f'<td class="n" data-label="{number}">{escape(second)}</td>'
        f"<td>{escape(third)}</td></tr>"
        for first, second, third in rows
    )
    top = f"<tr><th>{name}</th><th class='n'>{number}</th><th>{note}</th></tr>"
    return f'<table class="stack"><thead>{top}</thead><tbody>{body}</tbody></table>'


def leakage_block(table: LeakageTable) -> str:
    """The bounds side by side; formulas that are not proven are marked UNSOUND."""
    rows = []
    for row in table.rows:
        mark = "proven" if row.sound else "<strong>UNSOUND</strong>"
        words = row.assumptions[-1] if row.bound != "exact" else "one release; the truth under the model"
        kind = "best" if row.bound == "exact" else "sound" if row.sound else "unsound"
        rows.append(
            f'<tr class="{kind}"><th scope="row">{escape(row.bound)}</th><td class="n">{as_text(row.epsilon)}</td>'
            f"<td>{mark}</td><td>{escape(words)}</td></tr>"
        )
    for bound, reason in table.missing.items():
        rows.append(
            f'<tr class="unsound"><th scope="row">{escape(bound)}</th><td class="n">–</td><td></td>'
            f"<td>{escape(reason)}</td></tr>"
        )
    head = "<tr><th>bound</th><th class='n'>epsilon</th><th>status</th><th>holds for</th></tr>"
    return (
        f'<div class="wide"><table><caption>{escape(table.title)}</caption>'
        f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def promises_block(certificate: Certificate) -> str:
    """The guarantees side by side, what is not promised, and the sentence to quote."""
    rows = "".join(
        f'<tr class="{"best" if promise.name == "present" else "sound"}"><th scope="row">{escape(promise.name)}</th>'
        f'<td class="n" data-label="epsilon now">{as_text(promise.epsilon)}</td>'
        f'<td class="n" data-label="never above">'
        f"{'grows' if promise.ceiling is None else as_text(promise.ceiling)}</td>"
        f"<td>{escape(_sentence(promise.protects))}; {escape(promise.holds)}.</td></tr>"
        for promise in certificate.promises
    )
    head = "<tr><th>guarantee</th><th class='n'>epsilon now</th><th class='n'>never above</th><th>protects</th></tr>"
    missing = "".join(f"<li>{escape(words)}</li>" for words in certificate.not_promised)
    return (
        f'<table class="stack"><thead>{head}</thead><tbody>{rows}</tbody></table>'
        f'<div class="pair single"><div class="limit"><h3>Not promised</h3><ul>{missing}</ul></div></div>'
        f"<h3 class='quote'>One sentence to quote</h3><blockquote>{escape(certificate.sentence)}</blockquote>"
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def page(title: str, *, lead: str, sections: Sequence[Section], footer: str, notice: str = "") -> str:
    """The whole page; everything given as text is escaped. A notice stands first, on the face of the page."""
    body = "\n".join(f"<section><h2>{escape(part.title)}</h2>\n{part.body}</section>" for part in sections)
    return _PAGE.substitute(
        title=escape(title),
        notice=f'<p class="notice" role="note">{escape(notice)}</p>\n' if notice else "",
        lead=escape(lead),
        body=body,
        footer=escape(footer),
        style=_STYLE.strip(),
    )


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
.lead { font-size: 1.1rem; margin: 0; }
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
footer { margin-top: 3rem; color: var(--quiet); font-size: .88rem; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .6rem; }
  .wide table { min-width: 32rem; } figure { overflow-x: auto; } figure svg { min-width: 27rem; }
  .stack thead { display: none; } .stack tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--grid); }
  .stack th { font-weight: 700; } .stack th, .stack td { display: block; border: 0; padding: 0; text-align: left; }
  .stack td[data-label]::before { content: attr(data-label) ": "; color: var(--quiet); font-weight: 400; } }
@media print { body { font-size: 11pt; } main { max-width: none; padding: 0; }
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
<p class="lead">$lead</p></header>
$body
<footer>$footer</footer>
</main>
</body>
</html>
""")
