"""What a shard does with pushed values, as a user declares it; :mod:`scar_ps.core.update_rules` does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from scar.errors import ConfigError, use_one_of
from scar.rule_expressions import VALUE, RuleProgram
from scar.schedules import RateSchedule


@dataclass(frozen=True)
class Rule:
    """What a shard does with pushed values; ``slots`` are extra arrays of the table's shape that live and
    die with a block; those in ``row_slots`` have one element for each row instead. ``schedule``: of the
    learning rate; None: it stays. ``program``: of kind "expression".
    """

    kind: str
    parameters: Mapping[str, float] = field(default_factory=dict)
    schedule: RateSchedule | None = None
    program: RuleProgram | None = None

    SLOTS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "assign": (),
        "add": (),
        "sgd": (),
        "momentum": ("velocity",),
        "adagrad": ("squares",),
        "adam": ("first", "second"),
        "adamw": ("first", "second"),
        "rmsprop": ("squares",),
        "ftrl": ("squares", "linear"),
        "expression": (),
    }
    NEEDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "assign": (),
        "add": (),
        "sgd": ("lr",),
        "momentum": ("lr", "momentum"),
        "adagrad": ("lr", "eps"),
        "adam": ("lr", "beta1", "beta2", "eps"),
        "adamw": ("lr", "beta1", "beta2", "eps", "weight_decay"),
        "rmsprop": ("lr", "alpha", "eps"),
        "ftrl": ("lr", "beta", "l1", "l2"),
        "expression": (),
    }
    # left out where they are 0, so that a job without them is described as it always was
    OPTIONAL: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "sgd": ("weight_decay",),
        "momentum": ("nesterov", "weight_decay"),
        "adagrad": ("weight_decay", "rowwise"),
        "adam": ("weight_decay",),
        "rmsprop": ("momentum", "weight_decay"),
    }
    OPTIONAL_SLOTS: ClassVar[Mapping[str, Mapping[str, str]]] = {"rmsprop": {"momentum": "velocity"}}

    def __post_init__(self) -> None:
        if self.kind not in self.SLOTS:
            raise ConfigError(f"rule {self.kind!r} is unknown", use_one_of(self.kind, self.SLOTS))
        missing = [name for name in self.NEEDS[self.kind] if name not in self.parameters]
        if missing:
            raise ConfigError(
                f"rule {self.kind} lacks {', '.join(missing)}", f"Make it by scar.{self.kind}(...)"
            )
        if (self.kind == "expression") != (self.program is not None):
            raise ConfigError(f"rule {self.kind} lacks expressions, or has some", "Make it by scar.rule(...)")
        known = tuple(self.parameters)
        if self.program is not None:
            self.program.check_names(self.parameters)
        else:
            known = (*self.NEEDS[self.kind], *self.OPTIONAL.get(self.kind, ()))
        if unknown := sorted(set(self.parameters) - set(known)):
            raise ConfigError(
                f"rule {self.kind} has no parameter {', '.join(unknown)}",
                f"It has {', '.join(known) or 'none'}",
            )
        if self.schedule is not None and "lr" not in known:
            raise ConfigError(f"rule {self.kind} has no learning rate for a schedule")

    def at_clock(self, clock: int, factor: float = 1.0) -> Rule:
        """The rule with the learning rate of this clock, if it has one, times ``factor``."""
        if self.schedule is not None:
            factor *= self.schedule.factor(clock)
        if factor == 1 or "lr" not in self.parameters:
            return self
        return replace(
            self, parameters={**self.parameters, "lr": self.parameters["lr"] * factor}, schedule=None
        )

    @property
    def counts_steps(self) -> bool:
        """Whether it needs to know how many steps a block has taken, so that rows of it take none alone."""
        return self.kind in ("adam", "adamw") or (self.program is not None and self.program.counts_steps)

    @property
    def slots(self) -> tuple[str, ...]:
        if self.program is not None:
            return self.program.slots
        optional = self.OPTIONAL_SLOTS.get(self.kind, {})
        return (*self.SLOTS[self.kind], *(optional[name] for name in optional if name in self.parameters))

    @property
    def row_slots(self) -> tuple[str, ...]:
        return self.slots if self.kind == "adagrad" and self.parameters.get("rowwise") else ()


def _rule(kind: str, needed: Mapping[str, float], schedule: RateSchedule | None, **optional: float) -> Rule:
    return Rule(kind, {**needed, **{name: value for name, value in optional.items() if value}}, schedule)


def assign() -> Rule:
    """x <- pushed. With several workers the last in rank order wins."""
    return Rule("assign")


def add() -> Rule:
    """x <- x + pushed."""
    return Rule("add")


def sgd(lr: float, weight_decay: float = 0.0, schedule: RateSchedule | None = None) -> Rule:
    """x <- x - lr * g, where g is the sum of what the workers pushed for the clock.

    ``weight_decay``, here and below: weight_decay * x is added to g first (L2, as torch has it).
    ``schedule``: lr by clock, of :mod:`scar.schedules`.
    """
    return _rule("sgd", {"lr": lr}, schedule, weight_decay=weight_decay)


def momentum(
    lr: float,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    schedule: RateSchedule | None = None,
) -> Rule:
    """v <- momentum * v + g; x <- x - lr * v; with ``nesterov``: x <- x - lr * (g + momentum * v)."""
    needed = {"lr": lr, "momentum": momentum}
    return _rule("momentum", needed, schedule, nesterov=float(nesterov), weight_decay=weight_decay)


def adagrad(
    lr: float,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    schedule: RateSchedule | None = None,
    rowwise: bool = False,
) -> Rule:
    """s <- s + g^2; x <- x - lr * g / (sqrt(s) + eps).

    ``rowwise``: one s for each row, s <- s + mean of the row's g^2 (as TorchRec and FBGEMM have it).
    """
    needed = {"lr": lr, "eps": eps}
    return _rule("adagrad", needed, schedule, weight_decay=weight_decay, rowwise=float(rowwise))


def adam(
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    schedule: RateSchedule | None = None,
) -> Rule:
    """Adam with bias correction by a step count per block."""
    needed = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    return _rule("adam", needed, schedule, weight_decay=weight_decay)


def adamw(
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    schedule: RateSchedule | None = None,
) -> Rule:
    """x <- (1 - lr * weight_decay) * x, then a step of Adam: decay that its moments do not scale."""
    needed = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    return Rule("adamw", needed, schedule)


def rmsprop(
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    schedule: RateSchedule | None = None,
) -> Rule:
    """s <- alpha * s + (1 - alpha) * g^2; v <- momentum * v + g / (sqrt(s) + eps); x <- x - lr * v."""
    needed = {"lr": lr, "alpha": alpha, "eps": eps}
    return _rule("rmsprop", needed, schedule, momentum=momentum, weight_decay=weight_decay)


def ftrl(
    lr: float, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0, schedule: RateSchedule | None = None
) -> Rule:
    """FTRL-Proximal with a rate for each element (McMahan et al., 2013, algorithm 1; ``lr`` is their alpha):

    s <- s + g^2; z <- z + g - (sqrt(s) - sqrt(s before)) / lr * x;
    x <- 0 where |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(s)) / lr + l2).
    """
    return Rule("ftrl", {"lr": lr, "beta": beta, "l1": l1, "l2": l2}, schedule)


def rule(
    expressions: str | Mapping[str, str],
    *,
    slots: Collection[str] = (),
    project: str | None = None,
    schedule: RateSchedule | None = None,
    **parameters: float,
) -> Rule:
    """A rule of one's own: what becomes of each element, as text that shards check and evaluate.

    ``expressions``: of ``w``, or of several names, computed one after the other. They read ``w`` (value),
    ``g`` (sum of what was pushed for the clock), ``step`` (steps of the block, from 1), ``slots`` (arrays
    that begin at 0 and live with the block), ``parameters``, and names that earlier expressions gave.
    ``project``: of the new ``w``, last. ``schedule``: of the parameter ``lr``.

    There are + - * / **, one comparison (1 or 0), abs, sqrt, exp, log, sign, minimum, maximum, clip(x, low,
    high), where(condition, x, y), and norm(x), the Euclidean norm of the row.
    Raises :class:`ConfigError` for anything else, and where a rule is too long or too deep.
    """
    parts = {VALUE: expressions} if isinstance(expressions, str) else expressions
    assignments = (*parts.items(), *([(VALUE, project)] if project is not None else []))
    return Rule("expression", parameters, schedule, RuleProgram(assignments, tuple(slots)))
