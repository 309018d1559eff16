"""A report as one HTML file that asks nobody for anything: by the scripts and the look of the live page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

STATIC = Path(__file__).parent / "page" / "static"
MODULES = ("dom.js", "chart.js", "curves.js", "report.js")  # each after those that it imports
STYLES = ("uplot/uPlot.min.css", "console.css")
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
Losses = Sequence[float | None]  # of clock 1, 2, ...; None: it has none


def report_page(title: str, curves: Mapping[str, Losses], marks: Sequence[float], body: str) -> str:
    """``curves``: by the name of the run. ``marks``: clocks at which something was killed. ``body``: HTML of
    sections below the curves.
    """
    drawn = [
        {"name": name, "clocks": list(range(1, len(losses) + 1)), "losses": losses}
        for name, losses in curves.items()
    ]
    data = json.dumps({"curves": drawn, "marks": marks}, allow_nan=False).replace("<", "\\u003c")
    styles = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    plotting = (STATIC / "uplot/uPlot.iife.min.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title><style>{styles}</style></head><body>
<header><h1>{escape(title)}</h1></header>
<main>
<section class="wide"><h2>Loss by clock</h2>
<p id="legend"><span class="mark fail"></span> servers killed</p>
<div id="comparison" role="img" aria-label="Loss by clock of these runs; the tables have their figures"></div>
</section>
{body}</main>
<script type="application/json" id="report-data">{data}</script>
<script>{plotting}</script>
<script>(() => {{
{_bundled_modules()}
}})();</script>
</body></html>
"""


def _bundled_modules() -> str:
    """As one script, since a file has no modules beside it."""
    text = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in MODULES)
    return re.sub(r"^export ", "", re.sub(r"^import .*;\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
