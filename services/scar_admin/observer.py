"""Reads the status of a cluster from its services, in one parallel sweep.

    with ClusterObserver("127.0.0.1:40123") as observer:
        status = observer.read()

Only the recovery coordinator's address is needed: it knows the addresses of all others. A service that does
not answer is a problem in the result, never an error. Where members cannot be reached at their addresses, a
:class:`scar_admin.channels.Dialer` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import grpc

from scar.errors import from_rpc
from scar.placement import Role
from scar.v1 import (
    checkpoint_pb2,
    checkpoint_pb2_grpc,
    detector_pb2,
    detector_pb2_grpc,
    ps_pb2,
    ps_pb2_grpc,
    recovery_pb2,
    recovery_pb2_grpc,
    types_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from scar.wire.transport import CHECKPOINT, DETECTOR, RECOVERY
from scar_admin.channels import ChannelCache, Dialer
from scar_admin.status import ClusterStatus, merged_losses

TIMEOUT = 1.0  # seconds that one service may take to answer


StatusRequest = TypeVar("StatusRequest")


ReplyMessage = TypeVar("ReplyMessage")


StatusAnswer = Callable[[], ReplyMessage | None]


class StatusSweep:
    """Calls in flight at the same time, and the problems that they met."""

    def __init__(self, timeout: float) -> None:
        self.problems: list[str] = []
        self._timeout = timeout

    def ask(
        self,
        who: str,
        method: grpc.UnaryUnaryMultiCallable[StatusRequest, ReplyMessage],
        request: StatusRequest,
    ) -> Callable[[], ReplyMessage | None]:
        """Send now; the returned function waits for the answer and notes a failure as a problem."""
        call = method.future(request, timeout=self._timeout)

        def answer() -> ReplyMessage | None:
            try:
                reply: ReplyMessage = call.result()
                return reply
            except grpc.RpcError as error:
                self.problems.append(f"{who} does not answer: {from_rpc(error).message}")
                return None

        return answer


def _collect_replies(asked: Mapping[str, StatusAnswer[ReplyMessage]]) -> dict[str, ReplyMessage]:
    answers = {name: answer() for name, answer in asked.items()}
    return {name: reply for name, reply in answers.items() if reply is not None}


def _is_well(shard: ps_pb2.ShardStatus) -> bool:
    """It serves all of its blocks."""
    return shard.serving and not any(table.loading for table in shard.tables)


def _member_problems(
    shards: Mapping[str, ps_pb2.ShardStatus], workers: Mapping[str, worker_pb2.WorkerStatus]
) -> list[str]:
    """What shards wait for that are not well, and why workers have failed."""
    waits = {name: shard.problem for name, shard in shards.items() if not _is_well(shard)}
    errors = [(name, worker.error) for name, worker in workers.items()]
    return [f"{name}: {what}" for name, what in (*waits.items(), *errors) if what]


class ClusterObserver:
    """Reads :class:`ClusterStatus` again and again over the same channels. For one thread at a time.

    ``addresses``: where the other coordinators listen ("checkpoint", "detector"); default: what the recovery
    coordinator says.
    """

    def __init__(
        self,
        recovery: str,
        addresses: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT,
        dialer: Dialer | None = None,
    ) -> None:
        self.recovery_address = recovery
        self._addresses = dict(addresses or {})
        self._timeout = timeout
        self._channels = ChannelCache(dialer)
        self._last = ClusterStatus()
        self._known: dict[str, types_pb2.Member] = {}  # by name

    def __enter__(self) -> ClusterObserver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channels.close()

    def read(self, since_clock: int = 0) -> ClusterStatus:
        """One look. ``since_clock``: losses of clocks from here on."""
        sweep = StatusSweep(self._timeout)
        stub = self._channels.stub_at(recovery_pb2_grpc.RecoveryStub, self.recovery_address, RECOVERY)
        asked = sweep.ask("recovery", stub.Status, recovery_pb2.RecoveryStatusRequest())
        epochs = sweep.ask("recovery", stub.GetEpochs, recovery_pb2.GetEpochsRequest())
        job = sweep.ask("recovery", stub.GetJob, recovery_pb2.GetJobRequest())
        failures = sweep.ask("recovery", stub.ListFailures, recovery_pb2.ListFailuresRequest())
        self._remember_recovery(asked(), epochs(), job(), self._all_failures(sweep, stub, failures()))
        return self._read_members(sweep, since_clock)

    def _all_failures(
        self,
        sweep: StatusSweep,
        stub: recovery_pb2_grpc.RecoveryStub,
        first: recovery_pb2.ListFailuresReply | None,
    ) -> list[recovery_pb2.FailureRecord] | None:
        """The whole ledger; None: nobody answered."""
        if first is None:
            return None
        records = list(first.failures)
        more = first.more
        while more:
            request = recovery_pb2.ListFailuresRequest(after=records[-1].number)
            page = sweep.ask("recovery", stub.ListFailures, request)()
            records += page.failures if page else ()
            more = page is not None and page.more
        return records

    def channel_to(self, address: str, role: str) -> grpc.Channel:
        """To one process of the cluster, which has this role; it closes with this observer."""
        return self._channels.channel_to(address, role=role)

    def stack(self, worker: str) -> list[str]:
        """Where this worker's main thread is, innermost frame first; says so when it does not answer."""
        member = next(
            (one for one in (self._last.epoch.workers if self._last.epoch else ()) if one.name == worker),
            None,
        )
        if member is None or not member.address:
            return []
        stub = self._channels.stub_at(worker_pb2_grpc.WorkerStub, member.address, role="worker")
        try:
            return list(stub.Stack(worker_pb2.StackRequest(), timeout=self._timeout).frames)
        except grpc.RpcError as error:
            return [f"its stack is not known: {from_rpc(error).message}"]

    def _remember_recovery(
        self,
        recovery: recovery_pb2.RecoveryStatus | None,
        epochs: recovery_pb2.GetEpochsReply | None,
        job: recovery_pb2.GetJobReply | None,
        failures: list[recovery_pb2.FailureRecord] | None,
    ) -> None:
        """What a silent coordinator does not say is as it was: the others go on, and can be looked at."""
        last = self._last
        self._last = ClusterStatus(
            recovery=recovery,
            job=(job.job if job.started else None) if job else last.job,
            epoch=(epochs.epochs[-1] if epochs.epochs else None) if epochs else last.epoch,
            failures=tuple(failures) if failures is not None else last.failures,
        )
        if recovery:
            self._known = {member.name: member for member in recovery.members if member.address}

    def _read_members(self, sweep: StatusSweep, since_clock: int) -> ClusterStatus:
        epoch = self._last.epoch
        self._forget_channels(epoch)
        shards = self._ask_shards(sweep, epoch, since_clock)
        workers = self._ask_workers(sweep, epoch)
        checkpoint = self._ask_checkpoint(sweep)
        detector = self._ask_detector(sweep)
        statuses = _collect_replies(shards)
        trained = _collect_replies(workers)
        saved = checkpoint()
        seen = detector()
        told = {"recovery": self._last.recovery, "checkpoint": saved, "detector": seen}
        problems = [f"{name}: {reply.problem}" for name, reply in told.items() if reply and reply.problem]
        problems += _member_problems(statuses, trained)
        points = merged_losses(statuses.values())
        return replace(
            self._last,
            checkpoint=saved,
            shards=statuses,
            workers=trained,
            redis=seen.redis if seen else None,
            members={view.member.name: view for view in (seen.members if seen else ())},
            losses={clock: point.loss for clock, point in points.items()},
            metrics={clock: dict(point.metrics) for clock, point in points.items() if point.metrics},
            fractions={clock: point.fraction for clock, point in points.items() if point.fraction < 1},
            problems=(*problems, *dict.fromkeys(sweep.problems)),
            waits=tuple(
                status.problem for status in statuses.values() if _is_well(status) and status.problem
            ),
        )

    def _forget_channels(self, epoch: types_pb2.Epoch | None) -> None:
        """Close those to processes that are gone."""
        members = (*self._known.values(), *(epoch.shards if epoch else ()), *(epoch.workers if epoch else ()))
        self._channels.keep_only(
            {self.recovery_address, *self._addresses.values(), *(member.address for member in members)}
        )

    def _ask_shards(
        self, sweep: StatusSweep, epoch: types_pb2.Epoch | None, since: int
    ) -> dict[str, StatusAnswer[ps_pb2.ShardStatus]]:
        request = ps_pb2.ShardStatusRequest(since_clock=since)
        stub_at = self._channels.stub_at
        return {
            member.name: sweep.ask(
                member.name,
                stub_at(ps_pb2_grpc.ShardControlStub, member.address, role="shard").Status,
                request,
            )
            for member in (epoch.shards if epoch else ())
        }

    def _ask_workers(
        self, sweep: StatusSweep, epoch: types_pb2.Epoch | None
    ) -> dict[str, StatusAnswer[worker_pb2.WorkerStatus]]:
        request = worker_pb2.WorkerStatusRequest()
        stub_at = self._channels.stub_at
        return {
            member.name: sweep.ask(
                member.name,
                stub_at(worker_pb2_grpc.WorkerStub, member.address, role="worker").Status,
                request,
            )
            for member in (epoch.workers if epoch else ())
            if member.address
        }

    def _ask_checkpoint(self, sweep: StatusSweep) -> StatusAnswer[checkpoint_pb2.CheckpointStatus]:
        address = self._coordinator_address("checkpoint", Role.CHECKPOINT)
        if not address:
            return lambda: None
        stub = self._channels.stub_at(checkpoint_pb2_grpc.CheckpointStub, address, CHECKPOINT)
        return sweep.ask("checkpoint", stub.Status, checkpoint_pb2.CheckpointStatusRequest())

    def _ask_detector(self, sweep: StatusSweep) -> StatusAnswer[detector_pb2.ListMembersReply]:
        address = self._coordinator_address("detector", Role.DETECTOR)
        if not address:
            return lambda: None
        stub = self._channels.stub_at(detector_pb2_grpc.DetectorStub, address, DETECTOR)
        return sweep.ask("detector", stub.ListMembers, detector_pb2.ListMembersRequest())

    def _coordinator_address(self, kind: str, role: Role) -> str:
        """Its address; empty: nobody has told us."""
        known = [member.address for member in self._known.values() if int(member.role) == role]
        return self._addresses.get(kind) or next(iter(known), "")
