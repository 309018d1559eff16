"""Which job the cluster runs: found again by a new leader, started, replaced by another one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from scar.errors import JobExists, NotServing, StoreUnavailable
from scar.placement import Member
from scar.tables import Job
from scar.v1 import types_pb2
from scar.wire.codec import job_to_proto
from scar_recovery.checkpoint_client import CheckpointClient
from scar_recovery.core.events import JobEnded, LeaderReplaced
from scar_recovery.epoch_broadcaster import EpochBroadcaster
from scar_recovery.executor import Executor
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_ownership import JobOwnership
from scar_recovery.job_registry import JobRegistry
from scar_recovery.leader_state import LeaderState
from scar_recovery.ledger_writer import LedgerWriter
from scar_recovery.shard_client import GrpcShardClient
from scar_recovery.shard_flush import ShardFlush

END_SECONDS = 10.0  # for the last epoch of a job to be created
FAREWELL_SECONDS = 3.0  # for shards to hear of it; one that does not finds out when its lease has run out

_log = logging.getLogger(__name__)
Spawn = Callable[[str, Callable[[], None]], None]


class JobLifecycle:
    """The job of one leadership. ``spawn(name, target)`` runs a guarded thread."""

    def __init__(
        self,
        state: LeaderState,
        registry: JobRegistry,
        shards: GrpcShardClient,
        ownership: JobOwnership,
        saves: CheckpointClient,
        spawn: Spawn,
    ) -> None:
        self._state = state
        self._registry = registry
        self._shards = shards
        self._ownership = ownership
        self._saves = saves
        self._spawn = spawn
        self._starting = threading.RLock()  # one job is started or taken over at a time
        self._started = threading.Event()
        self._closed = threading.Event()
        self._broadcaster: EpochBroadcaster | None = None
        self._executor: Executor | None = None
        self.replaced = False  # the cluster has begun another job

    # --- the job that runs

    @property
    def executor(self) -> Executor | None:
        """None while there is no job."""
        return self._executor

    def running(self) -> Executor:
        """Raises :class:`NotServing` while there is no job."""
        if self._executor is None:
            raise NotServing("no job has been started yet")
        return self._executor

    def wait_for_job(self, timeout: float) -> Executor | None:
        self._started.wait(timeout)
        return self._executor

    @property
    def job(self) -> Job | None:
        return self._executor.job if self._executor is not None else None

    # --- beginning

    def find_job(self) -> None:
        """Find out which job this cluster runs, and take it over. Raises :class:`scar.errors.ScarError`."""
        job = self._registry.find_running_job(self._ownership.claim_if_free)
        if job is not None:
            self._begin_job(job, begins_run=False)

    def start_job(
        self,
        job: Job,
        given: GivenArrays,
        resume: bool,
        take_over: bool = False,
        start: types_pb2.JobStart | None = None,
    ) -> tuple[int, str]:
        """Newest epoch, 0: it waits for shards; and what a resumed job has otherwise than before, in words.

        The job that ran before is saved and ended, once nobody trains it any more, and so is this one where
        its settings change: all shards begin anew with the new ones. ``take_over``: even from a cluster that
        trains it. ``start``: which request it is; one that comes again, perhaps because the coordinator that
        heard it is dead, gets the answer of the first. Raises what :meth:`JobRegistry.find_answer`,
        :meth:`JobRegistry.declare_job` and :meth:`JobOwnership.claim` raise.
        """
        with self._starting:
            answer = self._find_answer(job.name, start)
            running = self._executor
            if answer is not None and not resume and self._goes_on_with(job.name):
                return self.running().epochs.newest, answer
            changes = self._registry.find_changes(job, resume)
            ends = running is not None and (
                running.job.name != job.name or self._state.ending or bool(changes)
            )
            if ends:
                self._check_idle()
            declared = self._registry.declare_job(job, given, resume, start)
            self._ownership.claim(job.name, take_over)
            if ends:
                self._end_job()
            if changes:
                declared = self._registry.revise_job(job, start)
            if ends or running is None:
                declared = self._registry.choose_strategy(declared)
            self._registry.record_run(declared)
            self.replaced = ends
            if running is not None:
                self._state.begin_run()
            number = 0 if ends else self._begin_job(declared, begins_run=True).epochs.newest
            return number, changes or answer or ""

    def upload_initial(self, job: str, table: str, data: bytes) -> str:
        """See :meth:`JobRegistry.upload_initial`. Raises :class:`JobExists` while workers train a job."""
        self._check_idle()
        return self._registry.upload_initial(job, table, data)

    def _find_answer(self, job: str, start: types_pb2.JobStart | None) -> str | None:
        """See :meth:`JobRegistry.find_answer`."""
        if self.replaced:
            raise NotServing("this cluster has just ended its job to begin another one")
        if self.job is not None and self.job.name != job:
            self._registry.find_answer(self.job.name, start)  # refuses an id under which that one was started
        return self._registry.find_answer(job, start)

    def _goes_on_with(self, job: str) -> bool:
        return self.job is not None and self.job.name == job and not self._state.ending

    def _begin_job(self, job: Job, begins_run: bool) -> Executor:
        with self._starting:
            if self._executor is not None:
                return self._executor
            self._shards.job = job_to_proto(job)
            store = self._registry.open_store(job)
            store.load_revisions()
            ledger = LedgerWriter(store, self._state.author)
            background = partial(self._spawn, "move")
            executor = Executor(self._state, ledger, store, self._shards, background, self._save_shard)
            executor.take_over(begins_run)
            self._broadcaster = EpochBroadcaster(self._shards, executor.epochs, executor, self._spawn)
            executor.publisher = self._broadcaster
            self._executor = executor
            self._started.set()
            keep = partial(self._ownership.keep_beating, job.name, self._closed, self._ownership_lost)
            self._spawn("owner", keep)
        _log.info("job.taken_over", extra={"job": job.name, "number": executor.epochs.newest})
        return executor

    def _ownership_lost(self, author: str) -> None:
        self._state.post(LeaderReplaced(author))

    def _save_shard(self, shard: Member, saved: Callable[[], None]) -> None:
        settings = self._state.settings
        trigger = self._saves.trigger_round
        flush = ShardFlush(trigger, self.running().job, shard, settings.flush_bytes, self._closed)

        def is_there() -> bool:
            epoch = self._state.epoch
            return epoch is not None and epoch.shard_index(shard.key) >= 0

        self._spawn("flush", partial(flush.run, settings.flush, is_there, saved))

    # --- ending

    def _check_idle(self) -> None:
        workers = self._state.present_workers()
        if workers:
            name = self.job.name if self.job is not None else ""
            raise JobExists(
                f"this cluster runs job {name!r}: {', '.join(member.name for member in workers)} train it",
                "Wait for their end, or start another cluster",
            )

    def _end_job(self) -> None:
        """End the job that runs. What is not saved then is lost, so everything is saved first."""
        epoch = self._state.epoch
        name = self.running().job.name
        if epoch is not None and epoch.shards:
            self._saves.save_all(name)
        self._state.post(JobEnded())
        if not self._state.wait_for_end(END_SECONDS):
            reason = self._state.problem or "the store is slow"
            raise StoreUnavailable(f"job {name!r} has not ended yet: {reason}")
        if self._broadcaster is not None:
            self._broadcaster.wait_until_told(FAREWELL_SECONDS)

    def close(self) -> None:
        self._closed.set()
        if self._broadcaster is not None:
            self._broadcaster.stop()
        if self._executor is not None:
            self._executor.epochs.close()
