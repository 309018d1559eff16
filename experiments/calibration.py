"""How good predicted costs are: by the first loss since a failure, and by ||delta|| before any.

A cost is what `scar failures` measures: iterations from the lowest loss before the failure until the loss
is as low again; 1 where nothing was lost. The first prediction is that of the command. The second is Theorem
3.2 with what a run shows of c and ||x - x*||: where steps shrink by c in each iteration, the distance that is
left is the last step times c / (1 - c).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import binomtest

from experiments import trial_plan
from experiments.convergence import losses_until
from experiments.panels import PANELS, chosen_panels, load_workload, panel_title
from experiments.recovery_trials import (
    CONTROL,
    RecoveryCase,
    TrajectoryTrials,
    failure_iteration,
    hold_rounds,
    prepare_job,
    strike_cases,
)
from experiments.simulation import CheckpointSimulator, copy_state, initial_state, perturbation_norm
from experiments.workloads import TrainingRun, Workload
from scar import theory
from scar.errors import InvalidRequest
from scar.tables import Checkpoint
from scar_admin.iteration_costs import measure_cost
from scar_admin.loss_series import LossSeries
from scar_admin.predicted_costs import WINDOW, predict_cost
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.trial_plans import recorded_as

NAME = "calibration"
LOST = (0.25, 0.5)
FRACTION = 1 / 8
PATIENCE = 60  # iterations after which a loss that is not back is given up
FACTOR = 2.0
WAYS = {"loss": "by the first loss since", "norm": "by ||delta||"}


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    found = []
    for panel in chosen_panels(options.panels, PANELS):
        thin = trial_plan.THIN.get(panel, 1) if options.quick else 1
        count = trial_plan.trial_count(options, panel)
        for trajectory, first in enumerate(range(0, count, trial_plan.BATCH)):
            numbers = tuple(range(first, min(first + trial_plan.BATCH, count)))
            trials = trial_plan.trials_of(options, panel, thin, _recovery_cases(options), trajectory)
            found.append(TrialBatch(panel, numbers, partial(_run_batch, trials)))
    return found


def _recovery_cases(options: ExperimentOptions) -> tuple[RecoveryCase, ...]:
    """Full recovery, and partial recovery from rounds of 1/8 by priority."""
    saved = Checkpoint("priority", FRACTION, options.period)
    partial_cases = tuple(
        RecoveryCase(f"partial lost={lost:g}", saved, "partial", lost)
        for lost in trial_plan.lost_fractions(options, LOST)
    )
    return (RecoveryCase("full", trial_plan.full_checkpoints(options.period), "full", 1.0), *partial_cases)


@recorded_as("_work")
def _run_batch(trials: TrajectoryTrials, numbers: tuple[int, ...]) -> Iterator[TrialRecord]:
    """One record a trial: by case what was measured, and what each way had predicted."""
    model = load_workload(trials.panel, trials.thin)
    job, criterion = prepare_job(model, trials)
    failures = {number: failure_iteration(trials, number, criterion.undisturbed) for number in numbers}
    trunk = TrainingRun(initial_state(job), stream=job.seed)
    savers = {
        (case.checkpoint, case.recovery): CheckpointSimulator(
            replace(job, checkpoint=case.checkpoint, recovery=case.recovery), trunk.state
        )
        for case in trials.cases
    }
    losses: list[float] = []
    steps: list[float] = []
    for clock in range(1, max(failures.values()) + 1):
        before = copy_state(trunk.state)
        losses += model.advance_runs([trunk])
        steps.append(perturbation_norm(before, trunk.state))
        hold_rounds(savers.values(), clock)
        for number in (number for number, at in failures.items() if at == clock):
            runs, norms = strike_cases(trials, number, trunk, savers)
            del runs[CONTROL]
            cases = {
                name: _calibrate_case(model, losses, run) | {"norm": predict_by_norm(steps, norms[name])}
                for name, run in runs.items()
            }
            yield {"trial": number, "failed": clock, "cases": cases}


def _calibrate_case(
    model: Workload, losses: Sequence[float], run: TrainingRun
) -> dict[str, float | int | None]:
    """What it costs until the loss is back, and what the first loss since had said."""
    since = losses_until(model, [run], min(losses), PATIENCE)[0]
    failed = len(losses)  # the open clock, in which nothing was computed: one is taken off below
    known = dict(enumerate(losses)) | dict(enumerate(since, failed + 1))
    series = LossSeries.of(known)
    measured = measure_cost(series, failed).at_most
    predicted = predict_cost(
        LossSeries.of({at: loss for at, loss in known.items() if at <= failed + 1}), failed
    )
    return {
        "measured": None if measured is None else measured - 1,
        "loss": None if predicted is None else predicted - 1,
    }


def predict_by_norm(steps: Sequence[float], norm: float) -> float | None:
    """The cost by Theorem 3.2, at least the iteration that comes anyway. ``steps``: how far the model moved
    in each iteration before. None: they do not shrink.
    """
    recent = steps[-WINDOW:]
    try:
        rate = theory.estimate_rate(recent)
    except InvalidRequest:
        return None
    return max(1.0, theory.iteration_cost(rate, {0: norm}, recent[-1] * rate / (1 - rate)))


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """For each panel and way: the share of failures that it predicts within a factor of 2."""
    rows = [
        [
            "panel",
            "predicted",
            "failures",
            "predictions",
            "within 2x",
            "within 2x, of those above 1",
            "median ratio",
        ]
    ]
    summary: dict[str, Any] = {}
    panels = []
    everything: list[Mapping[str, float | None]] = []
    for panel in chosen_panels(options.panels, PANELS):
        found = [case for one in records_of_panel(records, panel) for case in one["cases"].values()]
        if not found:
            continue
        everything += found
        summary[panel] = {way: calibration_of(found, way) for way in WAYS}
        rows += [_table_row(panel, way, summary[panel][way]) for way in WAYS]
        panels.append(_draw_panel(panel, found))
    if everything:
        summary["all"] = {way: calibration_of(everything, way) for way in WAYS}
        rows += [_table_row("all", way, summary["all"][way]) for way in WAYS]
    return ExperimentReport(
        {"panels": summary}, rows, Figure(panels, f"Predicted and measured costs, C = {options.period}")
    )


def calibration_of(cases: Sequence[Mapping[str, float | None]], way: str) -> dict[str, Any]:
    """``within`` and ``costly``: shares with their intervals; the second of failures that cost more than the
    iteration that comes anyway. Failures that were not measured or not predicted are in ``failures`` alone.
    """
    pairs = [
        (predicted, measured)
        for predicted, measured in ((one[way], one["measured"]) for one in cases)
        if predicted is not None and measured is not None
    ]
    costly = [(predicted, measured) for predicted, measured in pairs if measured > 1]
    return {
        "failures": len(cases),
        "predictions": len(pairs),
        "within": _share_within(pairs),
        "costly": _share_within(costly),
        "median": float(np.median([predicted / measured for predicted, measured in pairs]))
        if pairs
        else None,
    }


def _share_within(pairs: Sequence[tuple[float, float]]) -> dict[str, float] | None:
    """Wilson's interval; None: there are none."""
    if not pairs:
        return None
    near = sum(max(pair) <= FACTOR * min(pair) for pair in pairs)
    ends = binomtest(near, len(pairs)).proportion_ci(method="wilson")
    return {"value": near / len(pairs), "low": float(ends.low), "high": float(ends.high), "of": len(pairs)}


def _table_row(panel: str, way: str, found: Mapping[str, Any]) -> list[str]:
    median = found["median"]
    return [
        panel,
        WAYS[way],
        str(found["failures"]),
        str(found["predictions"]),
        _share_text(found["within"]),
        _share_text(found["costly"]),
        "" if median is None else f"{median:.2f}",
    ]


def _share_text(share: Mapping[str, float] | None) -> str:
    if share is None:
        return ""
    return f"{share['value']:.0%} [{share['low']:.0%}, {share['high']:.0%}] of {share['of']}"


def _draw_panel(panel: str, found: Sequence[Mapping[str, float | None]]) -> Panel:
    series = []
    highest = 2.0
    for way, name in WAYS.items():
        pairs = [(one["measured"], one[way]) for one in found]
        known = [(x, y) for x, y in pairs if x is not None and y is not None]
        highest = max([highest, *(x for x, _ in known)])
        series.append(Series(name, [x for x, _ in known], [y for _, y in known], style="points"))
    series.append(Series("as measured", [1, highest], [1, highest], style="dashed"))
    return Panel(panel_title(panel), "measured", "predicted", series, scale="log", y_scale="log")
