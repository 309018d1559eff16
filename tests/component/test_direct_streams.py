"""Large pushes and pulls over direct connections: what is refused, left or lost on the way."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from scar._client.pulls import receive_tensors
from scar.errors import BlockOutOfRange, Internal, NotServing, StaleEpoch, Unreachable
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.v1.direct_pb2 import DirectAnswer, DirectCall
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.direct_calls import HOST, DirectConnections
from scar.wire.direct_frames import DirectError, FrameReader, decode_answer, receive_secret, send_frame
from scar.wire.shard_link import ShardLink
from scar_ps.wire.push_decoder import PushDecoder
from scar_runtime.process import direct_context, request_streams
from scar_runtime.process.direct_server import DirectServer
from scar_runtime.process.interceptors import Guard
from scar_runtime.process.request_streams import RequestStreams
from tests.component.direct_peer import HOST_PORT, played_peer
from tests.component.ps_scene import SECONDS, Running, declared, first

WIDE = Table("wide", (4000, 1000))  # 16 MB
VALUES = np.arange(4_000_000, dtype=np.float32)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Running]:
    shard = Running(0, f"file://{tmp_path}", shared_memory=False)
    spec = declared("asp", WIDE)
    shard.adopt(first(spec, [shard]), spec)
    yield shard
    shard.stop()


def used(shard: Running) -> tuple[int, int]:
    """Connections that are open, and those that wait for a call."""
    return len(shard.link._direct._open), len(shard.link._direct._idle)


def forbid_grpc(link: ShardLink) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("this went by gRPC")

    link._by_grpc = never


def test_large_pushes_and_pulls_go_over_direct_connections(shard: Running) -> None:
    forbid_grpc(shard.link)
    shard.push({"wide": (None, VALUES)})
    assert np.array_equal(shard.pull("wide", size=VALUES.nbytes)[0], VALUES)
    assert shard.status().pushes == 1
    assert used(shard) == (1, 1)


def pulled(shard: Running, rows: int) -> Iterable[Chunk]:
    """The first rows."""
    wanted = ps_pb2.TableBlocks(table="wide", block_ids=codec.ids_to_bytes(np.arange(rows, dtype=np.uint32)))
    return shard.link.pull(ps_pb2.PullRequest(tables=[wanted], epoch=1), SECONDS, rows * 4000)


def received(shard: Running, rows: int) -> np.ndarray:
    """The same, as a worker or a reader gets them."""
    buffers = {("wide", ""): np.zeros(rows * 1000, np.float32)}
    receive_tensors(pulled(shard, rows), buffers, "ps-0")
    return buffers["wide", ""]


@pytest.mark.parametrize(("rows", "lasting"), [(200, True), (1835, True), (1836, False)])
def test_what_has_room_in_a_message_comes_in_one_and_lasts(shard: Running, rows: int, lasting: bool) -> None:
    """1,835 rows are a little less than 7 MiB."""
    forbid_grpc(shard.link)
    found = [(chunk.lasting, len(chunk.data)) for chunk in pulled(shard, rows)]
    if lasting:
        assert found == [(True, rows * 4000)]
    else:
        assert max(found) <= (False, codec.CHUNK_BYTES)


def test_by_grpc_it_comes_in_pieces(shard: Running) -> None:
    shard.link._direct = None
    found = [(chunk.lasting, len(chunk.data)) for chunk in pulled(shard, 1000)]
    assert max(found) <= (False, codec.CHUNK_BYTES)
    assert sum(size for _, size in found) == 4_000_000


@pytest.mark.parametrize(("ids", "ahead"), [(300, False), (5000, True)])
def test_a_long_header_goes_ahead_of_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: int, ahead: bool
) -> None:
    """Blocks are looked up while their values are on their way."""
    shard = Running(0, f"file://{tmp_path}", shared_memory=False)
    spec = declared("asp", Table("wide", (10_000, 500)))
    shard.adopt(first(spec, [shard]), spec)
    seen: list[tuple[bool, int]] = []
    read = PushDecoder.read_chunk

    def look(decoder: PushDecoder, chunk: Chunk) -> None:
        seen.append((chunk.header is not None, len(chunk.data)))
        read(decoder, chunk)

    monkeypatch.setattr(PushDecoder, "read_chunk", look)
    values = np.arange(ids * 500, dtype=np.float32)
    shard.push({"wide": (np.arange(ids), values)})
    assert np.array_equal(shard.pull("wide", np.arange(ids))[0], values)
    assert (seen[0] == (True, 0)) is ahead
    assert [header for header, _ in seen] == [True] + [False] * (len(seen) - 1)
    assert sum(size for _, size in seen) == values.nbytes
    shard.stop()


@pytest.mark.parametrize("rows", [200, 250, 4000])
def test_what_was_pulled_stays_when_more_is_pulled(shard: Running, rows: int) -> None:
    """In one message of a stream, and in many."""
    forbid_grpc(shard.link)
    before = received(shard, rows)
    kept = before.copy()
    shard.push({"wide": (None, VALUES)})
    assert np.array_equal(received(shard, rows), kept + VALUES[: rows * 1000])
    assert np.array_equal(before, kept)


def test_a_large_push_that_is_refused_is_told_why_and_keeps_the_connection(shard: Running) -> None:
    """The shard knows by the first of sixteen messages."""
    forbid_grpc(shard.link)
    with pytest.raises(StaleEpoch) as stale:
        shard.push({"wide": (None, VALUES)}, epoch=0)
    assert stale.value.epoch == 1
    with pytest.raises(BlockOutOfRange):
        shard.push({"wide": (np.arange(1000) + 3500, VALUES[:1_000_000])})
    shard.push({"wide": (None, VALUES)}, seq=1)
    assert (shard.status().pushes, used(shard)) == (1, (1, 1))


def test_a_large_pull_that_is_refused_keeps_the_connection(shard: Running) -> None:
    with pytest.raises(NotServing, match="knows epoch 1"):
        shard.pull("wide", size=VALUES.nbytes, epoch=7)
    assert used(shard) == (1, 1)


def test_a_pull_that_is_left_costs_its_connection_and_nothing_else(shard: Running) -> None:
    shard.push({"wide": (None, VALUES)})
    request = ps_pb2.PullRequest(tables=[ps_pb2.TableBlocks(table="wide", dense=True)], epoch=1)
    with closing(shard.link.pull(request, SECONDS, VALUES.nbytes)) as chunks:
        assert next(chunks).header.table == "wide"
    assert used(shard) == (0, 0)
    assert np.array_equal(shard.pull("wide", size=VALUES.nbytes)[0], VALUES)


def test_a_push_whose_sender_fails_midway_is_not_applied(shard: Running) -> None:
    def broken() -> Iterator[Chunk]:
        shard.seq += 1
        for number, chunk in enumerate(shard.chunks({"wide": (None, VALUES)}, 1, 0)):
            if number == 5:
                raise KeyError("no more")
            yield chunk

    with pytest.raises(KeyError, match="no more"):
        shard.link.push(broken(), SECONDS, VALUES.nbytes)
    assert used(shard) == (0, 0)
    shard.push({"wide": (None, VALUES)}, seq=1)
    assert np.array_equal(shard.pull("wide", size=VALUES.nbytes)[0], VALUES)


def test_a_link_that_is_closed_ends_a_large_push(shard: Running) -> None:
    def waiting() -> Iterator[Chunk]:
        chunks = shard.chunks({"wide": (None, VALUES)}, 1, 0)
        yield next(chunks)
        shard.link.close()
        yield from chunks

    with pytest.raises(Unreachable):
        shard.link.push(waiting(), SECONDS, VALUES.nbytes)


# --- senders that are no good


@pytest.fixture
def served() -> Iterator[tuple[RequestStreams, socket.socket]]:
    """Requests that arrive at a server which adds up the bytes of their messages; and a connection to it."""
    requests = RequestStreams()
    server = DirectServer([Guard(requests=requests)])
    handlers = {
        "Sum": grpc.stream_unary_rpc_method_handler(
            lambda messages, _: str(sum(map(len, messages))).encode(), None, None
        ),
        "Count": grpc.unary_stream_rpc_method_handler(
            lambda asked, _: (bytes([one]) for one in bytes(asked)), None, None
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("scar.v1.T", handlers),))
    context = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1", auth_context=dict, invocation_metadata=tuple)
    offer = server.offer_port(context)
    connection = socket.create_connection((HOST, offer.port), SECONDS)
    connection.sendall(offer.key)
    receive_secret(connection, SECONDS)
    yield requests, connection
    connection.close()
    server.stop(1.0)


def head(**fields: object) -> bytes:
    return DirectCall(**fields).SerializeToString()


BEGIN = head(method="T/Sum", seconds=SECONDS, more=True)
MORE = head(more=True)


def answer(connection: socket.socket) -> tuple[int, str, bytes]:
    about, message = FrameReader(connection).read(SECONDS)
    said = decode_answer(about)
    return said.code, said.details, bytes(message)


def test_a_stream_has_the_messages_that_were_sent_empty_ones_too(served) -> None:
    _, connection = served
    for _ in range(2):
        send_frame(connection, BEGIN)
        for size in (0, 3, 1 << 20, 0):
            send_frame(connection, MORE, b"x" * size)
        send_frame(connection, b"")
        assert answer(connection) == (0, "", str((1 << 20) + 3).encode())


def test_an_answer_of_many_messages_ends_with_a_frame_that_has_none(served) -> None:
    _, connection = served
    send_frame(connection, head(method="T/Count", seconds=SECONDS), b"abc")
    reader = FrameReader(connection)
    frames = [reader.read(SECONDS) for _ in range(4)]
    assert [bytes(message) for _, message in frames] == [b"a", b"b", b"c", b""]
    assert [decode_answer(about).more for about, _ in frames] == [True, True, True, False]


def test_a_sender_that_falls_silent_is_told_and_loses_its_connection(served, monkeypatch) -> None:
    monkeypatch.setattr(request_streams, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(direct_context, "FRAME_SECONDS", 1000.0)
    requests, connection = served
    send_frame(connection, BEGIN)
    send_frame(connection, MORE, b"half")
    pause = threading.Event()
    while not any(one.ended for one in requests._arriving):
        requests.end_silent()
        pause.wait(0.01)
        if not requests._arriving:
            break
    code, details, _ = answer(connection)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
    assert "silent for" in details
    assert connection.recv(1) == b""


@pytest.mark.parametrize(
    "sent",
    [struct.pack(">II", 2, 0) + b"\xff\xff", struct.pack(">II", 2, 1 << 30) + MORE],
    ids=["no call", "too large"],
)
def test_a_stream_that_goes_on_with_nonsense_ends_its_connection(served, sent: bytes) -> None:
    _, connection = served
    send_frame(connection, BEGIN)
    connection.sendall(sent)
    code, _, _ = answer(connection)
    assert code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert connection.recv(1) == b""


def test_a_stream_to_a_method_of_one_message_takes_the_first(served) -> None:
    _, connection = served
    send_frame(connection, head(method="T/Count", seconds=SECONDS, more=True))
    for message in (b"a", b"bc"):
        send_frame(connection, MORE, message)
    send_frame(connection, b"")
    reader = FrameReader(connection)
    assert [bytes(reader.read(SECONDS)[1]) for _ in range(2)] == [b"a", b""]


def test_a_client_whose_server_sends_nonsense_in_a_stream_hears_of_it() -> None:
    def serve(connection: socket.socket) -> None:
        FrameReader(connection).read(SECONDS)
        send_frame(connection, DirectAnswer(more=True).SerializeToString(), b"one")
        send_frame(connection, b"\xff\xff", b"two")

    connections = played_peer(serve)
    stream = connections.receive_stream("T/Count", b"", SECONDS)
    assert stream is not None
    assert bytes(next(stream)) == b"one"
    with pytest.raises(Internal, match="no answer"):
        next(stream)
    assert not connections._open


def test_chunks_in_pieces_are_the_same_bytes() -> None:
    header = ps_pb2.TensorHeader(table="w", bytes=5)
    for chunk in (Chunk(), Chunk(header), Chunk(header, b"abcde"), Chunk(None, b"abcde")):
        assert b"".join(codec.encode_parts(chunk)) == codec.encode_chunk(chunk)
        decoded = codec.decode_chunk(codec.encode_chunk(chunk))
        assert (decoded.header, bytes(decoded.data)) == (chunk.header, bytes(chunk.data))


def test_a_call_of_too_many_bytes_goes_by_grpc() -> None:
    connections = DirectConnections(HOST_PORT, "shard", lambda _: pytest.fail("asked"))
    assert connections.call("T/Count", bytes((8 << 20) + 1), SECONDS) is None
    assert connections.receive_stream("T/Count", bytes((8 << 20) + 1), SECONDS) is None


def test_a_sender_of_a_stream_hears_when_its_server_dies() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 20)
        connection.close()

    connections = played_peer(serve)
    with pytest.raises(DirectError) as lost:
        connections.send_stream("T/Sum", ((b"x" * (1 << 20),) for _ in range(64)), SECONDS)
    assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
    assert not connections._open
