"""`scar failures`: the ledger, one row a failure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape

from scar.v1.recovery_pb2 import FailureRecord, JobRevision
from scar_admin.iteration_costs import MeasuredCost, measured_costs
from scar_cli import output
from scar_cli.checkpoints import open_job
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import cluster_exists, find_cluster, read_status
from scar_cli.output import OutputFormat, format_count, format_seconds
from scar_runtime.failure_records import UNKNOWN_SECONDS
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.job_records import read_revisions

PHASES = (">SUSPECT", ">DETECT", ">WAIT", ">COMMIT", ">LOAD", ">DOWN", ">SETTLE", ">RETURN")
COLUMNS = (
    ">#",
    "WHEN",
    "WHO",
    ">BLOCKS",
    "FROM",
    *PHASES,
    ">||DELTA||",
    ">COST",
    ">TOUCHED",
    ">RESENT",
    "STATE",
)
LEGEND = (
    "COST: clocks until the loss was as low again as before, from when it first was; ~: expected;",
    "DETECT: last sign of life to report, - where a successor or a new leader found it dead; SUSPECT: of it,",
    "until it was suspected; WAIT: lease of a suspect; LOAD: from the new epoch until all blocks are served,",
    "SETTLE: until all workers have told what they lost, RETURN: until who died was back and served blocks;",
    (
        "||DELTA||: how far the model moved when lost blocks went back to their saved values; TOUCHED:"
        " acknowledged pushes"
    ),
    (
        "of which at least one block went back, while their other blocks are in the model; RESENT: to the new"
        " owner"
    ),
)
NAMED = 4  # silent shards


def show_failures(ref: ClusterRef, job: str, store: str, form: OutputFormat) -> None:
    """Of the cluster that runs; else, or with ``job`` or ``store``, as the store has it."""
    told = _read_records(ref, job, store)

    def text(screen: Console) -> None:
        for revision in told.revisions:
            screen.print(revision_text(revision), soft_wrap=True)
        if not told.failures:
            screen.print(f"no failure so far; make one by `scar kill ps-0{ref.options()}`", soft_wrap=True)
            return
        rows = (failure_row(one, told.costs[one.number]) for one in told.failures)
        screen.print(output.make_table(COLUMNS, rows))
        if told.silent:
            screen.print(f"[yellow]{silence_text(told.silent)}[/]", soft_wrap=True)
        for record in told.failures:
            for words in record.damage:
                screen.print(f"#{record.number} damaged, from an older copy: {escape(words)}", soft_wrap=True)
            if record.rollback:
                screen.print(rollback_text(record), soft_wrap=True)
        for line in LEGEND:
            screen.print(line, soft_wrap=True)

    measured = {str(number): cost.document for number, cost in told.costs.items()}
    found = {"failures": list(told.failures), "costs": measured, "revisions": list(told.revisions)}
    output.print_result(form, found | {"silent": told.silent}, text)


@dataclass(frozen=True)
class _ShownRecords:
    """``costs``: by number; ``silent``: shards that did not say which losses they know."""

    failures: Sequence[FailureRecord]
    costs: Mapping[int, MeasuredCost]
    revisions: Sequence[JobRevision]
    silent: Sequence[str] = ()


def _read_records(ref: ClusterRef, job: str, store: str) -> _ShownRecords:
    if job or store or not cluster_exists(ref):
        opened = open_job(ref, job, store).store
        stored = FailureLog(opened).read()
        unknown = MeasuredCost(reason="losses are not in the store, only the cluster that runs knows them")
        return _ShownRecords(stored, {record.number: unknown for record in stored}, read_revisions(opened))
    status = read_status(find_cluster(ref))
    costs = measured_costs(status, status.failures)
    return _ShownRecords(status.failures, costs, status.revisions, status.silent_shards)


def silence_text(shards: Sequence[str]) -> str:
    more = len(shards) - NAMED
    who = ", ".join(shards[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{who} did not answer: COST is by the losses that others know, and may change"


def failure_row(record: FailureRecord, cost: MeasuredCost) -> tuple[object, ...]:
    """Cells in the order of :data:`COLUMNS`."""
    phases = (record.detect_seconds, record.wait_seconds, record.commit_seconds, record.load_seconds)
    return (
        record.number,
        time.strftime("%H:%M:%S", time.localtime(record.created)),
        members_text(record) or _nobody_died(record),
        f"{record.lost_blocks}/{record.total_blocks}",
        sources_text(record),
        format_seconds(record.suspect_seconds),
        *map(format_seconds, phases),
        format_seconds(sum(max(0.0, phase) for phase in phases)),
        _later_text(record.settle_seconds),
        _later_text(record.return_seconds if record.members else UNKNOWN_SECONDS),
        delta_text(record),
        cost.text,
        record.lost_pushes,
        record.resent_pushes,
        state_text(record),
    )


def members_text(record: FailureRecord) -> str:
    """Names of who died; empty: nobody."""
    return ", ".join(key.partition("@")[0] for key in record.members)


def _later_text(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "not yet"


def _nobody_died(record: FailureRecord) -> str:
    return "rollback" if record.rollback else "damage"


def rollback_text(record: FailureRecord) -> str:
    """Why everything went back at a worker's request, and how far."""
    back = f"from clock {record.clock} to what was saved by clock {record.restored_clock}"
    return f"#{record.number} rolled back {back}: {escape(record.rollback)}"


def revision_text(revision: JobRevision) -> str:
    """What a job was resumed with otherwise than before."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(revision.created))
    return f"settings changed at {when}: {escape(revision.changes)}"


def sources_text(record: FailureRecord) -> str:
    """Where the lost blocks came back from."""
    return ", ".join(f"{count} {source}" for source, count in sorted(record.sources.items()) if count) or "-"


def delta_text(record: FailureRecord) -> str:
    """Size of the perturbation; "~" where the workers' caches held only about the lost values."""
    if record.delta_norm < 0:
        return "-"
    return f"{'' if record.delta_exact else '~'}{record.delta_norm:.4g}"


def cost_text(record: FailureRecord) -> str:
    """What it took from the model, in words; empty: nothing, or nobody knows yet."""
    if not record.lost_pushes:
        return "" if record.delta_norm < 0 else f", ||delta|| {delta_text(record)}"
    pushes = format_count(record.lost_pushes, "acknowledged push", "acknowledged pushes")
    return f", {pushes} touched blocks that went back, ||delta|| {delta_text(record)}"


def state_text(record: FailureRecord) -> str:
    if not record.epoch:
        return "recovering"
    waiting = ", ".join(key.partition("@")[0] for key in record.waiting)
    return f"healed in epoch {record.epoch}" + (f", waiting for {waiting}" if waiting else "")
