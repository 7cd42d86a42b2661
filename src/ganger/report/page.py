"""One HTML page that needs nothing else: no network, no other file.

Pages are put together from strings; whatever comes from outside goes through `html.escape`.
"""

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import ganger
from ganger.report.drawing import COLOURS, Chart

_SIZE = "@SIZE@"


Cell = str | tuple[str, float]
"""Of a table: what is shown, and for a figure also its value, unrounded."""


def html_page(
    title: str, lead: str, sections: Sequence[str], data: dict[str, Any], script: str = ""
) -> str:
    """The page; its own size stands in its footer.

    Args:
        title: plain text.
        lead: HTML below it.
        sections: HTML.
        data: what its figures are from, for scripts; as JSON in the element `report-data`.
        script: a file of this package to run, if any.
    """
    page = _TEMPLATE.format(
        title=escape(title),
        variables=_variables(),
        css=_resource("page.css"),
        lead=lead,
        sections="\n".join(sections),
        data=script_json("report-data", data),
        script=f"<script>\n{_resource(script)}</script>" if script else "",
        version=escape(ganger.__version__),
        size=_SIZE,
    )
    return page.replace(_SIZE, size_in_words(len(page.encode())))


def size_in_words(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def section(title: str, *parts: str) -> str:
    """A part of the page with a heading; empty parts are left out."""
    return (
        f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(filter(None, parts)) + "\n</section>"
    )


def paragraph(text: str, kind: str = "") -> str:
    """Plain text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def charts(*drawn: Chart | None) -> str:
    """Charts side by side where there is room."""
    inside = "\n".join(
        f'<figure id="{chart.name}"><figcaption>{escape(chart.title)}</figcaption>'
        f"{chart.svg}</figure>"
        for chart in drawn
        if chart is not None
    )
    return f'<div class="charts">{inside}</div>'


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    source: str,
    *,
    words: int = 1,
    name: str = "",
) -> str:
    """A table whose first columns are words and the others figures.

    Args:
        source: which files and columns its figures are from; below it.
        words: how many columns are words.
        name: its element's id.
    """

    def cells(kind: str, row: Sequence[Cell]) -> str:
        shown = []
        for k, cell in enumerate(row):
            is_head = kind == "th" or k == 0
            scope = f' scope="{"col" if kind == "th" else "row"}"' if is_head else ""
            tag = "th" if is_head else "td"
            align = _class("" if k < words else "n")
            shown.append(f"<{tag}{scope}{align}>{_cell(cell)}</{tag}>")
        return "<tr>" + "".join(shown) + "</tr>"

    body = "\n".join(cells("td", row) for row in rows)
    named = f' id="{name}"' if name else ""
    # Scrollable parts must be reachable with the keyboard.
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="Table: {escape(head[0])}">'
        f"<table{named}><thead>{cells('th', head)}</thead><tbody>\n{body}\n</tbody></table></div>\n"
        f'<p class="source">{escape(source)}</p>'
    )


def details(summary: str, *parts: str) -> str:
    """What is shown when asked for, and on paper not at all unless it is open."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"


def script_json(name: str, value: Any) -> str:
    """JSON inside a page; nothing in it can end the element early."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def seconds(value: float) -> Cell:
    """A duration."""
    return (f"{value:,.0f} s" if value >= 1000 else f"{value:,.1f} s"), value


def number(value: float | None, form: str) -> Cell:
    """A figure, formatted; nothing where there is none."""
    return "" if value is None else (format(value, form), value)


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    return f'<data value="{cell[1]!r}">{escape(cell[0])}</data>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _resource(name: str) -> str:
    return (files("ganger.report") / name).read_text(encoding="utf-8")


def _variables() -> str:
    light, dark = (
        "".join(f"--{name}:{both[k]};" for name, both in COLOURS.items()) for k in (0, 1)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )


# No page of ours asks for anything from elsewhere, and a browser is told to allow nothing.
_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<meta name="generator" content="Ganger {version}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{variables}
{css}
</style>
</head>
<body>
<main>
<header>
<h1>{title}</h1>
{lead}
</header>
{sections}
<footer><p>Made by Ganger {version}. One file of {size}; it needs no network.</p></footer>
</main>
{data}
{script}
</body>
</html>
"""
