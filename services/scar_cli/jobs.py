"""`scar jobs`: the jobs of a store as the store has them; whether one runs is asked of its own shards."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import typer
from rich.console import Console

from scar.checkpoints import Checkpoint
from scar.errors import ConfigError, JobNotFound, ObjectNotFound, ScarError
from scar.placement import END
from scar.tables import Job, Table
from scar.v1.recovery_pb2 import FinishedRecord
from scar.v1.types_pb2 import Epoch
from scar.wire.codec import job_from_proto, job_to_proto
from scar_admin.shard_probe import any_shard_answers
from scar_cli import output
from scar_cli.checkpoints import job_names, open_signed, store_of
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import cluster_exists, current_job
from scar_cli.output import OutputFormat, format_count, format_size
from scar_cli.status import recovery_words
from scar_runtime.checkpoint.running_checkpoint import newest_manifest
from scar_runtime.store import Store
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.job_records import read_job_spec
from scar_runtime.store.layout import (
    EPOCHS,
    JOB,
    OWNER_BEAT,
    epoch_key,
    finished_key,
    kind_of,
)
from scar_runtime.store.records import OWNER_BEAT_SECONDS, get_record, newest

DELETES = 16  # at the same time
COLUMNS = ("JOB", "STATE", ">CLOCK", ">EPOCH", ">MANIFEST", ">FAILURES", ">SIZE", "SAVED", "NOTE")


@dataclass(frozen=True)
class JobSummary:
    """One job.

    ``state``: "running", "stopped" or "finished". ``held``: a cluster has it in memory, trained or not.
    """

    job: str
    state: str = "?"
    clock: int = 0
    epoch: int = 0
    manifest: int = 0
    failures: int = 0
    bytes: int = 0
    saved: float | None = None
    held: bool = False
    note: str = ""

    def cells(self) -> tuple[object, ...]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.saved)) if self.saved else "-"
        numbers = (self.clock, self.epoch, self.manifest, self.failures)
        note = self.note or ("a cluster has it" if self.held and self.state != "running" else "")
        return (self.job, self.state, *numbers, format_size(self.bytes), when, note)


def list_jobs(ref: ClusterRef, url: str, form: OutputFormat) -> None:
    """Every job of the store."""
    root = open_signed(url or store_of(ref))
    mine = _own_job(ref, url)
    rows = [summarize_job(root, name, mine == name) for name in job_names(root)]

    def text(screen: Console) -> None:
        screen.print(
            output.make_table(COLUMNS, [row.cells() for row in rows])
            if rows
            else f"the store {root.url} has no job"
        )

    output.print_result(form, {"store": root.url, "jobs": [asdict(row) for row in rows]}, text)


def show_job(ref: ClusterRef, name: str, url: str, form: OutputFormat) -> None:
    """What it is, how far it is, and what its bytes are."""
    root = store_with_job(ref, name, url)
    job = _read_job(root, name)
    found = summarize_job(root, name, _own_job(ref, url) == name)
    parts = _bytes_by_kind(root.under(name).sizes())

    def text(screen: Console) -> None:
        screen.print(output.make_table(COLUMNS, [found.cells()]))
        recovery = recovery_words(job_to_proto(job))
        screen.print(
            f"\n{job.consistency}, recovery {recovery}, {format_count(job.workers, 'worker')},"
            f" {format_count(job.shards, 'shard')}, checkpoint {_policy_words(job.checkpoint)}\n"
        )
        if job.choice is not None:
            screen.print(f"Why that recovery: {job.choice.reason}\n", markup=False, soft_wrap=True)
        columns = ("TABLE", "SHAPE", "DTYPE", "RULE", ">BLOCKS", ">BYTES")
        screen.print(
            output.make_table(columns, [list(_table_document(table).values()) for table in job.tables])
        )
        screen.print("\n" + ", ".join(f"{kind} {format_size(count)}" for kind, count in parts.items()))

    data = {**asdict(found), "tables": [_table_document(table) for table in job.tables], "bytes_of": parts}
    names = ("consistency", "recovery", "sources", "replicate", "pull_slots", "workers", "shards", "seed")
    told = {name: getattr(job, name) for name in names}
    told["choice"] = asdict(job.choice) if job.choice is not None else None
    output.print_result(form, {**data, **told, "checkpoint": asdict(job.checkpoint)}, text)


def remove_job(ref: ClusterRef, name: str, url: str, yes: bool) -> None:
    """Delete everything of a job.

    Raises :class:`ConfigError` while a cluster has it, and when nobody is there to be asked.
    """
    root = store_with_job(ref, name, url)
    found = summarize_job(root, name, _own_job(ref, url) == name)
    if found.held:
        raise ConfigError(
            f"a cluster has job {name!r}" + (", and trains it" if found.state == "running" else ""),
            "Stop the cluster by `scar down`, or train another job on it",
        )
    screen = output.make_console()
    if not yes:
        if not screen.is_terminal:
            raise ConfigError(
                f"removing job {name!r} frees {format_size(found.bytes)} and cannot be undone", "Add --yes"
            )
        what = f"job {name!r} ({found.state}, clock {found.clock})"
        typer.confirm(
            f"Remove {what} and free {format_size(found.bytes)}? This cannot be undone.", abort=True
        )
    if _beats(root.under(name)):
        raise ConfigError(
            f"another cluster trains job {name!r}, as its heartbeat in the store says",
            "Stop that cluster first",
        )
    removed = _delete(root.under(name))
    objects = format_count(removed, "object")
    screen.print(f"[bold green]removed[/] job {name}: {objects}, {format_size(found.bytes)} freed")


def _beats(store: Store) -> bool:
    """Whether its owner shows that it lives, from wherever it is. Takes two beats to say no."""
    first = _owner_beat(store)
    deadline = time.monotonic() + 2 * OWNER_BEAT_SECONDS
    while first and time.monotonic() < deadline:
        time.sleep(OWNER_BEAT_SECONDS / 5)
        if _owner_beat(store) != first:
            return True
    return False


def _owner_beat(store: Store) -> bytes:
    try:
        return store.get(OWNER_BEAT)
    except ObjectNotFound:
        return b""


def _delete(store: Store) -> int:
    """Delete all objects of a job, its description last, so that an interrupted removal can be repeated.

    Epochs go after the rest, so that until then nothing takes the job for one that has not begun.
    """
    keys = store.list()
    epochs = [key for key in keys if kind_of(key) == EPOCHS]
    with ThreadPoolExecutor(DELETES) as pool:
        for part in ([key for key in keys if key != JOB and key not in epochs], epochs, [JOB]):
            list(pool.map(store.delete, part))
    return len(keys)


def summarize_job(root: Store, name: str, mine: bool) -> JobSummary:
    """``mine``: the cluster that is meant runs, and has this job. A damaged job is listed as such."""
    store = root.under(name)
    total = sum(store.sizes().values())
    try:
        return _read_summary(store, name, mine, total)
    except ScarError as error:
        return JobSummary(name, bytes=total, held=mine, note=f"damaged: {error.message}")


def _read_summary(store: Store, name: str, mine: bool, total: int) -> JobSummary:
    number = newest(store, EPOCHS)
    epoch = get_record(store, epoch_key(number), Epoch) if number else Epoch()
    end = _finished_record(store, epoch)
    manifest = newest_manifest(store)
    held = mine or (epoch.cause != END and any_shard_answers(epoch.shards))
    return JobSummary(
        job=name,
        state="running" if held and epoch.workers else "finished" if end else "stopped",
        held=held,
        clock=end.clock if end else manifest.clock if manifest else 0,
        epoch=number,
        manifest=manifest.number if manifest else 0,
        failures=len(FailureLog(store).read()),
        bytes=total,
        saved=manifest.created if manifest else None,
    )


def _finished_record(store: Store, epoch: Epoch) -> FinishedRecord | None:
    if not epoch.finished:
        return None
    try:
        return get_record(store, finished_key(epoch.finished), FinishedRecord)
    except ObjectNotFound:
        return None


def _own_job(ref: ClusterRef, url: str) -> str:
    """Job of the cluster that is meant, when it runs and no other store is meant."""
    return current_job(ref) if not url and cluster_exists(ref) else ""


def store_with_job(ref: ClusterRef, name: str, url: str) -> Store:
    root = open_signed(url or store_of(ref))
    jobs = job_names(root)
    if name not in jobs:
        raise JobNotFound(f"the store {root.url} has no job {name!r}", f"It has {', '.join(jobs) or 'none'}")
    return root


def _read_job(root: Store, name: str) -> Job:
    return job_from_proto(read_job_spec(root.under(name)))


def _table_document(table: Table) -> dict[str, object]:
    declared = table.rule
    numbers = [f"{name} {value:g}" for name, value in declared.parameters.items()]
    schedule = [f"schedule {declared.schedule.describe()}"] if declared.schedule else []
    kind = declared.program.describe() if declared.program else declared.kind
    rule = ", ".join([kind, *numbers, *schedule])
    shape = "x".join(map(str, table.shape))
    named = {"name": table.name, "shape": shape, "dtype": str(table.dtype), "rule": rule}
    return {**named, "blocks": table.blocks, "bytes": table.bytes}


def _bytes_by_kind(sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes by the first part of the key."""
    found = dict[str, int]()
    for key, count in sizes.items():
        kind = kind_of(key)
        found[kind] = found.get(kind, 0) + count
    return found


def _policy_words(policy: Checkpoint) -> str:
    if policy.budget is None:
        return f"{policy.selection} r={policy.fraction:g} every {policy.period} clocks"
    rate = policy.budget.bytes_per_second
    most = f" and {format_size(rate)}/s" if rate else ""
    return f"{policy.selection}, chosen within {100 * policy.budget.stall_share:g} % of stall{most}"
