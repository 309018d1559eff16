"""`scar train --set lr=0.01`: settings of a job that are otherwise than its file says."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import fields, replace

from scar.checkpoints import Checkpoint
from scar.errors import ConfigError
from scar.tables import Job, Table

WHOLE = ("workers", "staleness")
NEXT = "Set lr=0.01, table.NAME.lr=0.01, checkpoint.period=16, consistency=asp, staleness=2 or workers=4"


def apply_settings(job: Job, settings: Sequence[str]) -> Job:
    """``settings``: each ``name=value``, in order. Raises :class:`ConfigError`."""
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not value:
            raise ConfigError(f"--set {setting!r} is no name=value", NEXT)
        job = _apply(job, name, value)
    return job


def _apply(job: Job, name: str, value: str) -> Job:
    if name in WHOLE:
        return replace(job, **{name: int(_number(name, value))})  # type: ignore[arg-type]
    if name == "consistency":
        return replace(job, consistency=value)
    if name.startswith("checkpoint."):
        return replace(job, checkpoint=_set_checkpoint(job.checkpoint, name, value))
    return _set_rule(job, name, _number(name, value))


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise ConfigError(f"--set {name}={value}: {value!r} is no number", NEXT) from error


def _set_checkpoint(policy: Checkpoint, name: str, value: str) -> Checkpoint:
    field = name.removeprefix("checkpoint.")
    known = [one.name for one in fields(policy) if one.name != "budget"]
    if field not in known:
        raise ConfigError(f"--set {name}: a checkpoint has no {field!r}", f"It has {', '.join(known)}")
    if field == "selection":
        return replace(policy, selection=value)
    number = _number(name, value)
    return replace(policy, **{field: number if field == "fraction" else int(number)})  # type: ignore[arg-type]


def _set_rule(job: Job, name: str, number: float) -> Job:
    """``lr`` is of all tables whose rules have it, ``table.NAME.lr`` of one."""
    table = ""
    parameter = name
    if name.startswith("table."):
        table, _, parameter = name.removeprefix("table.").rpartition(".")
        job.table(table)
    wanted = [one for one in job.tables if table in ("", one.name) and parameter in one.rule.parameters]
    if not wanted:
        known = sorted({one for each in job.tables for one in each.rule.parameters})
        raise ConfigError(
            f"--set {name}: no update rule{f' of table {table}' if table else ''} has {parameter!r}",
            f"Rules of this job have {', '.join(known) or 'no numbers'}",
        )
    return replace(job, tables=[_with_number(one, parameter, number, wanted) for one in job.tables])


def _with_number(table: Table, parameter: str, number: float, wanted: Sequence[Table]) -> Table:
    if table not in wanted:
        return table
    other = copy(table)
    other.rule = replace(table.rule, parameters={**table.rule.parameters, parameter: number})
    return other
