"""A deterministic training that is perturbed once: how many iterations later its loss is what it was without.

The theorem speaks of ||y(k) - x*|| < epsilon. MLR is not strongly convex: some directions never come back
(dead pixels; the same added to all classes), and cost nothing. So the criterion is the loss of the
undisturbed run after ITERATIONS; distances say whether assumption (5) held along a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from experiments.bounds import always_contracts
from experiments.convergence import losses_until, passage_time
from experiments.panels import load_workload
from experiments.simulation import ModelState, copy_state, initial_state, perturbation_norm
from experiments.workloads import TrainingRun
from scar import theory
from scar.tables import Job
from scar_compare.records import TrialRecord
from scar_compare.trial_plans import recorded_as

ITERATIONS = 100
FAILURE = 50
SOLVED = 10  # times ITERATIONS
PATIENCE = 10  # times ITERATIONS
SIZES = (-2.0, 0.0)  # powers of ten: from a hundredth to all of the distance that is left

FloatVector = NDArray[np.float64]


@recorded_as("Setting")
@dataclass(frozen=True)
class PerturbationSetting:
    """``thin`` as for :func:`experiments.panels.workload`."""

    panel: str
    thin: int
    seed: int


@dataclass(frozen=True, eq=False)
class UndisturbedPath:
    """The undisturbed run.

    ``trace``: distances from x*; ``epsilon``: its loss after ITERATIONS; ``state``: what is perturbed;
    ``solution``: x*.
    """

    job: Job
    trace: FloatVector
    epsilon: float
    state: ModelState
    solution: FloatVector

    @property
    def contraction_rate(self) -> float:
        return theory.step_rate(self.trace.tolist())


PerturbFunction = Callable[[UndisturbedPath, np.random.Generator], ModelState]


def flatten_state(state: ModelState) -> FloatVector:
    """All values of a model as one vector."""
    return np.concatenate([store.values for store in state.values()]).astype(np.float64)


@lru_cache(maxsize=1)  # the trials of a process share it
def undisturbed_path(setting: PerturbationSetting) -> UndisturbedPath:
    """Train once, far beyond the figure."""
    model = load_workload(setting.panel, setting.thin)
    job = replace(model.job, seed=setting.seed)
    run = TrainingRun(initial_state(job))
    iterates = [flatten_state(run.state)]
    state = run.state
    epsilon = 0.0
    for k in range(1, SOLVED * ITERATIONS + 1):
        loss = model.advance_runs([run])[0]
        iterates.append(flatten_state(run.state))
        epsilon = loss if k == ITERATIONS else epsilon
        if k == FAILURE:
            state = copy_state(run.state)
    solution = iterates[-1]
    trace = np.array([np.linalg.norm(x - solution) for x in iterates])
    return UndisturbedPath(job, trace, epsilon, state, solution)


@recorded_as("carry_out")
def run_perturbed(
    setting: PerturbationSetting, perturb: PerturbFunction, trials: tuple[int, ...]
) -> Iterator[TrialRecord]:
    """One record a trial; all of them are trained together. ``perturb`` makes the perturbed state."""
    undisturbed = undisturbed_path(setting)
    states = [perturb(undisturbed, np.random.default_rng([setting.seed, number])) for number in trials]
    norms = [perturbation_norm(undisturbed.state, state) for state in states]
    runs = [TrainingRun(state, FAILURE) for state in states]
    yield from _trial_records(setting, undisturbed, trials, runs, norms)


def _trial_records(
    setting: PerturbationSetting,
    undisturbed: UndisturbedPath,
    trials: tuple[int, ...],
    runs: list[TrainingRun],
    norms: list[float],
) -> Iterator[TrialRecord]:
    model = load_workload(setting.panel, setting.thin)
    start = float(undisturbed.trace[0])
    rate = undisturbed.contraction_rate
    distances = [[_solution_distance(run, undisturbed)] for run in runs]

    def observe(number: int) -> None:
        distances[number].append(_solution_distance(runs[number], undisturbed))

    losses = losses_until(model, runs, undisturbed.epsilon, PATIENCE * ITERATIONS, observe)
    for place, number in enumerate(trials):
        yield {
            "trial": number,
            "size": norms[place] / start,
            "cost": FAILURE + passage_time(losses[place], undisturbed.epsilon) - ITERATIONS,
            "bound": theory.iteration_cost(rate, {FAILURE: norms[place]}, start),
            "holds": always_contracts(distances[place], rate),
        }


def _solution_distance(run: TrainingRun, undisturbed: UndisturbedPath) -> float:
    return float(np.linalg.norm(flatten_state(run.state) - undisturbed.solution))


def state_with_values(state: ModelState, values: FloatVector) -> ModelState:
    """A copy with other values, given as one vector."""
    copy = copy_state(state)
    first = 0
    for store in copy.values():
        store.values[:] = values[first : first + len(store.values)]
        first += len(store.values)
    return copy
