"""Memory that two processes share: found only where it is and by its key, and let go with whoever lent it."""

from __future__ import annotations

import gc
import os
import sys
import threading
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from scar import errors
from scar.v1.ps_pb2 import SharedRange, TensorChunk, TensorHeader
from scar.wire import codec, shared_memory
from scar.wire.codec import Chunk
from scar.wire.shared_memory import (
    LEAST_BYTES,
    MOST_BYTES,
    PIECE_BYTES,
    Segment,
    SegmentAllocator,
    SegmentOffer,
    attach_segment,
    show_tensors,
)
from scar_ps.wire.shared_memory_pool import MAX_SEGMENTS, SharedMemoryPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")


def test_only_sealed_memory_with_the_key_is_taken(tmp_path) -> None:
    segment = Segment(100)
    assert attach_segment(segment.offer) is not None
    assert attach_segment(replace(segment.offer, key=bytes(16))) is None
    assert attach_segment(replace(segment.offer, size=99)) is None
    assert attach_segment(replace(segment.offer, pid=1 << 40)) is None
    file = (tmp_path / "file").open("w+b")
    file.write(segment.offer.key + bytes(100))
    file.flush()
    assert attach_segment(replace(segment.offer, number=file.fileno())) is None  # somebody could cut it short
    file.close()
    reader, writer = os.pipe()
    assert attach_segment(replace(segment.offer, number=reader)) is None
    os.close(reader)
    os.close(writer)


def test_what_is_dropped_is_let_go() -> None:
    pool = SharedMemoryPool(allowed=True)
    segment = Segment(10)
    key = segment.offer.key
    assert pool.attach_segment(segment.offer)
    pool.drop_released()
    pool.find_segment(key)
    del segment
    pool.drop_released()
    with pytest.raises(errors.NotServing):
        pool.find_segment(key)


def test_one_process_cannot_lend_without_end() -> None:
    pool = SharedMemoryPool(allowed=True)
    segments = [Segment(1) for _ in range(MAX_SEGMENTS + 1)]
    assert all(pool.attach_segment(segment.offer) for segment in segments[:MAX_SEGMENTS])
    with pytest.raises(errors.Busy):
        pool.attach_segment(segments[MAX_SEGMENTS].offer)


def test_what_lies_side_by_side_is_one_chunk() -> None:
    """Of one tensor in one segment, and where all is there already: a stream is read as it comes."""
    pool = SharedMemoryPool(allowed=True)
    one, other = Segment(100), Segment(100)
    for segment, start in ((one, 0), (other, 100)):
        segment.room[:] = bytes(range(start, start + 100))
        assert pool.attach_segment(segment.offer)

    def message() -> list[Chunk]:
        return [
            pointer(one.offer.key, 0, 10, "w"),
            pointer(one.offer.key, 10, 20),
            pointer(one.offer.key, 30, 10),
            pointer(one.offer.key, 50, 10),
            pointer(other.offer.key, 60, 10),
            pointer(other.offer.key, 70, 10, "v"),
            Chunk(None, b"abc"),
            pointer(other.offer.key, 80, 5),
        ]

    def sizes(chunks: object, copied: bool = False) -> list[int]:
        return [len(chunk.data) for chunk in pool.read_chunks(chunks, copied)]

    whole = b"".join(bytes(chunk.data) for chunk in pool.read_chunks(iter(message()), copied=True))
    joined = list(pool.read_chunks(message(), copied=False))
    assert b"".join(bytes(chunk.data) for chunk in joined) == whole
    assert [chunk.header.table if chunk.header else "" for chunk in joined] == ["w", "", "", "v", "", ""]
    assert [len(chunk.data) for chunk in joined] == [40, 10, 10, 10, 3, 5]
    assert sizes(iter(message())) == sizes(message(), copied=True) == [10, 20, 10, 10, 10, 10, 3, 5]


def test_a_thread_is_not_another_process() -> None:
    """Under its number the same process could lend once more as much."""
    found: list[object] = []
    segment = Segment(4)

    def offer() -> None:
        found.append(attach_segment(replace(segment.offer, pid=threading.get_native_id())))

    thread = threading.Thread(target=offer)
    thread.start()
    thread.join()
    assert found == [None]


def test_a_shard_that_may_not_share_finds_nothing() -> None:
    assert not SharedMemoryPool(allowed=False).attach_segment(Segment(1).offer)


def test_chunks_go_through_a_segment_and_come_back_as_copies() -> None:
    values = np.arange(700_000, dtype=np.float32)
    segment, pool = Segment(values.nbytes), SharedMemoryPool(allowed=True)
    assert pool.attach_segment(segment.offer)
    sent = segment.fill_segment(codec.chunks(TensorHeader(table="w"), values))
    wires = [codec.encode_chunk(chunk) for chunk in sent]
    assert sum(map(len, wires)) < 1000
    taken = list(pool.read_chunks(map(codec.decode_chunk, wires), copied=True))
    segment.room[:] = bytes(len(segment.room))
    assert taken[0].header.bytes == values.nbytes
    assert b"".join(bytes(chunk.data) for chunk in taken) == values.tobytes()


@pytest.mark.parametrize("sizes", [[0], [0, 5, 0], [3 << 20, 9 << 20], [4 << 20, 0, 1], [1, 1, 1]])
def test_every_table_keeps_its_header_and_its_data(sizes: list[int]) -> None:
    tables = {f"t{number}": np.full(size, number, np.uint8) for number, size in enumerate(sizes)}
    segment, pool = Segment(sum(sizes) + 1), SharedMemoryPool(allowed=True)
    assert pool.attach_segment(segment.offer)
    stream = chain.from_iterable(
        codec.chunks(TensorHeader(table=name), values) for name, values in tables.items()
    )
    found: dict[str, bytes] = {}
    for chunk in pool.read_chunks(segment.fill_segment(stream), copied=True):
        if chunk.header is not None:
            name = chunk.header.table
            found[name] = b""
        found[name] += chunk.data
        assert len(chunk.data) <= PIECE_BYTES
    assert found == {name: values.tobytes() for name, values in tables.items()}


@pytest.mark.parametrize(("offset", "size"), [(0, 11), (11, 0), (1 << 63, 1), (5, (1 << 64) - 1)])
def test_a_range_ends_within_its_segment(offset: int, size: int) -> None:
    segment, pool = Segment(10), SharedMemoryPool(allowed=True)
    assert pool.attach_segment(segment.offer)
    chunk = Chunk(shared=SharedRange(key=segment.offer.key, offset=offset, bytes=size))
    with pytest.raises(errors.InvalidRequest):
        segment.read_chunk(chunk)
    with pytest.raises(errors.InvalidRequest):
        list(pool.read_chunks([chunk], copied=True))


def test_shared_chunks_on_the_wire_are_what_protobuf_says() -> None:
    header, shared = TensorHeader(table="w"), SharedRange(key=b"k" * 16, offset=7, bytes=9)
    assert TensorChunk.FromString(codec.encode_chunk(Chunk(header, shared=shared))) == TensorChunk(
        header=header, shared=shared
    )
    back = codec.decode_chunk(TensorChunk(shared=shared).SerializeToString())
    assert (back.header, len(back.data), back.shared) == (None, 0, shared)


class Other:
    """The other side of a connection."""

    def __init__(self, answer: bool = True) -> None:
        self.answer, self.error, self.shown = answer, None, []

    def show(self, offer: SegmentOffer) -> bool:
        if self.error is not None:
            raise self.error
        self.shown.append(offer)
        return self.answer


def test_a_segment_is_lent_again_after_a_call_and_never_after_a_failure() -> None:
    other = Other()
    lender = SegmentAllocator(other.show)
    with lender.lend_segment(LEAST_BYTES) as first:
        assert first is not None
        with lender.lend_segment(LEAST_BYTES) as beside:
            assert beside is not first
    with lender.lend_segment(LEAST_BYTES) as again:
        assert again in (first, beside)
    kept = len(other.shown)
    for _ in range(3):
        with pytest.raises(errors.Unreachable), lender.lend_segment(LEAST_BYTES):
            raise errors.Unreachable("no answer")
    with lender.lend_segment(LEAST_BYTES) as fresh:
        assert fresh not in (first, beside)
    assert len(other.shown) == kept + 2
    with lender.lend_segment(2 * LEAST_BYTES) as larger:
        assert len(larger.room) == 2 * LEAST_BYTES


@pytest.mark.parametrize("size", [0, LEAST_BYTES - 1, MOST_BYTES + 1])
def test_small_and_huge_payloads_travel_as_messages(size: int) -> None:
    other = Other()
    with SegmentAllocator(other.show).lend_segment(size) as segment:
        assert segment is None
    assert other.shown == []


@pytest.mark.parametrize("error", [None, errors.Internal("such a method is not known")])
def test_a_refusal_is_remembered(error: errors.ScarError | None) -> None:
    other = Other(answer=False)
    other.error = error
    lender = SegmentAllocator(other.show)
    for _ in range(2):
        with lender.lend_segment(LEAST_BYTES) as segment:
            assert segment is None
    other.error, other.answer = None, True
    with lender.lend_segment(LEAST_BYTES) as segment:
        assert segment is None
    assert len(other.shown) <= 1


def test_after_a_lost_answer_it_is_offered_again() -> None:
    other = Other()
    other.error = errors.Unreachable("no answer")
    lender = SegmentAllocator(other.show)
    with lender.lend_segment(LEAST_BYTES) as segment:
        assert segment is None
    other.error = None
    with lender.lend_segment(LEAST_BYTES) as segment:
        assert segment is not None


def test_a_segment_that_cannot_be_made_closes_its_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    closed: list[int] = []
    make, close = os.memfd_create, os.close
    monkeypatch.setattr(os, "memfd_create", lambda *asked: made.append(make(*asked)) or made[-1])
    monkeypatch.setattr(os, "close", lambda file: (closed.append(file), close(file)))
    monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError("no memory")))
    with pytest.raises(OSError, match="no memory"):
        Segment(10)
    gc.collect()  # what other tests have left is closed, too
    assert closed.count(made[0]) == len(made) == 1


@pytest.fixture
def allocator(monkeypatch) -> SegmentAllocator:
    monkeypatch.setattr(shared_memory, "LEAST_BYTES", 1)
    return SegmentAllocator(lambda _offer: True)


def lent_once(allocator: SegmentAllocator, size: int) -> Segment:
    with allocator.lend_segment(size) as segment:
        assert segment is not None
        return segment


def test_borrowed_memory_is_of_a_segment_that_is_known_and_free_and_comes_back_with_the_last_view(allocator):
    assert allocator.borrow_memory(64) is None  # nothing is offered for it
    segment = lent_once(allocator, 64)
    memory = allocator.borrow_memory(48)
    assert allocator.borrow_memory(48) is None
    assert lent_once(allocator, 64) is not segment
    values = memory[8:40].view(np.float32)
    del memory
    values[...] = 3
    chunk = allocator.point_to_borrowed(Chunk(data=values.data.cast("B")))
    assert (chunk.shared.key, chunk.shared.offset, chunk.shared.bytes) == (segment.offer.key, 8, 32)
    assert segment.read_chunk(chunk).data == values.tobytes()
    del values
    with allocator.lend_segment(64) as one, allocator.lend_segment(64) as two:
        assert segment in (one, two)


def test_what_lies_elsewhere_keeps_its_data(allocator):
    lent_once(allocator, 64)
    memory = allocator.borrow_memory(64)
    other = Chunk(data=memoryview(bytes(64)))
    assert allocator.point_to_borrowed(other) is other
    empty = Chunk()
    assert allocator.point_to_borrowed(empty) is empty
    assert len(memory) == 64


def test_after_a_call_that_failed_borrowed_memory_is_neither_pointed_to_nor_lent_again(allocator):
    segment = lent_once(allocator, 64)
    memory = allocator.borrow_memory(64)
    chunk = Chunk(data=memory.data)
    pointer = allocator.point_to_borrowed(chunk)
    allocator.forget_borrowed([chunk, pointer])
    assert allocator.point_to_borrowed(chunk) is chunk
    del memory, chunk
    gc.collect()
    assert all(lent_once(allocator, 64) is not segment for _ in range(3))


def test_so_much_is_borrowed_at_most(allocator):
    held = []
    for _ in range(shared_memory.BORROWED):
        lent_once(allocator, 64)
        held.append(allocator.borrow_memory(64))
    lent_once(allocator, 64)
    assert all(one is not None for one in held)
    assert allocator.borrow_memory(64) is None


def test_who_keeps_little_keeps_no_large_segment(allocator):
    lent_once(allocator, 1000)
    assert allocator.borrow_memory(499) is None
    assert allocator.borrow_memory(500) is not None


def test_memory_that_a_forked_process_shows_too_is_not_used_again(allocator):
    segment = lent_once(allocator, 64)
    memory = allocator.borrow_memory(64)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    chunk = Chunk(data=memory.data)
    assert allocator.point_to_borrowed(chunk) is chunk
    del memory, chunk
    assert all(lent_once(allocator, 64) is not segment for _ in range(3))


def pointer(key: bytes, offset: int, size: int, table: str = "") -> Chunk:
    return Chunk(
        TensorHeader(table=table) if table else None, shared=SharedRange(key=key, offset=offset, bytes=size)
    )


def test_a_tensor_in_borrowed_memory_is_one_chunk_that_lasts(allocator):
    lent_once(allocator, 64)
    key, memory = allocator.borrow_segment(64)
    memory[:] = range(64)
    empty = Chunk(TensorHeader(table="empty"))
    pointers = [pointer(key, 0, 8, "a"), pointer(key, 8, 16), empty, pointer(key, 24, 40, "b")]
    first, second, third = show_tensors(memory, pointers)
    assert (first.header.table, second.header.table, third.header.table) == ("a", "empty", "b")
    assert first.lasting
    assert third.lasting
    values = np.frombuffer(first.data, np.uint16)
    assert values.tobytes() == bytes(range(24))
    assert bytes(third.data) == bytes(range(24, 64))
    del memory, first, third
    with allocator.lend_segment(64) as other:
        assert other.offer.key != key  # the values are still held
    del values
    with allocator.lend_segment(64) as one, allocator.lend_segment(64) as two:
        assert key in (one.offer.key, two.offer.key)


@pytest.mark.parametrize("pointers", [[(0, 65)], [(0, 32), (32, 33)], [(1 << 63, 8)], [(64, 1)]])
def test_a_tensor_beyond_borrowed_memory_is_refused(allocator, pointers):
    lent_once(allocator, 128)
    key, memory = allocator.borrow_segment(64)
    with pytest.raises(errors.InvalidRequest):
        list(show_tensors(memory, [pointer(key, at, size, "a" * (at == 0)) for at, size in pointers]))


def test_a_segment_is_filled_with_what_lies_nowhere_yet(allocator):
    segment = lent_once(allocator, 64)
    away = Chunk(TensorHeader(table="b"), shared=SharedRange(key=b"k", offset=8, bytes=4))
    own = Chunk(TensorHeader(table="a"), b"12345678")
    first, second, third = segment.fill_segment([own, away, Chunk(TensorHeader(table="c"), b"90")])
    assert second is away
    assert [segment.read_chunk(one).data for one in (first, third)] == [b"12345678", b"90"]
