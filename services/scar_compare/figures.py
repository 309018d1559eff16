"""Figures in one house style: small panels on a common grid, a PNG and an SVG of each.

A figure is described as data (:class:`Figure`) and drawn at the end, so that experiments never touch the
drawing library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Okabe and Ito: told apart without red or green
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v")
MANY_TICKS = 6  # whose names are written at a slant
BASELINE = "#555555"  # of dashed lines
COLUMNS = 4
PANEL_INCHES = (3.1, 2.6)
STYLE: Any = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "scar",
}
FORMATS: dict[str, dict[str, Any]] = {".png": {"dpi": 150}, ".svg": {"dpi": 150, "metadata": {"Date": None}}}


@dataclass(frozen=True)
class Series:
    """Points, or a line through them. ``low`` and ``high``: ends of intervals.

    ``style``: "line", "dashed", "marks" (with intervals) or "points" (small, many).
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: str = "line"


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    ``ticks``: names of places on the x axis. ``scale``: "linear" or "log", of the x axis; ``y_scale``: of
    the other. ``zero``: the y axis shows 0.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    ticks: Sequence[tuple[float, str]] = ()
    scale: str = "linear"
    zero: bool = False
    y_scale: str = "linear"


@dataclass(frozen=True)
class Figure:
    panels: Sequence[Panel]
    title: str = ""
    notes: Sequence[str] = field(default=())


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Draw it to ``stem.png`` and ``stem.svg``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(COLUMNS, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    inches = (PANEL_INCHES[0] * columns, PANEL_INCHES[1] * rows)
    with pyplot.rc_context(STYLE):
        drawing, axes = pyplot.subplots(rows, columns, figsize=inches, squeeze=False, layout="constrained")
        used = list(axes.flat[: len(figure.panels)])
        for place, panel in zip(used, figure.panels, strict=True):
            _draw_panel(place, panel)
        _draw_legends(drawing, used)
        for place in axes.flat[len(used) :]:
            place.set_axis_off()
        drawing.suptitle(figure.title, fontsize=9)
        files = [stem.with_suffix(ending) for ending in FORMATS]
        for file, options in zip(files, FORMATS.values(), strict=True):
            drawing.savefig(file, **options)
        pyplot.close(drawing)
    return files


def _draw_panel(axes: Any, panel: Panel) -> None:
    for place, series in enumerate(panel.series):
        _draw_series(axes, series, COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
    axes.set_title(panel.title, fontsize=8)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_xscale(panel.scale)
    axes.set_yscale(panel.y_scale)
    if panel.ticks:
        slant = {"rotation": 40, "ha": "right"} if len(panel.ticks) > MANY_TICKS else {}
        axes.set_xticks([place for place, _ in panel.ticks], [name for _, name in panel.ticks], **slant)
    axes.grid(alpha=0.25, linewidth=0.5)
    if panel.zero:
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))


def _draw_legends(drawing: Any, axes: Sequence[Any]) -> None:
    """One below all panels if it is the same for all, else one in each."""
    handles, labels = axes[0].get_legend_handles_labels()
    if all(one.get_legend_handles_labels()[1] == labels for one in axes):
        columns = len(labels) if len(axes) > 1 else 2
        if labels:
            drawing.legend(
                handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=7.5
            )
        return
    for one in axes:
        if one.get_legend_handles_labels()[1]:
            one.legend(frameon=False, fontsize=7)


def _draw_series(axes: Any, series: Series, colour: str, marker: str) -> None:
    if series.style == "points":
        points = {"markersize": 3, "alpha": 0.5, "rasterized": True}
        axes.plot(series.x, series.y, ".", color=colour, label=series.label, **points)
        return
    colour = BASELINE if series.style == "dashed" else colour
    shape = {"dashed": "--", "marks": "none"}.get(series.style, "-")
    line = {"color": colour, "linewidth": 1.3, "label": series.label, "linestyle": shape}
    if not series.low:
        axes.plot(series.x, series.y, **line)
        return
    below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]
    marks = {"capsize": 2, "marker": marker, "markersize": 3, "elinewidth": 0.9}
    axes.errorbar(series.x, series.y, yerr=[below, above], **marks, **line)
