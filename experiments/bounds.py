"""Costs next to the bound of Theorem 3.2: what figures 3, 5 and 6 share.

A record is one trial with one perturbation, or several: their discounted sum ``size``, the measured ``cost``,
the ``bound``, and whether the theorem's assumption held on the perturbed run (``holds``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scar_compare.experiment import ExperimentReport
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import mean_estimate

SLACK = 1e-6  # rounding errors in a measured ratio of distances
WHOLE = 1.0  # a measured cost is a whole number of iterations, the bound is not


def count_crossed(records: Sequence[TrialRecord]) -> int:
    """Trials whose cost is above the bound."""
    return sum(one["cost"] > one["bound"] + WHOLE for one in records)


def panel_summary(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """Numbers of one panel."""
    costs = [float(one["cost"]) for one in records]
    share = [one["cost"] / one["bound"] for one in records if one["bound"] > 0]
    return {
        "trials": len(records),
        "cost": mean_estimate(costs).document,
        "negative": sum(cost < 0 for cost in costs),
        "assumption_held": sum(bool(one["holds"]) for one in records),
        "bound_crossed": count_crossed(records),
        "bound_crossed_where_it_held": count_crossed([one for one in records if one["holds"]]),
        "largest_share_of_bound": max(share, default=0.0),
    }


def bounds_report(
    records: Sequence[TrialRecord], titles: Mapping[str, str], x: str, heading: str
) -> ExperimentReport:
    """Table, figure and summary of the panels that have records; ``x``: what sizes are."""
    found = {name: records_of_panel(records, name) for name in titles}
    found = {name: some for name, some in found.items() if some}
    figure = Figure([bound_panel(some, titles[name], x) for name, some in found.items()], heading)
    return ExperimentReport(
        {"panels": {name: panel_summary(some) for name, some in found.items()}},
        table_rows(records, list(found)),
        figure,
    )


def table_rows(records: Sequence[TrialRecord], panels: Sequence[str]) -> list[list[str]]:
    """A table of all panels."""
    found = [
        [
            "panel",
            "trials",
            "mean cost",
            "below 0",
            "assumption held",
            "bound crossed",
            "crossed where it held",
        ]
    ]
    for panel in panels:
        here = records_of_panel(records, panel)
        numbers = panel_summary(here)
        cells = [len(here), mean_estimate([float(one["cost"]) for one in here])]
        cells += [
            numbers[key]
            for key in ("negative", "assumption_held", "bound_crossed", "bound_crossed_where_it_held")
        ]
        found.append([panel, *(str(cell) for cell in cells)])
    return found


def bound_panel(records: Sequence[TrialRecord], title: str, x: str) -> Panel:
    """Costs as points, the bound as a line."""
    inside = sorted(records, key=lambda one: float(one["size"]))
    sizes = [float(one["size"]) for one in inside]
    points = Series("measured", sizes, [float(one["cost"]) for one in inside], style="points")
    line = Series("Theorem 3.2", sizes, [float(one["bound"]) for one in inside])
    return Panel(title, x, "iteration cost", [points, line], scale="log")


def always_contracts(distances: Sequence[float], rate: float) -> bool:
    """Whether every step came closer by the factor ``rate`` at least: assumption (5) along this run."""
    trace = np.asarray(distances)
    return bool((trace[1:] <= trace[:-1] * rate * (1 + SLACK)).all())
