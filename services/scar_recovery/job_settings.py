"""What of a job may be otherwise when it is resumed: how it learns, saves, waits, not what it is made of."""

from __future__ import annotations

from scar.errors import JobExists
from scar.tables import Job
from scar.v1.types_pb2 import JobSpec, Rule
from scar.wire.codec import job_from_proto
from scar_recovery.codec import job_fields_from_proto
from scar_recovery.core.job_diff import describe_differences

CHANGEABLE = ("consistency", "staleness", "shards", "workers")


def resumed_spec(known: JobSpec, asked: JobSpec) -> tuple[JobSpec, str]:
    """The job ``known``, with the settings of ``asked``, and what differs, in words; empty: nothing does.

    Neither has the keys of given arrays. What a table was given at the start stands, whatever is declared
    now: it may have come from a file. Raises :class:`JobExists` for differences that cannot be.
    """
    asked = _with_given(known, asked)
    merged = JobSpec()
    merged.CopyFrom(known)
    for name in CHANGEABLE:
        setattr(merged, name, getattr(asked, name))
    merged.checkpoint.CopyFrom(asked.checkpoint)
    rules = {table.name: table.rule for table in asked.tables}
    for table in merged.tables:
        if table.name in rules and _keeps_state(table.rule, rules[table.name]):
            table.rule.CopyFrom(rules[table.name])
    if _slots(job_from_proto(merged)) != _slots(job_from_proto(known)):  # a number may decide on a slot
        for table, before in zip(merged.tables, known.tables, strict=True):
            table.rule.CopyFrom(before.rule)
    if merged != asked:
        difference = describe_differences(job_fields_from_proto(merged), job_fields_from_proto(asked))
        raise JobExists(
            f"job {known.name!r} exists with another description ({difference})",
            "At resume may change: numbers and schedules of update rules, checkpoint, consistency, staleness,"
            f" workers, shards. Resume it as it was declared, or start over: by --name, or after"
            f" `scar jobs rm {known.name}`",
        )
    return merged, describe_differences(job_fields_from_proto(known), job_fields_from_proto(merged))


def _with_given(known: JobSpec, asked: JobSpec) -> JobSpec:
    other = JobSpec()
    other.CopyFrom(asked)
    given = {table.name: table.init for table in known.tables if table.init.kind == "given"}
    for table in other.tables:
        if table.name in given:
            table.init.CopyFrom(given[table.name])
    return other


def _keeps_state(known: Rule, asked: Rule) -> bool:
    """They differ in numbers alone, so what is kept beside the values means the same."""
    return (known.kind, list(known.expressions), list(known.slots)) == (
        asked.kind,
        list(asked.expressions),
        list(asked.slots),
    )


def _slots(job: Job) -> list[tuple[object, ...]]:
    return [(table.rule.slots, table.rule.row_slots) for table in job.tables]
