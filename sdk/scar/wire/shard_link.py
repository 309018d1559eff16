"""The connection to a shard: its control stub, and its tensors, in one message or as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, TypeGuard

from google.protobuf.message import Message

from scar.blocks import Array
from scar.errors import InvalidRequest, TooLarge
from scar.v1 import ps_pb2, ps_pb2_grpc
from scar.v1.direct_pb2 import DirectReply, DirectRequest
from scar.wire import codec, small_message, tracing
from scar.wire.codec import Chunk
from scar.wire.direct_calls import DirectConnections, DirectMethod, as_message
from scar.wire.loopback import is_loopback
from scar.wire.shared_memory import Segment, SegmentAllocator, SegmentOffer, show_tensors
from scar.wire.transport import ATTEMPT_SECONDS, Link

DATA = "/scar.v1.ShardData/"
UPLOADS: dict[str, type[Message]] = {  # streams of chunks, and what answers them
    "Push": ps_pb2.PushReply,
    "Restore": ps_pb2.RestoreReply,
    "Ship": ps_pb2.ShipReply,
}
DOWNLOADS: dict[str, type[Message]] = {"Pull": ps_pb2.PullRequest, "Fetch": ps_pb2.FetchRequest}
LONG_HEADER = 16 << 10  # bytes, most of them ids
WHOLE_BYTES = 16 << 20  # in shared memory that one message points to; of more, both sides work at once
_WHOLE = ps_pb2.PullRequest(whole=True).SerializeToString()  # behind a request it is a part of it


class Cancellable(Protocol):
    """A call that may be left before its end."""

    def cancel(self) -> object: ...


class ShardLink(Link):
    """A connection to a shard. What is small travels as one message, all else as a stream.

    ``size``: bytes of values that a call moves; None: not known. Between processes of one machine large
    payloads go through shared memory, to which one message points. ``role``: of who answers, when it may be
    another member that is only asked how it is.
    """

    def __init__(self, address: str, name: str, role: str = "shard") -> None:
        super().__init__(address, name, role=role)
        self.control = ps_pb2_grpc.ShardControlStub(self.channel)
        self._segments = SegmentAllocator(self._offer_segment) if is_loopback(address) else None
        asked = ps_pb2.PullRequest.SerializeToString
        acked = ps_pb2.PushReply.FromString
        self._push_small = self.channel.unary_unary(f"{DATA}PushSmall", None, acked)
        self._pull_small = self.channel.unary_unary(f"{DATA}PullSmall", asked, small_message.decode_small)
        self.clock = self.control.Clock
        self._refuses_contents = False  # in one message
        self._refuses_pointers = False  # to shared memory, in one message
        self._direct: DirectConnections | None = None
        if not tracing.is_on():  # spans follow gRPC's metadata
            self._direct = connections = DirectConnections(address, role, self._find_direct)
            self._push_small = DirectMethod(
                connections, "ShardData/PushSmall", self._push_small, bytes, acked
            )
            self._pull_small = DirectMethod(
                connections, "ShardData/PullSmall", self._pull_small, asked, small_message.decode_small
            )
            self.clock = DirectMethod(
                connections,
                "ShardControl/Clock",
                self.clock,
                ps_pb2.ClockRequest.SerializeToString,
                ps_pb2.ClockReply.FromString,
            )

    def push(self, chunks: Iterable[Chunk], timeout: float, size: int | None = None) -> ps_pb2.PushReply:
        """Send one push; returns when the shard has acknowledged it."""
        if size is not None and size <= small_message.SMALL_BYTES:
            chunks = list(chunks)
            acked = self._push_whole(chunks, timeout)
            if acked is not None:
                return acked
        if self._segments is None or size is None:
            return self._push_stream(chunks, timeout)
        pointers = [self._segments.point_to_borrowed(chunk) for chunk in chunks]
        try:
            return self._push_shared(pointers, timeout, size)
        except BaseException:
            self._segments.forget_borrowed(pointers)
            raise

    def _push_shared(self, chunks: list[Chunk], timeout: float, size: int) -> ps_pb2.PushReply:
        """Those that do not point to shared memory yet have their data put there, if there is some."""
        left = sum(len(chunk.data) for chunk in chunks)
        with self._lend_segment(left) as segment:
            stream = iter(chunks) if segment is None else segment.fill_segment(chunks)
            if size <= WHOLE_BYTES and (segment is not None or not left):
                pointers = list(stream)
                acked = self._push_whole(pointers, timeout)
                if acked is not None:
                    return acked
                stream = iter(pointers)
            return self._push_stream(stream, timeout)

    def _push_whole(self, chunks: list[Chunk], timeout: float) -> ps_pb2.PushReply | None:
        """As one message; None: with headers and ids they are too large for that."""
        message = small_message.encode_small(map(codec.encode_chunk, chunks))
        if len(message) > small_message.SMALL_BYTES:
            return None
        acked: ps_pb2.PushReply = self.call(self._push_small, message, timeout)
        return acked

    def _push_stream(self, chunks: Iterable[Chunk], timeout: float) -> ps_pb2.PushReply:
        acked: ps_pb2.PushReply = self._send_stream("Push", _headers_first(chunks), timeout)
        return acked

    def _send_stream(self, name: str, chunks: Iterable[Chunk], timeout: float) -> Any:
        """``name``: of :data:`UPLOADS`."""
        with self.translate_errors():
            if self._direct is not None:
                parts = map(codec.encode_parts, chunks)
                answer = self._direct.send_stream(f"ShardData/{name}", parts, timeout)
                if answer is not None:
                    return as_message(UPLOADS[name].FromString, answer)
            return self._by_grpc(name)(iter(chunks), timeout=timeout)

    def _by_grpc(self, name: str) -> Callable[..., Any]:
        """The stub of a stream, which few links ever need."""
        path = f"{DATA}{name}"
        stub: Callable[..., Any]
        if name in UPLOADS:
            stub = self.channel.stream_unary(path, codec.encode_chunk, UPLOADS[name].FromString)
        else:
            asked = DOWNLOADS[name].SerializeToString
            stub = self.channel.unary_stream(path, asked, codec.decode_chunk)
        return stub

    def borrow_memory(self, size: int) -> Array | None:
        """Memory where values may lie that are pushed later, which spares a copy; None: there is none at
        hand.
        """
        return None if self._segments is None else self._segments.borrow_memory(size)

    def restore(self, chunks: Iterable[Chunk], timeout: float) -> None:
        """Send blocks that the shard has gained; returns when it has taken them, or needs them no more."""
        self._send_stream("Restore", chunks, timeout)

    def ship(self, chunks: Iterable[Chunk], timeout: float) -> None:
        """Send copies to the next replica; returns when it has taken them."""
        self._send_stream("Ship", chunks, timeout)

    def fetch(self, request: ps_pb2.FetchRequest, timeout: float) -> Iterator[Chunk]:
        """Blocks that the shard has frozen, chunk by chunk, each valid until the next."""
        with self.translate_errors():
            stream, chunks = self._begin_stream("Fetch", request, timeout)
            try:
                yield from chunks
            finally:
                stream.cancel()

    def pull(self, request: ps_pb2.PullRequest, timeout: float, size: int | None = None) -> Iterable[Chunk]:
        """The shard's answer, chunk by chunk, each valid until the next, unless its data are lasting."""
        with_metrics = request.loss_clock > 0
        tables = len(request.tables)
        fits = size is not None and small_message.answer_fits(size, tables, with_metrics, request.contents)
        if fits and not (request.contents and self._refuses_contents):
            try:
                chunks: list[Chunk] = self.call(self._pull_small, request, timeout)
                return chunks
            except InvalidRequest:  # of more workers than one message has room for
                if not request.contents:
                    raise
                self._refuses_contents = True
        return self._pull_large(request, timeout, size)

    def _pull_large(self, request: ps_pb2.PullRequest, timeout: float, size: int | None) -> Iterator[Chunk]:
        """Closing the iterator early cancels the call."""
        if self._may_point(size) and (tensors := self._pull_borrowed(request, timeout, size)) is not None:
            yield from tensors
            return
        with self._lend_segment(size) as segment, self.translate_errors():
            if segment is not None and self._may_point(size):
                pointers = self._pull_pointers(request, segment.offer.key, timeout)
                if pointers is not None:
                    yield from map(segment.read_chunk, pointers)
                    return
            request.shared = segment.offer.key if segment is not None else b""
            lasting = segment is None and size is not None and size <= codec.WHOLE_BYTES
            stream, chunks = self._begin_stream("Pull", request, timeout, lasting)
            try:
                yield from chunks if segment is None else map(segment.read_chunk, chunks)
            finally:
                stream.cancel()

    def _begin_stream(
        self, name: str, request: Message, timeout: float, lasting: bool = False
    ) -> tuple[Cancellable, Iterator[Chunk]]:
        """``name``: of :data:`DOWNLOADS`. ``lasting``: tables of a pull in a message each, which last; but by
        gRPC, which is faster with pieces.
        """
        if self._direct is not None:
            asked = request.SerializeToString() + (_WHOLE if lasting else b"")
            direct = self._direct.receive_stream(f"ShardData/{name}", asked, timeout, lasting)
            if direct is not None:
                return direct, map(partial(codec.decode_chunk, lasting=lasting), direct)
        stream = self._by_grpc(name)(request, timeout=timeout)
        return stream, stream

    def _may_point(self, size: int | None) -> TypeGuard[int]:
        """Whether one message may point to so many bytes in shared memory."""
        return size is not None and size <= WHOLE_BYTES and not self._refuses_pointers

    def _pull_pointers(self, request: ps_pb2.PullRequest, key: bytes, timeout: float) -> list[Chunk] | None:
        """The answer as one message that points to the segment with this key; None: it has no room there."""
        request.shared = key
        try:
            pointers: list[Chunk] = self.call(self._pull_small, request, timeout)
        except TooLarge:  # an older shard, or it has more to say than one message has room for
            self._refuses_pointers = True
            return None
        return pointers

    def _pull_borrowed(
        self, request: ps_pb2.PullRequest, timeout: float, size: int
    ) -> Sequence[Chunk] | None:
        """The answer, whose data are valid as long as they are held. None: no such memory is at hand, or the
        shard has more to say than one message has room for.
        """
        borrowed = None if self._segments is None else self._segments.borrow_segment(size)
        if self._segments is None or borrowed is None:
            return None
        key, memory = borrowed
        try:
            pointers = self._pull_pointers(request, key, timeout)
        except BaseException:
            self._segments.forget_keys([key])
            raise
        return None if pointers is None else show_tensors(memory, pointers)

    def close(self) -> None:
        super().close()
        if self._direct is not None:
            self._direct.close()

    def _find_direct(self, timeout: float) -> DirectReply:
        found: DirectReply = self.call(
            self.control.DirectPort, DirectRequest(), min(timeout, ATTEMPT_SECONDS)
        )
        return found

    def _lend_segment(self, size: int | None) -> AbstractContextManager[Segment | None]:
        if size is None or self._segments is None:
            return nullcontext()
        return self._segments.lend_segment(size)

    def _offer_segment(self, offer: SegmentOffer) -> bool:
        request = ps_pb2.ShareRequest(pid=offer.pid, number=offer.number, bytes=offer.size, key=offer.key)
        return bool(self.call(self.control.Share, request, ATTEMPT_SECONDS).found)


def _headers_first(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """A long header goes ahead of the values behind it: who gets it looks up which blocks they are of while
    they are on their way.
    """
    for chunk in chunks:
        if chunk.header is not None and len(chunk.data) and chunk.header.ByteSize() > LONG_HEADER:
            yield Chunk(chunk.header)
            yield Chunk(data=chunk.data)
        else:
            yield chunk
