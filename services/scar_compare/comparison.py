"""The comparison as an experiment: a record for each strategy and seed, a table with intervals, one plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scar_compare.cost_measures import MEASURES, estimate_costs
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.kill_schedule import DEFAULT_KILLS, KillAtClock, parse_kills
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import Estimate
from scar_compare.strategy_options import DEFAULT_STRATEGIES, UNDISTURBED, job_options
from scar_compare.trial_runner import StrategyTrial, run_trials
from scar_kube.where import Where

DEFAULT_SEEDS = 3
DEFAULT_GOAL = 0.6


@dataclass(frozen=True)
class StrategyComparison:
    """``strategies``: names; ``where``: a release, or None for processes of this machine."""

    strategies: tuple[str, ...] = DEFAULT_STRATEGIES
    kills: tuple[KillAtClock, ...] = parse_kills(DEFAULT_KILLS)
    goal: float = DEFAULT_GOAL
    where: Where | None = None

    NAME = "compare"

    def __post_init__(self) -> None:
        for name in self.strategies:
            job_options(name)

    @property
    def panels(self) -> tuple[str, ...]:
        """The undisturbed training, then the strategies."""
        return (UNDISTURBED, *self.strategies)

    def plan_batches(self, options: ExperimentOptions) -> list[TrialBatch]:
        """Seed by seed, so that a run that is stopped has compared as many of each."""
        found = []
        for seed in range(options.trials or DEFAULT_SEEDS):
            for name in self.panels:
                trial = StrategyTrial(name, self.kills, self.goal, self.where)
                found.append(TrialBatch(name, (seed,), partial(run_trials, trial, options.seed), alone=True))
        return found

    def make_report(self, options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
        """Costs of every strategy; trials without an undisturbed twin are left out."""
        twins = {int(one["trial"]): one for one in records_of_panel(records, UNDISTURBED)}
        rows = [["strategy", "seeds", *MEASURES]]
        summary: dict[str, Any] = {}
        for name in self.panels:
            found = [one for one in records_of_panel(records, name) if int(one["trial"]) in twins]
            if not found:
                continue
            costs = estimate_costs(found, twins, self.goal)
            rows.append([name, str(len(found)), *(_cell(one, len(found)) for one in costs.values())])
            documents = {measure: one.document for measure, one in costs.items() if one is not None}
            summary[name] = {"seeds": len(found), "options": _described_options(name), **documents}
        kills = [str(kill) for kill in self.kills]
        whole = {
            "command": self._command_line(options),
            "kills": kills,
            "goal": self.goal,
            "strategies": summary,
        }
        figure = Figure(_draw_panels(summary, records), f"Kills: {', '.join(kills)}")
        return ExperimentReport(whole, rows, figure)

    def _command_line(self, options: ExperimentOptions) -> str:
        words = ["scar", "compare", *self.strategies]
        for kill in self.kills:
            words += ["--kill", str(kill)]
        words += ["--seeds", str(options.trials or DEFAULT_SEEDS)]
        words += ["--seed", str(options.seed)]
        words += ["--goal", f"{self.goal:g}"]
        return " ".join(words)


def _described_options(name: str) -> dict[str, str]:
    if name == UNDISTURBED:
        return {}
    return {key: str(value) for key, value in job_options(name).items()}


def _cell(found: Estimate | None, seeds: int) -> str:
    """One seed has no interval."""
    if found is None:
        return ""
    return str(found) if seeds > 1 else f"{found.value:.2f} [-]"


def _draw_panels(summary: Mapping[str, Any], records: Sequence[TrialRecord]) -> list[Panel]:
    """Losses of the first seed, and every measure with its intervals."""
    lines = []
    for name in summary:
        first = records_of_panel(records, name)[0]
        lines.append(Series(name, first["seconds"], first["losses"]))
    panels = [Panel("first seed", "seconds", "loss", lines)]
    for measure in MEASURES:
        shown = {name: one[measure] for name, one in summary.items() if measure in one}
        if shown:
            panels.append(_measure_panel(measure, shown))
    return panels


def _measure_panel(measure: str, shown: Mapping[str, Mapping[str, float]]) -> Panel:
    """One mark with its interval for each strategy."""
    places = [float(place) for place in range(len(shown))]
    marks = Series(
        "",
        places,
        [one["value"] for one in shown.values()],
        [one["low"] for one in shown.values()],
        [one["high"] for one in shown.values()],
        style="marks",
    )
    return Panel(measure, "", "", [marks], list(zip(places, shown, strict=True)), zero=True)
