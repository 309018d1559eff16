"""A cluster under test: starts it, waits for it, reads its truth from the store, and runs every oracle over what happened.

with running(tmp_path, shards=3, workers=2, consistency="bsp") as cluster:
    cluster.local.kill("ps-1")
    cluster.wait_healed()
    cluster.verify()
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import Message

import scar
from scar.codec import epoch_from_proto
from scar.errors import DeadlineExceeded
from scar.placement import Epoch
from scar.tables import Job
from scar.v1 import recovery_pb2, types_pb2
from scar_local import ClusterStatus, LocalCluster
from scar_runtime.records import decode_record
from scar_runtime.store import open_store
from scar_runtime.store.base import Store
from tests.framework import checkers, counting, history
from tests.framework.restore import restored

TRAIN = Path(counting.__file__)
TIMEOUT = 60.0  # seconds for anything that a test waits for; generous, for busy machines


class Cluster:
    """``local``: the processes. ``job``: what they train. All waiting is bounded and says what it waited for."""

    def __init__(self, local: LocalCluster, job: Job, folder: Path, workers: int) -> None:
        self.local, self.job, self.folder, self.workers = local, job, folder, workers
        self.shards = [f"ps-{number}" for number in range(job.shards)]

    @property
    def store(self) -> Store:
        """The job's part of the store, opened anew: what a fresh process would see."""
        return open_store(self.local.store_url).under(self.job.name)

    # --- looking ---------------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[ClusterStatus], bool], what: str, timeout: float = TIMEOUT) -> ClusterStatus:
        return self.local.until(condition, timeout, what)

    def status(self) -> ClusterStatus:
        return self.local.status()

    def wait_clock(self, clock: int, timeout: float = TIMEOUT) -> ClusterStatus:
        return self.wait(lambda status: status.clock >= clock, f"clock {clock}", timeout)

    def advance(self, clocks: int) -> ClusterStatus:
        """Wait until the open clock is this much further."""
        return self.wait_clock(self.wait(lambda status: bool(status.shards), "a shard's answer").clock + clocks)

    def incarnations(self) -> dict[str, str]:
        """Name -> incarnation of every member of the newest epoch."""
        epoch = self.status().epoch or types_pb2.Epoch()
        return {member.name: member.incarnation for member in (*epoch.shards, *epoch.workers)}

    def epochs(self) -> list[Epoch]:
        """All epochs, from the store."""
        return [epoch_from_proto(self._record(types_pb2.Epoch, key)) for key in self.store.list("epochs/")]

    def ledger(self) -> list[recovery_pb2.FailureRecord]:
        """All failures, from the store."""
        return [self._record(recovery_pb2.FailureRecord, key) for key in self.store.list("ledger/")]

    def _record(self, kind: type[Any], key: str) -> Any:
        record: Message = decode_record(kind, self.store.get(key))
        return record

    def values(self) -> dict[str, np.ndarray]:
        """One value per block of every table, pulled by a reader that is no worker. No block may be torn."""
        with scar.connect(self.local.recovery_address) as reader:
            arrays = {table.name: reader.pull(table.name) for table in self.job.tables}
        for table in self.job.tables:
            assert not counting.torn(table, arrays[table.name])
        return {table.name: counting.per_block(table, arrays[table.name]) for table in self.job.tables}

    def initial(self) -> dict[str, np.ndarray]:
        found = {}
        for table in self.job.tables:
            ids = np.arange(table.blocks, dtype=np.uint32)
            found[table.name] = counting.per_block(table, table.initial(self.job.seed, ids).reshape(table.shape))
        return found

    def history(self) -> history.History:
        return history.read(self.folder / "history", self.job)

    # --- steering --------------------------------------------------------------------------------------------------------

    def control(self, **orders: int) -> None:
        """Tell the training function (see ``counting.py``); replaces what was said before."""
        draft = self.folder / "control.tmp"
        draft.write_text(json.dumps(orders))
        draft.replace(self.folder / "control.json")

    def hold(self) -> int:
        """Bring all workers to rest at one clock; everything that they pushed is acknowledged. Returns the clock."""
        fastest = max(_marks(self.status()), default=0)
        clock = fastest + 6
        self.control(hold=clock)
        self.wait(lambda status: self._rest_at(status, clock), f"all workers to rest at clock {clock}")
        return clock

    def _rest_at(self, status: ClusterStatus, clock: int) -> bool:
        marks = _marks(status)
        return len(status.shards) == len(self.shards) and min(marks, default=0) == clock and status.clock == clock

    def finish(self) -> dict[str, int]:
        """Let all workers end at one clock; returns their exit codes."""
        self.control(end=max(_marks(self.status()), default=0) + 6)
        return self.local.wait(TIMEOUT)

    def wait_healed(self, before: dict[str, str] | None = None, killed: Sequence[str] = ()) -> ClusterStatus:
        """Wait until everybody is back, owns blocks, has settled, all losses are reported and training moves.

        ``before``: :meth:`incarnations` before the fault; ``killed``: those that must have been replaced since.
        """
        gone = {(before or {}).get(name, "") for name in killed}
        missing: list[str] = []

        def healed(status: ClusterStatus) -> bool:
            missing[:] = self._unhealed(status) + [f"{one} lives" for one in sorted(gone & set(_incarnations(status)))]
            return not missing

        try:
            status = self.wait(healed, "the cluster to heal")
        except DeadlineExceeded as error:
            raise AssertionError(f"not healed: {'; '.join(missing)}") from error
        return self.wait_clock(status.clock + 2)

    def _unhealed(self, status: ClusterStatus) -> list[str]:
        """Everything that is not as it should be, in words."""
        epoch, recovery = status.epoch, status.recovery
        if epoch is None or recovery is None:
            return ["recovery does not answer", *status.problems]
        members = sorted(member.name for member in (*epoch.shards, *epoch.workers))
        wanted = sorted([*self.shards, *(f"worker-{number}" for number in range(self.workers))])
        found = [f"members are {members}"] if members != wanted else []
        found += [f"recovery: {recovery.problem}"] if recovery.problem else []
        found += ["checkpoint does not answer"] if status.checkpoint is None else []
        found += [f"{name} is being recovered" for name in recovery.recovering]
        for record in status.failures:
            if not record.epoch or record.waiting:
                found.append(f"failure {record.number} waits for {list(record.waiting) or 'an epoch'}")
        for name, shard in status.shards.items():
            blocks, loading, unsettled = (
                sum(getattr(t, key) for t in shard.tables) for key in ("blocks", "loading", "unsettled")
            )
            if shard.epoch != epoch.number or not shard.serving or not blocks or loading or unsettled:
                found.append(f"{name}: epoch {shard.epoch}, {blocks} blocks, {loading} loading, {unsettled} unsettled")
        return found + [
            f"{process.name} is {process.state}" for process in self.local.processes() if process.state != "running"
        ]

    # --- judging ---------------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Bring everything to rest, run every oracle, and let training go on."""
        self.wait_healed()
        self.hold()
        try:
            self.check(self.values())
        finally:
            self.control()

    def check(self, values: dict[str, np.ndarray]) -> None:
        """Every oracle. ``values``: of all blocks, while no worker has a push on its way."""
        past, epochs = self.history(), self.epochs()
        checkers.epochs_linear(self.job, epochs)
        checkers.never_torn(past)
        if self.job.recovery == "partial":
            checkers.never_backwards(past, epochs)
        checkers.exactly_once(self.job, self.initial(), past, checkers.Losses(self.ledger(), epochs, past.seen), values)
        for table, saved in restored(self.store, self.job).items():
            assert bool((saved <= values[table]).all()), f"the checkpoint of {table} is ahead of the model"


def _marks(status: ClusterStatus) -> list[int]:
    """Clocks finished, by every worker on every shard that has heard of it."""
    return [mark for shard in status.shards.values() for mark in shard.finished.values()]


def _incarnations(status: ClusterStatus) -> list[str]:
    epoch = status.epoch or types_pb2.Epoch()
    return [member.incarnation for member in (*epoch.shards, *epoch.workers)]


@contextmanager
def running(
    folder: Path,
    *,
    shards: int = 3,
    workers: int = 2,
    resume: bool = False,
    train: Path = TRAIN,
    local: dict[str, Any] | None = None,
    **job: Any,
) -> Iterator[Cluster]:
    """A cluster whose workers run ``train``; nothing of it is left when the block ends. ``job``: options of ``make_job``."""
    options = {"shards": shards, "workers": workers, **job}
    (folder / "history").mkdir(exist_ok=True)
    (folder / "disk").mkdir(exist_ok=True)
    if not (folder / "store").is_symlink():
        (folder / "store").symlink_to("disk")  # so that a fault can take the store away in one step
    environment = {
        "SCAR_TEST_JOB": json.dumps(options),
        "SCAR_TEST_HISTORY": str(folder / "history"),
        "SCAR_TEST_CONTROL": str(folder / "control.json"),
        "SCAR_LEASE_SECONDS": "1",
    }
    home = folder / "cluster"
    settings = {"respawn_delay": 0.3, "store": f"file://{folder / 'store'}", **(local or {})}
    try:
        processes = LocalCluster(home, shards=shards, environment=environment, **settings)
        processes.start()
        try:
            cluster = Cluster(processes, counting.make_job(**options), folder, workers)
            cluster.control()
            processes.start_job(cluster.job, resume=resume)
            processes.start_workers(train, workers)
            cluster.wait(lambda status: status.clock >= 3, "the first clocks")
            yield cluster
        finally:
            processes.stop(checkpoint=False)
    finally:
        assert_nothing_left(folder)


def assert_nothing_left(folder: Path) -> None:
    """No process that was started for this cluster is alive: every one of them has its folder in its environment."""
    deadline = time.monotonic() + 5
    while left := _processes_of(folder):
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.05)


def _processes_of(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if process.name != str(os.getpid()) and str(folder).encode() in environment + command.encode():
            found.append(f"{process.name}: {command}")
    return found
