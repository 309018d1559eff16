"""Figure 7 (C.1): full recovery against partial recovery, by the fraction of the blocks that is lost, on eight panels.

Both come from the same full checkpoints. Full recovery puts everything back, whatever was lost, so one case stands for all
fractions.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments import dealing, statistics
from experiments.failures import Case
from experiments.figures import Figure, Panel, Series
from experiments.panels import PANELS, chosen, title
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report

NAME = "fig7"
LOST = (0.25, 0.5, 0.75, 1.0)
FULL = "full"


def batches(options: Options) -> list[Batch]:
    return dealing.batches(options, _cases(options))


def _cases(options: Options) -> tuple[Case, ...]:
    saved = dealing.full_checkpoints(options.period)
    partial = tuple(Case(_name(lost), saved, "partial", lost) for lost in dealing.lost(options, LOST))
    return (Case(FULL, saved, "full", 1.0), *partial)


def _name(lost: float) -> str:
    return f"partial {lost:g}"


def report(options: Options, records: Sequence[Record]) -> Report:
    """For each panel and fraction: both costs, and by how much partial recovery is cheaper."""
    rows = [["panel", "trials", "lost", "partial", "full", "partial saves"]]
    summary, panels = {}, []
    for panel in chosen(options.panels, PANELS):
        found = of_panel(records, panel)
        if not found:
            continue
        full = [record["costs"][FULL] for record in found]
        costs = {lost: [record["costs"][_name(lost)] for record in found] for lost in dealing.lost(options, LOST)}
        summary[panel] = _summary(found, full, costs)
        for lost, values in costs.items():
            measured = str(statistics.mean(values)), str(statistics.mean(full)), statistics.reduction(values, full).percent
            rows.append([panel, str(len(found)), f"{lost:g}", *measured])
        panels.append(_panel(panel, full, costs))
    figure = Figure(panels, f"Partial against full recovery; a full checkpoint every {options.period} iterations")
    return Report({"panels": summary}, rows, figure)


def _summary(records: Sequence[Record], full: Sequence[float], costs: dict[float, list[float]]) -> dict[str, object]:
    return {
        "trials": len(records),
        "given_up": sum(bool(record["given_up"]) for record in records),
        "full": statistics.mean(full).document,
        "partial": {
            f"{lost:g}": {
                "cost": statistics.mean(values).document,
                "reduction": statistics.reduction(values, full).document,
            }
            for lost, values in costs.items()
        },
    }


def _panel(panel: str, full: Sequence[float], costs: dict[float, list[float]]) -> Panel:
    ends = [min(costs), max(costs)]
    level = statistics.mean(full)
    means = [statistics.mean(values) for values in costs.values()]
    partial = Series("partial", list(costs), [m.value for m in means], [m.low for m in means], [m.high for m in means])
    flat = Series("full", ends, [level.value] * 2, [level.low] * 2, [level.high] * 2, "dashed")
    return Panel(title(panel), "lost fraction", "rework iterations", [partial, flat], [(x, f"{x:g}") for x in costs], zero=True)
