"""`scar jobs plot`: a picture of how a run went: loss, metrics, each failure at the clock of its repair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scar.errors import ConfigError
from scar.v1.recovery_pb2 import FailureRecord
from scar_cli import output
from scar_cli.cluster_ref import ClusterRef
from scar_cli.failures import members_text
from scar_cli.jobs import store_with_job
from scar_cli.output import format_count
from scar_console.stored_runs import StoredRun, read_run
from scar_runtime.loss_curve import CurvePoint

SUFFIXES = (".png", ".svg", ".pdf")
MOST_METRICS = 4  # panels below the loss
WIDTH = 8.0  # inches of a panel
HEIGHT = 2.8
LOG_RATIO = 50.0  # between the highest and the lowest loss, from which on its axis is logarithmic
CURVE = "#1b7f5c"
FAILURE = "#c0492f"


def plot_job(ref: ClusterRef, name: str, url: str, file: Path) -> None:
    """Draw it into ``file``. Raises :class:`ConfigError` where there is no loss, or not in that form."""
    if file.suffix not in SUFFIXES:
        raise ConfigError(f"{file} is no picture", f"Choose a name that ends with {', '.join(SUFFIXES)}")
    run = read_run(store_with_job(ref, name, url), name)
    figure = draw_run(name, run)
    with rc_context({"svg.hashsalt": name}):  # the same run is the same file
        figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix == ".svg" else None)
    failures = format_count(len(run.failures), "failure")
    output.make_console().print(f"{file}: job {name}, {failures}", markup=False, soft_wrap=True)


def draw_run(name: str, run: StoredRun) -> Figure:
    """A panel for the loss, one for each metric. Raises :class:`ConfigError` for a run without a loss."""
    losses = run.history.curve.points_from()
    if not losses:
        raise ConfigError(
            f"no loss of job {name!r} is in the store", "Report it by worker.report(loss) in each clock"
        )
    metrics = sorted(run.history.metrics.curves.items())[:MOST_METRICS]
    panels = 1 + len(metrics)
    figure = Figure(figsize=(WIDTH, HEIGHT * panels), layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    _draw_curve(axes[0], "loss", losses)
    values = [loss for _, loss in losses]
    if min(values) > 0 and max(values) > LOG_RATIO * min(values):
        axes[0].set_yscale("log")
    for panel, (metric, curve) in zip(axes[1:], metrics, strict=True):
        _draw_curve(panel, metric, curve.points_from())
    for panel in axes:
        for record in run.failures:
            panel.axvline(record.clock, color=FAILURE, linestyle="--", linewidth=1)
    axes[0].set_title("\n".join([name, *map(failure_words, run.failures)]), fontsize=9)
    axes[-1].set_xlabel("clock")
    return figure


def failure_words(record: FailureRecord) -> str:
    """One line: when and who died, or what else was wrong, and what of the model came back."""
    members = members_text(record)
    what = f"{members} died" if members else record.rollback or "; ".join(record.damage)
    lost = f"{record.lost_blocks} of {record.total_blocks} blocks put back" if record.lost_blocks else ""
    delta = f"‖δ‖ {record.delta_norm:.3g}" if record.lost_blocks and record.delta_norm >= 0 else ""
    return ", ".join(filter(None, [f"clock {record.clock}: {what}", lost, delta]))


def _draw_curve(axes: Axes, label: str, points: Sequence[CurvePoint]) -> None:
    axes.plot([clock for clock, _ in points], [value for _, value in points], color=CURVE, linewidth=1.4)
    axes.set_ylabel(label)
    axes.grid(alpha=0.25)
