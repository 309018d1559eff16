"""Pushes on their way in: everything is checked before anything changes, and memory is bounded."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from scar.bfloat16 import shorten_values
from scar.errors import (
    BlockOutOfRange,
    Busy,
    InvalidRequest,
    NonFinite,
    NotServing,
    ShapeMismatch,
    StaleEpoch,
    UnknownTable,
)
from scar.tables import Table
from scar.v1.ps_pb2 import SharedRange, TensorHeader
from scar.wire import codec
from scar.wire.codec import Chunk
from scar_ps.core.requests import ShardView
from scar_ps.wire import push_decoder as staging_module
from scar_ps.wire.push_decoder import PushStaging
from tests.unit.ps_support import ids, job, started

SPEC = job(Table("w", (6, 2)), Table("free", (4,), allow_nonfinite=True), Table("n", (4,), dtype="int64"))
OWNED = {"w": ids(0, 2, 4), "free": ids(0, 1), "n": ids(3)}


def header(table="w", dtype="float32", blocks=None, size=24, **fields):
    base = {"epoch": 1, "worker": "worker-0", "incarnation": "x", "seq": 1, "push_id": 1}
    raw = b"" if blocks is None else codec.ids_to_bytes(ids(*blocks))
    return TensorHeader(
        table=table, dtype=dtype, dense=blocks is None, block_ids=raw, bytes=size, **{**base, **fields}
    )


def stage(*chunks, limit=1 << 20, view=None):
    staging = PushStaging(limit, lambda: 0)
    try:
        with staging.open_push(view or started(SPEC, OWNED)[0].view) as place:
            for chunk in chunks:
                place.read_chunk(chunk)
            return place.finish()
    finally:
        assert staging._arriving == 0


def data(*numbers, dtype=np.float32):
    return np.array(numbers, dtype).tobytes()


def test_payloads_arrive_in_any_pieces_and_in_the_tables_dtype():
    raw = data(*range(6))
    chunks = [Chunk(header(), raw[:3]), *(Chunk(None, raw[at : at + 5]) for at in range(3, 24, 5))]
    push = stage(*chunks, Chunk(header("n", "int64", (3,), 8), data(2**40, dtype=np.int64)))
    assert np.asarray(push.parts["w"].values).tolist() == [0, 1, 2, 3, 4, 5]
    assert push.parts["w"].positions is None
    assert np.asarray(push.parts["n"].values).tolist() == [2**40]
    assert (push.sender.name, push.seq, push.push_id) == ("worker-0", 1, 1)


def test_bfloat16_becomes_float32_in_any_pieces_and_takes_the_room_of_that():
    numbers = [1, -2, 3.5, 2**-130, 0, 255]
    raw = shorten_values(np.array(numbers, np.float32)).tobytes()
    view = started(SPEC, OWNED)[0].view
    unlimited = ShardView(view.epoch, view.tables, 0)
    for first in (3, 12):
        chunks = [Chunk(header(dtype="bfloat16", size=12), raw[:first]), Chunk(None, raw[first:])]
        values = stage(*chunks, limit=24, view=unlimited).parts["w"].values
        assert values.dtype == np.float32
        assert np.asarray(values).tolist() == numbers
        with pytest.raises(Busy):
            stage(*chunks, limit=23, view=unlimited)


def test_bfloat16_that_is_wrong_is_refused():
    infinite = shorten_values(np.array([1, 2, np.inf, 4, 5, 6], np.float32)).tobytes()
    with pytest.raises(NonFinite, match="block 2"):
        stage(Chunk(header(dtype="bfloat16", size=12), infinite))
    with pytest.raises(ShapeMismatch, match="12 bytes, the push 24"):
        stage(Chunk(header(dtype="bfloat16", size=24), bytes(24)))
    with pytest.raises(ShapeMismatch, match="table n is int64, the push 'bfloat16'"):
        stage(Chunk(header("n", "bfloat16", size=2), bytes(2)))
    with pytest.raises(ShapeMismatch, match="table w is float32, the push 'float16'"):
        stage(Chunk(header(dtype="float16", size=12), bytes(12)))


def test_a_push_that_is_over_leaves_its_memory_at_once():
    """Without the garbage collector: else each large push needs fresh memory."""
    gc.collect()
    gc.disable()
    try:
        push = stage(Chunk(header(), data(*range(6))))
        payload = weakref.ref(push.parts["w"].values)
        del push
        assert payload() is None
    finally:
        gc.enable()


def test_a_push_without_blocks_is_possible_because_its_number_counts():
    push = stage(Chunk(header(blocks=(), size=0)))
    assert len(push.parts["w"].values) == 0
    assert len(push.parts["w"].ids) == 0


@pytest.mark.parametrize(
    ("error", "match", "chunks"),
    [
        (InvalidRequest, "at least one table", []),
        (ShapeMismatch, "more data", [Chunk(None, b"1234")]),
        (UnknownTable, "'v'", [Chunk(header("v"))]),
        (ShapeMismatch, "is float32, the push 'float64'", [Chunk(header(dtype="float64"))]),
        (ShapeMismatch, "have 24 bytes, the push 28", [Chunk(header(size=28))]),
        (ShapeMismatch, "have 8 bytes, the push 24", [Chunk(header(blocks=(2,)))]),
        (ShapeMismatch, "have 24 bytes, the push 4611686018427387904", [Chunk(header(size=1 << 62))]),
        (BlockOutOfRange, "block 6 is out of range", [Chunk(header(blocks=(2, 6)))]),
        (BlockOutOfRange, "block 1 of table w is not on this shard", [Chunk(header(blocks=(1, 2), size=16))]),
        (InvalidRequest, "strictly ascending", [Chunk(header(blocks=(2, 2), size=16))]),
        (ShapeMismatch, "20 of 24 bytes", [Chunk(header(), b"\0" * 20)]),
        (ShapeMismatch, "20 of 24 bytes", [Chunk(header(), b"\0" * 20), Chunk(header("free", size=8))]),
        (ShapeMismatch, "more data", [Chunk(header(), b"\0" * 24), Chunk(None, b"\0")]),
        (InvalidRequest, "twice", [Chunk(header(), b"\0" * 24), Chunk(header())]),
        (InvalidRequest, "one push", [Chunk(header(), b"\0" * 24), Chunk(header("free", size=8, seq=2))]),
        (InvalidRequest, "needs a worker", [Chunk(header(worker=""))]),
        (InvalidRequest, "a seq", [Chunk(header(seq=0))]),
        (StaleEpoch, "epoch 0 is over", [Chunk(header(epoch=0))]),
        (NotServing, "not yet 2", [Chunk(header(epoch=2))]),
        (NonFinite, "table w, block 4", [Chunk(header(), data(1, 2, 3, 4, np.nan, np.inf))]),
        (NonFinite, "table w, block 2", [Chunk(header(blocks=(2, 4), size=16), data(1, np.inf, 3, np.nan))]),
    ],
)
def test_a_bad_push_is_refused_with_the_reason(error, match, chunks):
    with pytest.raises(error, match=match):
        stage(*chunks)


def test_a_value_split_between_chunks_is_checked_when_it_is_whole():
    raw = data(1, 2, 3, np.nan, 5, 6)
    with pytest.raises(NonFinite, match="block 2"):
        stage(Chunk(header(), raw[:14]), Chunk(None, raw[14:]))


@pytest.mark.parametrize(
    ("finite", "shared", "believed"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_who_has_looked_is_believed_of_what_it_could_change_afterwards(finite, shared, believed):
    chunk = Chunk(header(finite=finite), data(1, 2, 3, 4, np.nan, 6), SharedRange() if shared else None)
    if believed:
        assert np.isnan(np.asarray(stage(chunk).parts["w"].values)[4])
    else:
        with pytest.raises(NonFinite, match="block 4"):
            stage(chunk)


def test_a_value_in_pieces_is_looked_at_whoever_has_looked():
    raw = data(1, 2, 3, np.nan, 5, 6)
    with pytest.raises(NonFinite, match="block 2"):
        stage(Chunk(header(finite=True), raw[:14], SharedRange()), Chunk(None, raw[14:], SharedRange()))


def test_a_table_may_allow_what_is_no_number():
    assert np.isnan(stage(Chunk(header("free", size=8), data(np.nan, 1))).parts["free"].values[:1][0])


def test_too_many_waiting_bytes_are_busy_unless_the_view_needs_them():
    view = started(SPEC, OWNED)[0].view
    with pytest.raises(Busy, match="SCAR_STAGED_BYTES"):
        stage(Chunk(header(), data(*range(6))), limit=16, view=ShardView(view.epoch, view.tables, 16))
    assert stage(Chunk(header(), data(*range(6))), limit=16, view=view)
    kept = PushStaging(100, lambda: 90)
    with pytest.raises(Busy), kept.open_push(ShardView(view.epoch, view.tables, 0)) as place:
        place.read_chunk(Chunk(header()))


def test_pieces_that_end_in_the_middle_of_a_number_are_put_together(monkeypatch):
    """Only large payloads are cut into pieces that are kept: what is left of a number goes to the next
    one.
    """
    monkeypatch.setattr(staging_module, "PIECE_BYTES", 8)
    raw = data(*range(6))
    chunks = [Chunk(header(), raw[:9]), Chunk(None, raw[9:18]), Chunk(None, raw[18:])]
    assert np.asarray(stage(*chunks).parts["w"].values).tolist() == [0, 1, 2, 3, 4, 5]
