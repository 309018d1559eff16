"""Which rule of the shards an optimizer of torch is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.optim import lr_scheduler

from scar.errors import ConfigError
from scar.torch.scheduler_phases import translate_scheduler
from scar.update_rules import Rule, adagrad, adam, adamw, momentum, rmsprop, sgd

Options = Mapping[str, Any]  # of one parameter group, as torch keeps them

# what shards do not do; what says only how torch computes (foreach, fused, ...) does not matter
_UNSUPPORTED = (
    "amsgrad",
    "centered",
    "dampening",
    "initial_accumulator_value",
    "lr_decay",
    "maximize",
)


def _sgd(group: Options) -> Rule:
    lr = float(group["lr"])
    decay = float(group["weight_decay"])
    if not group["momentum"]:
        return sgd(lr, decay)
    return momentum(lr, float(group["momentum"]), bool(group["nesterov"]), decay)


def _adagrad(group: Options) -> Rule:
    return adagrad(float(group["lr"]), float(group["eps"]), float(group["weight_decay"]))


def _adam(group: Options, decoupled: bool = False) -> Rule:
    make = adamw if decoupled or group.get("decoupled_weight_decay") else adam
    beta1, beta2 = map(float, group["betas"])
    return make(float(group["lr"]), beta1, beta2, float(group["eps"]), float(group["weight_decay"]))


def _adamw(group: Options) -> Rule:
    return _adam(group, decoupled=True)


def _rmsprop(group: Options) -> Rule:
    lr, alpha, eps = (float(group[name]) for name in ("lr", "alpha", "eps"))
    return rmsprop(lr, alpha, eps, float(group["momentum"]), float(group["weight_decay"]))


_RULES: dict[type, Callable[[Options], Rule]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adagrad: _adagrad,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adamw,
    torch.optim.RMSprop: _rmsprop,
}


def rules_by_parameter(
    optimizer: torch.optim.Optimizer, scheduler: lr_scheduler.LRScheduler | None = None
) -> dict[int, Rule]:
    """The rule of every parameter in the optimizer's groups, by its ``id``.

    Raises :class:`ConfigError` for an optimizer, an option of one or a scheduler that shards do not have.
    """
    make = _RULES.get(type(optimizer))
    if make is None:
        known = ", ".join(sorted(kind.__name__ for kind in _RULES))
        raise ConfigError(
            f"shards have no rule for {type(optimizer).__name__}", f"Use one of {known}, or a scar.Rule"
        )
    found: dict[int, Rule] = {}
    for group in optimizer.param_groups:
        if used := [name for name in _UNSUPPORTED if group.get(name)]:
            raise ConfigError(
                f"shards do not have {', '.join(used)} of {type(optimizer).__name__}",
                "Leave it at its default",
            )
        rule = make(group) if scheduler is None else _schedule_rule(make, group, scheduler)
        found |= {id(parameter): rule for parameter in group["params"]}
    return found


def _schedule_rule(
    make: Callable[[Options], Rule], group: Options, scheduler: lr_scheduler.LRScheduler
) -> Rule:
    base = float(group["initial_lr"])  # a scheduler that was made has changed lr
    return replace(make({**group, "lr": base}), schedule=translate_scheduler(scheduler, base))
