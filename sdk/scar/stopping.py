"""When training ends before its limit: the loss is low enough, there is no progress, or it is no number.

Under BSP every worker hears the same loss and metrics of a clock. Each counts evaluations without progress;
one whose patience is over asks for the end in its report of the open clock, and all end when they hear that.
So a worker that came later, and knows less, ends at the same clock as the others.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from scar.errors import ConfigError, CorruptCheckpoint, Diverged, use_one_of
from scar.losses import EARLY_STOPPING, EVALUATIONS, LossPoint
from scar.snapshots import Snapshot

_log = logging.getLogger(__name__)

ON_NAN = ("ignore", "stop", "restore")
MODES = ("min", "max")


class EarlyStopping:
    """End when ``monitor`` has not become better by more than ``min_delta`` in ``patience`` evaluations.

    ``monitor``: "loss", or a metric of :meth:`Worker.log` or :meth:`Worker.evaluate`. ``mode``: "min" or
    "max" is better. ``keep_best``: .npz file for the model of the best evaluation, written by the worker that
    evaluates. Raises :class:`ConfigError`.
    """

    def __init__(
        self,
        monitor: str = "loss",
        *,
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "min",
        keep_best: str | Path | None = None,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode {mode!r} is unknown", use_one_of(mode, MODES))
        if patience < 1 or not min_delta >= 0:
            raise ConfigError(
                f"patience must be at least 1 and min_delta at least 0, not {patience}, {min_delta}"
            )
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.mode = mode
        self.keep_best = BestModel(Path(keep_best)) if keep_best is not None else None
        self.best = math.nan  # NaN: no evaluation yet
        self.best_clock = -1
        self.waited = 0  # evaluations since the best one
        self._seen = -1

    @property
    def is_over(self) -> bool:
        """No progress for too long."""
        return self.waited >= self.patience

    def is_better(self, value: float, than: float) -> bool:
        """NaN is worse than any number."""
        if math.isnan(than) or math.isnan(value):
            return not math.isnan(value)
        return value < than - self.min_delta if self.mode == "min" else value > than + self.min_delta

    def observe(self, point: LossPoint) -> None:
        """A closed clock; one that is heard again counts once. One that two workers have evaluated does not
        count: the metric is a sum of both.
        """
        metrics = dict(point.metrics)
        value = point.scaled if self.monitor == "loss" else metrics.get(self.monitor)
        if value is None or point.clock <= self._seen or metrics.get(EVALUATIONS, 1) > 1:
            return
        self._seen = point.clock
        if self.is_better(value, self.best):
            self.best = value
            self.best_clock = point.clock
            self.waited = 0
        else:
            self.waited += 1


class Divergence:
    """A loss above ``factor`` times the lowest so far, in ``clocks`` clocks one after the other that have a
    loss, is as bad as one that is no number: what ``on_nan`` says is done. For losses above 0. Raises
    :class:`ConfigError`.
    """

    def __init__(self, factor: float = 3.0, *, clocks: int = 10) -> None:
        if not factor > 1 or clocks < 1:
            raise ConfigError(
                f"factor must be above 1 and clocks at least 1, not {factor} and {clocks}",
                "Divergence(3.0, clocks=10): ten clocks above three times the lowest loss",
            )
        self.factor = factor
        self.clocks = clocks
        self.best = math.inf
        self._above: list[int] = []  # clocks of the present run of too high losses
        self._seen = -1

    def observe(self, point: LossPoint, restart: int = 0) -> int:
        """A closed clock with a finite loss; heard again it counts once. Clocks below ``restart`` are
        of a model that went back. Returns the first clock of a run that is long enough; -1: there is none.
        """
        if point.clock <= self._seen:
            return -1
        self._seen = point.clock
        self.best = min(self.best, point.scaled)
        run = [clock for clock in self._above if clock >= restart]
        self._above = [*run, point.clock] if point.scaled > self.factor * self.best > 0 else []
        if len(self._above) < self.clocks:
            return -1
        first = self._above[0]
        self._above = []
        return first


class StopRules:
    """Of one loop over clocks, which began with clock ``started``. ``on_nan``: what a loss that is no number
    does, or ``divergence``: "stop" raises :class:`Diverged`, "restore" asks for a rollback.
    """

    def __init__(
        self,
        until: float | None,
        stopping: EarlyStopping | None,
        on_nan: str,
        consistency: str,
        started: int = 0,
        divergence: Divergence | None = None,
    ) -> None:
        if on_nan not in ON_NAN:
            raise ConfigError(f"on_nan {on_nan!r} is unknown", use_one_of(on_nan, ON_NAN))
        if stopping is not None and consistency != "bsp":
            raise ConfigError(
                f"early stopping needs clocks that all workers close together, not {consistency}",
                "Use consistency='bsp', or until=",
            )
        if divergence is not None and on_nan == "ignore":
            raise ConfigError("a divergence without on_nan does nothing", "Set on_nan='restore' or 'stop'")
        self._until = until
        self._divergence = divergence
        self.stopping = stopping
        self._on_nan = on_nan
        self._started = started
        self._scaled = False  # it has been said that until compares a scaled loss

    @property
    def listens(self) -> bool:
        """Losses decide."""
        return self._until is not None or self.stopping is not None or self._on_nan != "ignore"

    @property
    def asks_to_stop(self) -> bool:
        """This worker's report of the open clock asks for the end."""
        return self.stopping is not None and self.stopping.is_over

    @property
    def restores(self) -> bool:
        """The job goes back, and on, where others end."""
        return self._on_nan == "restore"

    def find_divergence(self, point: LossPoint, restart: int) -> tuple[int, str]:
        """The clock before which all was well, and what is wrong, in words; (-1, ""): nothing. A loss of a
        clock below ``restart`` is of a model that went back. Raises :class:`Diverged` where the training is
        to end.
        """
        if point.clock < restart or self._on_nan == "ignore":
            return -1, ""
        found = self._judge_loss(point, restart)
        if found[1] and self._on_nan == "stop":
            raise Diverged(found[1])
        return found

    def _judge_loss(self, point: LossPoint, restart: int) -> tuple[int, str]:
        if not math.isfinite(point.loss):
            return point.clock, f"the loss of clock {point.clock} is {point.loss}"
        if self._divergence is None or (first := self._divergence.observe(point, restart)) < 0:
            return -1, ""
        limit = self._divergence.factor * self._divergence.best
        return first, f"the loss is above {limit:.4g} since clock {first}"

    def judge(self, point: LossPoint) -> bool:
        """Whether this clock was the last one."""
        self._warn_scaled(point)
        if self.stopping is not None:
            self.stopping.observe(point)
            if EARLY_STOPPING in dict(point.metrics):
                return True
        return self._until is not None and point.scaled <= self._until

    def keep_best(self, metrics: Mapping[str, float], evaluated: Snapshot) -> None:
        """Write the model that was evaluated, if it is the best one and that is wanted."""
        rule = self.stopping
        if rule is not None and rule.keep_best is not None and rule.monitor in metrics:
            rule.keep_best.offer(rule, metrics[rule.monitor], evaluated, self._started)

    def _warn_scaled(self, point: LossPoint) -> None:
        """Once, when ``until`` is compared with the loss of a fraction of the data."""
        if self._until is None or self._scaled or point.fraction >= 1:
            return
        self._scaled = True
        _log.warning(
            "clock %d: the loss is of %.1f %% of the data, as the share of the dead is dropped; until=%g"
            " is compared with loss / fraction",
            point.clock,
            100 * point.fraction,
            self._until,
        )


class BestModel:
    """The file of the best evaluation. One run writes it; a worker that comes later reads how good it is."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._value = math.nan
        self._known = False

    def offer(self, rule: EarlyStopping, value: float, snapshot: Snapshot, started: int) -> bool:
        """Write the model if it is better than what the run has kept. ``started``: clock at which this worker
        began; 0: with the run, so a file that is there is of another one.
        """
        if not self._known and started:
            self._value = self._read_value(snapshot)
        self._known = True
        if not rule.is_better(value, self._value):
            return False
        snapshot.save(self.file, {"scar.value": np.float64(value)})
        self._value = value
        return True

    def _read_value(self, snapshot: Snapshot) -> float:
        """NaN: there is none, or it is of another job or of a clock that this run has not reached."""
        if not self.file.exists():
            return math.nan
        try:
            with np.load(self.file, allow_pickle=False) as kept:
                ours = str(kept["scar.job"]) == snapshot.job and int(kept["scar.clock"]) < snapshot.clock
                return float(kept["scar.value"]) if ours else math.nan
        except (OSError, ValueError, KeyError) as error:
            raise CorruptCheckpoint(
                f"{self.file} is no file of keep_best: {error}", "Move it away"
            ) from error
