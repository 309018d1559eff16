"""A cluster on which chaos is played: starts its job, waits for it, reads its truth from the store, and judges it.

with staged(LocalTarget(folder), folder, shards=3, workers=2) as scene:
    scene.target.inject("kill", "ps-1")
    scene.wait_healed()
    scene.verify()
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from scar_chaos import counting, history
from scar_chaos.checkers import demand
from scar_chaos.recorder import Recorder
from scar_chaos.restore import restored
from scar_chaos.targets import Target
from scar_chaos.verdict import Records, Verdict, judged
from scar_runtime.records import decode_record
from scar_runtime.status import DONE, ClusterStatus
from scar_runtime.store import Store

TIMEOUT = 90.0  # seconds for anything that is waited for; generous, for busy machines
LOOK = 0.05  # seconds between two looks
AHEAD = 6  # clocks between an order to rest and the clock to rest at: every worker hears of it in time


class NotHealed(AssertionError):
    """The cluster did not become well again in time."""


class Scene:
    """``job``: what is trained. All waiting is bounded and says what it waited for."""

    def __init__(self, target: Target, job: Job, recorder: Recorder) -> None:
        self.target, self.job, self.recorder = target, job, recorder
        self.shards = [target.member(f"ps-{number}") for number in range(job.shards)]
        self.workers = [target.member(f"worker-{number}") for number in range(job.workers)]

    # --- looking ---------------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The job's part of the store, opened anew."""
        return self.target.store().under(self.job.name)

    def wait(self, condition: Callable[[ClusterStatus], bool], what: str, timeout: float = TIMEOUT) -> ClusterStatus:
        """Look until ``condition`` holds. :class:`DeadlineExceeded` after ``timeout`` seconds, with the cluster's problems."""
        deadline = time.monotonic() + timeout
        while not condition(status := self.status()):
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"waited {timeout:g} s in vain for {what}", "; ".join((*status.problems, *status.waits)))
            time.sleep(LOOK)
        return status

    def status(self) -> ClusterStatus:
        return self.target.status()

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
        with scar.connect(self.target.recovery) as reader:
            arrays = {table.name: reader.pull(table.name) for table in self.job.tables}
        for table in self.job.tables:
            broken = counting.torn(table, arrays[table.name])
            demand(not broken, f"a reader pulled torn blocks of table {table.name}: {broken}")
        return {table.name: counting.per_block(table, arrays[table.name]) for table in self.job.tables}

    def history(self) -> history.History:
        return history.read(self.recorder.folder, self.job)

    # --- steering --------------------------------------------------------------------------------------------------------

    def hold(self) -> int:
        """Bring all workers to rest at one clock; everything that they pushed is acknowledged. Returns the clock."""
        clock = self.ahead()
        self.recorder.order(hold=clock)
        self.wait(lambda status: self._rest_at(status, clock), f"all workers to rest at clock {clock}")
        return clock

    def ahead(self) -> int:
        """A clock that no worker has begun: one that does not wait for acknowledgements is further than its marks say."""
        begun = history.newest_clocks(self.recorder.folder) if self.job.strategy.queues else []
        return max([*marks(self.status()), *begun, 0]) + AHEAD

    def _rest_at(self, status: ClusterStatus, clock: int) -> bool:
        reached = min(marks(status), default=0)
        return len(status.shards) == len(self.shards) and reached == clock and status.clock == clock

    def wait_healed(self, before: Mapping[str, str] | None = None, killed: Sequence[str] = ()) -> ClusterStatus:
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
            raise NotHealed(f"not healed: {'; '.join(missing)}") from error
        return self.wait_clock(status.clock + 2)

    def wait_saved(self, since: ClusterStatus) -> None:
        """Wait until a round of this job is committed: a cluster whose checkpoint has stopped looks well until it is needed."""
        number = since.checkpoint.manifest if since.checkpoint is not None else 0

        def saved(status: ClusterStatus) -> bool:
            return status.checkpoint is not None and status.checkpoint.manifest > number

        self.wait(saved, "a round to be committed")

    def _unhealed(self, status: ClusterStatus) -> list[str]:
        """Everything that is not as it should be, in words."""
        epoch, recovery = status.epoch, status.recovery
        if epoch is None or recovery is None:
            return ["recovery does not answer", *status.problems]
        members = sorted(member.name for member in (*epoch.shards, *epoch.workers))
        wanted = sorted([*self.shards, *self.workers])
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
        return found + self.target.unwell()

    # --- judging ---------------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Bring everything to rest, run every oracle, and let training go on. Raises :class:`scar_chaos.checkers.Violation`."""
        self.verdict().enforce()

    def verdict(self) -> Verdict:
        """The same, as a value."""
        self.wait_healed()
        self.hold()
        try:
            return self.judge(self.values())
        finally:
            self.recorder.order()

    def judge(self, values: Mapping[str, np.ndarray]) -> Verdict:
        """``values``: of all blocks, while no worker has a push on its way."""
        saved = restored(self.store, self.job)
        return judged(Records(self.job, self.epochs(), self.ledger(), self.history(), values, saved))


def marks(status: ClusterStatus) -> list[int]:
    """Clocks finished, by every worker on every shard that has heard of it; not of those that have left for good."""
    return [mark for shard in status.shards.values() for mark in shard.finished.values() if mark < DONE]


def _incarnations(status: ClusterStatus) -> list[str]:
    epoch = status.epoch or types_pb2.Epoch()
    return [member.incarnation for member in (*epoch.shards, *epoch.workers)]


@contextmanager
def staged(target: Target, folder: Path, *, resume: bool = False, **options: Any) -> Iterator[Scene]:
    """``folder``: for the history. ``options``: of :func:`scar_chaos.counting.make_job`."""
    with Recorder(folder / "history", target.listen, target.host) as recorder:
        environment = {"SCAR_CHAOS_JOB": json.dumps(options), "SCAR_CHAOS_RECORDER": recorder.address}
        try:
            job = counting.make_job(**options)
            target.begin(job, environment, resume)
            scene = Scene(target, job, recorder)
            scene.wait(lambda status: status.clock >= 3, "the first clocks")
            yield scene
        finally:
            target.end()
