"""What hangs on the decisions that the paper leaves open: figure 8's r = 1 and 1/8 with one of them changed at a time.

Lost: 1/2. ``as chosen`` is figure 8 itself; docs/experiments.md says what each decision is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments import dealing, fig8, statistics
from experiments.figures import Figure, Panel, Series
from experiments.panels import chosen, split, title
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.statistics import Estimate

NAME = "sweep"
PANELS = ("mlr-mnist", "mf-movielens", "lda-reuters")
TRIALS, QUICK = 20, 2
LOST, FRACTIONS = 0.5, (1.0, 0.125)
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


def batches(options: Options) -> list[Batch]:
    trials = options.trials or (QUICK if options.quick else TRIALS)
    found = []
    for panel in chosen(options.panels, PANELS):
        for change, fields in CHANGES.items():
            if change == "unweighted" and split(panel)[0] != "mf":  # no other model has weights
                continue
            changed = replace(options, panels=(panel,), lost=(LOST,), fractions=FRACTIONS, trials=trials, **fields)
            found += [replace(batch, panel=_name(panel, change)) for batch in dealing.batches(changed, fig8.cases(changed))]
    return found


def _name(panel: str, change: str) -> str:
    return f"{panel}, {change}"


def report(options: Options, records: Sequence[Record]) -> Report:
    """For each panel and change: what full recovery costs, and how much less the others do."""
    rows = [["panel", "change", "trials", "full", *(f"{name} saves" for name in SHOWN)]]
    summary: dict[str, dict[str, Any]] = {}
    drawn = []
    for panel in chosen(options.panels, PANELS):
        found = {change: of_panel(records, _name(panel, change)) for change in CHANGES}
        found = {change: some for change, some in found.items() if some}
        if not found:
            continue
        saved = {change: _saved(some) for change, some in found.items()}
        full = {change: statistics.mean(_costs(some, fig8.FULL)) for change, some in found.items()}
        for change, some in found.items():
            rows.append([panel, change, str(len(some)), str(full[change]), *(one.percent for one in saved[change].values())])
        summary[panel] = {
            change: {
                "trials": len(some),
                "full": full[change].document,
                "reductions": {name: one.document for name, one in saved[change].items()},
            }
            for change, some in found.items()
        }
        drawn.append(_panel(panel, saved))
    return Report({"lost": LOST, "panels": summary}, rows, Figure(drawn, "One decision changed at a time; half is lost"))


def _costs(records: Sequence[Record], case: str) -> list[float]:
    return [float(record["costs"][case]) for record in records]


def _saved(records: Sequence[Record]) -> dict[str, Estimate]:
    full = _costs(records, fig8.FULL)
    return {
        name: statistics.reduction(_costs(records, fig8.case_name(selection, fraction, LOST)), full)
        for name, (selection, fraction) in SHOWN.items()
    }


def _panel(panel: str, saved: Mapping[str, Mapping[str, Estimate]]) -> Panel:
    series = []
    for place, name in enumerate(SHOWN):
        found = [100 * one[name].value for one in saved.values()]
        low, high = [100 * one[name].low for one in saved.values()], [100 * one[name].high for one in saved.values()]
        x = [index + 0.12 * (place - 1.5) for index in range(len(found))]
        series.append(Series(name, x, found, low, high, style="marks"))
    ticks = [(float(index), change) for index, change in enumerate(saved)]
    return Panel(title(panel), "", "saved against full recovery, %", series, ticks)
