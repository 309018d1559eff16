"""What a running cluster looks like, gathered from its services in one parallel sweep.

    observer = Observer("127.0.0.1:40123")
    status = observer.read()
    status.clock, status.loss, status.problems

Only the recovery coordinator's address is needed: it knows the addresses of all others. A service that does not answer is a
problem in the result, never an error. Where members cannot be reached at their addresses, a :class:`Dialer` says how.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import grpc

from scar.errors import from_rpc
from scar.placement import Role
from scar.transport import CHECKPOINT, DETECTOR, RECOVERY, connect
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

TIMEOUT = 1.0  # seconds that one service may take to answer
DONE = 1 << 62  # an open clock from here on means: every worker has finished

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Answer = Callable[[], Reply | None]


@dataclass(frozen=True)
class ClusterStatus:
    """One look at a cluster. Mappings are by member name; a service that did not answer is missing (or None).

    ``waits``: what shards wait for that are well, which is normal for an instant: a clock that is open, a worker that computes.
    """

    recovery: recovery_pb2.RecoveryStatus | None = None
    job: types_pb2.JobSpec | None = None
    epoch: types_pb2.Epoch | None = None
    checkpoint: checkpoint_pb2.CheckpointStatus | None = None
    shards: Mapping[str, ps_pb2.ShardStatus] = field(default_factory=dict)
    workers: Mapping[str, worker_pb2.WorkerStatus] = field(default_factory=dict)
    members: Mapping[str, detector_pb2.MemberView] = field(default_factory=dict)
    failures: tuple[recovery_pb2.FailureRecord, ...] = ()
    losses: Mapping[int, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Newest epoch; 0: none yet."""
        return self.epoch.number if self.epoch else 0

    @property
    def clock(self) -> int:
        """Clocks closed on every shard; when all workers have finished, those that have a loss."""
        clocks = [shard.clock for shard in self.shards.values() if any(table.blocks for table in shard.tables)]
        lowest = min(clocks, default=0)
        return max(self.losses, default=-1) + 1 if lowest >= DONE else lowest

    @property
    def loss(self) -> float | None:
        """Loss of the last clock that has one."""
        return self.losses[max(self.losses)] if self.losses else None

    def losses_from(self, clock: int) -> list[float]:
        """Losses of the clocks from this one on, up to the newest.

        Not a number for a clock that has none although a later one has: a rollback found all workers in the middle of it, and
        what they computed did not count.
        """
        return [self.losses.get(one, math.nan) for one in range(clock, max(self.losses, default=-1) + 1)]

    @property
    def blocks(self) -> int:
        return sum(table.blocks for shard in self.shards.values() for table in shard.tables)

    @property
    def loading(self) -> int:
        """Blocks that are not served yet."""
        return sum(table.loading for shard in self.shards.values() for table in shard.tables)


@dataclass(frozen=True)
class ProcessInfo:
    """One process of a cluster, or one pod of a release (``pid`` 0).

    ``state``: "starting" | "running" | "paused" | "exited" | "killed" (by a signal), or why a pod does not run. ``code``: exit
    code of the last end. ``final``: it has ended and will not be started again. ``part``: see :attr:`component`.
    """

    name: str
    pid: int
    state: str
    restarts: int
    code: int | None = None
    final: bool = False
    part: str = ""

    @property
    def alive(self) -> bool:
        return self.state in ("running", "paused")

    @property
    def component(self) -> str:
        """What it is: ps, worker, recovery, ... Where nobody has said so, its name does: ps-0."""
        return self.part or self.name.rstrip("0123456789").removesuffix("-")


class _Sweep:
    """Calls in flight at the same time, and the problems that they met."""

    def __init__(self, timeout: float) -> None:
        self.problems: list[str] = []
        self._timeout = timeout

    def ask(
        self, who: str, method: grpc.UnaryUnaryMultiCallable[Request, Reply], request: Request
    ) -> Callable[[], Reply | None]:
        """Send now; the returned function waits for the answer and notes a failure as a problem."""
        call = method.future(request, timeout=self._timeout)

        def answer() -> Reply | None:
            try:
                reply: Reply = call.result()
                return reply
            except grpc.RpcError as error:
                self.problems.append(f"{who} does not answer: {from_rpc(error).message}")
                return None

        return answer


def _answered(asked: Mapping[str, Answer[Reply]]) -> dict[str, Reply]:
    answers = {name: answer() for name, answer in asked.items()}
    return {name: reply for name, reply in answers.items() if reply is not None}


def _well(shard: ps_pb2.ShardStatus) -> bool:
    """It serves all of its blocks."""
    return shard.serving and not any(table.loading for table in shard.tables)


class Dialer(Protocol):
    """How to reach an address of the cluster from here."""

    def to(self, address: str) -> str:
        """What to connect to instead."""
        ...

    def keep(self, addresses: Collection[str]) -> None:
        """No other address is needed any more."""
        ...


class Direct:
    """:class:`Dialer` for clusters whose addresses can be reached as they are."""

    def to(self, address: str) -> str:
        return address

    def keep(self, _addresses: Collection[str], /) -> None:
        """Nothing was opened."""


class Channels:
    """One channel to each address. Any thread may use it."""

    def __init__(self, dialer: Dialer | None = None) -> None:
        self._dialer = dialer or Direct()
        self._open: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()

    def to(self, address: str, service: str = "") -> grpc.Channel:
        """``service``: of a coordinator; then the replica that leads answers."""
        with self._lock:
            if address not in self._open:
                self._open[address] = connect(self._dialer.to(address), service)
            return self._open[address]

    def keep(self, addresses: Collection[str]) -> None:
        """Close all others: they would try to reach dead processes for ever."""
        with self._lock:
            for address in set(self._open) - set(addresses):
                self._open.pop(address).close()
            self._dialer.keep(addresses)

    def close(self) -> None:
        self.keep(())


class Observer:
    """Reads :class:`ClusterStatus` again and again over the same channels. For one thread at a time.

    ``addresses``: where the other coordinators listen ("checkpoint", "detector"); default: what the recovery coordinator says.
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
        self._channels = Channels(dialer)
        self._last = ClusterStatus()
        self._known: dict[str, types_pb2.Member] = {}  # by name

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._channels.close()

    def read(self, since_clock: int = 0) -> ClusterStatus:
        """One look. ``since_clock``: losses of clocks from here on."""
        sweep = _Sweep(self._timeout)
        stub = recovery_pb2_grpc.RecoveryStub(self._channels.to(self.recovery_address, RECOVERY))
        asked = sweep.ask("recovery", stub.Status, recovery_pb2.RecoveryStatusRequest())
        epochs = sweep.ask("recovery", stub.GetEpochs, recovery_pb2.GetEpochsRequest())
        job = sweep.ask("recovery", stub.GetJob, recovery_pb2.GetJobRequest())
        failures = sweep.ask("recovery", stub.ListFailures, recovery_pb2.ListFailuresRequest())
        self._remember(asked(), epochs(), job(), failures())
        return self._members(sweep, since_clock)

    def _remember(
        self,
        recovery: recovery_pb2.RecoveryStatus | None,
        epochs: recovery_pb2.GetEpochsReply | None,
        job: recovery_pb2.GetJobReply | None,
        failures: recovery_pb2.ListFailuresReply | None,
    ) -> None:
        """What a silent coordinator does not say is as it was: the others go on, and can be looked at."""
        last = self._last
        self._last = ClusterStatus(
            recovery=recovery,
            job=(job.job if job.started else None) if job else last.job,
            epoch=(epochs.epochs[-1] if epochs.epochs else None) if epochs else last.epoch,
            failures=tuple(failures.failures) if failures else last.failures,
        )
        if recovery:
            self._known = {member.name: member for member in recovery.members if member.address}

    def _members(self, sweep: _Sweep, since_clock: int) -> ClusterStatus:
        epoch = self._last.epoch
        members = (*self._known.values(), *(epoch.shards if epoch else ()), *(epoch.workers if epoch else ()))
        self._channels.keep({self.recovery_address, *self._addresses.values(), *(member.address for member in members)})
        shards, workers = self._shards(sweep, epoch, since_clock), self._workers(sweep, epoch)
        checkpoint, detector = self._checkpoint(sweep), self._detector(sweep)
        statuses, trained = _answered(shards), _answered(workers)
        saved, seen = checkpoint(), detector()
        said = [("recovery", self._last.recovery.problem if self._last.recovery else "")]
        said += [("checkpoint", saved.problem if saved else ""), ("detector", seen.problem if seen else "")]
        said += [(name, status.problem) for name, status in statuses.items() if not _well(status)]
        said += [(name, status.error) for name, status in trained.items()]
        return replace(
            self._last,
            checkpoint=saved,
            shards=statuses,
            workers=trained,
            members={view.member.name: view for view in (seen.members if seen else ())},
            losses={point.clock: point.loss for status in statuses.values() for point in status.losses},
            problems=(*(f"{who}: {what}" for who, what in said if what), *dict.fromkeys(sweep.problems)),
            waits=tuple(status.problem for status in statuses.values() if _well(status) and status.problem),
        )

    def _shards(self, sweep: _Sweep, epoch: types_pb2.Epoch | None, since: int) -> dict[str, Answer[ps_pb2.ShardStatus]]:
        request = ps_pb2.ShardStatusRequest(since_clock=since)
        return {
            member.name: sweep.ask(member.name, ps_pb2_grpc.ShardControlStub(self._channels.to(member.address)).Status, request)
            for member in (epoch.shards if epoch else ())
        }

    def _workers(self, sweep: _Sweep, epoch: types_pb2.Epoch | None) -> dict[str, Answer[worker_pb2.WorkerStatus]]:
        request = worker_pb2.WorkerStatusRequest()
        return {
            member.name: sweep.ask(member.name, worker_pb2_grpc.WorkerStub(self._channels.to(member.address)).Status, request)
            for member in (epoch.workers if epoch else ())
            if member.address
        }

    def _checkpoint(self, sweep: _Sweep) -> Answer[checkpoint_pb2.CheckpointStatus]:
        address = self._coordinator("checkpoint", Role.CHECKPOINT)
        if not address:
            return lambda: None
        stub = checkpoint_pb2_grpc.CheckpointStub(self._channels.to(address, CHECKPOINT))
        return sweep.ask("checkpoint", stub.Status, checkpoint_pb2.CheckpointStatusRequest())

    def _detector(self, sweep: _Sweep) -> Answer[detector_pb2.ListMembersReply]:
        address = self._coordinator("detector", Role.DETECTOR)
        if not address:
            return lambda: None
        stub = detector_pb2_grpc.DetectorStub(self._channels.to(address, DETECTOR))
        return sweep.ask("detector", stub.ListMembers, detector_pb2.ListMembersRequest())

    def _coordinator(self, kind: str, role: Role) -> str:
        """Its address; empty: nobody has told us."""
        known = [member.address for member in self._known.values() if int(member.role) == role]
        return self._addresses.get(kind) or next(iter(known), "")
