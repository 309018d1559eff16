"""Small pushes and pulls on a real shard: one message each way, and otherwise the same as streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scar.errors import InvalidRequest, NonFinite, StaleEpoch, TooLarge
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.wire import codec, small_message
from scar.wire.codec import Chunk
from scar.wire.shard_link import ShardLink
from scar.wire.small_message import SMALL_BYTES
from scar_runtime.process import interceptors
from tests.component.ps_scene import SECONDS, Running, after, declared, first

LARGE = Table("large", (4, SMALL_BYTES // 8))  # of float32: each row is half of a message
MANY = Table("many", (SMALL_BYTES // 4, 1), dtype="float32")
DATA = "/scar.v1.ShardData/"
W = {"w": ([1, 5], np.ones(6, np.float32))}
SIZE = 24  # bytes of them


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Running]:
    shard = Running(0, f"file://{tmp_path}")
    yield shard
    shard.stop()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each method of the data plane was called."""
    seen: Counter[str] = Counter()
    guarded = interceptors._GuardedCall

    def counted(context, method):
        seen[method.rpartition("/")[2]] += 1
        return guarded(context, method)

    monkeypatch.setattr(interceptors, "_GuardedCall", counted)
    return seen


def adopted(shard: Running, consistency: str = "asp"):
    spec = declared(consistency, LARGE, MANY)
    epoch = first(spec, [shard])
    shard.adopt(epoch, spec)
    return spec, epoch


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_small_or_shared_is_one_message_and_all_else_a_stream(calls, tmp_path, shared: bool):
    shard = Running(0, f"file://{tmp_path}", shared_memory=shared)
    adopted(shard)
    calls.clear()
    shard.push(W)
    assert shard.pull("w", [1, 2, 5], size=36)[0].tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1]
    assert calls - Counter(DirectPort=1) == Counter(PushSmall=1, PullSmall=1)
    shard.push({"large": (None, np.ones(LARGE.elements, np.float32))})
    assert (shard.pull("large", size=LARGE.elements * 4)[0] == 1).all()
    more = Counter(PushSmall=1, PullSmall=1) if shared else Counter(Push=1, Pull=1)
    assert calls - Counter(DirectPort=1, Share=1) == Counter(PushSmall=1, PullSmall=1) + more
    shard.stop()


def test_a_push_whose_ids_do_not_fit_travels_as_a_stream(calls, tmp_path):
    """Its values alone would: half of a message, with as many bytes of ids and a header."""
    shard = Running(0, f"file://{tmp_path}")
    adopted(shard)
    ids = np.arange(SMALL_BYTES // 8, dtype=np.uint32)
    calls.clear()
    shard.push({"many": (ids, np.ones(len(ids), np.float32))})
    assert calls - Counter(DirectPort=1) == Counter(Push=1)
    assert shard.pull("many")[0].sum() == len(ids)
    shard.stop()


def test_several_small_tables_are_one_call_each_way(calls, tmp_path):
    shard = Running(0, f"file://{tmp_path}")
    adopted(shard)
    calls.clear()
    shard.push({"w": (None, np.ones(24, np.float32)), "many": ([7], np.full(1, 3.0, np.float32))})
    wanted = [
        ps_pb2.TableBlocks(table="w", dense=True),
        ps_pb2.TableBlocks(table="many", block_ids=np.array([7], "<u4").tobytes()),
    ]
    chunks = shard.link.pull(ps_pb2.PullRequest(tables=wanted, epoch=1), SECONDS, 100)
    found = {chunk.header.table: np.frombuffer(chunk.data, np.float32).tolist() for chunk in chunks}
    assert found == {"w": [1.0] * 24, "many": [3.0]}
    assert calls - Counter(DirectPort=1) == Counter(PushSmall=1, PullSmall=1)
    shard.stop()


@pytest.mark.parametrize("again", ["message", "stream"])
@pytest.mark.parametrize("begun", ["message", "stream"])
def test_a_push_whose_answer_was_lost_counts_once_whichever_way_it_comes_again(
    shard, monkeypatch, begun: str, again: str
):
    adopted(shard)
    for way, duplicate in ((begun, False), (again, True)):
        with monkeypatch.context() as patch:
            if way == "stream":
                patch.setattr(small_message, "SMALL_BYTES", 0)
            assert shard.push(W, seq=1).duplicate == duplicate
    shard.push(W, seq=2)
    assert shard.pull("w", [1], size=12)[0].tolist() == [2, 2, 2]
    assert (shard.status().pushes, shard.status().duplicates) == (2, 1)


def test_too_large_a_push_in_one_message_is_refused_and_changes_nothing(shard):
    adopted(shard)
    shard.seq = 1
    chunks = shard.chunks({"large": (None, np.ones(LARGE.elements, np.float32))}, 1, 0)
    message = small_message.encode_small(map(codec.encode_chunk, chunks))
    with pytest.raises(TooLarge, match=rf"the limit is {SMALL_BYTES}"):
        shard.call(shard.link.channel.unary_unary(f"{DATA}PushSmall"), message)
    assert not shard.push(W, seq=1).duplicate
    assert not shard.pull("large")[0].any()


def test_too_large_an_answer_in_one_message_is_refused_before_it_is_made(shard, monkeypatch):
    adopted(shard)
    monkeypatch.setattr(ShardLink, "pull", lambda link, request, timeout, _size: ask(link, request, timeout))

    def ask(link: ShardLink, request: ps_pb2.PullRequest, timeout: float) -> list[Chunk]:
        """As a client that does not keep to the limit."""
        return link.call(link._pull_small, request, timeout)

    with pytest.raises(TooLarge, match=rf"{LARGE.elements * 4} bytes of 1 tables.* {SMALL_BYTES} bytes"):
        shard.pull("large", size=1)
    assert shard.pull("w", size=96)[0].tolist() == [0] * 24


@pytest.mark.parametrize("room", [small_message.CONTENTS_BYTES, 0])
def test_what_values_contain_goes_along_and_where_there_is_no_room_they_are_a_stream(
    calls, tmp_path, monkeypatch, room: int
):
    """As with very many workers; the shard says so once, and is not asked in one message again."""
    shard = Running(0, f"file://{tmp_path}")
    adopted(shard)
    shard.settle(1)
    shard.push(W)
    monkeypatch.setattr(small_message, "CONTENTS_BYTES", room)
    calls.clear()
    asked = ps_pb2.PullRequest(tables=[ps_pb2.TableBlocks(table="w", dense=True)], epoch=1, contents=True)
    for _ in range(2):
        first_header = next(iter(shard.link.pull(asked, SECONDS, 96))).header
        assert first_header.settled
        assert list(first_header.watermark.values()) == [1]
    assert calls == ({"PullSmall": 2} if room else {"PullSmall": 1, "Pull": 2})
    shard.stop()


@pytest.mark.parametrize("wire", [b"\xff" * 10, b"", b"\x0a\x02\x0a\x7f", b"\x0a\x00", b"\x12\x00"])
def test_garbage_instead_of_a_small_push_is_a_typed_error(shard, wire: bytes):
    adopted(shard)
    with pytest.raises(InvalidRequest):
        shard.call(shard.link.channel.unary_unary(f"{DATA}PushSmall"), wire)


def test_a_small_push_is_checked_as_a_stream_is(shard):
    spec, epoch = adopted(shard)
    with pytest.raises(NonFinite, match="block 5"):
        shard.push({"w": ([1, 5], np.array([1, 1, 1, 1, np.nan, 1], np.float32))}, seq=1)
    shard.adopt(after(epoch), spec)
    with pytest.raises(StaleEpoch):
        shard.push(W, seq=1)
    with pytest.raises(StaleEpoch):
        shard.pull("w", size=96)
    assert not shard.push(W, epoch=2, seq=1).duplicate


def test_a_small_pull_waits_for_its_clock_as_a_stream_does(shard):
    adopted(shard, "bsp")
    shard.push(W)
    assert shard.clock(1).clock == 1
    values, header = shard.pull("w", [1], clock=1, size=12)
    assert (values.tolist(), header.clock) == ([1, 1, 1], 1)
