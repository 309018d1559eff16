"""Runs of many cases under the same faults, as records, and the numbers of their outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from experiments.records import Record, of_panel
from experiments.runner import Batch, Options
from experiments.simulate.run import Outcome, simulate
from experiments.simulate.scenario import Scenario, Strategy
from experiments.statistics import Estimate, mean

RUNS, QUICK_RUNS = 30, 5


@dataclass(frozen=True)
class Case:
    """One line of a table: its name, and what is simulated."""

    name: str
    scenario: Scenario
    strategy: Strategy


def batch(panel: str, cases: Sequence[Case], options: Options) -> Batch:
    """Each run simulates every case."""
    runs = options.trials or (QUICK_RUNS if options.quick else RUNS)
    return Batch(panel, tuple(range(runs)), partial(_work, tuple(cases), options.seed))


def _work(cases: tuple[Case, ...], seed: int, trials: tuple[int, ...]) -> Iterator[Record]:
    for trial in trials:
        outcomes = {case.name: asdict(simulate(case.scenario, case.strategy, seed, trial)) for case in cases}
        yield {"trial": trial, "outcomes": outcomes}


def chosen(options: Options, known: Sequence[str]) -> Sequence[str]:
    """Those of the ``known`` panels that are wanted: all, if none is named."""
    return [panel for panel in known if panel in options.panels or not options.panels]


def recorded(options: Options, known: Sequence[str], records: Sequence[Record]) -> Sequence[str]:
    """Those of them that there is something to report of."""
    return [panel for panel in chosen(options, known) if of_panel(records, panel)]


def outcomes(records: Sequence[Record], panel: str) -> dict[str, list[Outcome]]:
    """Of each case, in the order of the runs."""
    found = of_panel(records, panel)
    return {name: [Outcome(**record["outcomes"][name]) for record in found] for name in found[0]["outcomes"]}


def seconds(found: Sequence[Outcome]) -> Estimate:
    return mean([one.seconds for one in found])


def spread(found: Sequence[Outcome]) -> float:
    """Standard deviation of the seconds."""
    return float(np.std([one.seconds for one in found]))


def numbers(found: Sequence[Outcome]) -> dict[str, Any]:
    """For the JSON file: means with their intervals."""
    counts = ("worker_faults", "server_faults", "link_faults", "redone", "rework", "missing")
    return {
        "runs": len(found),
        "seconds": seconds(found).document,
        "standard_deviation": spread(found),
        **{name: mean([getattr(one, name) for one in found]).document for name in counts},
        "given_up": sum(not one.finished for one in found),
    }
