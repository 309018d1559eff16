"""A recovery coordinator behind real gRPC on loopback, over shards that follow the protocol."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import grpc
import numpy as np
from google.protobuf.message import Message

from scar.errors import LivenessUnavailable, NotServing
from scar.member_secrets import SECRET_BYTES
from scar.placement import Epoch, Member, Role
from scar.tables import Job
from scar.v1 import ps_pb2, ps_pb2_grpc, types_pb2
from scar.v1 import recovery_pb2 as pb
from scar.v1.recovery_pb2_grpc import RecoveryStub, add_RecoveryServicer_to_server
from scar.version import PROTOCOL
from scar.wire import codec
from scar.wire.epoch_messages import epoch_from_proto
from scar.wire.transport import Link
from scar_recovery.config import RecoverySettings
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.leader_session import RecoverySession
from scar_recovery.servicer import RecoveryServicer
from scar_runtime.liveness.heartbeat_store import Heartbeat
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.claims import ClaimCheck
from scar_runtime.process.server import make_server
from scar_runtime.store import Store
from scar_runtime.store.directory import DirectoryStore
from scar_runtime.store.failure_log import list_failures
from scar_runtime.store.layout import epoch_key
from scar_runtime.store.records import get_record, message_digest
from tests.framework.recovery import FakeShard, make_job, owned_counts

LEASE = 0.5
SECONDS = 40.0
SECRET = b"s" * SECRET_BYTES


@dataclass
class Process:
    """What a coordinator needs of its process; takes the place of the chassis' App. A thread that fails is
    a problem.
    """

    member: Member
    settings: RecoverySettings
    heartbeats: object
    liveness: ProgressMonitor = field(default_factory=ProgressMonitor)
    stopping: threading.Event = field(default_factory=threading.Event)
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("test"))
    problems: list[BaseException] = field(default_factory=list)
    secret: bytes = SECRET

    @property
    def incarnation(self) -> str:
        return self.member.incarnation

    def spawn(self, name: str, target: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                target()
            except Exception as error:
                self.problems.append(error)

        threading.Thread(target=guarded, name=name, daemon=True).start()


class NoRedis:
    """Redis is down, or (``beating``) has heartbeats of these members."""

    def __init__(self) -> None:
        self.beating: list[Member] = []

    def read_heartbeats(self) -> Mapping[str, Heartbeat]:
        if not self.beating:
            raise LivenessUnavailable("no Redis")
        return {member.key: Heartbeat(member, 1, 0, 1) for member in self.beating}

    def read_heartbeat(self, key: str) -> Heartbeat | None:
        return self.read_heartbeats().get(key)

    def publish_epoch(self, number: int) -> None:
        self.read_heartbeats()

    def block_lease(self, key: str, by: str) -> None:
        self.read_heartbeats()


class ShardServer(ps_pb2_grpc.ShardControlServicer):
    """A :class:`FakeShard` on the wire. ``slow``: blocks are loading for this long, in seconds; ``peers``:
    by address.
    """

    def __init__(self, name: str, life: int, job: Job, peers: dict[str, ShardServer], store: Store) -> None:
        self.server = make_server(8)
        address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.shard = FakeShard(Member(Role.SHARD, name, f"{life:012x}", address), job)
        self.store = store.under(job.name)
        self.adopted_at = 0.0
        self.slow, self.serving, self._peers = 0.0, True, peers
        peers[self.shard.member.key] = self
        ps_pb2_grpc.add_ShardControlServicer_to_server(self, self.server)
        self.server.start()

    @property
    def member(self) -> types_pb2.Member:
        return codec.member_to_proto(self.shard.member)

    @property
    def loading(self) -> int:
        return int(time.monotonic() < self.adopted_at + self.slow)

    def Adopt(self, request: ps_pb2.AdoptRequest, context: grpc.ServicerContext) -> ps_pb2.AdoptReply:
        assert request.job == "test"
        message = get_record(self.store, epoch_key(request.epoch), types_pb2.Epoch)
        assert message_digest(message) == request.digest
        self.shard.adopt(epoch_from_proto(message))
        self.adopted_at = time.monotonic()
        return ps_pb2.AdoptReply(epoch=self.number, loading=self.loading)

    @property
    def number(self) -> int:
        return self.shard.epoch.number if self.shard.epoch is not None else 0

    def Status(self, request: ps_pb2.ShardStatusRequest, context: grpc.ServicerContext) -> ps_pb2.ShardStatus:
        tables = [ps_pb2.TableStatus(table="a", loading=self.loading)]
        return ps_pb2.ShardStatus(
            member=self.member, epoch=self.number, clock=7, tables=tables, serving=self.serving
        )

    def Freeze(self, request: ps_pb2.FreezeRequest, context: grpc.ServicerContext) -> ps_pb2.FreezeReply:
        if request.epoch != self.number:
            raise NotServing("another epoch")
        self.shard.frozen = request.epoch
        return ps_pb2.FreezeReply(clock=7, watermark={"worker-0@1": 3})

    def Receive(self, request: ps_pb2.ReceiveRequest, context: grpc.ServicerContext) -> ps_pb2.ReceiveReply:
        donor = self._peers[codec.member_from_proto(request.donor).key].shard
        assert donor.frozen == request.epoch
        for table in request.tables:
            ids = codec.ids_from_bytes(table.block_ids).astype(np.int64) + self.shard.job.bases[table.table]
            self.shard.aside |= {int(block): int(donor.values[block]) for block in ids}
        self.shard.aside_epoch = request.epoch
        return ps_pb2.ReceiveReply()


class Cluster:
    """Shards and one coordinator, which can be replaced by :meth:`lead`."""

    def __init__(self, store: DirectoryStore, redis: str = "redis://127.0.0.1:6379/0") -> None:
        self.redis = redis  # a cluster is whoever shares it
        self.job = make_job(3)
        self.store = store
        self.peers: dict[str, ShardServer] = {}
        self.lives = 0
        self.heartbeats = NoRedis()
        self.process: Process | None = None
        self.session: RecoverySession | None = None
        self.running: threading.Thread | None = None
        self.stop_session = threading.Event()
        self.server = make_server(16)
        address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        add_RecoveryServicer_to_server(RecoveryServicer(lambda: self.session, ClaimCheck()), self.server)
        self.server.start()
        self.link = Link(address, "recovery")
        self.stub = RecoveryStub(self.link.channel)

    def lead(self) -> RecoverySession:
        """A new coordinator; the former one stops."""
        return self.open(self.take_lead())

    def take_lead(self) -> RecoverySession:
        """A new coordinator that has read nothing yet."""
        self.resign()
        self.lives += 1
        member = Member(Role.RECOVERY, "recovery-0", f"{self.lives:012x}", "host:1")
        self.process = Process(member, RecoverySettings(name="recovery-0", redis=self.redis), self.heartbeats)
        self.session = RecoverySession(self.process, PlannerSettings(lease=LEASE, move_bytes=200), self.store)  # type: ignore[arg-type]
        return self.session

    def open(self, session: RecoverySession) -> RecoverySession:
        stop = self.stop_session = threading.Event()
        self.running = threading.Thread(target=session.run, args=(stop.is_set,), daemon=True)
        self.running.start()
        wait_for(lambda: session.opened)
        return session

    def resign(self) -> None:
        self.stop_session.set()
        if self.running is not None:
            self.running.join(SECONDS)
        self.session = None
        assert self.process is None or not self.process.problems, self.process.problems

    def call(self, method: Callable[..., object], request: Message) -> object:
        """Members of this cluster share one secret, where a test does not say otherwise."""
        if "secret" in request.DESCRIPTOR.fields_by_name and not request.secret:
            request.secret = SECRET
        return self.link.call(method, request, SECONDS)

    def shard(self, name: str) -> ShardServer:
        self.lives += 1
        return ShardServer(name, self.lives, self.job, self.peers, self.store)

    def join(self, member: types_pb2.Member) -> None:
        self.call(self.stub.Join, pb.JoinRequest(member=member, protocol=PROTOCOL))

    def start(self, shards: int = 3) -> list[ShardServer]:
        """A job whose shards serve epoch 1."""
        self.lead()
        given = {name: bytes(raw) for name, raw in codec.job_arrays(self.job).items()}
        self.call(self.stub.StartJob, pb.StartJobRequest(job=codec.job_to_proto(self.job), given=given))
        servers = [self.shard(f"ps-{number}") for number in range(shards)]
        for server in servers:
            self.join(server.member)
        self.epoch_with(lambda epoch: len(epoch.shards) == shards)
        wait_for(lambda: all(server.number == 1 for server in servers))
        for server in servers:
            owned = server.shard.values >= 0
            server.shard.values[owned] = np.flatnonzero(owned) + 1
        return servers

    def worker(self, name: str, named_calls: bool = False) -> types_pb2.Member:
        self.lives += 1
        life = f"{self.lives:012x}"
        member = types_pb2.Member(
            role=types_pb2.ROLE_WORKER, name=name, incarnation=life, named_calls=named_calls
        )
        self.join(member)
        return member

    def die(self, server: ShardServer, proved: bool = True, silence: float = 0.0) -> None:
        server.server.stop(0)
        report = pb.FailureReport(
            member=server.member, proved=proved, silence=silence, detect_seconds=0.1, evidence="test"
        )
        self.call(self.stub.ReportFailure, report)

    def epochs(self) -> list[Epoch]:
        store = self.store.under("test")
        return [epoch_from_proto(get_record(store, key, types_pb2.Epoch)) for key in store.list("epochs/")]

    def epoch_with(self, condition: Callable[[Epoch], bool]) -> Epoch:
        """Follow epochs by long polls until one fits."""
        after = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            reply = self.call(self.stub.GetEpochs, pb.GetEpochsRequest(after=after, wait=1.0))
            assert isinstance(reply, pb.GetEpochsReply)
            for message in reply.epochs:
                after = message.number
                if condition(found := epoch_from_proto(message)):
                    return found
        raise AssertionError(f"no such epoch up to {after}")

    def balanced(self, shards: int) -> Epoch:
        def level(epoch: Epoch) -> bool:
            counts = owned_counts(epoch.owners, len(epoch.shards))
            return len(epoch.shards) == shards and int(counts.max() - counts.min()) <= 1

        return self.epoch_with(level)

    def status(self) -> pb.RecoveryStatus:
        reply = self.call(self.stub.Status, pb.RecoveryStatusRequest())
        assert isinstance(reply, pb.RecoveryStatus)
        return reply

    def failures(self) -> list[pb.FailureRecord]:
        return list_failures(lambda request: self.call(self.stub.ListFailures, request), lost=True)  # type: ignore[return-value]

    def close(self) -> None:
        self.resign()
        self.link.close()
        self.server.stop(0)
        for server in self.peers.values():
            server.server.stop(0)


def wait_for(condition: Callable[[], bool], what: str = "it", seconds: float = SECONDS) -> None:
    """``what``: in words, for who reads the failure only."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.005)
