"""Large payloads between processes of one machine: through shared memory where it can be, as messages
where it cannot.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scar._client.pulls import receive_tensors
from scar.errors import InvalidRequest, NonFinite, NotServing, TooLarge
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.wire import shard_link, shared_memory
from scar.wire.codec import Chunk
from scar.wire.shared_memory import SegmentOffer
from scar_ps.wire import pull_encoder
from scar_ps.wire.shared_memory_pool import SharedMemoryPool
from tests.component.ps_scene import SECONDS, Running, declared, first

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")

LARGE = Table("large", (3, 1 << 20))
LEND = """
import sys
from scar.wire.shared_memory import Segment
segment = Segment(64)
segment.room[:5] = b"hello"
offer = segment.offer
print(offer.pid, offer.number, offer.size, offer.key.hex(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shard(tmp_path: Path, request) -> Iterator[Running]:
    shard = Running(0, f"file://{tmp_path}", shared_memory=getattr(request, "param", True))
    yield shard
    shard.stop()


@pytest.fixture(autouse=True, params=["message", "stream"])
def way(request, monkeypatch) -> str:
    """How chunks travel that point to shared memory: in one message, or one each."""
    if request.param == "stream":
        monkeypatch.setattr(shard_link, "WHOLE_BYTES", 0)
    return request.param


def started(shard: Running, consistency: str = "asp") -> np.ndarray:
    spec = declared(consistency, LARGE)
    shard.adopt(first(spec, [shard]), spec)
    return np.random.default_rng(0).normal(size=LARGE.elements).astype(np.float32)


@pytest.fixture
def messages(monkeypatch) -> list[int]:
    """Bytes of data of each chunk that a client sends or gets as a message."""
    seen: list[int] = []
    filled, read = shared_memory.Segment.fill_segment, shared_memory.Segment.read_chunk

    def sent(segment, chunks):
        for chunk in filled(segment, chunks):
            seen.append(len(chunk.data))
            yield chunk

    def got(segment, chunk: Chunk) -> Chunk:
        seen.append(len(chunk.data))
        return read(segment, chunk)

    monkeypatch.setattr(shared_memory.Segment, "fill_segment", sent)
    monkeypatch.setattr(shared_memory.Segment, "read_chunk", got)
    return seen


def test_a_large_push_and_pull_carry_no_data_in_messages(shard, messages):
    values = started(shard)
    for times in range(1, 4):
        shard.push({"large": (None, values), "w": ([1, 5], np.ones(6, np.float32))})
        found, header = shard.pull("large", size=LARGE.elements * 4)
        np.testing.assert_allclose(found, times * values, rtol=1e-5)
        assert header.dense
    some, _ = shard.pull("large", [0, 2], size=LARGE.elements * 4)
    assert (some.reshape(2, -1) == found.reshape(3, -1)[[0, 2]]).all()
    assert shard.pull("w", [1])[0].tolist() == [3, 3, 3]
    assert len(messages) > 6
    assert not any(messages)


@pytest.mark.parametrize("shard", [False], indirect=True)
def test_a_shard_that_may_not_share_gets_messages(shard, messages):
    values = started(shard)
    shard.push({"large": (None, values)})
    assert (shard.pull("large", size=values.nbytes)[0] == values).all()
    assert messages == []


def test_what_waits_for_its_clock_is_the_shards_own(shard):
    """BSP keeps an acknowledged push; the memory that brought it is used for the next one before the clock
    closes.
    """
    values = started(shard, "bsp")
    shard.push({"large": (None, values)})
    shard.push({"large": (None, 2 * values)})
    shard.clock(1)
    np.testing.assert_allclose(shard.pull("large", clock=1, size=values.nbytes)[0], 3 * values, rtol=1e-5)


def test_a_value_that_is_not_finite_is_refused_and_the_next_push_is_taken(shard):
    values = started(shard)
    bad = values.copy()
    bad[2_500_000] = np.nan
    with pytest.raises(NonFinite, match="large, block 2"):
        shard.push({"large": (None, bad)})
    shard.push({"large": (None, values)}, seq=1)
    assert (shard.pull("large", size=values.nbytes)[0] == values).all()


def test_memory_that_the_shard_does_not_know_any_more_is_offered_again(shard):
    values = started(shard)
    shard.push({"large": (None, values)})
    shard.service._shared._segments.clear()
    with pytest.raises(NotServing):
        shard.push({"large": (None, values)})
    shard.push({"large": (None, values)}, seq=2)
    np.testing.assert_allclose(shard.pull("large", size=values.nbytes)[0], 2 * values, rtol=1e-5)


def test_a_shard_whose_message_has_no_room_for_them_sends_pointers_in_a_stream(shard, messages, monkeypatch):
    """As an older one does, which knows only values in a small message; it is asked once."""
    values = started(shard)
    shard.push({"large": (None, values)})
    refused: list[int] = []

    def refuse(*_):
        refused.append(1)
        raise TooLarge("no room")

    monkeypatch.setattr(pull_encoder, "require_small", refuse)
    for _ in range(2):
        assert (shard.pull("large", size=values.nbytes)[0] == values).all()
    assert len(refused) == (shard_link.WHOLE_BYTES > 0)
    assert not any(messages)


def test_values_in_borrowed_memory_are_sent_from_there_and_anew_after_a_failure(shard, messages):
    values = started(shard)
    shard.push({"large": (None, values)})
    memory = shard.link.borrow_memory(values.nbytes)
    assert memory is not None
    lying = memory.view(np.float32)
    lying[...] = values
    messages.clear()
    shard.push({"large": (None, lying)})
    assert messages == []
    shard.service._shared._segments.clear()
    with pytest.raises(NotServing):
        shard.push({"large": (None, lying)})
    shard.push({"large": (None, lying)}, seq=3)
    assert messages
    np.testing.assert_allclose(shard.pull("large", size=values.nbytes)[0], 3 * values, rtol=1e-5)


def test_what_was_pulled_stays_as_it_is_while_it_is_held_and_is_no_copy_but_the_first_time(shard, way):
    values = started(shard)
    request = ps_pb2.PullRequest(tables=[ps_pb2.TableBlocks(table="large", dense=True)], epoch=1)
    held, copied = [], []
    for times in range(1, shared_memory.BORROWED + 4):
        shard.push({"large": (None, values)})
        own = np.empty(LARGE.elements, np.float32)
        buffers = {("large", ""): own}
        receive_tensors(shard.link.pull(request, SECONDS, own.nbytes), buffers, "ps-0")
        held.append((buffers["large", ""].copy(), buffers["large", ""]))
        copied.append(buffers["large", ""] is own)
        np.testing.assert_allclose(held[-1][0], times * values, rtol=1e-5)
    assert all((then == now).all() for then, now in held)
    assert copied.count(False) == (shared_memory.BORROWED if way == "message" else 0)


def test_an_answer_that_does_not_fit_is_a_typed_error(shard):
    values = started(shard)
    with pytest.raises(InvalidRequest, match="that are shared"):
        shard.pull("large", size=values.nbytes - 4)


def test_a_pull_that_its_reader_leaves_does_not_lend_the_memory_again(shard, way):
    values = started(shard)
    shard.push({"large": (None, values)})
    request = ps_pb2.PullRequest(tables=[ps_pb2.TableBlocks(table="large", dense=True)], epoch=1)
    stream = shard.link.pull(request, SECONDS, values.nbytes)
    next(stream)
    left = request.shared
    stream.close()
    assert list(shard.link.pull(request, SECONDS, values.nbytes))
    assert request.shared
    assert (request.shared == left) == (way == "message")  # what has been answered whole is free


def test_another_process_finds_what_was_lent_and_nothing_after_its_death():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", LEND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    pid, number, size, key = process.stdout.readline().split()
    offer = SegmentOffer(int(pid), int(number), int(size), bytes.fromhex(key))
    pool = SharedMemoryPool(allowed=True)
    assert pool.attach_segment(offer)
    room = pool.find_segment(offer.key)
    assert bytes(room[:5]) == b"hello"
    process.kill()
    process.communicate()
    room[:5] = b"still"  # who is at work on it may end
    pool.drop_released()
    with pytest.raises(NotServing):
        pool.find_segment(offer.key)
    assert not pool.attach_segment(offer)
