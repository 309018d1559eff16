"""One and two kills of the server, seven families of fault tolerance, 20 seeds and more each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from experiments.through_failure.recovery_modes import FLAWED, MODES, UNDISTURBED
from experiments.through_failure.virtual_training import EVERY, SECONDS, FailurePlan, run_trials
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import Estimate, mean_estimate

NAME = "through-failure"
UNDISTURBED_PANEL = "undisturbed"
FLAWED_PANEL = "as-published"
PLANS: Mapping[str, FailurePlan] = {
    "two-kills": FailurePlan(MODES, 2),
    "one-kill": FailurePlan(MODES, 1),
    UNDISTURBED_PANEL: FailurePlan(UNDISTURBED, 0),
    FLAWED_PANEL: FailurePlan(FLAWED, 2),
    "a-quarter-dies": FailurePlan(MODES, 2, lost=0.25),
}
# the published flaw, and servers that share the model, only on demand
USUAL = ("two-kills", "one-kill", UNDISTURBED_PANEL)
TRIALS = 20
QUICK = 2
GOAL = 0.7  # accuracy
MEGABYTE = 1e6


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    """A trial of every panel, then the next one: a run that is stopped has as many of each."""
    trials = options.trials or (QUICK if options.quick else TRIALS)
    wanted = [name for name in PLANS if name in (options.panels or USUAL)]
    return [
        TrialBatch(name, (trial,), partial(run_trials, PLANS[name], options.seed))
        for trial in range(trials)
        for name in wanted
    ]


def make_report(_options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """For each plan and mode: every measure with its interval, and the curves."""
    rows = [["kills", "mode", "seeds", *MEASURES]]
    summary: dict[str, dict[str, Any]] = {}
    drawn = []
    for name in PLANS:
        found = records_of_panel(records, name)
        if not found:
            continue
        measured = {
            mode.name: _estimate_measures([one["modes"][mode.name] for one in found])
            for mode in PLANS[name].modes
        }
        winners = _best_modes(measured)
        for mode, numbers in measured.items():
            cells = [_cell_text(one, mode in winners[what]) for what, one in numbers.items()]
            rows.append([name, mode, str(len(found)), *cells])
        summary[name] = {"seeds": len(found), "modes": _estimate_documents(measured), "winners": winners}
        if PLANS[name].kills:
            drawn += [
                _curve_panel(name, what, like, records)
                for what in ("accuracy", "loss")
                for like in (False, True)
            ]
    return ExperimentReport(
        {"goal": GOAL, "panels": summary}, rows, Figure(drawn, "Training through failure: mean of all seeds")
    )


# What is measured: a mode's outcome in one trial in, a number out; None: there is none.


def _final_accuracy(outcome: TrialRecord) -> float:
    return float(outcome["accuracy"][-1])


def _final_loss(outcome: TrialRecord) -> float:
    return float(outcome["loss"][-1])


def _seconds_to_goal(outcome: TrialRecord) -> float:
    """Seconds until the accuracy is ``GOAL``, interpolated; the whole run for one that never is."""
    before = None
    for place, accuracy in enumerate(outcome["accuracy"]):
        if accuracy is not None and accuracy >= GOAL:
            share = 1.0 if before is None else (GOAL - before) / (accuracy - before)
            return EVERY * (place - 1 + share) if place else 0.0
        before = accuracy
    return SECONDS


def _average_accuracy(outcome: TrialRecord) -> float:
    """Accuracy over time, 0 while no server answers: what somebody who asks the model gets."""
    return sum(accuracy or 0.0 for accuracy in outcome["accuracy"]) / len(outcome["accuracy"])


def _accuracy_drop(number: int, outcome: TrialRecord) -> float | None:
    failures = outcome["failures"]
    return failures[number]["before"] - failures[number]["after"] if number < len(failures) else None


def _mean_perturbation(outcome: TrialRecord) -> float | None:
    """||delta|| of the failures, averaged."""
    norms = [failure["delta"] for failure in outcome["failures"]]
    return sum(norms) / len(norms) if norms else None


MEASURES: Mapping[
    str, tuple[Callable[[TrialRecord], float | None], bool]
] = {  # and whether more of it is better
    "accuracy at the end": (_final_accuracy, True),
    "loss at the end": (_final_loss, False),
    "seconds to 70 %": (_seconds_to_goal, False),
    "accuracy over time": (_average_accuracy, True),
    "drop at kill 1": (partial(_accuracy_drop, 0), False),
    "drop at kill 2": (partial(_accuracy_drop, 1), False),
    "perturbation": (_mean_perturbation, False),
    "gradients": (lambda outcome: float(outcome["gradients"]), True),
    "CPU busy": (lambda outcome: float(outcome["busy"]), True),
    "memory, MB": (lambda outcome: outcome["memory"] / MEGABYTE, False),
    "written, MB": (lambda outcome: outcome["written"] / MEGABYTE, False),
}


def _estimate_measures(outcomes: Sequence[TrialRecord]) -> dict[str, Estimate | None]:
    numbers: dict[str, Estimate | None] = {}
    for name, (measure, _) in MEASURES.items():
        found = [value for value in map(measure, outcomes) if value is not None]
        numbers[name] = mean_estimate(found) if found else None
    return numbers


def _best_modes(measured: Mapping[str, Mapping[str, Estimate | None]]) -> dict[str, list[str]]:
    """Of each measure the best mean, and every mode whose interval reaches it."""
    winners = {}
    for name, (_, more) in MEASURES.items():
        found = {mode: one for mode, numbers in measured.items() if (one := numbers[name]) is not None}
        best = (max if more else min)((one.value for one in found.values()), default=0.0)
        winners[name] = [mode for mode, one in found.items() if one.low <= best <= one.high]
    return winners


def _estimate_documents(measured: Mapping[str, Mapping[str, Estimate | None]]) -> dict[str, Any]:
    return {
        mode: {name: one.document for name, one in numbers.items() if one is not None}
        for mode, numbers in measured.items()
    }


def _cell_text(number: Estimate | None, wins: bool) -> str:
    return "" if number is None else f"{number}{' *' if wins else ''}"


def _curve_panel(name: str, what: str, synchronous: bool, records: Sequence[TrialRecord]) -> Panel:
    lines = [
        _mean_curve(mode.name, what, records_of_panel(records, name))
        for mode in PLANS[name].modes
        if mode.synchronous is synchronous
    ]
    if undisturbed := records_of_panel(records, UNDISTURBED_PANEL):
        like = next(mode for mode in UNDISTURBED if mode.synchronous is synchronous)
        lines.append(replace(_mean_curve(like.name, what, undisturbed), label="no failure", style="dashed"))
    family = "synchronous" if synchronous else "asynchronous"
    return Panel(f"{name}, {family}", "seconds (virtual)", what, lines)


def _mean_curve(mode: str, what: str, found: Sequence[TrialRecord]) -> Series:
    """Means over the seeds where a server answers in at least half of them."""
    curves = zip(*(one["modes"][mode][what] for one in found), strict=True)
    points = [(EVERY * place, [v for v in values if v is not None]) for place, values in enumerate(curves)]
    shown = [(at, sum(values) / len(values)) for at, values in points if len(values) * 2 >= len(found)]
    return Series(mode, [at for at, _ in shown], [value for _, value in shown])
