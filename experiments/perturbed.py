"""A deterministic training that is perturbed once: how many iterations later its loss is what it was without.

The theorem speaks of ||y(k) - x*|| < epsilon. MLR is not strongly convex: some directions never come back (dead pixels; the
same added to all classes), and cost nothing. So the criterion is the loss of the undisturbed run after ITERATIONS; distances
say whether assumption (5) held along a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from experiments.bounds import contracts
from experiments.failures import passage
from experiments.panels import workload
from experiments.records import Record
from experiments.simulation import State, duplicate, initial, perturbation
from experiments.workloads import Run
from scar import theory
from scar.tables import Job

ITERATIONS, FAILURE = 100, 50
SOLVED = 10  # times ITERATIONS
PATIENCE = 10  # times ITERATIONS
SIZES = (-2.0, 0.0)  # powers of ten: from a hundredth to all of the distance that is left

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """``thin`` as for :func:`experiments.panels.workload`."""

    panel: str
    thin: int
    seed: int


@dataclass(frozen=True, eq=False)
class Path:
    """The undisturbed run: ``trace`` of distances from x*, loss after ITERATIONS, the state to perturb, x*."""

    job: Job
    trace: Vector
    epsilon: float
    state: State
    solution: Vector

    @property
    def rate(self) -> float:
        return theory.step_rate(self.trace.tolist())


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
    epsilon = 0.0
    for k in range(1, SOLVED * ITERATIONS + 1):
        loss = model.advance([run])[0]
        iterates.append(flat(run.state))
        epsilon = loss if k == ITERATIONS else epsilon
        if k == FAILURE:
            state = duplicate(run.state)
    solution = iterates[-1]
    trace = np.array([np.linalg.norm(x - solution) for x in iterates])
    return Path(job, trace, epsilon, state, solution)


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
    start, rate = float(undisturbed.trace[0]), undisturbed.rate
    ways = _followed(setting, undisturbed, runs)
    for number, norm, way in zip(trials, norms, ways, strict=True):
        yield {
            "trial": number,
            "size": norm / start,
            "cost": FAILURE + passage(way.losses, undisturbed.epsilon) - ITERATIONS,
            "bound": theory.iteration_cost(rate, {FAILURE: norm}, start),
            "holds": contracts(way.distances, rate),
        }


@dataclass(eq=False)
class _Way:
    """What was seen of a run since its perturbation."""

    losses: list[float]
    distances: list[float]


def _followed(setting: Setting, undisturbed: Path, runs: list[Run]) -> list[_Way]:
    """Train until each run has the loss that the undisturbed one had at the end."""
    model = workload(setting.panel, setting.thin)
    ways = [_Way([], [_distance(run, undisturbed)]) for run in runs]
    active = list(zip(runs, ways, strict=True))
    for _ in range(PATIENCE * ITERATIONS):
        if not active:
            break
        for (run, way), loss in zip(active, model.advance([run for run, _ in active]), strict=True):
            way.losses.append(loss)
            way.distances.append(_distance(run, undisturbed))
        active = [(run, way) for run, way in active if way.losses[-1] > undisturbed.epsilon]
    return ways


def _distance(run: Run, undisturbed: Path) -> float:
    return float(np.linalg.norm(flat(run.state) - undisturbed.solution))


def moved(state: State, values: Vector) -> State:
    """A copy with other values, given as one vector."""
    copy, first = duplicate(state), 0
    for store in copy.values():
        store.values[:] = values[first : first + len(store.values)]
        first += len(store.values)
    return copy
