"""What a shard does with pushed values, as a user declares it; :mod:`scar_ps.core.update_rules` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from scar.errors import ConfigError, use_one_of


@dataclass(frozen=True)
class Rule:
    """What a shard does with pushed values; ``slots`` are extra arrays of the table's shape that live and
    die with a block.
    """

    kind: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    SLOTS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "assign": (),
        "add": (),
        "sgd": (),
        "momentum": ("velocity",),
        "adagrad": ("squares",),
        "adam": ("first", "second"),
    }
    NEEDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "assign": (),
        "add": (),
        "sgd": ("lr",),
        "momentum": ("lr", "momentum"),
        "adagrad": ("lr", "eps"),
        "adam": ("lr", "beta1", "beta2", "eps"),
    }

    def __post_init__(self) -> None:
        if self.kind not in self.SLOTS:
            raise ConfigError(f"rule {self.kind!r} is unknown", use_one_of(self.kind, self.SLOTS))
        missing = [name for name in self.NEEDS[self.kind] if name not in self.parameters]
        if missing:
            raise ConfigError(
                f"rule {self.kind} lacks {', '.join(missing)}", f"Make it by scar.{self.kind}(...)"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        return self.SLOTS[self.kind]


def assign() -> Rule:
    """x <- pushed. With several workers the last in rank order wins."""
    return Rule("assign")


def add() -> Rule:
    """x <- x + pushed."""
    return Rule("add")


def sgd(lr: float) -> Rule:
    """x <- x - lr * g, where g is the sum of what the workers pushed for the clock."""
    return Rule("sgd", {"lr": lr})


def momentum(lr: float, momentum: float = 0.9) -> Rule:
    """v <- momentum * v + g; x <- x - lr * v."""
    return Rule("momentum", {"lr": lr, "momentum": momentum})


def adagrad(lr: float, eps: float = 1e-8) -> Rule:
    """s <- s + g^2; x <- x - lr * g / (sqrt(s) + eps)."""
    return Rule("adagrad", {"lr": lr, "eps": eps})


def adam(lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Rule:
    """Adam with bias correction by a step count per block."""
    return Rule("adam", {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps})
