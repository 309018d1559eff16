"""The recovery coordinator as the SDK needs it: the job, membership, and epochs as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from scar._client.cluster_view import ClusterView
from scar.errors import DeadlineExceeded, Internal, JobNotFound, NotServing, ScarError, Temporary
from scar.placement import END, Epoch, Member
from scar.tables import Job
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire import codec
from scar.wire.epoch_messages import epoch_from_proto
from scar.wire.transport import ATTEMPT_SECONDS, RECOVERY, Backoff, Deadline, Link, retry

POLL_SECONDS = 10.0  # how long the coordinator may hold a question for the next epoch

RecoveryReply = TypeVar("RecoveryReply")


@dataclass(frozen=True)
class RecoveryNews:
    """``outage``: why the next epoch waits for the object store; empty: it does not. ``question``: about
    blocks that a dead shard had; None: nothing is asked.
    """

    epochs: list[Epoch]
    outage: str = ""
    question: recovery_pb2.HoldingsQuestion | None = None


class RecoveryClient:
    """The recovery coordinator as the SDK needs it. Calls keep trying until their deadline.

    ``secret``: of the member for which it speaks; b"": for nobody.
    """

    def __init__(self, address: str, secret: bytes = b"") -> None:
        self.address = address
        self._secret = secret
        self._link = Link(address, "recovery", RECOVERY)
        self._stub = recovery_pb2_grpc.RecoveryStub(self._link.channel)

    def wait_for_job(self, deadline: Deadline, name: str = "") -> Job:
        """The cluster's job; waits until one is started, or the one of this name."""

        def ask(timeout: float) -> recovery_pb2.GetJobReply:
            reply: recovery_pb2.GetJobReply = self._call_once(
                lambda stub: stub.GetJob, recovery_pb2.GetJobRequest(), timeout
            )
            if not reply.started:
                raise NotServing("no job has been started yet", JobNotFound.default_next)
            if name not in ("", reply.job.name):
                raise NotServing(f"the cluster runs job {reply.job.name!r}")
            return reply

        return codec.job_from_proto(
            retry(ask, deadline, f"job {name!r} to be started" if name else "a job to be started").job
        )

    def join(self, member: Member, deadline: Deadline) -> None:
        request = codec.join_request(member, self._secret)
        self._call_until(lambda stub: stub.Join, request, deadline, "recovery to accept this member")

    def leave(self, member: Member, finished: bool, deadline: Deadline, epoch: int = 0) -> None:
        """Leave the job.

        ``finished``: returns when an epoch after ``epoch`` says so, since only that outlives the coordinator.
        """
        request = recovery_pb2.LeaveRequest(
            member=codec.member_to_proto(member), finished=finished, secret=self._secret
        )

        def ask(timeout: float) -> None:
            reply: recovery_pb2.LeaveReply = self._call_once(lambda stub: stub.Leave, request, timeout)
            if finished and (reply.remaining or reply.epoch < epoch):
                raise NotServing("the epoch without this member is not in the store yet")

        retry(ask, deadline, "recovery to let this member go")

    def report_reroute(self, report: recovery_pb2.RerouteReport, deadline: Deadline) -> None:
        report.secret = self._secret
        self._call_until(lambda stub: stub.ReportReroute, report, deadline, "recovery to take a report")

    def get_epochs(self, after: int, wait: float) -> list[Epoch]:
        """Epochs after this number (0: only the newest).

        The coordinator may hold the call for ``wait`` seconds.
        """
        return self.get_news(recovery_pb2.GetEpochsRequest(after=after, wait=wait)).epochs

    def get_news(self, request: recovery_pb2.GetEpochsRequest) -> RecoveryNews:
        """The same, and what else the coordinator says."""
        if request.HasField("worker"):
            request.secret = self._secret
        reply = self._call_once(lambda stub: stub.GetEpochs, request, request.wait + ATTEMPT_SECONDS)
        question = reply.question if reply.HasField("question") else None
        return RecoveryNews([epoch_from_proto(one) for one in reply.epochs], reply.outage, question)

    def offer_blocks(self, offer: recovery_pb2.OfferRequest) -> None:
        """Answer a question, once: recovery does not wait long."""
        offer.secret = self._secret
        self._call_once(lambda stub: stub.Offer, offer, ATTEMPT_SECONDS)

    def request_rollback(self, worker: Member, clock: int, reason: str, deadline: Deadline) -> None:
        """Have everything go back behind this clock. Raises :class:`scar.errors.Diverged`: it cannot."""
        request = recovery_pb2.RollbackRequest(
            worker=codec.member_to_proto(worker), secret=self._secret, clock=clock, reason=reason
        )
        self._call_until(lambda stub: stub.RequestRollback, request, deadline, "recovery to roll back")

    def wait_for_epoch(self, after: int, deadline: Deadline) -> Epoch:
        """The newest epoch, once there is one after this number."""
        while True:
            epoch = self.poll_epoch(after, deadline)
            if epoch is not None:
                return epoch

    def poll_epoch(self, after: int, deadline: Deadline) -> Epoch | None:
        """The same; None: there has been none for a few seconds."""
        waiting_for = f"an epoch after {after}" if after else "the first epoch: enough shards to join"
        if deadline.expired:
            raise deadline.exceeded(waiting_for)

        def ask(timeout: float) -> Epoch | None:
            epochs = self.get_epochs(after, min(POLL_SECONDS, timeout))
            return epochs[-1] if epochs else None

        return retry(ask, deadline, waiting_for)

    def close(self) -> None:
        self._link.close()

    def _call_until(
        self,
        pick: Callable[[recovery_pb2_grpc.RecoveryStub], Callable[..., RecoveryReply]],
        request: object,
        deadline: Deadline,
        waiting_for: str,
    ) -> RecoveryReply:
        return retry(lambda timeout: self._call_once(pick, request, timeout), deadline, waiting_for)

    def _call_once(
        self,
        pick: Callable[[recovery_pb2_grpc.RecoveryStub], Callable[..., RecoveryReply]],
        request: object,
        timeout: float,
    ) -> RecoveryReply:
        return self._link.call(pick(self._stub), request, timeout)


class EpochFollower:
    """Asks the coordinator for the next epoch, until closed, and hands each to ``follow`` in order.

    ``answer``: answers its questions, and says whether it did; None: this worker is not to be asked.
    ``worker``: who asks; None: a reader.
    """

    def __init__(
        self,
        view: ClusterView,
        recovery: RecoveryClient,
        follow: Callable[[Epoch], None],
        answer: Callable[[recovery_pb2.HoldingsQuestion], bool] | None = None,
        worker: Member | None = None,
    ) -> None:
        self._view = view
        self._worker = None if worker is None else codec.member_to_proto(worker)
        self._answer = answer
        self._answered = ""  # id of the last question
        self._recovery = recovery
        self._follow = follow
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scar-epochs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the coordinator's connection, too: the thread may be waiting for its answer."""
        self._closed.set()
        self._recovery.close()
        self._thread.join(ATTEMPT_SECONDS)

    def _run(self) -> None:
        backoff = Backoff()
        while not self._closed.is_set():
            try:
                self._take_news(self._recovery.get_news(self._make_request()))
                backoff.reset()
            except (Temporary, DeadlineExceeded):
                # Training goes on without the coordinator as long as no shard dies, so its absence is
                # nobody's error here.
                self._closed.wait(backoff.next())
            except ScarError as error:
                self._view.fail(error)
                return
            except Exception as error:
                # A thread that dies silently would leave the user waiting for an epoch that nobody follows.
                self._view.fail(Internal(f"cannot follow an epoch: {error!r}"))
                raise

    def _make_request(self) -> recovery_pb2.GetEpochsRequest:
        return recovery_pb2.GetEpochsRequest(
            after=self._view.number,
            wait=POLL_SECONDS,
            offers=self._answer is not None,
            answered=self._answered,
            worker=self._worker,
        )

    def _take_news(self, news: RecoveryNews) -> None:
        self._view.note_outage(news.outage)
        for epoch in news.epochs:
            self._ensure_job(epoch)
            self._follow(epoch)
        question = news.question
        if question is not None and self._answer is not None and self._answer(question):
            self._answered = question.id

    def _ensure_job(self, epoch: Epoch) -> None:
        job = self._view.job.name
        if epoch.job != job or epoch.cause == END:
            raise JobNotFound(
                f"job {job!r} has ended: the cluster is free for another one", "Go on with it by resume"
            )
