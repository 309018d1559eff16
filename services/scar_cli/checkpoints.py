"""`scar checkpoints ls` and `show`: the running checkpoint as the store has it, without any service."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from scar.errors import ConfigError, CorruptCheckpoint, JobNotFound, ObjectNotFound
from scar.tables import Job
from scar.wire.codec import job_from_proto
from scar_cli import output
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import current_job, find_release
from scar_cli.output import OutputFormat, make_console
from scar_local import ClusterDirectory
from scar_local.directory import default_directory
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import manifest_to_proto, read_manifest
from scar_runtime.checkpoint.running_checkpoint import (
    RunningCheckpoint,
    load_newest,
    load_running,
)
from scar_runtime.store import Store, open_store
from scar_runtime.store.job_records import read_job_spec
from scar_runtime.store.layout import MANIFESTS, jobs_among
from scar_runtime.store.pins import pinned
from scar_runtime.store.records import numbers
from scar_runtime.store.signatures import find_key


@dataclass(frozen=True)
class JobStore:
    """A job and its part of the store."""

    store: Store
    job: Job

    def manifests(self) -> list[int]:
        return numbers(self.store, MANIFESTS)

    @contextmanager
    def pinned(self, manifests: Sequence[int]) -> Iterator[None]:
        """They are not deleted while they are read, however long that takes."""
        with pinned(self.store, manifests, f"{getpass.getuser()}@{socket.gethostname()}") as problem:
            if problem:
                make_console(stderr=True).print(
                    f"[yellow]not pinned[/], training may delete what is read: {escape(problem)}"
                )
            yield

    def running(self, number: int) -> RunningCheckpoint:
        """What manifest ``number`` says; 0: the newest one that is whole.

        Raises :class:`ConfigError` when there is none.
        """
        found = self.manifests()
        if not found:
            raise ConfigError(
                f"job {self.job.name} has no checkpoint yet", "The first comes after some clocks"
            )
        if number and number not in found:
            raise ConfigError(
                f"job {self.job.name} has no manifest {number}", f"The store has {found[0]} to {found[-1]}"
            )
        return load_running(self.store, self.job, number) if number else load_newest(self.store, self.job)


def open_job(ref: ClusterRef, name: str = "", url: str = "") -> JobStore:
    """The job ``name`` in the store ``url``.

    Without a name: the job of the cluster that is meant, or the only one in its store.
    """
    root = open_signed(url or store_of(ref))
    name = name or _only_job(root, "" if url else current_job(ref))
    try:
        return JobStore(root.under(name), job_from_proto(read_job_spec(root.under(name))))
    except ObjectNotFound as error:
        raise JobNotFound(
            f"the store {root.url} has no job {name!r}", f"It has {', '.join(job_names(root)) or 'none'}"
        ) from error


def open_signed(url: str) -> Store:
    """Its records are believed only with the signature of the cluster's key, where that is at hand."""
    return open_store(url, find_key(url))


def store_of(ref: ClusterRef) -> str:
    """URL of a cluster's store; a release says the credentials, too."""
    if ref.release is not None:
        url, credentials = find_release(ref.release).store()
        os.environ.update(credentials)
        return url
    home = ClusterDirectory(default_directory(ref.cluster))
    state = home.read()
    if state is None:
        raise ConfigError(
            f"no cluster {ref.cluster!r} has ever run in {home.path}",
            "Change to its folder, name it by --cluster, or pass --store URL",
        )
    return state.store


def job_names(root: Store) -> list[str]:
    return jobs_among(root.list(""))


def _only_job(root: Store, preferred: str) -> str:
    jobs = job_names(root)
    if preferred in jobs:
        return preferred
    if not jobs:
        raise JobNotFound(f"the store {root.url} has no job", "Start one by `scar train FILE`")
    if len(jobs) > 1:
        raise ConfigError(
            f"the store {root.url} has {len(jobs)} jobs", f"Choose one by --job: {', '.join(jobs)}"
        )
    return jobs[0]


def list_manifests(job: JobStore, form: OutputFormat) -> None:
    """Every manifest, oldest first; damaged ones say so."""
    rows = [_manifest_row(job, number) for number in job.manifests()]
    columns = (
        ">MANIFEST",
        ">ROUND",
        ">CLOCK",
        ">EPOCH",
        "SELECTION",
        ">OBJECTS",
        ">BYTES",
        "COMMITTED",
        "NOTE",
    )
    keys = ("manifest", "round", "clock", "epoch", "selection", "objects", "size", "committed", "note")

    def text(screen: Console) -> None:
        if rows:
            screen.print(output.make_table(columns, ([row.get(key, "-") for key in keys] for row in rows)))
        else:
            screen.print(f"job {job.job.name} has no checkpoint yet")

    output.print_result(form, {"job": job.job.name, "store": job.store.url, "manifests": rows}, text)


def _manifest_row(job: JobStore, number: int) -> dict[str, Any]:
    try:
        manifest = read_manifest(job.store, number)
    except (CorruptCheckpoint, ObjectNotFound) as error:
        return {"manifest": number, "note": f"damaged: {error.message}"}
    size = sum(ref.bytes for ref in manifest.objects)
    return {
        "manifest": number,
        "round": manifest.round,
        "clock": manifest.clock,
        "epoch": manifest.epoch,
        "selection": manifest.selection,
        "objects": len(manifest.objects),
        "bytes": size,
        "size": output.format_size(size),
        "committed": _commit_time(manifest),
        "note": "full" if manifest.full else "",
    }


def _commit_time(manifest: Manifest) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.created))


def show_manifest(job: JobStore, number: int, form: OutputFormat) -> None:
    """The objects of one manifest, and how many blocks a restore would take from each."""
    running = job.running(number)
    manifest = running.manifest
    live = running.live()
    rows = [
        (ref.key, ref.owner, ref.clock, ref.blocks, alive, output.format_size(ref.bytes))
        for ref, alive in zip(running.objects, live.tolist(), strict=True)
    ]
    initial = job.job.blocks - int(live.sum())

    def text(screen: Console) -> None:
        screen.print(
            f"[bold]manifest {manifest.number}[/] of job {job.job.name}: clock {manifest.clock}, epoch"
            f" {manifest.epoch}, {manifest.selection}, committed {_commit_time(manifest)}"
        )
        screen.print(output.make_table(("OBJECT", "OWNER", ">CLOCK", ">BLOCKS", ">LIVE", ">BYTES"), rows))
        screen.print(f"{job.job.blocks - initial} of {job.job.blocks} blocks saved, {initial} still at x(0)")

    data = {
        "manifest": manifest_to_proto(manifest),
        "live": live.tolist(),
        "blocks": job.job.blocks,
        "initial": initial,
    }
    output.print_result(form, data, text)
