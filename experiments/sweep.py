"""What depends on the decisions that the paper leaves open: figure 8 with one changed at a time.

Lost: 1/2. ``as chosen`` is figure 8 itself; docs/experiments.md says what each decision is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import fig8, trial_plan
from experiments.panels import chosen_panels, panel_title, split_panel
from scar_compare import statistics
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import Estimate

NAME = "sweep"
PANELS = ("mlr-mnist", "mf-movielens", "lda-reuters")
TRIALS = 20
QUICK = 2
LOST = 0.5
FRACTIONS = (1.0, 0.125)
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "as chosen": {},
    "C = 16": {"period": 16},
    "C = 32": {"period": 32},
    "early": {"mean": 0.25},
    "late": {"mean": 1.0},
    "horizon 30": {"horizon": 30},
    "horizon 120": {"horizon": 120},
    "gain 0.9": {"gain": 0.9},
    "pending": {"pending": True},
    "unweighted": {"unweighted": True},
}
SHOWN = {"partial": ("priority", 1.0), "priority 1/8": ("priority", 0.125), "round 1/8": ("round", 0.125)}
SHOWN |= {"random 1/8": ("random", 0.125)}


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    trials = options.trials or (QUICK if options.quick else TRIALS)
    found = []
    for panel in chosen_panels(options.panels, PANELS):
        for change, fields in CHANGES.items():
            if change == "unweighted" and split_panel(panel)[0] != "mf":  # no other model has weights
                continue
            changed = replace(
                options, panels=(panel,), lost=(LOST,), fractions=FRACTIONS, trials=trials, **fields
            )
            found += [
                replace(batch, panel=_change_panel(panel, change))
                for batch in trial_plan.trial_batches(changed, fig8.recovery_cases(changed))
            ]
    return found


def _change_panel(panel: str, change: str) -> str:
    return f"{panel}, {change}"


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """For each panel and change: what full recovery costs, and how much less the others do."""
    rows = [["panel", "change", "trials", "full", *(f"{name} saves" for name in SHOWN)]]
    summary: dict[str, dict[str, Any]] = {}
    drawn = []
    for panel in chosen_panels(options.panels, PANELS):
        found = {change: records_of_panel(records, _change_panel(panel, change)) for change in CHANGES}
        found = {change: some for change, some in found.items() if some}
        if not found:
            continue
        saved = {change: _reductions_by_case(some) for change, some in found.items()}
        summary[panel] = {}
        for change, some in found.items():
            full = statistics.mean_estimate(_case_costs(some, fig8.FULL))
            percents = [one.percent for one in saved[change].values()]
            rows.append([panel, change, str(len(some)), str(full), *percents])
            summary[panel][change] = {
                "trials": len(some),
                "full": full.document,
                "reductions": {name: one.document for name, one in saved[change].items()},
            }
        drawn.append(_draw_panel(panel, saved))
    figure = Figure(drawn, "One decision changed at a time; half is lost")
    return ExperimentReport({"lost": LOST, "panels": summary}, rows, figure)


def _case_costs(records: Sequence[TrialRecord], case: str) -> list[float]:
    return [float(record["costs"][case]) for record in records]


def _reductions_by_case(records: Sequence[TrialRecord]) -> dict[str, Estimate]:
    full = _case_costs(records, fig8.FULL)
    return {
        name: statistics.reduction_estimate(
            _case_costs(records, fig8.case_name(selection, fraction, LOST)), full
        )
        for name, (selection, fraction) in SHOWN.items()
    }


def _draw_panel(panel: str, saved: Mapping[str, Mapping[str, Estimate]]) -> Panel:
    series = []
    for place, name in enumerate(SHOWN):
        found = [100 * one[name].value for one in saved.values()]
        low = [100 * one[name].low for one in saved.values()]
        high = [100 * one[name].high for one in saved.values()]
        x = [index + 0.12 * (place - 1.5) for index in range(len(found))]
        series.append(Series(name, x, found, low, high, style="marks"))
    ticks = [(float(index), change) for index, change in enumerate(saved)]
    return Panel(panel_title(panel), "", "saved against full recovery, %", series, ticks)
