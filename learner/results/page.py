"""Self-contained pages: sections, tables and words with their meaning; nothing is fetched."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.files import write_or_refuse
from common.texts import printable

# Read at the start, as the program is: an upgrade in mid-run may replace them.
STYLE, SCRIPT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
)
# More rows get a search field, and scroll in a box of their own.
MANY_ROWS = 12

GLOSSARY = {
    "owner": "who holds records and answers about them, under a budget of its own",
    "records": "the rows of an owner's table; each of them is what the promise protects",
    "epsilon": "an owner's privacy budget: the smaller, the more private and the noisier",
    "responses": "noisy answers of an owner, each charged to its ledger before it left",
    "communication": "one question to an owner, or to a group, and its answer; counted by k",
    "horizon": "T: how many communications the study was planned to have",
    "noise scale": "scale b of the Laplace noise on each coordinate of a response",
    "relative fitness": "how far a model is from the best one for all records together: 0 is the "
    "best, 0.1 has a tenth more loss",
    "alone": "the model that an owner would train on its own records, without noise",
    "together": "the common model",
    "public model": "the best model of the public records, which is free",
    "gains": "whether the common model is better than the owner's own and the public one, on all "
    "records",
    "without it": "relative fitness, on all records, of the model that the others would make "
    "without this owner",
    "one more epsilon": "what one more unit of this owner's epsilon adds to the relative fitness "
    "of the common model: below 0 it gets better",
    "clip": "the L1 norm that each record's gradient was scaled down to",
    "rho": "the step's constant",
    "tail average": "the result is the mean of the central models over the last half of the ticks",
    "standard error": "one standard deviation of what the owners' noise did to the number",
}


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, and what it is sorted by."""

    text: str
    value: float | None = None


def texts(row: Sequence[Cell | str]) -> list[str]:
    """A row's cells for a terminal."""
    return [cell if isinstance(cell, str) else cell.text for cell in row]


def escaped(text: str) -> str:
    r"""A text as pages have it: without markup, and without what would move a terminal's cursor.

    >>> escaped("<b>\x1b[31m")
    '&lt;b&gt; [31m'
    """
    return html.escape(printable(text, max(len(text), 3)))


def term(word: str) -> str:
    """A word with its meaning on hover."""
    meaning = escaped(GLOSSARY[word])
    return f'<abbr title="{meaning}">{escaped(word)}</abbr>'


def glossary() -> str:
    """All words with their meanings, for print and for touch screens."""
    entries = "".join(
        f"<dt>{escaped(word)}</dt><dd>{escaped(meaning)}</dd>" for word, meaning in GLOSSARY.items()
    )
    return behind(f"<dl>{entries}</dl>", "What the words mean")


def section(title: str, *parts: str) -> str:
    """A part of the page under its heading."""
    name = "about-" + "".join(c if c.isalnum() else "-" for c in title.lower())
    content = "".join(parts)
    heading = f'<h2 id="{name}">{escaped(title)}</h2>'
    return f'<section aria-labelledby="{name}">{heading}{content}</section>'


def paragraphs(lines: Iterable[str], kind: str = "") -> str:
    """Plain sentences, one paragraph each."""
    begin = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{begin}{escaped(line)}</p>" for line in lines)


def listed(values: Iterable[tuple[str, str]]) -> str:
    """Tiles: a number and what it is."""
    tiles = "".join(
        f"<li><strong>{escaped(number)}</strong><span>{escaped(what)}</span></li>"
        for number, what in values
    )
    return f'<ul class="tiles">{tiles}</ul>'


def behind(content: str, title: str = "The values as a table") -> str:
    """What is folded away until a reader opens it."""
    return f"<details><summary>{escaped(title)}</summary>{content}</details>"


def table(
    name: str, caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell | str]]
) -> str:
    """A table that is sorted by its heads, searched where it is long, and cards on a phone.

    Args:
      name: Its name on the page.
      caption: What it shows.
      heads: The columns' names; one in the glossary is explained on hover.
      rows: Its cells; the first of a row names it.
    """
    head_cells = "".join(
        f'<th scope="col">{term(head) if head in GLOSSARY else escaped(head)}</th>'
        for head in heads
    )
    body = "".join(
        "<tr>"
        + "".join(_cell(cell, heads[i], is_first=i == 0) for i, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    made = (
        f'<table class="sorted cards" id="{name}"><caption>{escaped(caption)}</caption>'
        f"<thead><tr>{head_cells}</tr></thead><tbody>{body}</tbody></table>"
    )
    if len(rows) <= MANY_ROWS:
        return made
    label = escaped(caption)
    return (
        f'<p><label>Search: <input type="search" data-table="{name}"></label></p>'
        f'<div class="long" tabindex="0" role="region" aria-label="{label}">{made}</div>'
    )


def _cell(cell: Cell | str, head: str, *, is_first: bool) -> str:
    shown = Cell(cell) if isinstance(cell, str) else cell
    value = "" if shown.value is None else f' data-value="{shown.value!r}"'
    opening, closing = ('th scope="row"', "th") if is_first else ("td", "td")
    return f'<{opening} data-head="{escaped(head)}"{value}>{escaped(shown.text)}</{closing}>'


def page(title: str, *sections: str) -> str:
    """The whole page."""
    heading = escaped(title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{heading}</title><style>{STYLE}</style></head>"
        f"<body><header><h1>{heading}</h1></header><main>{''.join(sections)}"
        f"{section('Words', glossary())}</main>"
        f"<footer><p>Made by copriv. This page fetches nothing.</p></footer>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def write_page(path: Path, content: str) -> Path:
    """Write a page whole.

    Raises:
      InputError: It cannot be written.
    """
    write_or_refuse(path, content)
    return path
