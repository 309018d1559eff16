"""One leadership of one job: the round driver, and beside it a thread that follows epochs and one that keeps
the store small.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from scar.errors import ScarError
from scar.event_log import EventRing
from scar.placement import END, Member
from scar.tables import Job
from scar.v1 import checkpoint_pb2, recovery_pb2, recovery_pb2_grpc
from scar.wire.epoch_messages import epoch_from_proto
from scar.wire.transport import Link
from scar_checkpoint.compactor import Compactor
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.core.rounds import RoundSummary
from scar_checkpoint.garbage_collector import GarbageCollector
from scar_checkpoint.maintenance import StoreMaintenance
from scar_checkpoint.round_codec import summary_to_proto
from scar_checkpoint.round_driver import RoundDriver
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest_codec import plan_to_proto
from scar_runtime.store import Store

RETRY_SECONDS = 0.2
EPOCH_WAIT = 5.0  # seconds for which the recovery coordinator may keep the question

SpawnNamed = Callable[[str, Callable[[], None]], None]

_log = logging.getLogger("scar_checkpoint")


class CheckpointSession:
    """``member``: this coordinator; ``store``: the job's; ``recovery``: the connection to the recovery
    coordinator; ``spawn`` starts a thread under a name.
    """

    def __init__(
        self,
        member: Member,
        settings: CheckpointSettings,
        job: Job,
        store: Store,
        recovery: Link,
        spawn: SpawnNamed,
    ) -> None:
        self.job = job
        self._store = store
        self._recovery = recovery
        self._spawn = spawn
        self._headers = HeaderCache(store, job)
        timeout = settings.round_timeout_seconds
        self._driver = RoundDriver(job, member.incarnation, store, self._headers, timeout)
        compactor = Compactor(store, job, member.key)
        collector = GarbageCollector(store, job, self._headers, settings.keep_seconds)
        self._maintenance = StoreMaintenance(store, self._driver, compactor, collector)
        self._ended = threading.Event()
        self._problem = ""  # with the recovery coordinator

    def run(self, stop: Callable[[], bool], on_turn: Callable[[int], None]) -> None:
        """Lead until ``stop`` says so or the cluster runs another job. ``on_turn`` is called by each turn,
        with the epoch.
        """
        self._spawn("epochs", self._follow_epochs)
        self._spawn("maintenance", lambda: self._maintenance.run(self._ended))
        try:
            self._driver.run(lambda: self._ended.is_set() or stop(), lambda: on_turn(self._epoch))
        finally:
            self._ended.set()

    def trigger_round(self, selection: str, fraction: float, timeout: float, shard: str) -> RoundSummary:
        """Run a round now and wait for its end. ``shard``: of its blocks alone; empty: of all."""
        return self._driver.trigger_round(selection, fraction, timeout, shard)

    def age(self) -> float:
        """Seconds since the last commit; -1: none yet."""
        with self._driver.lock:
            return self._driver.core.chain.age(time.monotonic())

    def status(self) -> checkpoint_pb2.CheckpointStatus:
        with self._driver.lock:
            core = self._driver.core
            manifest = core.chain.running.manifest
            plan = core.schedule.plan
            return checkpoint_pb2.CheckpointStatus(
                leader=core.leading,
                manifest=manifest.number,
                round=core.recent[-1].round if core.recent else manifest.round,
                clock=manifest.clock,
                age=core.chain.age(time.monotonic()),
                objects=len(manifest.objects),
                bytes=sum(ref.bytes for ref in manifest.objects),
                recent=[summary_to_proto(summary) for summary in core.recent],
                problem="; ".join(text for text in (self._problem, core.problem) if text),
                plan=None if plan is None else plan_to_proto(plan),
            )

    @property
    def story(self) -> EventRing:
        return self._driver.core.story

    @property
    def _epoch(self) -> int:
        epoch = self._driver.core.epoch
        return epoch.number if epoch is not None else 0

    def _follow_epochs(self) -> None:
        """Bring every epoch to the core, in order."""
        stub = recovery_pb2_grpc.RecoveryStub(self._recovery.channel)
        known = 0
        while not self._ended.is_set():
            request = recovery_pb2.GetEpochsRequest(after=known, wait=EPOCH_WAIT)
            try:
                reply = self._recovery.call(stub.GetEpochs, request, 2 * EPOCH_WAIT)
                epochs = [epoch_from_proto(message) for message in reply.epochs]
            except ScarError as error:
                self._problem = f"the recovery coordinator does not answer: {error.message}"
                self._ended.wait(RETRY_SECONDS)
                continue
            self._problem = ""
            for epoch in epochs:
                if epoch.job != self.job.name or epoch.cause == END:
                    return self._ended.set()
                known = epoch.number
                self._maintenance.note_epoch(epoch)
                self._driver.adopt_epoch(epoch)
        return None
