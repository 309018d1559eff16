"""`scar checkpoints ls` and `show`: the running checkpoint as the store has it, without any service."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from scar.codec import job_from_proto
from scar.errors import ConfigError, CorruptCheckpoint, JobNotFound, ObjectNotFound
from scar.tables import Job
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.types_pb2 import JobSpec
from scar_cli import output
from scar_cli.clusters import find_release
from scar_cli.output import Output
from scar_cli.places import Place
from scar_local import ClusterDirectory
from scar_local.directory import default_directory
from scar_runtime.records import get_record, numbers
from scar_runtime.running import MANIFESTS, RunningCheckpoint, load_newest, load_running, read_manifest
from scar_runtime.store import Store, open_store


@dataclass(frozen=True)
class JobStore:
    """A job and its part of the store."""

    store: Store
    job: Job

    def manifests(self) -> list[int]:
        return numbers(self.store, MANIFESTS)

    def running(self, number: int) -> RunningCheckpoint:
        """What manifest ``number`` says; 0: the newest one that is whole. Raises :class:`ConfigError` when there is none."""
        found = self.manifests()
        if not found:
            raise ConfigError(f"job {self.job.name} has no checkpoint yet", "The first comes after some clocks")
        if number and number not in found:
            raise ConfigError(f"job {self.job.name} has no manifest {number}", f"The store has {found[0]} to {found[-1]}")
        return load_running(self.store, self.job, number) if number else load_newest(self.store, self.job)


def open_job(place: Place, name: str = "", url: str = "") -> JobStore:
    """The job ``name`` in the store ``url``; default: the only job in the store of the cluster that is meant."""
    root = open_store(url or _store(place))
    name = name or _only_job(root)
    try:
        return JobStore(root.under(name), job_from_proto(get_record(root.under(name), "job", JobSpec)))
    except ObjectNotFound as error:
        raise JobNotFound(f"the store {root.url} has no job {name!r}", f"It has {', '.join(_jobs(root)) or 'none'}") from error


def _store(place: Place) -> str:
    """URL of a cluster's store; a release says the credentials, too."""
    if place.release is not None:
        url, credentials = find_release(place.release).store()
        os.environ.update(credentials)
        return url
    home = ClusterDirectory(default_directory(place.cluster))
    state = home.read()
    if state is None:
        raise ConfigError(
            f"no cluster {place.cluster!r} has ever run in {home.path}",
            "Change to its folder, name it by --cluster, or pass --store URL",
        )
    return state.store


def _jobs(root: Store) -> list[str]:
    return [key.removesuffix("/job") for key in root.list("") if key.endswith("/job") and key.count("/") == 1]


def _only_job(root: Store) -> str:
    jobs = _jobs(root)
    if not jobs:
        raise JobNotFound(f"the store {root.url} has no job", "Start one by `scar train FILE`")
    if len(jobs) > 1:
        raise ConfigError(f"the store {root.url} has {len(jobs)} jobs", f"Choose one by --job: {', '.join(jobs)}")
    return jobs[0]


def listing(job: JobStore, form: Output) -> None:
    """Every manifest, oldest first; damaged ones say so."""
    rows = [_summary(job, number) for number in job.manifests()]
    columns = (">MANIFEST", ">ROUND", ">CLOCK", ">EPOCH", "SELECTION", ">OBJECTS", ">BYTES", "COMMITTED", "NOTE")
    keys = ("manifest", "round", "clock", "epoch", "selection", "objects", "size", "committed", "note")

    def text(screen: Console) -> None:
        if rows:
            screen.print(output.table(columns, ([row.get(key, "-") for key in keys] for row in rows)))
        else:
            screen.print(f"job {job.job.name} has no checkpoint yet")

    output.show(form, {"job": job.job.name, "store": job.store.url, "manifests": rows}, text)


def _summary(job: JobStore, number: int) -> dict[str, Any]:
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
        "size": output.size(size),
        "committed": _moment(manifest),
        "note": "full" if manifest.full else "",
    }


def _moment(manifest: Manifest) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.created))


def show(job: JobStore, number: int, form: Output) -> None:
    """The objects of one manifest, and how many blocks a restore would take from each."""
    running = job.running(number)
    manifest, live = running.manifest, running.live()
    rows = [
        (ref.key, ref.owner, ref.clock, ref.blocks, alive, output.size(ref.bytes))
        for ref, alive in zip(running.objects, live.tolist(), strict=True)
    ]
    initial = job.job.blocks - int(live.sum())

    def text(screen: Console) -> None:
        screen.print(
            f"[bold]manifest {manifest.number}[/] of job {job.job.name}: clock {manifest.clock}, epoch {manifest.epoch}, "
            f"{manifest.selection}, committed {_moment(manifest)}"
        )
        screen.print(output.table(("OBJECT", "OWNER", ">CLOCK", ">BLOCKS", ">LIVE", ">BYTES"), rows))
        screen.print(f"{job.job.blocks - initial} of {job.job.blocks} blocks saved, {initial} still at x(0)")

    data = {"manifest": manifest, "live": live.tolist(), "blocks": job.job.blocks, "initial": initial}
    output.show(form, data, text)
