"""The report of a comparison or an experiment as one HTML file, fit to show around."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from scar_cli.output import json_value
from scar_compare.experiment import ExperimentReport
from scar_compare.figures import Panel, Series
from scar_console.report_page import report_page, table_section, text_section


def write_page(name: str, report: ExperimentReport, folder: Path, screen: Console) -> dict[str, Any]:
    """``NAME.html`` beside the figure and ``NAME.json``, of the same numbers. Returns the summary."""
    summary: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    figure = report.figure
    told = [figure.title, *figure.notes, f"Made by: {summary['command']}"]
    body = table_section("Figures", report.rows) + text_section("About", [text for text in told if text])
    panels = [panel_document(panel) for panel in figure.panels]
    path = folder / f"{name}.html"
    path.write_text(report_page(f"SCAR: {name}", panels, body), encoding="utf-8")
    screen.print(f"To look at: {path}", highlight=False)
    return summary


def panel_document(panel: Panel) -> dict[str, Any]:
    """As `panels.js` has it."""
    return {
        "title": panel.title,
        "x": panel.x,
        "y": panel.y,
        "series": [_series_document(one) for one in panel.series],
        "ticks": [[float(place), text] for place, text in panel.ticks],
        "scale": panel.scale,
        "y_scale": panel.y_scale,
        "zero": panel.zero,
    }


def _series_document(series: Series) -> dict[str, Any]:
    numbers = {name: _numbers(getattr(series, name)) for name in ("x", "y", "low", "high")}
    return {"label": series.label, "style": series.style, **numbers}


def _numbers(values: Sequence[float]) -> list[float | None]:
    found: list[float | None] = json_value([float(value) for value in values])
    return found
