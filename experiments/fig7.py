"""Figure 7 (C.1): full recovery against partial recovery, by the lost fraction, on eight panels.

Both come from the same full checkpoints. Full recovery puts everything back, whatever was lost, so one case
stands for all fractions.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments import trial_plan
from experiments.panels import PANELS, chosen_panels, panel_title
from experiments.recovery_trials import RecoveryCase
from scar_compare import statistics
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel

NAME = "fig7"
LOST = (0.25, 0.5, 0.75, 1.0)
FULL = "full"


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    return trial_plan.trial_batches(options, _recovery_cases(options))


def _recovery_cases(options: ExperimentOptions) -> tuple[RecoveryCase, ...]:
    saved = trial_plan.full_checkpoints(options.period)
    partial = tuple(
        RecoveryCase(_case_name(lost), saved, "partial", lost)
        for lost in trial_plan.lost_fractions(options, LOST)
    )
    return (RecoveryCase(FULL, saved, "full", 1.0), *partial)


def _case_name(lost: float) -> str:
    return f"partial {lost:g}"


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """For each panel and fraction: both costs, and by how much partial recovery is cheaper."""
    rows = [["panel", "trials", "lost", "partial", "full", "partial saves"]]
    summary = {}
    panels = []
    for panel in chosen_panels(options.panels, PANELS):
        found = records_of_panel(records, panel)
        if not found:
            continue
        full = [record["costs"][FULL] for record in found]
        costs = {
            lost: [record["costs"][_case_name(lost)] for record in found]
            for lost in trial_plan.lost_fractions(options, LOST)
        }
        summary[panel] = _panel_summary(found, full, costs)
        for lost, values in costs.items():
            measured = (
                str(statistics.mean_estimate(values)),
                str(statistics.mean_estimate(full)),
                statistics.reduction_estimate(values, full).percent,
            )
            rows.append([panel, str(len(found)), f"{lost:g}", *measured])
        panels.append(_draw_panel(panel, full, costs))
    figure = Figure(
        panels, f"Partial against full recovery; a full checkpoint every {options.period} iterations"
    )
    return ExperimentReport({"panels": summary}, rows, figure)


def _panel_summary(
    records: Sequence[TrialRecord], full: Sequence[float], costs: dict[float, list[float]]
) -> dict[str, object]:
    return {
        "trials": len(records),
        "given_up": sum(bool(record["given_up"]) for record in records),
        "full": statistics.mean_estimate(full).document,
        "partial": {
            f"{lost:g}": {
                "cost": statistics.mean_estimate(values).document,
                "reduction": statistics.reduction_estimate(values, full).document,
            }
            for lost, values in costs.items()
        },
    }


def _draw_panel(panel: str, full: Sequence[float], costs: dict[float, list[float]]) -> Panel:
    ends = [min(costs), max(costs)]
    level = statistics.mean_estimate(full)
    means = [statistics.mean_estimate(values) for values in costs.values()]
    partial = Series(
        "partial", list(costs), [m.value for m in means], [m.low for m in means], [m.high for m in means]
    )
    flat = Series("full", ends, [level.value] * 2, [level.low] * 2, [level.high] * 2, "dashed")
    return Panel(
        panel_title(panel),
        "lost fraction",
        "rework iterations",
        [partial, flat],
        [(x, f"{x:g}") for x in costs],
        zero=True,
    )
