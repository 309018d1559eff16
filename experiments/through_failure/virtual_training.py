"""One training on a virtual clock: four workers, one server that is killed at given times, one mode.

Time goes in ticks. A worker needs as many ticks for a gradient as there are workers, so a tick is a gradient
as long as all work; what copies and checkpoints cost is not in it (0.2 MB: see `scar compare` for real
processes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import scar
from experiments.simulation import BlockLoss, ModelState, copy_state, initial_state, perturbation_norm
from experiments.through_failure.recovery_modes import (
    QUEUE,
    RecoveryMode,
    apply_backlog,
    apply_gradients,
    install_state,
)
from scar import paper_datasets
from scar.models import cnn
from scar_compare.records import TrialRecord
from scar_compare.trial_plans import recorded_as

SECONDS = 240.0  # of a run
# seconds: 500 gradients in a run, half of the paper's 1,000, and so is every other count of gradients
TICK = 0.48
WORKERS = 4
BATCH = 32
RATE = 0.01
# seconds; each seed moves both by up to SHIFT, so that checkpoints are of any age
KILLS = (30.0, 80.0)
SHIFT = 12.0
RETURN = 20.0  # seconds until a killed server is back, as in the paper's plots
TAKEOVER = 3.0  # seconds until somebody who has the blocks serves them
EVERY = 10 * TICK  # seconds between evaluations
SEEN = 500  # images, never trained on, that the model is judged by
SHARDS_OF_A_LAYER = 8

TICKS = round(SECONDS / TICK)


@recorded_as("Plan")
@dataclass(frozen=True)
class FailurePlan:
    """``kills``: how many. ``lost``: share of the blocks on the server that dies; others take them over."""

    modes: tuple[RecoveryMode, ...]
    kills: int
    lost: float = 1.0


def training_job(seed: int) -> scar.Job:
    """Initial values from this seed."""
    tables = [
        scar.Table(
            name,
            shape,
            rule=scar.sgd(lr=RATE),
            init=scar.normal(0.0, cnn.deviation(name)),
            blocks=scar.layer_shards(SHARDS_OF_A_LAYER),
        )
        for name, shape in cnn.SHAPES.items()
    ]
    return scar.Job("through-failure", tables, seed=seed)


@lru_cache(maxsize=1)
def _training_data() -> paper_datasets.Labelled:
    """FashionMNIST, normalised as in the paper: pixels from -1 to 1."""
    whole = paper_datasets.labelled("fashion-mnist")
    return paper_datasets.Labelled(2 * whole.x - 1, whole.y)


@recorded_as("carry_out")
def run_trials(plan: FailurePlan, seed: int, trials: Sequence[int]) -> Iterator[TrialRecord]:
    """A record a trial: every mode with the same initial values, batches and kills."""
    for trial in trials:
        kills = kill_ticks(plan, seed, trial)
        outcomes = {mode.name: _VirtualTraining(plan, mode, seed, trial, kills).run() for mode in plan.modes}
        yield {"trial": trial, "kills": [tick * TICK for tick in kills], "modes": outcomes}


def kill_ticks(plan: FailurePlan, seed: int, trial: int) -> list[int]:
    shift = _random_numbers(seed, trial, 1).uniform(-SHIFT, SHIFT)
    return [round((at + shift) / TICK) for at in KILLS[: plan.kills]]


def _random_numbers(seed: int, trial: int, purpose: int, number: int = 0) -> np.random.Generator:
    """Numbers of one purpose, the same in all modes."""
    return np.random.Generator(
        np.random.Philox(key=np.array([seed, trial], np.uint64), counter=[0, 0, number, purpose])
    )


class _VirtualTraining:
    def __init__(
        self, plan: FailurePlan, mode: RecoveryMode, seed: int, trial: int, kills: list[int]
    ) -> None:
        self._plan = plan
        self._mode = mode
        self._kills = kills
        self._seed = seed
        self._trial = trial
        self._job = training_job(int(_random_numbers(seed, trial, 0).integers(1 << 40)))
        self._state = initial_state(self._job)
        self._backup = mode.backup(self._job, self._state)
        self._down = RETURN if plan.lost == 1.0 and not mode.takeover else TAKEOVER
        self._back = -1  # tick at which the server is there again
        self._started = 0  # tick since which the workers work
        self._slots: list[dict[str, np.ndarray] | None] = [None] * WORKERS
        self._waiting: list[dict[str, np.ndarray]] = []
        self._applied = 0  # gradients
        self._computed = 0  # gradients
        self._busy = 0  # ticks
        self._dropped = 0  # gradients
        self._before: ModelState = {}  # the state that the last kill found
        self._queued = 0  # gradients that wait, summed over ticks
        self._failures: list[dict[str, float]] = []
        self._curve: list[tuple[float, float] | None] = []

    def run(self) -> TrialRecord:
        for tick in range(TICKS + 1):
            if tick in self._kills:
                self._kill_server(tick)
            if tick == self._back:
                self._bring_back(tick)
            if tick % round(EVERY / TICK) == 0:
                self._curve.append(
                    None if self._server_is_away(tick) and self._mode.waits else self._evaluate_model()
                )
            if tick < TICKS:
                self._work_tick(tick)
        return self._make_record()

    def _server_is_away(self, tick: int) -> bool:
        return tick < self._back

    def _kill_server(self, tick: int) -> None:
        self._back = tick + round(self._down / TICK)
        loss, accuracy = self._evaluate_model()
        lost = BlockLoss(self._plan.lost).draw_lost(
            self._job, _random_numbers(self._seed, self._trial, 2, tick)
        )
        self._before = copy_state(self._state)
        install_state(self._state, self._backup.restored_state(lost))
        self._failures.append(
            {"at": tick * TICK, "before": accuracy, "loss_before": loss, "seconds": self._down}
        )

    def _bring_back(self, tick: int) -> None:
        failure = self._failures[-1]
        if self._waiting:
            apply_backlog(self._state, self._waiting)
            self._applied += len(self._waiting)
            failure["backlog"] = len(self._waiting)
            self._waiting = []
        if self._mode.keeps:
            self._started += round(self._down / TICK)
        elif self._mode.waits:
            # what was under way was computed from what is gone
            self._started = tick
            self._slots = [None] * WORKERS
        failure["loss_after"], failure["after"] = self._evaluate_model()
        failure["delta"] = perturbation_norm(self._before, self._state)

    def _work_tick(self, tick: int) -> None:
        away = self._server_is_away(tick)
        self._queued += len(self._waiting)
        if away and self._mode.waits:
            return
        self._busy += 1
        if self._mode.synchronous:
            self._synchronous_step(tick)
        else:
            self._asynchronous_step((tick - self._started) % WORKERS, away)

    def _synchronous_step(self, tick: int) -> None:
        """All workers start from one state; their sum is one step."""
        if tick == self._started or (tick - self._started) % WORKERS:
            return
        found = [self._next_gradient() for _ in range(WORKERS)]
        apply_gradients(
            self._state, {name: np.sum([one[name] for one in found], axis=0) for name in found[0]}
        )
        for _ in range(WORKERS):
            self._count_update()

    def _asynchronous_step(self, worker: int, away: bool) -> None:
        """This worker's gradient is ready; it pulls and begins the next one."""
        ready = self._slots[worker]
        if ready is not None and away:
            self._waiting.append(ready)
            self._dropped += len(self._waiting) > QUEUE
            self._waiting = self._waiting[-QUEUE:]
        elif ready is not None:
            apply_gradients(self._state, ready)
            self._count_update()
        self._slots[worker] = self._next_gradient()

    def _count_update(self) -> None:
        self._applied += 1
        self._backup.after_updates(self._applied)

    def _next_gradient(self) -> dict[str, np.ndarray]:
        data = _training_data()
        picked = _random_numbers(self._seed, self._trial, 3, self._computed).integers(
            0, len(data.y) - SEEN, BATCH
        )
        self._computed += 1
        return cnn.loss_and_gradients(self._parameter_arrays(), data.x[picked], data.y[picked])[1]

    def _parameter_arrays(self) -> dict[str, np.ndarray]:
        return {name: store.values.reshape(store.table.shape) for name, store in self._state.items()}

    def _evaluate_model(self) -> tuple[float, float]:
        """Loss and accuracy."""
        data = _training_data()
        return cnn.evaluate(self._parameter_arrays(), data.x[-SEEN:], data.y[-SEEN:])

    def _make_record(self) -> TrialRecord:
        model = self._backup.model_bytes
        return {
            "loss": [None if one is None else one[0] for one in self._curve],
            "accuracy": [None if one is None else one[1] for one in self._curve],
            "failures": self._failures,
            "gradients": self._computed,
            "applied": self._applied,
            "dropped": self._dropped,
            "busy": self._busy / TICKS,
            "memory": (self._backup.copies + self._queued / TICKS) * model,
            "written": self._backup.written,
        }
