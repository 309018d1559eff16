"""Figure 8 (C.2): which blocks to save.

Priority, round and random, a fraction r of them every r C iterations; 1/2 is lost.

The dashed line is traditional recovery: everything goes back to the last full checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from experiments import trial_plan
from experiments.panels import PANELS, chosen_panels, panel_title
from experiments.recovery_trials import RecoveryCase
from scar.tables import Checkpoint
from scar_compare import statistics
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import Estimate

NAME = "fig8"
SELECTIONS = ("priority", "round", "random")
FRACTIONS = (1.0, 0.5, 0.25, 0.125)
LOST = (0.5,)
FULL = "full"


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    return trial_plan.trial_batches(options, recovery_cases(options))


def recovery_cases(options: ExperimentOptions) -> tuple[RecoveryCase, ...]:
    """Full recovery, and partial recovery for each lost fraction, selection and r."""
    partial = tuple(
        RecoveryCase(
            case_name(selection, fraction, lost),
            Checkpoint(selection, fraction, options.period),
            "partial",
            lost,
        )
        for lost in trial_plan.lost_fractions(options, LOST)
        for selection in SELECTIONS
        for fraction in _wanted_fractions(options)
    )
    return (RecoveryCase(FULL, trial_plan.full_checkpoints(options.period), "full", 1.0), *partial)


def _wanted_fractions(options: ExperimentOptions) -> list[float]:
    """r, the largest first."""
    return sorted(set(options.fractions or FRACTIONS), reverse=True)


def case_name(selection: str, fraction: float, lost: float) -> str:
    """How records name a case."""
    return f"{selection} r={fraction:g} lost={lost:g}"


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """For each panel, lost fraction, selection and r: the cost, and how far it is below full recovery's."""
    rows = [["panel", "trials", "lost", "selection", "r", "cost", "saves against full recovery"]]
    summary = {}
    panels = []
    for panel in chosen_panels(options.panels, PANELS):
        found = records_of_panel(records, panel)
        if not found:
            continue
        costs = {name: [record["costs"][name] for record in found] for name in found[0]["costs"]}
        means = {name: statistics.mean_estimate(values) for name, values in costs.items()}
        cheaper = {name: statistics.reduction_estimate(values, costs[FULL]) for name, values in costs.items()}
        summary[panel] = {
            "trials": len(found),
            "given_up": sum(bool(record["given_up"]) for record in found),
            "full": means[FULL].document,
            "cases": _case_summaries(options, means, cheaper),
        }
        rows.append([panel, str(len(found)), "1", FULL, "1", str(means[FULL]), ""])
        rows += _table_rows(options, panel, len(found), means, cheaper)
        panels += [
            _draw_panel(options, panel, lost, means) for lost in trial_plan.lost_fractions(options, LOST)
        ]
    share = ", ".join(f"{lost:g}" for lost in trial_plan.lost_fractions(options, LOST))
    figure = Figure(panels, f"Which blocks to save; {share} of them lost, C = {options.period}")
    return ExperimentReport({"panels": summary}, rows, figure)


def _case_summaries(
    options: ExperimentOptions, means: dict[str, Estimate], cheaper: dict[str, Estimate]
) -> list[dict[str, Any]]:
    return [
        {
            "lost": lost,
            "selection": selection,
            "fraction": fraction,
            "cost": means[case_name(selection, fraction, lost)].document,
            "reduction": cheaper[case_name(selection, fraction, lost)].document,
        }
        for lost, selection, fraction in product(
            trial_plan.lost_fractions(options, LOST), SELECTIONS, _wanted_fractions(options)
        )
    ]


def _table_rows(
    options: ExperimentOptions,
    panel: str,
    trials: int,
    means: dict[str, Estimate],
    cheaper: dict[str, Estimate],
) -> list[list[str]]:
    rows = []
    for lost, selection, fraction in product(
        trial_plan.lost_fractions(options, LOST), SELECTIONS, _wanted_fractions(options)
    ):
        name = case_name(selection, fraction, lost)
        rows.append(
            [
                panel,
                str(trials),
                f"{lost:g}",
                selection,
                f"{fraction:g}",
                str(means[name]),
                cheaper[name].percent,
            ]
        )
    return rows


def _draw_panel(options: ExperimentOptions, panel: str, lost: float, means: dict[str, Estimate]) -> Panel:
    fractions = _wanted_fractions(options)
    series = []
    for place, selection in enumerate(SELECTIONS):
        found = [means[case_name(selection, fraction, lost)] for fraction in fractions]
        x = [index + 0.06 * (place - 1) for index in range(len(fractions))]  # intervals side by side
        series.append(
            Series(selection, x, [m.value for m in found], [m.low for m in found], [m.high for m in found])
        )
    level = means[FULL].value
    series.append(Series("full recovery", [0, len(fractions) - 1], [level] * 2, style="dashed"))
    ticks = [(float(index), f"{1 / fraction:g}") for index, fraction in enumerate(fractions)]
    heading = (
        panel_title(panel)
        if len(trial_plan.lost_fractions(options, LOST)) == 1
        else f"{panel_title(panel)}, lost {lost:g}"
    )
    return Panel(heading, "checkpoint frequency 1/r", "rework iterations", series, ticks, zero=True)
