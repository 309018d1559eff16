"""Figures in one house style: small panels on a common grid, a PNG and an SVG of each.

A figure is described as data (:class:`Figure`) and drawn at the end, so that experiments never touch the drawing library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COLOURS = ("#1b5e9e", "#d1603d", "#3a8f5c", "#8a6bb1", "#6b6b6b")
COLUMNS = 4
PANEL_INCHES = (3.1, 2.6)


@dataclass(frozen=True)
class Series:
    """Points, or a line through them. ``low`` and ``high``: ends of intervals. ``style``: "line", "points" or "dashed"."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: str = "line"


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ``ticks``: names of places on the x axis. ``scale``: "linear" or "log", of the x axis."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    ticks: Sequence[tuple[float, str]] = ()
    scale: str = "linear"


@dataclass(frozen=True)
class Figure:
    panels: Sequence[Panel]
    title: str = ""
    notes: Sequence[str] = field(default=())


def save(figure: Figure, stem: Path) -> list[Path]:
    """Draw it to ``stem.png`` and ``stem.svg``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(COLUMNS, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    style: Any = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "scar"}
    with pyplot.rc_context(style):
        drawing, axes = pyplot.subplots(
            rows, columns, figsize=(PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows), squeeze=False, layout="constrained"
        )
        for place, panel in zip(axes.flat, figure.panels, strict=False):
            _draw(place, panel)
        for place in axes.flat[len(figure.panels) :]:
            place.set_axis_off()
        drawing.suptitle(figure.title, fontsize=9)
        files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
        extras: Sequence[dict[str, Any]] = ({"dpi": 150}, {"metadata": {"Date": None}})
        for file, extra in zip(files, extras, strict=True):
            drawing.savefig(file, **extra)
        pyplot.close(drawing)
    return files


def _draw(axes: Any, panel: Panel) -> None:
    for series, colour in zip(panel.series, COLOURS * len(panel.series), strict=False):
        _series(axes, series, colour)
    axes.set_title(panel.title, fontsize=8)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_xscale(panel.scale)
    if panel.ticks:
        axes.set_xticks([place for place, _ in panel.ticks], [name for _, name in panel.ticks])
    axes.grid(alpha=0.25, linewidth=0.5)
    if any(series.label for series in panel.series):
        axes.legend(frameon=False, fontsize=7)


def _series(axes: Any, series: Series, colour: str) -> None:
    if series.style == "points":
        axes.plot(series.x, series.y, ".", color=colour, markersize=2.5, alpha=0.5, label=series.label)
        return
    line = {"color": colour, "linewidth": 1.3, "label": series.label, "linestyle": "--" if series.style == "dashed" else "-"}
    if not series.low:
        axes.plot(series.x, series.y, **line)
        return
    below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]
    axes.errorbar(series.x, series.y, yerr=[below, above], capsize=2, marker="o", markersize=3, elinewidth=0.9, **line)
