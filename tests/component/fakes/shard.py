"""A shard that keeps the rules of docs/protocol.md for rule ``add``, and dies or fails where a test wants
it to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import numpy as np

from scar import errors
from scar.losses import LossPart, LossPoint, combine_parts
from scar.placement import Epoch, Member, Role
from scar.tables import Job
from scar.v1 import ps_pb2, ps_pb2_grpc
from scar.v1.direct_pb2 import DirectReply, DirectRequest
from scar.wire import codec, loss_messages
from scar.wire.codec import Chunk
from scar.wire.small_message import decode_small, encode_small
from scar.wire.transport import server_options

WAIT_SECONDS = 40.0


@dataclass
class Taken:
    """One push as it arrived: table -> (ids, packed values)."""

    worker: str
    seq: int
    push_id: int
    clock: int
    pieces: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


class FakeShard(ps_pb2_grpc.ShardControlServicer):
    """``values``: whole tables; only owned blocks mean something. ``faults``: method -> called once,
    before it is served.
    """

    def __init__(self, job: Job, name: str, incarnation: str, port: int = 0) -> None:
        self.job, self.lock = job, threading.Condition()
        self.epoch: Epoch | None = None
        self.values = {table.name: np.zeros(table.elements, table.dtype) for table in job.tables}
        self.log: list[Taken] = []
        self.seqs: dict[str, int] = {}
        self.watermark: dict[str, int] = {}
        self.pending: list[Taken] = []
        self.marks: dict[str, tuple[int, int]] = {}  # name -> finished, epoch
        self.settled: dict[str, int] = {}
        self.losses: dict[int, float] = {}
        self.parts: dict[int, dict[str, LossPart]] = {}
        self.heard: list[LossPoint] = []
        self.clock = self.gained = 0
        self.loading = False
        self.faults: dict[str, Callable[[], None]] = {}
        self.dead = False
        self.server = grpc.server(ThreadPoolExecutor(16), options=server_options())
        ps_pb2_grpc.add_ShardControlServicer_to_server(self, self.server)
        self.server.add_generic_rpc_handlers((self._data(),))
        self.member = Member(
            Role.SHARD, name, incarnation, f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"
        )
        self.server.start()

    def _data(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "scar.v1.ShardData",
            {
                "Push": grpc.stream_unary_rpc_method_handler(
                    self._push, codec.decode_chunk, ps_pb2.PushReply.SerializeToString
                ),
                "Pull": grpc.unary_stream_rpc_method_handler(
                    self._pull, ps_pb2.PullRequest.FromString, codec.encode_chunk
                ),
                "PushSmall": grpc.unary_unary_rpc_method_handler(
                    self._push, decode_small, ps_pb2.PushReply.SerializeToString
                ),
                "PullSmall": grpc.unary_unary_rpc_method_handler(
                    self._pull_small, ps_pb2.PullRequest.FromString
                ),
            },
        )

    def die(self) -> None:
        """As SIGKILL: connections break, nothing is answered any more."""
        self.dead = True
        self.server.stop(0)
        with self.lock:
            self.lock.notify_all()

    def adopt(self, epoch: Epoch, gained: dict[str, np.ndarray], saved: dict[str, np.ndarray]) -> None:
        """Follow an epoch; ``saved``: whole tables that gained blocks are restored from."""
        with self.lock:
            self.epoch = epoch
            for table, ids in gained.items():
                layout = self.job.table(table).layout
                positions = ids.astype(np.int64)
                layout.scatter(self.values[table], positions, layout.gather(saved[table], positions))
                self.gained = epoch.number if len(ids) else self.gained
            owned = epoch.owned_by(self.member.key)
            for taken in self.pending:
                taken.pieces = {
                    t: kept
                    for t, piece in taken.pieces.items()
                    if (kept := self._kept(t, piece, owned[t], gained))
                }
            self._close()
            self.lock.notify_all()

    def _kept(self, table, piece, owned, gained):
        keep = np.isin(piece[0], owned) & ~np.isin(piece[0], gained.get(table, []))
        layout = self.job.table(table).layout.take(piece[0].astype(np.int64))
        return (piece[0][keep], layout.gather(piece[1], np.flatnonzero(keep))) if keep.any() else None

    # --- data
    # --------------------------------------------------------------------------------------------------------

    def _guard(
        self, method: str, context: grpc.ServicerContext, epoch: int | None, serve: Callable[[], object]
    ) -> object:
        try:
            with self.lock:
                fault = self.faults.pop(method, None)
            if fault is not None:
                fault()
            with self.lock:
                if epoch is not None:
                    self._check(epoch)
                return serve()
        except errors.ScarError as error:
            context.set_trailing_metadata(errors.to_metadata(error))
            return context.abort(error.code, error.message)

    def _check(self, epoch: int) -> None:
        if self.dead or self.epoch is None or epoch > self.epoch.number:
            raise errors.NotServing(f"{self.member.name} does not know epoch {epoch}")
        if epoch < self.epoch.number:
            raise errors.StaleEpoch(f"epoch {epoch} is over", epoch=self.epoch.number)

    def _await(self, ready: Callable[[], bool], epoch: int) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not ready():
            self.lock.wait(0.05)
            self._check(epoch)
            if time.monotonic() > deadline:
                raise errors.DeadlineExceeded(f"clock {self.clock} does not close")

    def _push(self, chunks: Iterable[Chunk], context: grpc.ServicerContext) -> object:
        taken, epoch = self._received(chunks)
        return self._guard("Push", context, epoch, lambda: self._take(taken))

    def _received(self, chunks: Iterable[Chunk]) -> tuple[Taken, int]:
        taken, epoch, raw, header = Taken("", 0, 0, 0), 0, b"", None
        parts: list[tuple[ps_pb2.TensorHeader, bytes]] = []
        for chunk in chunks:
            if chunk.header is not None:
                if header is not None:
                    parts.append((header, raw))
                header, raw = chunk.header, b""
            raw += bytes(chunk.data)
        parts.append((header, raw))
        for header, raw in parts:
            taken.worker, taken.seq = f"{header.worker}@{header.incarnation}", header.seq
            taken.push_id, taken.clock, epoch = header.push_id, header.clock, header.epoch
            ids = codec.ids_from_bytes(header.block_ids)
            if header.dense and self.epoch is not None:
                ids = self.epoch.owned_by(self.member.key)[header.table]
            values = np.frombuffer(raw, header.dtype)
            assert len(raw) == header.bytes
            if len(ids):
                taken.pieces[header.table] = (ids, values)
        return taken, epoch

    def _take(self, taken: Taken) -> ps_pb2.PushReply:
        self._await(lambda: not self.loading, self.epoch.number)
        last = self.seqs.get(taken.worker, 0)
        if taken.seq > last + 1:
            raise errors.OutOfOrder(f"push {taken.seq} after {last}")
        reply = ps_pb2.PushReply(epoch=self.epoch.number, clock=self.clock, duplicate=taken.seq <= last)
        if taken.seq == last + 1:
            owned = self.epoch.owned_by(self.member.key)
            for table, (ids, values) in taken.pieces.items():
                assert np.isin(ids, owned[table]).all(), "a block that this shard does not own"
                assert len(values) == self.job.table(table).layout.sizes[ids].sum()
            self.seqs[taken.worker] = taken.seq
            self.log.append(taken)
            self.pending.append(taken)
            if self.job.consistency != "bsp":
                self._apply(self.pending.pop())
        fault = self.faults.pop("Ack", None)
        if fault is not None:
            fault()
        return reply

    def _apply(self, taken: Taken) -> None:
        for table, (ids, values) in taken.pieces.items():
            layout, positions = self.job.table(table).layout, ids.astype(np.int64)
            layout.scatter(
                self.values[table], positions, layout.gather(self.values[table], positions) + values
            )
        self.watermark[taken.worker] = max(self.watermark.get(taken.worker, 0), taken.push_id)

    def _pull(self, request: ps_pb2.PullRequest, context: grpc.ServicerContext) -> Iterator[Chunk]:
        found = self._guard("Pull", context, request.epoch, lambda: self._read(request))
        for header, values in found:
            yield from codec.chunks(header, values)

    def _pull_small(self, request: ps_pb2.PullRequest, context: grpc.ServicerContext) -> bytes:
        return encode_small(map(codec.encode_chunk, self._pull(request, context)))

    def _read(self, request: ps_pb2.PullRequest) -> list[tuple[ps_pb2.TensorHeader, np.ndarray]]:
        self._await(lambda: self.clock >= request.min_clock and not self.loading, request.epoch)
        found, owned = [], self.epoch.owned_by(self.member.key)
        loss_clock = max(self.losses, default=-1) + 1
        for blocks in request.tables:
            ids = owned[blocks.table] if blocks.dense else codec.ids_from_bytes(blocks.block_ids)
            assert np.isin(ids, owned[blocks.table]).all(), "a block that this shard does not own"
            values = self.job.table(blocks.table).layout.gather(
                self.values[blocks.table], ids.astype(np.int64)
            )
            header = ps_pb2.TensorHeader(
                table=blocks.table, dtype=values.dtype.name, epoch=request.epoch, clock=self.clock
            )
            header.loss, header.loss_clock = self.losses.get(loss_clock - 1, 0.0), loss_clock
            found.append((header, values))
        return found

    # --- clocks
    # ------------------------------------------------------------------------------------------------------

    def DirectPort(self, request: DirectRequest, context: grpc.ServicerContext) -> DirectReply:
        return DirectReply()

    def Clock(self, request: ps_pb2.ClockRequest, context: grpc.ServicerContext) -> object:
        return self._guard("Clock", context, request.epoch, lambda: self._mark(request))

    def _mark(self, request: ps_pb2.ClockRequest) -> ps_pb2.ClockReply:
        finished, _ = self.marks.get(request.worker, (0, 0))
        self.marks[request.worker] = (max(finished, request.finished), request.epoch)
        if request.HasField("heard"):
            self.heard.append(loss_messages.point_from_proto(request.heard))
        if request.HasField("part"):
            parts = self.parts.setdefault(request.finished - 1, {})
            parts[request.worker] = loss_messages.part_from_proto(request.part)
            if point := combine_parts(request.finished - 1, parts.values()):
                self.losses[point.clock] = point.loss
        self._close()
        return ps_pb2.ClockReply(
            epoch=request.epoch, clock=self.clock, finished=self.marks[request.worker][0]
        )

    def _close(self) -> None:
        marks = [self.marks.get(worker.name, (0, 0)) for worker in self.epoch.workers]
        reached = min((finished for finished, epoch in marks if epoch >= self.gained), default=0)
        if any(epoch < self.gained for _, epoch in marks) or reached <= self.clock or reached >= 1 << 63:
            return
        self.clock = reached
        for taken in [taken for taken in self.pending if taken.clock < self.clock]:
            self.pending.remove(taken)
            self._apply(taken)
        self.lock.notify_all()

    def is_settled(self) -> bool:
        """All workers have sent again what they owed, and it is in the values or in the open clock."""
        owing = [worker for worker in self.epoch.workers if self.settled.get(worker.key, 0) < self.gained]
        return not owing and not any(taken.clock < self.clock for taken in self.pending)

    def Settle(self, request: ps_pb2.SettleRequest, context: grpc.ServicerContext) -> object:
        return self._guard("Settle", context, None, lambda: self._settle(request))

    def _settle(self, request: ps_pb2.SettleRequest) -> ps_pb2.SettleReply:
        self.settled[f"{request.worker}@{request.incarnation}"] = request.epoch
        self.lock.notify_all()
        finished, _ = self.marks.get(request.worker, (0, 0))
        return ps_pb2.SettleReply(clock=self.clock, finished=finished)
