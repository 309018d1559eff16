"""The report for eyes: a picture of the loss curves, and one HTML page that needs no other file."""

from __future__ import annotations

import io
import math
from html import escape

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scar_cli.demo.report import DemoReport
from scar_console.report_page import curve_panel, report_page, table_section

COLOURS = ("#5b6573", "#1b7f5c", "#c0492f")
FIGURES = {
    "iterations": "iterations to ε",
    "rework_iterations": "rework iterations",
    "detect_seconds": "seconds to detect",
    "recover_seconds": "seconds to recover",
    "pause_seconds": "seconds until training goes on",
    "failures": "failures in the ledger",
    "lost_blocks": "blocks lost",
    "delta_norm": "‖δ‖",
    "lost_pushes": "acknowledged pushes lost",
    "final_loss": "final loss",
}


def table_headings(report: DemoReport) -> list[str]:
    return ["figure", *(row.name for row in report.rows)]


def table_cells(report: DemoReport) -> list[list[str]]:
    """A line for each figure with its value in each run, as text."""
    return [[title, *(_text(getattr(row, name)) for row in report.rows)] for name, title in FIGURES.items()]


def draw_picture(report: DemoReport) -> bytes:
    """PNG: all loss curves, and beside them the iterations around the kill and epsilon."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    whole, close = figure.subplots(1, 2)
    for axes in (whole, close):
        for run, colour in zip(report.runs, COLOURS, strict=False):
            axes.plot(range(1, len(run.losses) + 1), run.losses, color=colour, label=run.name, linewidth=1.6)
        axes.axhline(report.epsilon, color="#999", linestyle=":", linewidth=1)
        for at in {kill.iteration for run in report.runs for kill in run.killed}:
            axes.axvline(at + 0.5, color="#c0492f", linestyle="--", linewidth=1)
        axes.set_xlabel("iteration")
    whole.set_ylabel("loss (mean cross-entropy)")
    whole.set_title(f"{report.dataset}: half of the servers killed at the dashed line")
    whole.legend(frameon=False)
    _zoom(report, close)
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def html_page(report: DemoReport) -> str:
    """One HTML page with the curves, the figures and the checks."""
    kills = "; ".join(
        f"{run.name}: "
        + ", ".join(f"{kill.shard} (pid {kill.pid}) after iteration {kill.iteration}" for kill in run.killed)
        for run in report.runs
        if run.killed
    )
    runs = table_section("Three runs", [table_headings(report), *table_cells(report)])
    verdicts = [["passed" if check.passed else "FAILED", check.name, check.detail] for check in report.checks]
    checks = table_section("Checks", [["verdict", "what", "found"], *verdicts], bad=("FAILED",))
    curves = {run.name: [None if math.isnan(loss) else loss for loss in run.losses] for run in report.runs}
    marks = sorted({kill.iteration + 0.5 for run in report.runs for kill in run.killed})
    body = f"""<section class="wide"><h2>What was done</h2>
<p>Multinomial logistic regression on {escape(report.origin)}, until the loss is at most
ε = {report.epsilon}, by 2 workers and 4 parameter servers, with the same seed in each run.
Killed with SIGKILL: {escape(kills)}.</p>
<p>Rework: iterations that the run without a failure did not need. ‖δ‖: what the recovery changed, from the
workers' copies. Servers that are noticed one after the other are several failures; what the second had got
from the first is then lost twice. Partial recovery puts back only what died, from a checkpoint that saves an
eighth of the blocks in each iteration, those that changed most first;
full recovery rolls everything back to the last full checkpoint.</p></section>
{runs}{checks}"""
    panel = curve_panel("Loss by clock", curves, marks)
    return report_page("SCAR: training that heals itself", [panel], body)


def _zoom(report: DemoReport, axes: Axes) -> None:
    """Show what happens from a little before the kill on."""
    kills = [kill.iteration for run in report.runs for kill in run.killed]
    first = max(1, min(kills, default=1) - 4)
    seen = [loss for run in report.runs for loss in run.losses[first - 1 :] if not math.isnan(loss)]
    if seen:
        margin = 0.05 * (max(seen) - min(seen)) + 1e-9
        axes.set_xlim(first, max(len(run.losses) for run in report.runs) + 1)
        axes.set_ylim(min(seen) - margin, max(seen) + margin)
    axes.set_title("around the kill, down to ε (dotted)")


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
