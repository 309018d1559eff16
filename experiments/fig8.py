"""Figure 8 (C.2): which blocks to save. Priority, round and random, a fraction r of them every r C iterations; 1/2 is lost.

The dashed line is traditional recovery: everything goes back to the last full checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from experiments import dealing, statistics
from experiments.failures import Case
from experiments.figures import Figure, Panel, Series
from experiments.panels import PANELS, chosen, title
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.statistics import Estimate
from scar.tables import Checkpoint

NAME = "fig8"
SELECTIONS = ("priority", "round", "random")
FRACTIONS = (1.0, 0.5, 0.25, 0.125)
LOST = (0.5,)
FULL = "full"


def batches(options: Options) -> list[Batch]:
    return dealing.batches(options, cases(options))


def cases(options: Options) -> tuple[Case, ...]:
    """Full recovery, and partial recovery for each lost fraction, selection and r."""
    partial = tuple(
        Case(case_name(selection, fraction, lost), Checkpoint(selection, fraction, options.period), "partial", lost)
        for lost in dealing.lost(options, LOST)
        for selection in SELECTIONS
        for fraction in _fractions(options)
    )
    return (Case(FULL, dealing.full_checkpoints(options.period), "full", 1.0), *partial)


def _fractions(options: Options) -> list[float]:
    """r, the largest first."""
    return sorted(set(options.fractions or FRACTIONS), reverse=True)


def case_name(selection: str, fraction: float, lost: float) -> str:
    """How records name a case."""
    return f"{selection} r={fraction:g} lost={lost:g}"


def report(options: Options, records: Sequence[Record]) -> Report:
    """For each panel, lost fraction, selection and r: the cost, and by how much it is below full recovery's."""
    rows = [["panel", "trials", "lost", "selection", "r", "cost", "saves against full recovery"]]
    summary, panels = {}, []
    for panel in chosen(options.panels, PANELS):
        found = of_panel(records, panel)
        if not found:
            continue
        costs = {name: [record["costs"][name] for record in found] for name in found[0]["costs"]}
        means = {name: statistics.mean(values) for name, values in costs.items()}
        cheaper = {name: statistics.reduction(values, costs[FULL]) for name, values in costs.items()}
        summary[panel] = {
            "trials": len(found),
            "given_up": sum(bool(record["given_up"]) for record in found),
            "full": means[FULL].document,
            "cases": _summary(options, means, cheaper),
        }
        rows.append([panel, str(len(found)), "1", FULL, "1", str(means[FULL]), ""])
        rows += _rows(options, panel, len(found), means, cheaper)
        panels += [_panel(options, panel, lost, means) for lost in dealing.lost(options, LOST)]
    share = ", ".join(f"{lost:g}" for lost in dealing.lost(options, LOST))
    figure = Figure(panels, f"Which blocks to save; {share} of them lost, C = {options.period}")
    return Report({"panels": summary}, rows, figure)


def _summary(options: Options, means: dict[str, Estimate], cheaper: dict[str, Estimate]) -> list[dict[str, Any]]:
    return [
        {
            "lost": lost,
            "selection": selection,
            "fraction": fraction,
            "cost": means[case_name(selection, fraction, lost)].document,
            "reduction": cheaper[case_name(selection, fraction, lost)].document,
        }
        for lost, selection, fraction in product(dealing.lost(options, LOST), SELECTIONS, _fractions(options))
    ]


def _rows(
    options: Options, panel: str, trials: int, means: dict[str, Estimate], cheaper: dict[str, Estimate]
) -> list[list[str]]:
    rows = []
    for lost, selection, fraction in product(dealing.lost(options, LOST), SELECTIONS, _fractions(options)):
        name = case_name(selection, fraction, lost)
        rows.append([panel, str(trials), f"{lost:g}", selection, f"{fraction:g}", str(means[name]), cheaper[name].percent])
    return rows


def _panel(options: Options, panel: str, lost: float, means: dict[str, Estimate]) -> Panel:
    fractions, series = _fractions(options), []
    for place, selection in enumerate(SELECTIONS):
        found = [means[case_name(selection, fraction, lost)] for fraction in fractions]
        x = [index + 0.06 * (place - 1) for index in range(len(fractions))]  # intervals side by side
        series.append(Series(selection, x, [m.value for m in found], [m.low for m in found], [m.high for m in found]))
    level = means[FULL].value
    series.append(Series("full recovery", [0, len(fractions) - 1], [level] * 2, style="dashed"))
    ticks = [(float(index), f"{1 / fraction:g}") for index, fraction in enumerate(fractions)]
    heading = title(panel) if len(dealing.lost(options, LOST)) == 1 else f"{title(panel)}, lost {lost:g}"
    return Panel(heading, "checkpoint frequency 1/r", "rework iterations", series, ticks, zero=True)
