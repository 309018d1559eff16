"""One training on a virtual clock: four workers, one server that is killed at given times, one mode.

Time goes in ticks. A worker needs as many ticks for a gradient as there are workers, so a tick is a gradient as long as all
work; what copies and checkpoints cost is not in it (0.2 MB: see `scar compare` for real processes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import scar
from experiments.records import Record
from experiments.simulation import Loss, State, duplicate, initial, perturbation
from experiments.through_failure.modes import QUEUE, Mode, apply, backlog, install
from scar import published
from scar.models import cnn

SECONDS = 240.0  # of a run
TICK = 0.48  # seconds: 500 gradients in a run, half of the paper's 1,000, and so is every other count of gradients
WORKERS = 4
BATCH, RATE = 32, 0.01
KILLS, SHIFT = (30.0, 80.0), 12.0  # seconds; each seed moves both by up to SHIFT, so that checkpoints are of any age
RETURN = 20.0  # seconds until a killed server is back, as in the paper's plots
TAKEOVER = 3.0  # seconds until somebody who has the blocks serves them
EVERY = 10 * TICK  # seconds between evaluations
SEEN = 500  # images, never trained on, that the model is judged by
SHARDS_OF_A_LAYER = 8

TICKS = round(SECONDS / TICK)


@dataclass(frozen=True)
class Plan:
    """``kills``: how many. ``lost``: share of the blocks on the server that dies; the others stay up and take them over."""

    modes: tuple[Mode, ...]
    kills: int
    lost: float = 1.0


def job(seed: int) -> scar.Job:
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
def _data() -> published.Labelled:
    """FashionMNIST, normalised as in the paper: pixels from -1 to 1."""
    whole = published.labelled("fashion-mnist")
    return published.Labelled(2 * whole.x - 1, whole.y)


def carry_out(plan: Plan, seed: int, trials: Sequence[int]) -> Iterator[Record]:
    """A record a trial: every mode with the same initial values, batches and kills."""
    for trial in trials:
        kills = kill_ticks(plan, seed, trial)
        outcomes = {mode.name: _Training(plan, mode, seed, trial, kills).run() for mode in plan.modes}
        yield {"trial": trial, "kills": [tick * TICK for tick in kills], "modes": outcomes}


def kill_ticks(plan: Plan, seed: int, trial: int) -> list[int]:
    shift = _random(seed, trial, 1).uniform(-SHIFT, SHIFT)
    return [round((at + shift) / TICK) for at in KILLS[: plan.kills]]


def _random(seed: int, trial: int, purpose: int, number: int = 0) -> np.random.Generator:
    """Numbers of one purpose, the same in all modes."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, trial], np.uint64), counter=[0, 0, number, purpose]))


class _Training:
    def __init__(self, plan: Plan, mode: Mode, seed: int, trial: int, kills: list[int]) -> None:
        self._plan, self._mode, self._kills = plan, mode, kills
        self._seed, self._trial = seed, trial
        self._job = job(int(_random(seed, trial, 0).integers(1 << 40)))
        self._state = initial(self._job)
        self._keeper = mode.keeper(self._job, self._state)
        self._down = RETURN if plan.lost == 1.0 and not mode.takeover else TAKEOVER
        self._back = -1  # tick at which the server is there again
        self._started = 0  # tick since which the workers work
        self._slots: list[dict[str, np.ndarray] | None] = [None] * WORKERS
        self._waiting: list[dict[str, np.ndarray]] = []
        self._applied = self._computed = self._busy = self._dropped = 0
        self._before: State = {}  # the state that the last kill found
        self._queued = 0  # gradients that wait, summed over ticks
        self._failures: list[dict[str, float]] = []
        self._curve: list[tuple[float, float] | None] = []

    def run(self) -> Record:
        for tick in range(TICKS + 1):
            if tick in self._kills:
                self._killed(tick)
            if tick == self._back:
                self._returned(tick)
            if tick % round(EVERY / TICK) == 0:
                self._curve.append(None if self._away(tick) and self._mode.waits else self._judged())
            if tick < TICKS:
                self._work(tick)
        return self._record()

    def _away(self, tick: int) -> bool:
        return tick < self._back

    # --- failures ----------------------------------------------------------------------------------------------------

    def _killed(self, tick: int) -> None:
        self._back = tick + round(self._down / TICK)
        loss, accuracy = self._judged()
        lost = Loss(self._plan.lost).draw(self._job, _random(self._seed, self._trial, 2, tick))
        self._before = duplicate(self._state)
        install(self._state, self._keeper.restored(lost))
        self._failures.append({"at": tick * TICK, "before": accuracy, "loss_before": loss, "seconds": self._down})

    def _returned(self, tick: int) -> None:
        failure = self._failures[-1]
        if self._waiting:
            backlog(self._state, self._waiting)
            self._applied += len(self._waiting)
            failure["backlog"] = len(self._waiting)
            self._waiting = []
        if self._mode.waits:
            self._started, self._slots = tick, [None] * WORKERS  # what was under way was computed from what is gone
        failure["loss_after"], failure["after"] = self._judged()
        failure["delta"] = perturbation(self._before, self._state)

    # --- work --------------------------------------------------------------------------------------------------------

    def _work(self, tick: int) -> None:
        away = self._away(tick)
        self._queued += len(self._waiting)
        if away and self._mode.waits:
            return
        self._busy += 1
        if self._mode.synchronous:
            self._together(tick)
        else:
            self._alone((tick - self._started) % WORKERS, away)

    def _together(self, tick: int) -> None:
        """All workers start from one state; their sum is one step."""
        if tick == self._started or (tick - self._started) % WORKERS:
            return
        found = [self._gradient() for _ in range(WORKERS)]
        apply(self._state, {name: np.sum([one[name] for one in found], axis=0) for name in found[0]})
        for _ in range(WORKERS):
            self._counted()

    def _alone(self, worker: int, away: bool) -> None:
        """This worker's gradient is ready; it pulls and begins the next one."""
        ready = self._slots[worker]
        if ready is not None and away:
            self._waiting.append(ready)
            self._dropped += len(self._waiting) > QUEUE
            self._waiting = self._waiting[-QUEUE:]
        elif ready is not None:
            apply(self._state, ready)
            self._counted()
        self._slots[worker] = self._gradient()

    def _counted(self) -> None:
        self._applied += 1
        self._keeper.updated(self._applied)

    def _gradient(self) -> dict[str, np.ndarray]:
        data = _data()
        picked = _random(self._seed, self._trial, 3, self._computed).integers(0, len(data.y) - SEEN, BATCH)
        self._computed += 1
        return cnn.loss_and_gradients(self._parameters(), data.x[picked], data.y[picked])[1]

    def _parameters(self) -> dict[str, np.ndarray]:
        return {name: store.values.reshape(store.table.shape) for name, store in self._state.items()}

    def _judged(self) -> tuple[float, float]:
        """Loss and accuracy."""
        data = _data()
        return cnn.evaluate(self._parameters(), data.x[-SEEN:], data.y[-SEEN:])

    # --- books -------------------------------------------------------------------------------------------------------

    def _record(self) -> Record:
        model = self._keeper.model_bytes
        return {
            "loss": [None if one is None else one[0] for one in self._curve],
            "accuracy": [None if one is None else one[1] for one in self._curve],
            "failures": self._failures,
            "gradients": self._computed,
            "applied": self._applied,
            "dropped": self._dropped,
            "busy": self._busy / TICKS,
            "memory": (self._keeper.copies + self._queued / TICKS) * model,
            "written": self._keeper.written,
        }
