"""The plan of a panel, as text: everything that its records depend on. A record belongs to one plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

from scar_compare.experiment import ExperimentOptions, TrialBatch

RECORDED_NAME = "__recorded_name__"
Named = TypeVar("Named", bound=Callable[..., Any])


def recorded_as(name: str) -> Callable[[Named], Named]:
    """Fix the name of a class or function in plans, so that renaming it keeps old records readable."""

    def mark(named: Named) -> Named:
        setattr(named, RECORDED_NAME, name)
        return named

    return mark


def panel_plans(options: ExperimentOptions, batches: Sequence[TrialBatch]) -> dict[str, str]:
    """The plan of each panel. It does not count the trials, so a run can be extended later."""
    return {batch.panel: f"{options.seed} {describe_work(batch.work)}" for batch in reversed(batches)}


def describe_work(value: Any) -> str:
    """Like ``repr``, without fields at their default: a new option does not make old records unreadable."""
    if isinstance(value, partial):
        return f"{_recorded_name(value.func)}({', '.join(map(describe_work, value.args))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(describe_work, value))})"
    if is_dataclass(value) and not isinstance(value, type):
        shown = []
        for field in fields(value):
            given = getattr(value, field.name)
            if field.default is MISSING or given != field.default:
                name = field.metadata.get(RECORDED_NAME, field.name)
                shown.append(f"{name}={describe_work(given)}")
        return f"{_recorded_name(type(value))}({', '.join(shown)})"
    return _recorded_name(value) if callable(value) else repr(value)


def _recorded_name(named: Any) -> str:
    own = getattr(named, "__dict__", {}).get(RECORDED_NAME)  # not that of a base class
    return str(own or named.__qualname__)
