"""Learning rates that change by clock, as a user declares them with a rule; shards follow them. Pure.

rule = scar.sgd(lr=0.1, schedule=schedules.cosine(300))
warmed = schedules.sequence([schedules.linear(0.01, 1, 20), schedules.cosine(280)], milestones=[20])
rule = scar.adamw(lr=1e-3, schedule=warmed)

The rate of a clock is ``lr`` times the schedule's factor for it. The clock's number is all that decides, so a
shard that comes back, or a job that is resumed, needs to know nothing else. Clocks count as iterations of
torch's schedulers do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scar.errors import ConfigError, use_one_of

MAX_PHASES = 4096


@dataclass(frozen=True)
class Phase:
    """Factors from clock ``start`` on, until the next phase starts; clocks in it are counted from there."""

    start: int
    kind: str
    parameters: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.kind not in _FACTORS:
            raise ConfigError(f"schedule {self.kind!r} is unknown", use_one_of(self.kind, _FACTORS))
        names = _PARAMETERS[self.kind]
        if set(self.parameters) != set(names):
            raise ConfigError(f"schedule {self.kind} has the numbers {', '.join(names)}")
        for name, value in self.parameters.items():
            low, high = _BOUNDS[name]
            if not low <= value <= high:  # nor NaN
                raise ConfigError(
                    f"schedule {self.kind}: {name} is {value:g}", f"Choose from {low:g} to {high:g}"
                )

    def factor(self, clock: int) -> float:
        """Of the learning rate in this clock, at or after ``start``."""
        return _FACTORS[self.kind](self.parameters, clock - self.start)


@dataclass(frozen=True)
class RateSchedule:
    """Phases one after the other, the first from clock 0. Raises :class:`ConfigError` where they are not."""

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        if len(self.phases) > MAX_PHASES:
            raise ConfigError(f"a schedule has more than {MAX_PHASES} phases")
        starts = [phase.start for phase in self.phases]
        if starts[:1] != [0] or starts != sorted(set(starts)):
            raise ConfigError("phases of a schedule start at clock 0 and one after the other", "")

    def factor(self, clock: int) -> float:
        """Of the learning rate in this clock."""
        return next(phase for phase in reversed(self.phases) if phase.start <= clock).factor(clock)

    def describe(self) -> str:
        """In a line, for people."""
        return ", ".join(
            f"{phase.kind}({', '.join(f'{value:g}' for value in phase.parameters.values())})"
            + (f" from {phase.start}" if phase.start else "")
            for phase in self.phases
        )


def constant(factor: float = 1.0) -> RateSchedule:
    """Always ``lr * factor``."""
    return _single("constant", factor=factor)


def linear(start_factor: float = 1 / 3, end_factor: float = 1.0, clocks: int = 5) -> RateSchedule:
    """Warm-up: from ``start_factor`` evenly to ``end_factor`` within so many clocks, then that."""
    return _single("linear", start_factor=start_factor, end_factor=end_factor, clocks=clocks)


def step(clocks: int, gamma: float = 0.1) -> RateSchedule:
    """Times ``gamma`` every so many clocks."""
    return _single("step", clocks=clocks, gamma=gamma)


def multi_step(milestones: Sequence[int], gamma: float = 0.1) -> RateSchedule:
    """Times ``gamma`` at each of these clocks; one that is there twice counts twice."""
    reached = {0: 1.0} | {one: gamma ** sum(other <= one for other in milestones) for one in milestones}
    return RateSchedule(
        tuple(Phase(start, "constant", {"factor": reached[start]}) for start in sorted(reached))
    )


def exponential(gamma: float) -> RateSchedule:
    """Times ``gamma`` in every clock."""
    return _single("exponential", gamma=gamma)


def cosine(clocks: int, end_factor: float = 0.0) -> RateSchedule:
    """From 1 along half a cosine to ``end_factor`` at clock ``clocks``; afterwards up again, as torch's."""
    return _single("cosine", clocks=clocks, end_factor=end_factor)


def sequence(schedules: Sequence[RateSchedule], milestones: Sequence[int]) -> RateSchedule:
    """One after the other, the next from each milestone on, where its own clocks begin at 0.

    Raises :class:`ConfigError` unless there is one milestone between every two, each above the one before.
    """
    if len(milestones) != len(schedules) - 1 or sorted({0, *milestones}) != [0, *milestones]:
        raise ConfigError(
            f"{len(schedules)} schedules in sequence have the milestones {list(milestones)}",
            "Give a clock between every two, in ascending order",
        )
    ends = [*milestones, math.inf]
    return RateSchedule(
        tuple(
            Phase(start + phase.start, phase.kind, phase.parameters)
            for one, start, end in zip(schedules, [0, *milestones], ends, strict=True)
            for phase in one.phases
            if start + phase.start < end
        )
    )


def _single(kind: str, **parameters: float) -> RateSchedule:
    return RateSchedule((Phase(0, kind, {name: float(value) for name, value in parameters.items()}),))


# --- the factors, by clocks since the start of the phase
# ------------------------------------------------------------------------------------------------------------


def _constant(parameters: Mapping[str, float], _: int) -> float:
    return parameters["factor"]


def _linear(parameters: Mapping[str, float], clock: int) -> float:
    done = min(clock / parameters["clocks"], 1.0)
    return parameters["start_factor"] + (parameters["end_factor"] - parameters["start_factor"]) * done


def _step(parameters: Mapping[str, float], clock: int) -> float:
    return math.pow(parameters["gamma"], clock // parameters["clocks"])


def _exponential(parameters: Mapping[str, float], clock: int) -> float:
    return math.pow(parameters["gamma"], clock)


def _cosine(parameters: Mapping[str, float], clock: int) -> float:
    end = parameters["end_factor"]
    return end + (1 - end) * (1 + math.cos(math.pi * clock / parameters["clocks"])) / 2


_FACTORS = {
    "constant": _constant,
    "linear": _linear,
    "step": _step,
    "exponential": _exponential,
    "cosine": _cosine,
}
_PARAMETERS = {
    "constant": ("factor",),
    "linear": ("start_factor", "end_factor", "clocks"),
    "step": ("clocks", "gamma"),
    "exponential": ("gamma",),
    "cosine": ("clocks", "end_factor"),
}
# a rate only grows within what is declared here, so that no clock makes it infinite
_BOUNDS = {
    "factor": (0.0, 1e6),
    "start_factor": (0.0, 1e6),
    "end_factor": (0.0, 1e6),
    "clocks": (1.0, 1e15),
    "gamma": (0.0, 1.0),
}
