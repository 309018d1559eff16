"""One leadership, from taking over until somebody else leads: the loop that does the work, and what it has.

Members may join before there is a job; the planner keeps them. The :class:`Executor` exists from the moment
that a job does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from scar.errors import NotServing, ScarError
from scar.event_log import StorySource
from scar.placement import Member
from scar.v1 import recovery_pb2, types_pb2
from scar.wire.timing import TIMING
from scar_recovery.background_writer import BackgroundWriter
from scar_recovery.checkpoint_client import CheckpointClient
from scar_recovery.config import RecoverySettings
from scar_recovery.core.events import FailureReport
from scar_recovery.core.planner import RETRY, Planner
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.core.wait_timer import WaitTimer
from scar_recovery.history_recorder import HistoryRecorder
from scar_recovery.job_finisher import JobFinisher
from scar_recovery.job_lifecycle import JobLifecycle
from scar_recovery.job_ownership import Claimant, JobOwnership, cluster_id
from scar_recovery.job_registry import JobRegistry
from scar_recovery.leader_state import LeaderState
from scar_recovery.membership_api import MembershipApi
from scar_recovery.shard_client import GrpcShardClient
from scar_recovery.unaddressed_members import MISSING_SECONDS, UnaddressedMembers
from scar_runtime.process.app import App
from scar_runtime.store import Store

TICK = TIMING.look_every  # seconds; the loop shows that it moves at least this often
NO_JOB_WAIT = 1.0  # seconds for which GetEpochs waits for a job


class RecoverySession:
    """``app``: the process; its liveness shows that the loop turns and which epoch is the newest.

    ``must_leave``: whether this shard has to go, because of its pod or node. ``members``: what is told about
    members; ``jobs``: the job that runs; ``unaddressed``: who can only call us.
    """

    def __init__(
        self,
        app: App,
        settings: PlannerSettings,
        store: Store,
        must_leave: Callable[[Member], bool] = lambda _member: False,
    ) -> None:
        self._app = app
        self._state = LeaderState(Planner(app.incarnation, settings), must_leave=must_leave)
        self._state.admit_member(app.member)
        self.unaddressed = UnaddressedMembers(app.heartbeats)
        self._shards = GrpcShardClient(self.unaddressed)
        self._saves = CheckpointClient(app.settings.checkpoint, self._state.checkpoint_coordinators)
        self.members = MembershipApi(self._state, self._shards)
        self.jobs = self._make_jobs(store)
        self._writer = BackgroundWriter(app, self._state, lambda: self.jobs.executor)
        self._history = HistoryRecorder(
            lambda: self.jobs.executor, self._shards.read_progress, app.incarnation
        )
        self._finisher = JobFinisher(
            lambda: self.jobs.executor,
            self._saves.save_all,
            self._shards.read_losses,
            keep_history=partial(self._history.step, at_once=True),
        )
        self._problem = ""  # why it is not known yet whether there is a job
        self._waited = WaitTimer()
        self._ended = threading.Event()
        self.opened = False  # it is known whether there is a job

    def _make_jobs(self, store: Store) -> JobLifecycle:
        app = self._app
        settings = app.settings
        assert isinstance(settings, RecoverySettings)
        cluster = settings.cluster
        claimant = Claimant(cluster_id(settings.redis, cluster), cluster, app.incarnation)
        ownership = JobOwnership(store, claimant, self._shards)
        registry = JobRegistry(store, cluster)
        return JobLifecycle(self._state, registry, self._shards, ownership, self._saves, app.spawn)

    # --- the loop

    def run(self, stop: Callable[[], bool]) -> str:
        """Lead until ``stop`` says so, the job changes, or somebody else leads.

        Returns that somebody's incarnation, or "".
        """
        self._app.spawn("clerk", partial(self._writer.run, self._ended))
        self._app.spawn("finisher", partial(self._finisher.run, self._ended))
        self._app.spawn("history", partial(self._history.run, self._ended))
        try:
            while not (self.jobs.replaced or self._state.replaced_by or stop()):
                self._turn()
            return self._state.replaced_by
        finally:
            self._ended.set()
            self.jobs.close()
            self._shards.close()

    def _turn(self) -> None:
        """Once through the loop."""
        executor = self.jobs.executor
        self._app.liveness.epoch = executor.epochs.newest if executor is not None else 0
        self._app.liveness.record_progress()
        self._waited.observe(self.problem, self._state.now())
        self._report_missing()
        if not self.opened:
            self._open()
        elif executor is None or not executor.step():
            self._state.wait_for_work(TICK)

    def _report_missing(self) -> None:
        """Workers that nobody can ask, and that do not ask us any more."""
        workers = self._state.epoch.workers if self._state.epoch is not None else ()
        known = {worker.key: worker for worker in workers if worker.named_calls and not worker.address}
        for key in self.unaddressed.find_missing(known):
            evidence = "it does not ask for epochs any more"
            report = FailureReport(known[key], False, MISSING_SECONDS, MISSING_SECONDS, evidence)
            self.members.report_failure(report)

    def _open(self) -> None:
        """Find out which job this cluster runs, and which members there are."""
        try:
            self.jobs.find_job()
            self.members.recall_from_heartbeats(self._app.heartbeats)
        except ScarError as error:
            reason = "" if isinstance(error, NotServing) else "the store does not answer: "
            self._problem = reason + error.message
            self._ended.wait(RETRY)
            return
        self._problem = ""
        self.opened = True

    # --- leases and reports, which only a leader may take

    def renew_lease(self, member: Member) -> int:
        """The newest epoch, checked in the store.

        A leader that was paused must not lengthen the life of a shard that its successor has declared dead.
        Raises :class:`scar.errors.Fenced`, :class:`NotServing`.
        """
        executor = self.jobs.running()
        number = self._state.renew_lease(member)
        executor.check_leads()
        return number

    def accept_report(self, report: recovery_pb2.RerouteReport) -> None:
        """Taken only when it is durable, and our successor, if there is one, has read it.

        The worker says it just once. Raises what the store raises, and :class:`NotServing` after an epoch of
        somebody else.
        """
        executor = self.jobs.running()
        executor.ledger.accept_report(report)
        executor.check_leads()

    def roll_back(self, worker: Member, clock: int, reason: str) -> None:
        """A worker asks for it: see :meth:`RollbackDesk.accept_request`."""
        self.jobs.running().rollbacks.accept_request(worker, clock, reason)

    # --- questions

    def epochs_after(
        self, number: int, wait: float, answered: str | None = None
    ) -> Sequence[types_pb2.Epoch]:
        """Epochs after this one, as :meth:`EpochLog.after` has them; [] when there is no job."""
        executor = self.jobs.wait_for_job(min(wait, NO_JOB_WAIT))
        return executor.epochs.after(number, wait, answered) if executor is not None else []

    def open_question(self, answered: str | None) -> recovery_pb2.HoldingsQuestion | None:
        """What a worker is asked, as :meth:`EpochLog.open_question` has it. ``answered`` None: nothing is."""
        executor = self.jobs.executor
        return None if executor is None or answered is None else executor.epochs.open_question(answered)

    def accept_offer(self, offer: recovery_pb2.OfferRequest) -> None:
        """What a worker holds of lost blocks."""
        executor = self.jobs.running()
        executor.offers.accept_offer(offer, executor.job)

    def list_failures(
        self, after: int = 0, lost: bool = False
    ) -> tuple[list[recovery_pb2.FailureRecord], bool]:
        """See :meth:`LedgerWriter.list_records`."""
        executor = self.jobs.executor
        return executor.ledger.list_records(after, lost) if executor is not None else ([], False)

    def story(self) -> StorySource:
        """Why the planner did what it did."""
        return self._state.story()

    @property
    def epoch_number(self) -> int:
        """Newest epoch; 0: none."""
        return self._state.epoch_number

    @property
    def spec(self) -> types_pb2.JobSpec | None:
        """The job as it is sent: made once, since a large table's offsets take milliseconds to compress."""
        return self._shards.job if self.jobs.executor is not None and not self.jobs.replaced else None

    @property
    def outage(self) -> str:
        """Why a recovery waits for the store, in words; empty: none does."""
        return self._state.outage

    @property
    def recovering(self) -> list[str]:
        """Members whose blocks are not served again yet."""
        executor = self.jobs.executor
        loading = executor.ledger.loading if executor is not None else []
        return sorted({*self._state.recovering, *loading})

    @property
    def problem(self) -> str:
        """What it waits for, in words; empty: nothing."""
        return self._problem or self._state.waits_for or self._finisher.problem

    @property
    def waiting_seconds(self) -> float:
        """For how long it has waited for the same thing."""
        return self._waited.seconds(self._state.now())

    @property
    def finished(self) -> recovery_pb2.FinishedRecord | None:
        """The job's end, once the model as its workers left it is durable."""
        return self._finisher.record

    @property
    def store_health(self) -> recovery_pb2.StoreHealth:
        return self._history.store_watch.read()

    @property
    def revisions(self) -> Sequence[recovery_pb2.JobRevision]:
        """What the job was resumed with otherwise than before, oldest first."""
        executor = self.jobs.executor
        return executor.store.revisions if executor is not None else []

    @property
    def store_url(self) -> str:
        """Where checkpoints are."""
        return self._app.settings.store
