"""One leadership, from taking over until somebody else leads: what the servicer calls, and the loop that does the work.

Members may join before there is a job; the planner keeps them. The :class:`Executor` exists from the moment that a job does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from scar.codec import job_to_proto
from scar.errors import JobExists, LivenessUnavailable, NotServing, ScarError, StoreUnavailable
from scar.placement import Member, Role
from scar.tables import Job
from scar.v1 import recovery_pb2, types_pb2
from scar_recovery.archive import Archive, Jobs
from scar_recovery.clerk import Clerk
from scar_recovery.couriers import Couriers
from scar_recovery.executor import Executor
from scar_recovery.members import COORDINATORS, Report
from scar_recovery.planner import RETRY, Planner, Settings
from scar_recovery.saving import Saving
from scar_recovery.shards import RemoteShards
from scar_recovery.witness import Finding
from scar_runtime.app import App
from scar_runtime.store import Store

TICK = 0.1  # seconds; the loop shows that it moves at least this often
END_SECONDS = 10.0  # for the last epoch of a job to be created
FAREWELL_SECONDS = 3.0  # for shards to hear of it; one that does not finds out when its lease has run out
NO_JOB_WAIT = 1.0  # seconds for which GetEpochs waits for a job

_log = logging.getLogger(__name__)


class Term:
    """``app``: the process; its heart shows that the loop turns and which epoch is the newest. ``goes``: must this shard go?"""

    def __init__(
        self, app: App, settings: Settings, store: Store, goes: Callable[[Member], bool] = lambda _member: False
    ) -> None:
        self._app, self._store, self._goes = app, store, goes
        self._jobs = Jobs(store, app.settings.cluster)
        self._lock = threading.Condition()
        self._starting = threading.RLock()  # one job is started or taken over at a time
        self._planner = Planner(app.incarnation, settings)
        self._planner.members.joined(app.member, time.monotonic())
        self._shards = RemoteShards()
        self._clerk = Clerk(app, self._planner.members, self._lock, lambda: self._executor)
        self._saving = Saving(app.settings.checkpoint, self._checkpointers)
        self._flushed: set[str] = set()  # shards that go, by key
        self._couriers: Couriers | None = None
        self._executor: Executor | None = None
        self._problem = ""
        self._ended = threading.Event()
        self.opened = False  # it is known whether there is a job
        self.over = False  # the cluster has begun another job

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self, stop: Callable[[], bool]) -> str:
        """Lead until ``stop`` says so, the job changes, or somebody else leads. Returns that somebody's incarnation, or ""."""
        self._app.spawn("clerk", partial(self._clerk.run, self._ended))
        try:
            while not (self.over or stop()):
                executor = self._executor
                self._app.heart.epoch = executor.chronicle.newest if executor is not None else 0
                self._app.heart.beat()
                if not self.opened:
                    self._open()
                elif executor is not None and executor.deposed:
                    return executor.deposed
                elif executor is None or not executor.step():
                    self._wait()
            return ""
        finally:
            self._end()

    def _open(self) -> None:
        """Find out which job this cluster runs, and take it over."""
        try:
            job = self._jobs.current()
            if job is not None:
                self._begin(job)
            self._recall()
        except ScarError as error:
            self._problem = f"the store does not answer: {error.message}"
            self._ended.wait(RETRY)
            return
        self._problem, self.opened = "", True

    def _begin(self, job: Job) -> Executor:
        with self._starting:
            if self._executor is not None:
                return self._executor
            self._shards.job = job_to_proto(job)
            archive = Archive(self._store, job)
            executor = Executor(self._planner, job, archive, self._shards, self._lock, self._in_background)
            executor.take_over()
            self._couriers = Couriers(self._shards, executor.chronicle, executor, self._app.spawn)
            executor.delivery = self._couriers
            with self._lock:
                self._executor = executor
                self._lock.notify_all()
        _log.info("job.taken_over", extra={"job": job.name, "number": executor.chronicle.newest})
        return executor

    def _recall(self) -> None:
        """Members that announced themselves to a former leader and are in no epoch: known from their heartbeats."""
        try:
            beating = [beat.member for beat in self._app.beats.read().values()]
        except LivenessUnavailable:
            return
        with self._lock:
            known = {member.key for member in self._planner.members.all()}
        for member in beating:
            if member.key not in known and (member.role in COORDINATORS or self._shards.wants_in(member)):
                self._recalled(member)

    def _recalled(self, member: Member) -> None:
        try:
            self.join(member)
        except ScarError as error:
            _log.info("member.not_recalled", extra={"key": member.key, "reason": error.message})

    def _wait(self) -> None:
        with self._lock:
            wake = min(self._planner.wake(time.monotonic()), TICK)
            if wake > 0:
                self._lock.wait(wake)

    def _in_background(self, work: Callable[[], None]) -> None:
        self._app.spawn("move", work)

    def _end(self) -> None:
        self._ended.set()
        if self._couriers is not None:
            self._couriers.stop()
        if self._executor is not None:
            self._executor.chronicle.close()
        self._shards.close()

    # --- members ------------------------------------------------------------------------------------------------------

    def join(self, member: Member) -> int:
        """Number of the newest epoch; 0: none. Raises :class:`scar.errors.Fenced`."""
        with self._lock:
            self._planner.members.joined(member, time.monotonic())
            self._shun()
            self._lock.notify_all()
            return self._number()

    def leave(self, member: Member) -> tuple[int, int]:
        """(newest epoch, blocks that the member still owns)."""
        with self._lock:
            self._planner.members.left(member, time.monotonic())
            self._flush()
            self._lock.notify_all()
            return self._number(), self._planner.owned(member.key)

    def doubted(self, finding: Finding) -> bool:
        """Kubernetes says that this member may be dead. Whether it is; then it is repaired as if the detector had proved it.

        A refused connection alone proves nothing, since a network policy may reject; that its pod is gone is the other witness.
        """
        member = finding.member
        if member.role in COORDINATORS or self._shards.incarnation(member) == member.incarnation:
            return False
        if not finding.proof and not self._shards.refuses(member):
            return False
        self.failed(Report(member, proved=True, detect_seconds=finding.age, evidence=f"Kubernetes: {finding.evidence}"))
        return True

    def review(self) -> None:
        """Ask again which shards have to go: they give their blocks away, and get none until it is taken back."""
        with self._lock:
            self._shun()
            self._lock.notify_all()

    def _shun(self) -> None:
        members = self._planner.members
        going = frozenset(one.key for one in members.all() if one.role == Role.SHARD and self._goes(one))
        members.shun(going, time.monotonic())
        self._flush()

    def _flush(self) -> None:
        """Have shards that go saved, before their blocks move: the time that is left to them may be too short for that."""
        epoch, members = self._planner.epoch, self._planner.members
        leavers = members.departures.keys() - {failure.key for failure in members.failures}  # the dead cannot be asked
        for shard in epoch.shards if epoch is not None else ():
            if shard.key in leavers and shard.key not in self._flushed:
                self._flushed.add(shard.key)
                self._planner.saving.add(shard.key)
                begun = partial(self._flushing, shard.key)
                self._app.spawn("flush", partial(self._saving.flush, shard, self._planner.settings.flush, begun))

    def _flushing(self, key: str) -> None:
        """What would be missed most is saved: now its blocks may move."""
        with self._lock:
            self._planner.saving.discard(key)
            self._lock.notify_all()

    def failed(self, report: Report) -> int:
        with self._lock:
            self._planner.members.failed(report, time.monotonic())
            if report.proved:
                self._planner.saving.discard(report.member.key)  # nothing more can be saved, so nothing waits for it
            self._lock.notify_all()
            return self._number()

    def renew(self, member: Member) -> int:
        """The newest epoch, checked in the store: a leader that was paused must not lengthen the life of a shard that its
        successor has declared dead. Raises :class:`scar.errors.Fenced`, :class:`NotServing`."""
        with self._lock:
            executor = self._running()
            self._planner.members.renewed(member, time.monotonic())
            number = self._number()
        if not executor.leads():
            raise NotServing(f"{self._app.member.name} does not lead any more")
        return number

    def _checkpointers(self) -> list[Member]:
        with self._lock:
            return [m for m in self._planner.members.coordinators.values() if m.role == Role.CHECKPOINT]

    def _number(self) -> int:
        return self._planner.epoch.number if self._planner.epoch is not None else 0

    def _running(self) -> Executor:
        if self._executor is None:
            raise NotServing("no job has been started yet")
        return self._executor

    # --- job and epochs -----------------------------------------------------------------------------------------------

    def start_job(self, job: Job, given: Mapping[str, bytes], resume: bool) -> int:
        """Newest epoch; 0: it waits for shards. The job that ran before is saved and ended, once nobody trains it any more.

        Raises :class:`JobExists` and what :meth:`Jobs.declare` raises.
        """
        if not self.opened:
            raise StoreUnavailable(self._problem or "the store has not answered yet")
        with self._starting:
            running = self._executor
            changes = running is not None and (running.job.name != job.name or self._planner.ending)
            if changes:
                self._check_idle()
            self._jobs.declare(job, given, resume)
            if changes:
                self._finish()
            self._jobs.run(job)
            self.over = changes
            return 0 if changes else self._begin(job).chronicle.newest

    def _check_idle(self) -> None:
        with self._lock:
            epoch = self._planner.epoch
            workers = [*(epoch.workers if epoch else ()), *(a.member for a in self._planner.members.waiting(Role.WORKER))]
        if workers:
            raise JobExists(
                f"this cluster runs job {self._name!r}: {', '.join(member.name for member in workers)} train it",
                "Wait for their end, or start another cluster",
            )

    def _finish(self) -> None:
        """End the job that runs. What is not saved then is lost, so everything is saved first."""
        with self._lock:
            epoch, name = self._planner.epoch, self._name
        if epoch is not None and epoch.shards:
            self._saving.save_all(name)
        with self._lock:
            self._planner.end()
            self._lock.notify_all()
            if not self._lock.wait_for(lambda: self._planner.ended, END_SECONDS):
                raise StoreUnavailable(f"job {name!r} has not ended yet: {self._planner.problem or 'the store is slow'}")
        if self._couriers is not None:
            self._couriers.join(FAREWELL_SECONDS)

    @property
    def _name(self) -> str:
        return self.job.name if self.job is not None else ""

    @property
    def number(self) -> int:
        """Newest epoch; 0: none."""
        with self._lock:
            return self._number()

    @property
    def job(self) -> Job | None:
        return self._executor.job if self._executor is not None else None

    @property
    def spec(self) -> types_pb2.JobSpec | None:
        """The job as it is sent: made once, since a large table's offsets take milliseconds to compress."""
        return self._shards.job if self._executor is not None else None

    def epochs(self, after: int, wait: float) -> Sequence[types_pb2.Epoch]:
        with self._lock:
            self._lock.wait_for(lambda: self._executor is not None, min(wait, NO_JOB_WAIT))
            executor = self._executor
        return executor.chronicle.after(after, wait) if executor is not None else []

    # --- books --------------------------------------------------------------------------------------------------------

    def reroute(self, report: recovery_pb2.RerouteReport) -> None:
        """Taken only when it is durable: the worker does not say it again to a successor. Raises what the store raises."""
        with self._lock:
            executor = self._running()
            executor.ledger.reported(report)
        executor.write_ledger()

    def failures(self) -> list[recovery_pb2.FailureRecord]:
        with self._lock:
            return self._executor.ledger.records if self._executor is not None else []

    def members(self) -> list[Member]:
        with self._lock:
            return list(self._planner.members.all())

    def recovering(self) -> list[str]:
        """Members whose blocks are not served again yet."""
        with self._lock:
            loading = self._executor.ledger.loading if self._executor is not None else []
            return sorted({*self._planner.recovering, *loading})

    def problem(self) -> str:
        """What it waits for, in words; empty: nothing."""
        with self._lock:
            return self._problem or self._planner.waits_for
