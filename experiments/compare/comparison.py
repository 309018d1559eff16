"""The comparison as an experiment: a record for each strategy and seed, one table with intervals, one plot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from experiments.compare.choices import SCHEDULE, UNDISTURBED, USUAL, Kill, options_of, schedule
from experiments.compare.measured import Plan, carry_out
from experiments.figures import Figure, Panel, Series
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.statistics import Estimate, mean
from scar_kube.where import Where

SEEDS, GOAL = 3, 0.6
NEAR = 5  # clocks after a kill in which the loss is looked at
MEGABYTE = 1e6


@dataclass(frozen=True)
class Comparison:
    """``strategies``: names; ``where``: a release, or None for processes of this machine."""

    strategies: tuple[str, ...] = USUAL
    kills: tuple[Kill, ...] = schedule(SCHEDULE)
    goal: float = GOAL
    where: Where | None = None

    NAME = "compare"

    def __post_init__(self) -> None:
        for name in self.strategies:
            options_of(name)

    @property
    def panels(self) -> tuple[str, ...]:
        return (UNDISTURBED, *self.strategies)

    def batches(self, options: Options) -> list[Batch]:
        """Seed by seed, so that a run that is stopped has compared as many of each."""
        seeds = range(options.trials or SEEDS)
        works = {name: partial(carry_out, Plan(name, self.kills, self.goal, self.where), options.seed) for name in self.panels}
        return [Batch(name, (seed,), work, alone=True) for seed in seeds for name, work in works.items()]

    def report(self, options: Options, records: Sequence[Record]) -> Report:
        baseline = {int(one["trial"]): one for one in of_panel(records, UNDISTURBED)}
        rows = [["strategy", "seeds", *MEASURES]]
        summary: dict[str, Any] = {}
        for name in self.panels:
            found = [one for one in of_panel(records, name) if int(one["trial"]) in baseline]
            if not found:
                continue
            numbers = _measured(found, baseline, self.goal)
            rows.append([name, str(len(found)), *("" if one is None else str(one) for one in numbers.values())])
            documents = {what: one.document for what, one in numbers.items() if one is not None}
            summary[name] = {"seeds": len(found), "options": _described(name), **documents}
        kills = [f"{kill.target}@{kill.clock}" for kill in self.kills]
        command = ["scar", "compare", *self.strategies, *(word for kill in kills for word in ("--kill", kill))]
        command += ["--seeds", str(options.trials or SEEDS), "--seed", str(options.seed), "--goal", f"{self.goal:g}"]
        whole = {"command": " ".join(command), "kills": kills, "goal": self.goal, "strategies": summary}
        return Report(whole, rows, Figure(_panels(summary, records), f"Kills: {', '.join(kills)}"))


def _described(name: str) -> dict[str, str]:
    return {} if name == UNDISTURBED else {key: str(value) for key, value in options_of(name).items()}


# --- what is measured: a record, its undisturbed twin and the goal in, a number out; None: there is none ---------------------


def _reached(record: Record, goal: float) -> int:
    """Position of the first clock whose loss is the goal, or of the last one."""
    return next((place for place, loss in enumerate(record["losses"]) if loss <= goal), len(record["losses"]) - 1)


def _iterations(record: Record, _twin: Record, goal: float) -> float:
    return float(record["clocks"][_reached(record, goal)] + 1)


def _rework(record: Record, twin: Record, goal: float) -> float:
    return _iterations(record, twin, goal) - _iterations(twin, twin, goal)


def _seconds(record: Record, _twin: Record, goal: float) -> float:
    return float(record["seconds"][_reached(record, goal)])


def _drop(record: Record, _twin: Record, _goal: float) -> float | None:
    """How much the loss rises at a kill, at worst."""
    by_clock = dict(zip(record["clocks"], record["losses"], strict=True))
    rises = []
    for kill in record["kills"]:
        before = [loss for clock, loss in by_clock.items() if clock < kill["clock"]]
        after = [loss for clock, loss in by_clock.items() if kill["clock"] <= clock <= kill["clock"] + NEAR]
        rises += [max(after) - before[-1]] if before and after else []
    return max(rises, default=None)


def _pause(record: Record, _twin: Record, _goal: float) -> float | None:
    """Seconds from a kill to the end of the next clock, at worst."""
    return max((kill["resumed"] - kill["at"] for kill in record["kills"]), default=None)


def _books(what: str, record: Record, _twin: Record, _goal: float) -> float | None:
    """The longest of the ledger's failures."""
    return max(record[what], default=None)


Measure = Callable[[Record, Record, float], float | None]
MEASURES: Mapping[str, Measure] = {
    "iterations": _iterations,
    "rework": _rework,
    "seconds": _seconds,
    "rise of the loss": _drop,
    "pause, s": _pause,
    "detect, s": partial(_books, "detect"),
    "recover, s": partial(_books, "recover"),
    "lost pushes": lambda record, _twin, _goal: float(record["lost_pushes"]),
    "written, MB": lambda record, _twin, _goal: record["written"] / MEGABYTE,
}


def _measured(found: Sequence[Record], baseline: Mapping[int, Record], goal: float) -> dict[str, Estimate | None]:
    numbers: dict[str, Estimate | None] = {}
    for what, measure in MEASURES.items():
        values = [measure(record, baseline[int(record["trial"])], goal) for record in found]
        known = [value for value in values if value is not None]
        numbers[what] = mean(known) if known else None
    return numbers


def _panels(summary: Mapping[str, Any], records: Sequence[Record]) -> list[Panel]:
    """Losses of the first seed, and every measure with its intervals."""
    lines = [Series(name, one[0]["seconds"], one[0]["losses"]) for name in summary if (one := of_panel(records, name))]
    drawn = [Panel("first seed", "seconds", "loss", lines)]
    for what in MEASURES:
        shown = {name: one[what] for name, one in summary.items() if what in one}
        if shown:
            places = [float(place) for place in range(len(shown))]
            values, low, high = ([one[key] for one in shown.values()] for key in ("value", "low", "high"))
            marks = Series("", places, values, low, high, style="marks")
            drawn.append(Panel(what, "", "", [marks], list(zip(places, shown, strict=True)), zero=True))
    return drawn
