"""One or two shards inside the test process, behind real gRPC on loopback, and the epochs that they
follow.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scar.member_secrets import new_secret
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Job, Table
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.credentials import bind_server
from scar.wire.epoch_messages import epoch_to_proto
from scar.wire.shard_link import ShardLink
from scar_ps.config import PsSettings
from scar_ps.service import ShardService
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.request_streams import RequestStreams
from scar_runtime.process.server import bind_port, make_server
from scar_runtime.store import open_store
from scar_runtime.store.layout import JOB, epoch_key
from scar_runtime.store.records import message_digest, put_record
from scar_runtime.store.signatures import read_key

SECONDS = 40.0
WORKER = Member(Role.WORKER, "worker-0", "0" * 12)


@dataclass
class Process:
    """What a shard needs of its process; takes the place of the chassis' App."""

    member: Member
    settings: PsSettings
    liveness: ProgressMonitor = field(default_factory=lambda: ProgressMonitor(60.0))
    stopping: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    secret: bytes = field(default_factory=new_secret)
    requests: RequestStreams = field(default_factory=RequestStreams)

    def spawn(self, name: str, target) -> None:
        threading.Thread(target=target, name=name, daemon=True).start()

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)


class Running:
    """One shard process inside the test."""

    def __init__(self, number: int, store: str, life: str = "a", recovery: str = "", **settings) -> None:
        self.server = make_server(16)
        listen = settings.get("listen", "127.0.0.1:0")
        address = bind_port(self.server, listen, bind=partial(bind_server, insecure=True))
        self.member = Member(Role.SHARD, f"ps-{number}", life * 12, address)
        self.process = Process(
            self.member, PsSettings(name=self.member.name, store=store, recovery=recovery, **settings)
        )
        self.process.liveness.renew_lease(self.process.liveness.now(), confirmed=True)
        self.service = ShardService(self.process, self.process.settings)
        self.service.register(self.server)
        self.server.start()
        self.service.start()
        self.link = ShardLink(address, self.member.name)
        self.control = self.link.control
        self.seq = 0
        self.saved = ""  # key of the object of the last round

    def call(self, method, request, timeout: float = SECONDS):
        return self.link.call(method, request, timeout)

    def publish(self, epoch: Epoch, spec: Job) -> ps_pb2.AdoptRequest:
        """Put them in the store; what the recovery coordinator tells a shard then."""
        message = epoch_to_proto(epoch)
        settings = self.process.settings
        store = open_store(settings.store, read_key(settings.store_key)).under(spec.name)
        put_record(store, JOB, codec.job_to_proto(spec))
        put_record(store, epoch_key(epoch.number), message)
        return ps_pb2.AdoptRequest(epoch=epoch.number, digest=message_digest(message), job=spec.name)

    def adopt(self, epoch: Epoch, spec: Job) -> ps_pb2.AdoptReply:
        reply = self.call(self.control.Adopt, self.publish(epoch, spec))
        pause = threading.Event()
        while not self.process.failures and not self.service.ready():
            pause.wait(0.005)
        return reply

    def push(
        self,
        pieces: Mapping[str, tuple[Sequence[int] | None, np.ndarray]],
        epoch: int = 1,
        seq: int = 0,
        clock: int = 0,
    ):
        """In one message where the pieces are small, by shared memory where they are large, as a worker."""
        self.seq = seq or self.seq + 1
        size = sum(values.nbytes for _, values in pieces.values())
        return self.link.push(self.chunks(pieces, epoch, clock), SECONDS, size)

    def chunks(self, pieces, epoch: int, clock: int) -> Iterator[Chunk]:
        for table, (blocks, values) in pieces.items():
            raw = b"" if blocks is None else codec.ids_to_bytes(np.array(blocks, np.uint32))
            header = ps_pb2.TensorHeader(
                table=table,
                dtype=values.dtype.name,
                dense=blocks is None,
                block_ids=raw,
                epoch=epoch,
                worker=WORKER.name,
                incarnation=WORKER.incarnation,
                seq=self.seq,
                push_id=self.seq,
                clock=clock,
            )
            yield from codec.chunks(header, values)

    def pull(
        self,
        table: str,
        blocks: Sequence[int] | None = None,
        epoch: int = 1,
        clock: int = 0,
        timeout: float = SECONDS,
        size: int | None = None,
    ):
        """(values, header) as a reader. ``size``: bytes of values, if the reader knows; None: as a stream."""
        raw = b"" if blocks is None else codec.ids_to_bytes(np.array(blocks, np.uint32))
        wanted = [ps_pb2.TableBlocks(table=table, dense=blocks is None, block_ids=raw)]
        request = ps_pb2.PullRequest(tables=wanted, epoch=epoch, min_clock=clock)
        chunks = [Chunk(chunk.header, bytes(chunk.data)) for chunk in self.link.pull(request, timeout, size)]
        header = chunks[0].header
        payload = b"".join(chunk.data for chunk in chunks)
        assert header is not None
        assert header.bytes == len(payload)
        return np.frombuffer(payload, header.dtype), header

    def clock(self, finished: int, epoch: int = 1, loss: float | None = None) -> ps_pb2.ClockReply:
        request = ps_pb2.ClockRequest(
            worker=WORKER.name, incarnation=WORKER.incarnation, epoch=epoch, finished=finished
        )
        if loss is not None:
            request.part.CopyFrom(ps_pb2.LossPart(loss=loss, rank=0, world=1))
        return self.call(self.link.clock, request)

    def settle(self, epoch: int) -> ps_pb2.SettleReply:
        request = ps_pb2.SettleRequest(worker=WORKER.name, incarnation=WORKER.incarnation, epoch=epoch)
        return self.call(self.control.Settle, request)

    def measure(self, number: int, epoch: int = 1, skip: bool = False) -> dict[str, np.ndarray]:
        """Distances of all blocks by table, as the shard keeps them for the round."""
        self.call(self.control.Distances, ps_pb2.DistancesRequest(epoch=epoch, round=number, skip=skip))
        found = {}
        for one in self.service.state.round.measured_candidates(number):
            if one.distances is not None:
                found[one.store.table.name] = np.zeros(len(one.store), np.float32)
                found[one.store.table.name][one.positions] = one.distances
        return found

    def count(self, number: int, depth: int, prefix: int = 0, epoch: int = 1) -> dict[int, int]:
        """Keys by their next digit."""
        asked = ps_pb2.CountRequest(epoch=epoch, round=number, depth=depth, prefix=prefix)
        counts = self.call(self.control.Count, asked).counts
        return dict(zip(counts.digits, counts.counts, strict=True))

    def save(self, number: int, epoch: int = 1, **choice) -> ps_pb2.SaveReply:
        choice = choice or {"selection": "full"}
        reply = self.call(self.control.Save, ps_pb2.SaveRequest(epoch=epoch, round=number, **choice))
        self.saved = reply.object.key
        return reply

    def finish(self, number: int, committed: bool) -> None:
        key = self.saved if committed else ""
        self.call(
            self.control.Finish, ps_pb2.FinishRequest(round=number, committed=committed, object_key=key)
        )

    def status(self) -> ps_pb2.ShardStatus:
        return self.call(self.control.Status, ps_pb2.ShardStatusRequest())

    def stop(self) -> None:
        self.process.stopping.set()
        self.link.close()
        self.service.stop()
        self.service.direct.stop(0)
        self.server.stop(0).wait()


def run_pair(store: str) -> Iterator[list[Running]]:
    """Two shards until the test is over: what a fixture yields from."""
    made = [Running(number, store) for number in range(2)]
    yield made
    for shard in made:
        shard.stop()


def declared(consistency: str = "asp", *more: Table) -> Job:
    return Job("job", [Table("w", (8, 3)), *more], consistency=consistency)


def first(spec: Job, shards: Sequence[Running], *, alternate: bool = False) -> Epoch:
    """Epoch 1: all blocks at the first shard, or every other one."""
    owners = {t.name: (np.arange(t.blocks) % (2 if alternate else 1)).astype(np.uint16) for t in spec.tables}
    moved = tuple(
        BlockGroup(t.name, np.arange(t.blocks, dtype=np.uint32), source=BlockSource.INITIAL)
        for t in spec.tables
    )
    return Epoch(1, "recovery", spec.name, tuple(one.member for one in shards), (WORKER,), owners, moved)


def after(epoch: Epoch, **changes) -> Epoch:
    return Epoch(**{**vars(epoch), "number": epoch.number + 1, "moved": (), **changes})
