"""A deterministic training that is perturbed once: how many iterations later it is as close to the solution as without.

The criterion is the theorem's own: ||y(k) - x*|| < epsilon, with epsilon the distance of the undisturbed run after ITERATIONS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from experiments.bounds import contracts
from experiments.panels import workload
from experiments.records import Record
from experiments.simulation import State, duplicate, initial, perturbation
from experiments.workloads import Run
from scar import theory
from scar.tables import Job

ITERATIONS, FAILURE = 100, 50
SOLVED = 10  # times ITERATIONS
PATIENCE = 10  # times ITERATIONS
SIZES = (-2.0, 0.5)  # powers of ten

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """``thin`` as for :func:`experiments.panels.workload`."""

    panel: str
    thin: int
    seed: int


@dataclass(frozen=True, eq=False)
class Path:
    """The undisturbed run: ``trace`` of distances from x* for k = 0 .. ITERATIONS, the state to perturb, and x*."""

    job: Job
    trace: Vector
    state: State
    solution: Vector

    @property
    def rate(self) -> float:
        return theory.enclosing_rate(self.trace.tolist())


Strike = Callable[[Path, np.random.Generator], State]


def flat(state: State) -> Vector:
    """All values of a model as one vector."""
    return np.concatenate([store.values for store in state.values()]).astype(np.float64)


@lru_cache(maxsize=1)  # the trials of a process share it
def path(setting: Setting) -> Path:
    """Train once, far beyond the figure."""
    model = workload(setting.panel, setting.thin)
    job = replace(model.job, seed=setting.seed)
    run = Run(initial(job))
    iterates, state = [flat(run.state)], run.state
    for k in range(1, SOLVED * ITERATIONS + 1):
        model.advance([run])
        if k <= ITERATIONS:
            iterates.append(flat(run.state))
        if k == FAILURE:
            state = duplicate(run.state)
    solution = flat(run.state)
    trace = np.linalg.norm(np.array(iterates) - solution, axis=1)
    return Path(job, trace, state, solution)


def carry_out(setting: Setting, strike: Strike, trials: tuple[int, ...]) -> Iterator[Record]:
    """One record a trial; all of them are trained together. ``strike`` makes the perturbed state."""
    undisturbed = path(setting)
    states = [strike(undisturbed, np.random.default_rng([setting.seed, number])) for number in trials]
    norms = [perturbation(undisturbed.state, state) for state in states]
    runs = [Run(state, FAILURE) for state in states]
    yield from _records(setting, undisturbed, trials, runs, norms)


def _records(
    setting: Setting, undisturbed: Path, trials: tuple[int, ...], runs: list[Run], norms: list[float]
) -> Iterator[Record]:
    traces = _traces(setting, undisturbed, runs)
    start, rate = float(undisturbed.trace[0]), undisturbed.rate
    for number, norm, trace in zip(trials, norms, traces, strict=True):
        yield {
            "trial": number,
            "size": norm / start,
            "cost": FAILURE + len(trace) - 1 - ITERATIONS,
            "bound": theory.iteration_cost(rate, {FAILURE: norm}, start),
            "holds": contracts(trace, rate),
        }


def _traces(setting: Setting, undisturbed: Path, runs: list[Run]) -> list[list[float]]:
    """Distances of each run from its perturbation until it is as close as the undisturbed one was at the end."""
    model, epsilon = workload(setting.panel, setting.thin), float(undisturbed.trace[-1])
    traces = [[float(np.linalg.norm(flat(run.state) - undisturbed.solution))] for run in runs]
    for _ in range(PATIENCE * ITERATIONS):
        active = [index for index, trace in enumerate(traces) if trace[-1] > epsilon]
        if not active:
            break
        model.advance([runs[index] for index in active])
        for index in active:
            traces[index].append(float(np.linalg.norm(flat(runs[index].state) - undisturbed.solution)))
    return traces


def moved(state: State, values: Vector) -> State:
    """A copy with other values, given as one vector."""
    copy, first = duplicate(state), 0
    for store in copy.values():
        store.values[:] = values[first : first + len(store.values)]
        first += len(store.values)
    return copy
