"""Values on their way out, in wire form: encoded under the store's lock, one run of whole blocks at a time.

The only copy is made while the lock is held, by a gather or by the join into a message; so no block is ever
half old and half new. A message comes in parts that follow each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from scar import bfloat16
from scar.blocks import Array, Layout, Positions
from scar.errors import InvalidRequest, TooLarge
from scar.v1.ps_pb2 import SharedRange, TensorHeader
from scar.wire.codec import CHUNK_BYTES, WHOLE_BYTES, Chunk, WireParts, encode_chunk, encode_parts
from scar.wire.shared_memory import PIECE_BYTES, shared_range
from scar.wire.small_message import SMALL_BYTES, answer_fits, contents_fit
from scar_ps.core.block_arrays import split_runs
from scar_ps.core.block_store import NO_LOCK, StoreSlice
from scar_ps.core.keyed_store import KeyedBlockStore
from scar_ps.core.pushes import PulledBlocks
from scar_ps.wire.shown_parts import count_parts, show_parts


def encode_pulled(
    found: PulledBlocks,
    segment: SegmentWriter | None = None,
    waited: float = 0.0,
    short: Collection[str] = (),
    slots: Collection[str] = (),
    whole: bool = False,
) -> Iterator[WireParts]:
    """The answer to a pull, table by table. ``waited``: seconds until it could be served. ``short``: names of
    tables that are rounded to bfloat16. ``slots``: of those behind whose values their slots go. ``whole``:
    as of :func:`encode_blocks`.
    """
    header = TensorHeader(epoch=found.epoch, clock=found.clock, waited=waited)
    if loss := found.loss:
        header.loss = loss.loss
        header.loss_clock = loss.clock + 1
        header.loss_fraction = loss.fraction
        if found.with_metrics:
            header.metrics.update(loss.told_metrics)
    for part, contents in zip(found.parts, found.contents, strict=True):
        header.settled = contents is not None
        header.watermark.clear()
        header.watermark.update(contents or {})
        table = part.store.table.name
        beside = show_parts(part) if table in slots else {}
        yield from encode_blocks(header, part, segment, table in short, whole)
        for name, shown in beside.items():
            yield from encode_blocks(TensorHeader(part=name), shown, segment, whole=whole)


def require_small(
    found: PulledBlocks,
    short: Collection[str] = (),
    segment: SegmentWriter | None = None,
    slots: Collection[str] = (),
) -> None:
    """Raises :class:`TooLarge` when these blocks do not go into one message; with ``segment``, where their
    values go, when what is said of them does not.
    """
    payload = 0
    for part in found.parts if segment is None else []:
        table = part.store.table
        dtype = bfloat16.DTYPE if table.name in short else table.dtype
        payload += _pulled_layout(part).elements * dtype.itemsize
        payload += count_parts(part) if table.name in slots else 0
    told = [contents for contents in found.contents if contents is not None]
    fits = answer_fits(payload, len(found.parts), found.with_metrics, bool(told))
    if not fits or not all(map(contents_fit, told)):
        raise TooLarge(
            f"{payload} bytes of {len(found.parts)} tables, and what they contain, do not go into one message"
            f" of {SMALL_BYTES} bytes",
            "Pull them as a stream",
        )


def encode_blocks(
    header: TensorHeader,
    part: StoreSlice,
    segment: SegmentWriter | None = None,
    short: bool = False,
    whole: bool = False,
) -> Iterator[WireParts]:
    """The stream of these blocks or rows behind ``header``, whose table, dtype and size are filled in.

    ``segment``: where the values are to go instead, in memory that the receiver shares. ``short``: rounded to
    bfloat16. ``whole``: in one message, if they have room there. Raises :class:`InvalidRequest` when they
    are not float32.
    """
    store = part.store
    layout = _pulled_layout(part)
    if short and (
        store.table.dtype_name != "float32" or (store.table.keys is not None and part.rows is None)
    ):
        raise InvalidRequest(
            f"table {store.table.name}: bfloat16 was asked of {store.table.dtype_name},"
            " or of rows with their keys"
        )
    dtype = store.values.dtype
    size = bfloat16.DTYPE.itemsize if short else dtype.itemsize
    header.table = store.table.name
    name = store.table.dtype_name if dtype == store.table.dtype else dtype.name
    header.dtype = bfloat16.NAME if short else name
    header.dense = part.positions is None and part.rows is None
    header.bytes = layout.elements * size
    head: TensorHeader | None = header
    at_once = WHOLE_BYTES if whole and header.bytes <= WHOLE_BYTES else CHUNK_BYTES
    for start, stop in split_runs(layout, (at_once if segment is None else PIECE_BYTES) // size):
        if segment is not None and not short:
            count = layout.find_start(stop) - layout.find_start(start)
            chunk, room = segment.make_room(head, count, dtype)
            _copy_run(part, start, stop, room)
            yield encode_parts(chunk)
        else:
            yield from _encode_run(part, (start, stop), head, segment, short, at_once)
        head = None
    if head is not None:
        yield encode_parts(Chunk(head))


def _encode_run(
    part: StoreSlice,
    run: tuple[int, int],
    head: TensorHeader | None,
    segment: SegmentWriter | None,
    short: bool,
    at_once: int,
) -> list[WireParts]:
    """Some blocks or rows of a part, gathered and then encoded, so many bytes in a message."""
    rows = None if part.rows is None else _gather_rows(part, *run)  # a copy
    with part.store.lock if rows is None else NO_LOCK:
        values = _gather_blocks(part, *run) if rows is None else rows
        is_copy = short or not np.may_share_memory(values, part.store.values)
        values = bfloat16.nearest_short(values) if short else values
        if segment is not None:
            return [encode_parts(segment.write_values(head, values))]
        chunks = _cut_chunks(head, values, at_once)
        return list(map(encode_parts, chunks) if is_copy else ((encode_chunk(one),) for one in chunks))


def _pulled_layout(part: StoreSlice) -> Layout:
    """Of what is sent: of whole blocks of a table with keys, their rows and whose they are."""
    table = part.store.table
    if table.keys is None or part.rows is not None:
        return part.layout
    return Layout.even(len(part.ids), table.stored.layout.width)


def _gather_blocks(part: StoreSlice, start: int, stop: int) -> Array:
    """Some blocks of a part, under the store's lock: a view where the part is of all blocks."""
    store = part.store
    if isinstance(store, KeyedBlockStore):
        return store.stored_rows(_positions(part, start, stop))
    if part.positions is None and store.places is None:
        return store.values[store.layout.find_start(start) : store.layout.find_start(stop)]
    return store.gather(store.values, store.layout, _positions(part, start, stop))


def _positions(part: StoreSlice, start: int, stop: int) -> Positions:
    return np.arange(start, stop) if part.positions is None else part.positions[start:stop]


def _gather_rows(part: StoreSlice, start: int, stop: int) -> Array:
    """A copy of some rows of a part of rows."""
    assert part.rows is not None
    store = part.store
    if isinstance(store, KeyedBlockStore):
        return store.read_rows(part.rows[start:stop], part.unknown_zero)
    with store.lock:
        return store.copy_rows(part.rows[start:stop])


def _copy_run(part: StoreSlice, start: int, stop: int, room: Array) -> None:
    """Some blocks or rows of a part, straight to where they are wanted."""
    store = part.store
    if isinstance(store, KeyedBlockStore) and part.rows is not None:
        room[...] = _gather_rows(part, start, stop)
        return
    with store.lock:
        plain = part.positions is None and store.places is None
        if isinstance(store, KeyedBlockStore) or (plain and part.rows is None):
            room[...] = _gather_blocks(part, start, stop)
        elif part.rows is not None:
            store.copy_rows(part.rows[start:stop], room)
        else:
            store.gather_into(store.values, store.layout, _positions(part, start, stop), room)


class SegmentWriter:
    """A segment of the receiver that is filled from its start. ``key``: the segment's."""

    def __init__(self, key: bytes, room: memoryview) -> None:
        self._key = key
        self._room = room
        self._at = 0

    def make_room(self, header: TensorHeader | None, count: int, dtype: np.dtype[Any]) -> tuple[Chunk, Array]:
        """The next so many elements, and what says where they are. Raises :class:`InvalidRequest` when it is
        full.
        """
        shared = SharedRange(key=self._key, offset=self._at, bytes=count * dtype.itemsize)
        room: Array = np.frombuffer(shared_range(self._room, shared), dtype)
        self._at += room.nbytes
        return Chunk(header, shared=shared), room

    def write_values(self, header: TensorHeader | None, values: Array) -> Chunk:
        """Raises as :meth:`make_room`."""
        chunk, room = self.make_room(header, len(values), values.dtype)
        room[...] = values
        return chunk


def _cut_chunks(header: TensorHeader | None, values: Array, size: int) -> Iterator[Chunk]:
    raw = values.data.cast("B")
    for start in range(0, len(raw), size):
        yield Chunk(header if start == 0 else None, raw[start : start + size])
