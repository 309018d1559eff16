"""Figure 8 (C.2): which blocks to save. Priority, round and random, a fraction r of them every r C iterations; 1/2 is lost.

The dashed line is traditional recovery: everything goes back to the last full checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments import statistics, sweeps
from experiments.failures import Case
from experiments.figures import Figure, Panel, Series
from experiments.panels import PANELS, title
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from scar.tables import Checkpoint

NAME = "fig8"
SELECTIONS = ("priority", "round", "random")
FRACTIONS = (1.0, 0.5, 0.25, 0.125)
LOST = 0.5
FULL = "full"


def batches(options: Options) -> list[Batch]:
    return sweeps.batches(options, _cases(options))


def lost(options: Options) -> float:
    """The one lost fraction of the figure."""
    return options.lost[0] if options.lost else LOST


def _cases(options: Options) -> tuple[Case, ...]:
    partial = tuple(
        Case(_name(selection, fraction), Checkpoint(selection, fraction, options.period), "partial", lost(options))
        for selection in SELECTIONS
        for fraction in FRACTIONS
    )
    return (Case(FULL, sweeps.full_checkpoints(options.period), "full", 1.0), *partial)


def _name(selection: str, fraction: float) -> str:
    return f"{selection} 1/{1 / fraction:g}"


def report(options: Options, records: Sequence[Record]) -> Report:
    """For each panel, selection and r: the cost, and by how much it is below full recovery's."""
    rows = [["panel", "trials", "case", "cost", "saves against full recovery"]]
    summary, panels = {}, []
    for panel in options.panels or PANELS:
        found = of_panel(records, panel)
        if not found:
            continue
        costs = {name: [record["costs"][name] for record in found] for name in found[0]["costs"]}
        cheaper = {name: statistics.reduction(values, costs[FULL]) for name, values in costs.items()}
        means = {name: statistics.mean(values) for name, values in costs.items()}
        summary[panel] = {
            "trials": len(found),
            "given_up": sum(bool(record["given_up"]) for record in found),
            "cases": {name: {"cost": means[name].document, "reduction": cheaper[name].document} for name in costs},
        }
        for name in costs:
            rows.append([panel, str(len(found)), name, str(means[name]), "" if name == FULL else cheaper[name].percent])
        panels.append(_panel(panel, means))
    figure = Figure(panels, f"Which blocks to save; {lost(options):g} of them lost, C = {options.period}")
    return Report({"lost": lost(options), "panels": summary}, rows, figure)


def _panel(panel: str, means: dict[str, statistics.Estimate]) -> Panel:
    series = []
    for place, selection in enumerate(SELECTIONS):
        found = [means[_name(selection, fraction)] for fraction in FRACTIONS]
        x = [index + 0.06 * (place - 1) for index in range(len(FRACTIONS))]  # intervals side by side
        series.append(Series(selection, x, [m.value for m in found], [m.low for m in found], [m.high for m in found]))
    level = means[FULL].value
    series.append(Series("full recovery", [0, len(FRACTIONS) - 1], [level] * 2, style="dashed"))
    ticks = [(float(index), f"{1 / fraction:g}") for index, fraction in enumerate(FRACTIONS)]
    return Panel(title(panel), "checkpoint frequency 1/r", "rework iterations", series, ticks)
