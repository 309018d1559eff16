"""One leadership of one job: the conductor, and beside it a thread that follows epochs and one that keeps the store small."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from scar.codec import epoch_from_proto
from scar.errors import ScarError
from scar.placement import END, Member
from scar.tables import Job
from scar.transport import Link
from scar.v1 import checkpoint_pb2, recovery_pb2, recovery_pb2_grpc
from scar_checkpoint.conductor import Conductor
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.keeper import Keeper
from scar_checkpoint.rounds import Summary
from scar_runtime.records import newest
from scar_runtime.running import MANIFESTS, Headers, RunningCheckpoint, load_newest
from scar_runtime.store import Store

RETRY = 0.2  # seconds
EPOCH_WAIT = 5.0  # seconds for which the recovery coordinator may keep the question
KEEP_PERIOD = 2.0  # seconds between looks at what can be deleted
LOADING_SECONDS = 120.0  # a manifest that an epoch restores from is kept so long after that epoch, and while it is the newest

Spawn = Callable[[str, Callable[[], None]], None]

_log = logging.getLogger("scar_checkpoint")


class Term:
    """``member``: this coordinator; ``store``: the job's; ``recovery``: the connection to the recovery coordinator; ``spawn``
    starts a thread under a name."""

    def __init__(
        self, member: Member, settings: CheckpointSettings, job: Job, store: Store, recovery: Link, spawn: Spawn
    ) -> None:
        self.job = job
        self._store, self._recovery, self._spawn = store, recovery, spawn
        self._headers = Headers(store, job)
        self._conductor = Conductor(job, member.incarnation, store, self._headers, settings.round_timeout_seconds)
        self._keeper = Keeper(store, job, member.key, self._headers, settings.keep_seconds)
        self._restoring: dict[int, float] = {}  # manifest -> when an epoch that restores from it was seen last
        self._ended = threading.Event()
        self._problems: dict[str, str] = {}

    def run(self, stop: Callable[[], bool], turned: Callable[[int], None]) -> None:
        """Lead until ``stop`` says so or the cluster runs another job. ``turned`` is called by each turn, with the epoch."""
        for name, target in (("start", self._start), ("epochs", self._follow), ("keeper", self._keep)):
            self._spawn(name, target)
        try:
            self._conductor.run(lambda: self._ended.is_set() or stop(), lambda: turned(self._epoch))
        finally:
            self._ended.set()

    def trigger(self, selection: str, fraction: float, timeout: float, shard: str) -> Summary:
        """Run a round now and wait for its end. ``shard``: of its blocks alone; empty: of all."""
        return self._conductor.trigger(selection, fraction, timeout, shard)

    def age(self) -> float:
        with self._conductor.lock:
            return self._conductor.core.age(time.monotonic())

    def status(self) -> checkpoint_pb2.CheckpointStatus:
        with self._conductor.lock:
            core = self._conductor.core
            manifest = core.running.manifest
            return checkpoint_pb2.CheckpointStatus(
                leader=core.leading,
                manifest=manifest.number,
                round=core.recent[-1].round if core.recent else manifest.round,
                clock=manifest.clock,
                age=core.age(time.monotonic()),
                objects=len(manifest.objects),
                bytes=sum(ref.bytes for ref in manifest.objects),
                recent=[report(summary) for summary in core.recent],
                problem="; ".join(text for text in (*self._problems.values(), core.problem) if text),
            )

    @property
    def _epoch(self) -> int:
        epoch = self._conductor.core.epoch
        return epoch.number if epoch is not None else 0

    def _start(self) -> None:
        """Go on from the newest running checkpoint, as soon as the store lets us read it."""
        while not self._ended.is_set():
            try:
                return self._take_over()
            except ScarError as error:
                self._trouble("store", str(error))
                self._ended.wait(RETRY)
        return None

    def _take_over(self) -> None:
        running = load_newest(self._store, self.job, self._headers)
        number = newest(self._store, MANIFESTS)
        age = max(0.0, time.time() - running.manifest.created) if running.manifest.number else -1.0
        self._trouble("store", "")
        self._conductor.post(lambda core, now: core.lead(running, number, age, now))

    def _follow(self) -> None:
        """Bring every epoch to the core, in order."""
        stub, known = recovery_pb2_grpc.RecoveryStub(self._recovery.channel), 0
        while not self._ended.is_set():
            request = recovery_pb2.GetEpochsRequest(after=known, wait=EPOCH_WAIT)
            try:
                reply = self._recovery.call(stub.GetEpochs, request, 2 * EPOCH_WAIT)
                epochs = [epoch_from_proto(message) for message in reply.epochs]
            except ScarError as error:
                self._trouble("recovery", f"the recovery coordinator does not answer: {error.message}")
                self._ended.wait(RETRY)
                continue
            self._trouble("recovery", "")
            for epoch in epochs:
                if epoch.job != self.job.name or epoch.cause == END:
                    return self._ended.set()
                known = epoch.number
                self._restoring[epoch.manifest] = time.monotonic()
                self._conductor.adopt(epoch)
        return None

    def _keep(self) -> None:
        """Compact and collect, again and again, while the store answers."""
        while not self._ended.wait(KEEP_PERIOD):
            with self._conductor.lock:
                core = self._conductor.core
                running, waiting, epoch = core.running, core.rewrite is not None, core.epoch
            if not running.manifest.number or epoch is None:
                continue
            try:
                if not waiting:
                    self._compact(running, epoch.number)
                deleted = self._keeper.collect(self._protected(epoch.manifest))
            except ScarError as error:
                _log.warning("keeper.failed", extra={"reason": str(error)})
            else:
                _log.debug("garbage.deleted", extra={"objects": len(deleted)})

    def _compact(self, running: RunningCheckpoint, epoch: int) -> None:
        rewrite = self._keeper.compact(running, epoch)
        if rewrite is not None:
            _log.info("compaction.written", extra={"objects": len(rewrite.old), "bytes": rewrite.ref.bytes})
            self._conductor.post(lambda core, _now: core.compacted(rewrite))

    def _protected(self, serving: int) -> set[int]:
        since = time.monotonic() - LOADING_SECONDS
        return {number for number, seen in list(self._restoring.items()) if seen > since} | {serving}

    def _trouble(self, where: str, text: str) -> None:
        self._problems = {**self._problems, where: text}


def report(summary: Summary) -> checkpoint_pb2.RoundReport:
    return checkpoint_pb2.RoundReport(
        round=summary.round,
        manifest=summary.manifest,
        clock=summary.clock,
        blocks_total=summary.blocks_total,
        blocks_saved=summary.blocks_saved,
        bytes=summary.bytes,
        select_seconds=summary.select_seconds,
        copy_seconds=summary.copy_seconds,
        commit_seconds=summary.commit_seconds,
        missed=summary.missed,
        error=summary.error,
    )
