"""What one process knows of the cluster: the newest epoch it follows, and a connection to each of that epoch's shards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from scar import codec
from scar.blocks import Ids, Positions
from scar.errors import DeadlineExceeded, Internal, JobNotFound, NotServing, ScarError, Temporary
from scar.placement import END, Epoch, Member
from scar.tables import Job
from scar.transport import ATTEMPT_SECONDS, RECOVERY, Backoff, Deadline, Link, ShardLink, retry
from scar.v1 import recovery_pb2, recovery_pb2_grpc

POLL_SECONDS = 10.0  # how long the coordinator may hold a question for the next epoch

Reply = TypeVar("Reply")


class Recovery:
    """The recovery coordinator as the SDK needs it. Calls keep trying until their deadline."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._link = Link(address, "recovery", RECOVERY)
        self._stub = recovery_pb2_grpc.RecoveryStub(self._link.channel)

    def job(self, deadline: Deadline, name: str = "") -> Job:
        """The cluster's job; waits until one is started, or the one of this name."""

        def ask(timeout: float) -> recovery_pb2.GetJobReply:
            reply: recovery_pb2.GetJobReply = self._once(lambda stub: stub.GetJob, recovery_pb2.GetJobRequest(), timeout)
            if not reply.started:
                raise NotServing("no job has been started yet", JobNotFound.default_next)
            if name not in ("", reply.job.name):
                raise NotServing(f"the cluster runs job {reply.job.name!r}")
            return reply

        return codec.job_from_proto(retry(ask, deadline, f"job {name!r} to be started" if name else "a job to be started").job)

    def join(self, member: Member, deadline: Deadline) -> None:
        request = recovery_pb2.JoinRequest(member=codec.member_to_proto(member))
        self._call(lambda stub: stub.Join, request, deadline, "recovery to accept this member")

    def leave(self, member: Member, finished: bool, deadline: Deadline) -> None:
        request = recovery_pb2.LeaveRequest(member=codec.member_to_proto(member), finished=finished)
        self._call(lambda stub: stub.Leave, request, deadline, "recovery to let this member go")

    def report(self, report: recovery_pb2.RerouteReport, deadline: Deadline) -> None:
        self._call(lambda stub: stub.ReportReroute, report, deadline, "recovery to take a report")

    def epochs(self, after: int, wait: float) -> list[Epoch]:
        """One question: epochs after this number (0: only the newest), held by the coordinator for up to ``wait`` seconds."""
        request = recovery_pb2.GetEpochsRequest(after=after, wait=wait)
        reply = self._once(lambda stub: stub.GetEpochs, request, wait + ATTEMPT_SECONDS)
        return [codec.epoch_from_proto(epoch) for epoch in reply.epochs]

    def newest(self, after: int, deadline: Deadline) -> Epoch:
        """The newest epoch, once there is one after this number."""
        waiting_for = f"an epoch after {after}" if after else "the first epoch: enough shards to join"

        def ask(timeout: float) -> Epoch:
            epochs = self.epochs(after, min(POLL_SECONDS, timeout))
            if not epochs:
                raise NotServing("the coordinator has no such epoch yet")
            return epochs[-1]

        return retry(ask, deadline, waiting_for)

    def close(self) -> None:
        self._link.close()

    def _call(
        self,
        pick: Callable[[recovery_pb2_grpc.RecoveryStub], Callable[..., Reply]],
        request: object,
        deadline: Deadline,
        waiting_for: str,
    ) -> Reply:
        return retry(lambda timeout: self._once(pick, request, timeout), deadline, waiting_for)

    def _once(
        self, pick: Callable[[recovery_pb2_grpc.RecoveryStub], Callable[..., Reply]], request: object, timeout: float
    ) -> Reply:
        return self._link.call(pick(self._stub), request, timeout)


class Deal:
    """One epoch with its shares worked out once: whole tables are pulled and pushed again and again."""

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self._owned: dict[tuple[str, int], Ids] = {}
        self._shares: dict[str, list[tuple[int, Positions]]] = {}

    def owned(self, table: str, index: int) -> Ids:
        """Blocks of a shard, ascending."""
        found = self._owned.get((table, index))
        if found is None:
            found = self._owned[table, index] = self.epoch.owned(table, index)
        return found

    def shares(self, table: str) -> list[tuple[int, Positions]]:
        """Blocks of the whole table by owner, as :meth:`Epoch.split` gives them."""
        found = self._shares.get(table)
        if found is None:
            every = np.arange(len(self.epoch.owners[table]), dtype=np.uint32)
            found = self._shares[table] = self.epoch.split(table, every)
        return found


class View:
    """The newest epoch, its connections, and the first error that ends this process's work. Guarded by ``lock``."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)  # an epoch, an acknowledgement, a failure: whatever a user may wait for
        self.wakers: set[threading.Condition] = set()  # of lanes, on the same lock
        self.links: dict[str, ShardLink] = {}
        self.rollbacks = 0
        self.failure: ScarError | None = None
        self._deal: Deal | None = None

    @property
    def deal(self) -> Deal:
        """Raises :class:`NotServing` before the first epoch."""
        if self._deal is None:
            raise NotServing("no epoch is known yet")
        return self._deal

    @property
    def epoch(self) -> Epoch:
        return self.deal.epoch

    @property
    def number(self) -> int:
        return self._deal.epoch.number if self._deal else 0

    def adopt(self, epoch: Epoch) -> None:
        """Follow an epoch: connections of shards that left are closed, which ends calls that hang on them."""
        with self.lock:
            former, self.links = self.links, {}
            for shard in epoch.shards:
                known = former.pop(shard.key) if shard.key in former else ShardLink(shard.address, shard.name)
                self.links[shard.key] = known
            self.rollbacks += epoch.rollback
            self._deal = Deal(epoch)
            self.notify()
        for link in former.values():
            link.close()

    def fail(self, error: ScarError) -> None:
        """The first error wins; every later call of the user raises it."""
        with self.lock:
            self.failure = self.failure or error
            self.notify()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def notify(self) -> None:
        self.changed.notify_all()
        for waker in self.wakers:
            waker.notify_all()

    def wait_beyond(self, number: int, seconds: float) -> None:
        """Sleep until a newer epoch than ``number`` is followed, or the work has failed, or the time is over."""
        with self.lock:
            self.changed.wait_for(lambda: self.number > number or self.failure is not None, seconds)

    def close(self) -> None:
        with self.lock:
            links, self.links = self.links, {}
        for link in links.values():
            link.close()


class Follower:
    """Asks the coordinator for the next epoch, for ever, and hands each to ``follow`` in order."""

    def __init__(self, view: View, recovery: Recovery, follow: Callable[[Epoch], None]) -> None:
        self._view, self._recovery, self._follow = view, recovery, follow
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
                for epoch in self._recovery.epochs(self._view.number, POLL_SECONDS):
                    self._check(epoch)
                    self._follow(epoch)
                backoff.reset()
            except (Temporary, DeadlineExceeded):
                # Training goes on without the coordinator as long as no shard dies, so its absence is nobody's error here.
                self._closed.wait(backoff.next())
            except ScarError as error:
                self._view.fail(error)
                return
            except Exception as error:
                # A thread that dies in silence would leave the user waiting for an epoch that nobody follows.
                self._view.fail(Internal(f"cannot follow an epoch: {error!r}"))
                raise

    def _check(self, epoch: Epoch) -> None:
        job = self._view.job.name
        if epoch.job != job or epoch.cause == END:
            raise JobNotFound(f"job {job!r} has ended: the cluster is free for another one", "Go on with it by resume")
