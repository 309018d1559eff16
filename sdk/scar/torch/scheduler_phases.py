"""Which schedule of the shards a scheduler of torch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import lr_scheduler

from scar.errors import ConfigError
from scar.schedules import RateSchedule, constant, cosine, exponential, linear, multi_step, sequence, step


def _constant(scheduler: Any, _: float) -> RateSchedule:
    return sequence([constant(scheduler.factor), constant()], [scheduler.total_iters])


def _linear(scheduler: Any, _: float) -> RateSchedule:
    return linear(scheduler.start_factor, scheduler.end_factor, scheduler.total_iters)


def _step(scheduler: Any, _: float) -> RateSchedule:
    return step(scheduler.step_size, scheduler.gamma)


def _multi_step(scheduler: Any, _: float) -> RateSchedule:
    return multi_step(list(scheduler.milestones.elements()), scheduler.gamma)


def _exponential(scheduler: Any, _: float) -> RateSchedule:
    return exponential(scheduler.gamma)


def _cosine(scheduler: Any, base: float) -> RateSchedule:
    return cosine(scheduler.T_max, scheduler.eta_min / base)


def _sequence(scheduler: Any, base: float) -> RateSchedule:
    return sequence([_translate(one, base) for one in scheduler._schedulers], scheduler._milestones)


_SCHEDULES: dict[type, Callable[[Any, float], RateSchedule]] = {
    lr_scheduler.ConstantLR: _constant,
    lr_scheduler.LinearLR: _linear,
    lr_scheduler.StepLR: _step,
    lr_scheduler.MultiStepLR: _multi_step,
    lr_scheduler.ExponentialLR: _exponential,
    lr_scheduler.CosineAnnealingLR: _cosine,
    lr_scheduler.SequentialLR: _sequence,
}


def translate_scheduler(scheduler: lr_scheduler.LRScheduler, base: float) -> RateSchedule:
    """What it does to a group whose learning rate it starts from is ``base``, a clock being an iteration.

    Raises :class:`ConfigError` for one that shards do not have, or that has taken steps.
    """
    if scheduler.last_epoch != 0:
        raise ConfigError(
            f"this {type(scheduler).__name__} has taken {scheduler.last_epoch} steps",
            "Make a new one: a job counts its clocks from 0",
        )
    return _translate(scheduler, base)


def _translate(scheduler: lr_scheduler.LRScheduler, base: float) -> RateSchedule:
    make = _SCHEDULES.get(type(scheduler))
    if make is None:
        known = ", ".join(sorted(kind.__name__ for kind in _SCHEDULES))
        raise ConfigError(f"shards have no schedule for {type(scheduler).__name__}", f"Use one of {known}")
    return make(scheduler, base)
