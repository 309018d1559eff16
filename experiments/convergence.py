"""When a training has converged, and how many iterations that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.workloads import TrainingRun, Workload


@dataclass(frozen=True)
class ConvergenceCriterion:
    """``epsilon``: the loss that counts as converged; ``losses``: of the undisturbed run until it has."""

    epsilon: float
    losses: tuple[float, ...]

    @property
    def undisturbed(self) -> int:
        """Iterations of the undisturbed run."""
        return len(self.losses)

    def iterations_left(self, clock: int) -> float:
        """Iterations that the undisturbed run needs after ``clock`` of them."""
        return passage_time(self.losses[clock:], self.epsilon)


def passage_time(losses: Sequence[float], epsilon: float) -> float:
    """Iterations until the loss is ``epsilon``, in between two iterations by interpolation.

    In whole iterations the smallest perturbation would cost as much as one of a whole iteration. A run that
    was given up has used all its iterations. Iterations without a loss (not a number) are between those that
    have one.
    """
    known = [(at, loss) for at, loss in enumerate(losses, 1) if not math.isnan(loss)]
    passed = next((place for place, (_, loss) in enumerate(known) if loss <= epsilon), 0)
    if not passed:
        return float(len(losses))
    (before, above), (at, below) = known[passed - 1 : passed + 1]
    return at - (at - before) * (epsilon - below) / (above - below)


def losses_until(
    model: Workload,
    runs: Sequence[TrainingRun],
    epsilon: float,
    patience: float,
    observe: Callable[[int], None] = lambda _: None,
) -> list[list[float]]:
    """Train each run until its loss is at most ``epsilon``, for at most ``patience`` iterations; its losses.

    As many runs as suit the model are advanced together, in this order: which of them share an iteration can
    change the last bit. ``observe`` hears the number of a run after each of its iterations.
    """
    losses: list[list[float]] = [[] for _ in runs]
    active = list(range(len(runs)))
    while active:
        together = active[: model.together]
        for number, loss in zip(together, model.advance_runs([runs[one] for one in together]), strict=True):
            losses[number].append(loss)
            observe(number)
        active = [number for number in active if not _is_over(losses[number], epsilon, patience)]
    return losses


def _is_over(losses: Sequence[float], epsilon: float, patience: float) -> bool:
    return bool(losses) and (losses[-1] <= epsilon or len(losses) >= patience)


def iterations_until(model: Workload, run: TrainingRun, epsilon: float, patience: int) -> int:
    """Iterations until the loss is at most ``epsilon``; no more than ``patience``."""
    return len(losses_until(model, [run], epsilon, patience)[0])
