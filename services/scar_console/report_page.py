"""A report as one HTML file that asks nobody for anything: by the scripts and the look of the live page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "page" / "static"
MODULES = ("dom.js", "chart.js", "panels.js", "report.js")  # each after those that it imports
STYLES = ("uplot/uPlot.min.css", "console.css")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
DEATHS = '<p id="legend"><span class="mark fail"></span> servers killed</p>'
Losses = Sequence[float | None]  # of clock 1, 2, ...; None: it has none
PanelDocument = Mapping[str, Any]  # as `panels.js` has it


def curve_panel(title: str, curves: Mapping[str, Losses], marks: Sequence[float]) -> PanelDocument:
    """Losses by clock. ``curves``: by the name of the run. ``marks``: clocks at which something died."""
    series = [
        {"label": name, "x": list(range(1, len(losses) + 1)), "y": losses} for name, losses in curves.items()
    ]
    return {"title": title, "x": "clock", "y": "loss", "series": series, "marks": marks}


def report_page(title: str, panels: Sequence[PanelDocument], body: str) -> str:
    """``body``: HTML of sections below the panels. Raises :class:`ValueError` for a number that is not
    finite.
    """
    data = json.dumps(panels, allow_nan=False).replace("<", "\\u003c")
    styles = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    plotting = (STATIC / "uplot/uPlot.iife.min.js").read_text(encoding="utf-8")
    drawn = "".join(_panel_section(index, panel, len(panels)) for index, panel in enumerate(panels))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title><style>{styles}</style></head><body>
<header><h1>{escape(title)}</h1></header>
<main>
{drawn}{body}</main>
<script type="application/json" id="report-data">{data}</script>
<script>{plotting}</script>
<script>(() => {{
{_bundled_modules()}
}})();</script>
</body></html>
"""


def text_section(caption: str, paragraphs: Sequence[str]) -> str:
    told = "".join(f"<p>{escape(text)}</p>" for text in paragraphs)
    return f'<section class="wide"><h2>{escape(caption)}</h2>{told}</section>\n'


def table_section(caption: str, rows: Sequence[Sequence[str]], bad: Sequence[str] = ()) -> str:
    """``rows``: headings first. ``bad``: cells that stand out."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in rows[0])
    body = "".join("<tr>" + "".join(_cell(text, bad) for text in row) + "</tr>\n" for row in rows[1:])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    scrolled = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">{table}</div>'
    return f'<section class="wide"><h2>{escape(caption)}</h2>{scrolled}</section>\n'


def _cell(text: str, bad: Sequence[str]) -> str:
    return f'<td class="bad">{escape(text)}</td>' if text in bad else f"<td>{escape(text)}</td>"


def _panel_section(index: int, panel: PanelDocument, count: int) -> str:
    title = escape(panel["title"])
    what = escape(" by ".join(filter(None, (panel["y"], panel["x"]))))
    wide = ' class="wide"' if count == 1 else ""
    deaths = DEATHS if panel.get("marks") else ""
    label = f"{title}{f': {what}' if what else ''}; the tables have the figures"
    return f"""<section{wide}><h2>{title}</h2>{f'<p class="dim">{what}</p>' if what else ""}{deaths}
<div id="panel-{index}" class="panel" role="img" aria-label="{label}"></div></section>
"""


def _bundled_modules() -> str:
    """As one script, since a file has no modules beside it."""
    text = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in MODULES)
    return re.sub(r"^export ", "", re.sub(r"^import .*;\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
