"""Runs of many cases under the same faults, as records, and the numbers of their outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from experiments.simulate.scenario import Scenario, SimulatedStrategy
from experiments.simulate.simulated_run import RunOutcome, simulate_run
from scar_compare.experiment import ExperimentOptions, TrialBatch
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import Estimate, mean_estimate
from scar_compare.trial_plans import recorded_as

RUNS = 30
QUICK_RUNS = 5

OutcomesByCase = Mapping[str, Sequence[RunOutcome]]


@recorded_as("Case")
@dataclass(frozen=True)
class SimulatedCase:
    """One line of a table: its name, and what is simulated."""

    name: str
    scenario: Scenario
    strategy: SimulatedStrategy


def simulation_batch(panel: str, cases: Sequence[SimulatedCase], options: ExperimentOptions) -> TrialBatch:
    """Each run simulates every case."""
    runs = options.trials or (QUICK_RUNS if options.quick else RUNS)
    return TrialBatch(panel, tuple(range(runs)), partial(_simulate_cases, tuple(cases), options.seed))


@recorded_as("_work")
def _simulate_cases(
    cases: tuple[SimulatedCase, ...], seed: int, trials: tuple[int, ...]
) -> Iterator[TrialRecord]:
    for trial in trials:
        outcomes = {
            case.name: asdict(simulate_run(case.scenario, case.strategy, seed, trial)) for case in cases
        }
        yield {"trial": trial, "outcomes": outcomes}


def wanted_panels(options: ExperimentOptions, known: Sequence[str]) -> Sequence[str]:
    """Those of the ``known`` panels that are wanted: all, if none is named."""
    return [panel for panel in known if panel in options.panels or not options.panels]


def recorded_panels(
    options: ExperimentOptions, known: Sequence[str], records: Sequence[TrialRecord]
) -> Sequence[str]:
    """Those of them that there is something to report of."""
    return [panel for panel in wanted_panels(options, known) if records_of_panel(records, panel)]


def case_outcomes(records: Sequence[TrialRecord], panel: str) -> dict[str, list[RunOutcome]]:
    """Of each case, in the order of the runs."""
    found = records_of_panel(records, panel)
    return {
        name: [RunOutcome(**record["outcomes"][name]) for record in found] for name in found[0]["outcomes"]
    }


def mean_seconds(found: Sequence[RunOutcome]) -> Estimate:
    return mean_estimate([one.seconds for one in found])


def seconds_spread(found: Sequence[RunOutcome]) -> float:
    """Standard deviation of the seconds."""
    return float(np.std([one.seconds for one in found]))


def outcome_numbers(found: Sequence[RunOutcome]) -> dict[str, Any]:
    """For the JSON file: means with their intervals."""
    counts = ("worker_faults", "server_faults", "link_faults", "redone", "rework", "missing")
    return {
        "runs": len(found),
        "seconds": mean_seconds(found).document,
        "standard_deviation": seconds_spread(found),
        **{name: mean_estimate([getattr(one, name) for one in found]).document for name in counts},
        "given_up": sum(not one.finished for one in found),
    }
