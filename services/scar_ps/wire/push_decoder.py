"""Pushes on their way in: payloads stay in the messages that brought them, and are checked there.

Everything is checked before anything is changed: table, dtype, ids, ownership, size (before memory is taken),
finite values. Memory for pushes that are not applied yet is bounded: beyond the limit a sender is told to
come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

import numpy as np

from scar import bfloat16
from scar.blocks import Array
from scar.errors import Busy, InvalidRequest, NonFinite, NotServing, ShapeMismatch, StaleEpoch, UnknownTable
from scar.keyed_rows import unmix_keys
from scar.row_copies import all_finite
from scar.v1.ps_pb2 import TensorHeader
from scar.wire.codec import Chunk, ids_from_bytes
from scar.wire.row_names import read_rows
from scar.wire.tensor_reader import TensorData, TensorReader, TensorSink
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.requests import Sender, ShardView, StagedPush
from scar_ps.core.segments import Segments

PIECE_BYTES = 64 << 10  # of the parts that a payload is kept in, at least


class PushStaging:
    """Room for pushes that arrive.

    ``limit``: bytes, or more where the view calls for it; ``buffered``: bytes that wait for their clock.
    """

    def __init__(self, limit: int, buffered: Callable[[], int]) -> None:
        self._limit = limit
        self._buffered = buffered
        self._arriving = 0
        self._lock = Lock()

    @contextmanager
    def open_push(self, view: ShardView) -> Iterator[PushDecoder]:
        """A place for one push; what it reserved is free again at the end."""
        decoder = PushDecoder(view, lambda count: self._reserve_bytes(count, view.staged_limit))
        try:
            yield decoder
        finally:
            decoder.close()
            with self._lock:
                self._arriving -= decoder.reserved

    def _reserve_bytes(self, count: int, least: int) -> None:
        limit = max(self._limit, least)
        with self._lock:
            used = self._arriving + self._buffered()
            if used + count > limit:
                raise Busy(
                    f"{used} bytes of pushes are waiting already, {count} more would pass the limit of"
                    f" {limit}",
                    "Push less in one clock, or raise SCAR_STAGED_BYTES (--staged-bytes) of the shards",
                )
            self._arriving += count


class PushDecoder:
    """One push while its stream arrives: :meth:`read_chunk` for each chunk, then :meth:`finish`."""

    def __init__(self, view: ShardView, reserve: Callable[[int], None]) -> None:
        self.reserved = 0
        self._view = view
        self._reserve = reserve
        self._first: TensorHeader | None = None
        self._parts: dict[str, StoreSlice] = {}
        self._part: StoreSlice | None = None  # of the current table, without its values
        self._dtype = bfloat16.DTYPE  # that the current table travels in
        self._pieces: list[Array] = []
        self._carry = bytearray()  # bytes that are no piece yet
        self._finite = False  # the sender says so of the current table
        self._shared = False  # the current chunk lies in memory that the sender shares
        self._reader = TensorReader(self._open_table, lambda what: ShapeMismatch(f"a push has {what}"))

    def read_chunk(self, chunk: Chunk) -> None:
        self._shared = chunk.shared is not None
        self._reader.read_chunk(chunk)

    def finish(self) -> StagedPush:
        """The whole push. Raises :class:`ShapeMismatch` when the stream ended early."""
        self._reader.finish()
        self._close_table()
        if self._first is None:
            raise InvalidRequest("a push needs at least one table")
        header = self._first
        sender = Sender(header.worker, header.incarnation)
        return StagedPush(
            sender, header.epoch, header.seq, header.push_id, header.clock, self._parts, header.rate or 1.0
        )

    def close(self) -> None:
        """Part from the reader. The two know each other, and what is in a cycle stays in memory until the
        garbage collector comes: the next push would need memory of its own.
        """
        del self._reader

    def _close_table(self) -> None:
        """The current table is over."""
        if self._part is not None:
            table = self._part.store.table
            self._parts[table.name] = replace(self._part, values=Segments(self._pieces, table.dtype))

    # --- headers
    # -----------------------------------------------------------------------------------------------------

    def _open_table(self, header: TensorHeader) -> TensorSink:
        self._close_table()
        self._check_epoch(header.epoch)
        self._check_same_push(header)
        store = self._find_store(header)
        part = _locate_part(store, header)
        elements = part.layout.elements
        self._dtype = bfloat16.DTYPE if header.dtype == bfloat16.NAME else store.table.dtype
        size = elements * self._dtype.itemsize
        if header.bytes != size:
            raise ShapeMismatch(
                f"table {header.table}: these blocks have {size} bytes, the push {header.bytes}"
            )
        kept = elements * store.table.dtype.itemsize
        self._reserve(kept)
        self.reserved += kept
        self._part = part
        self._pieces = []
        self._finite = header.finite
        return TensorSink(f"table {header.table}", size, self._add_data)

    def _find_store(self, header: TensorHeader) -> BlockStore:
        store = self._view.tables.get(header.table)
        if store is None:
            raise UnknownTable(f"the job has no table {header.table!r}")
        if header.table in self._parts:
            raise InvalidRequest(f"table {header.table} occurs twice in one push")
        shortened = header.dtype == bfloat16.NAME and store.table.dtype_name == "float32"
        if header.dtype != store.table.dtype_name and not shortened:
            raise ShapeMismatch(
                f"table {header.table} is {store.table.dtype_name}, the push {header.dtype!r}"
            )
        return store

    def _check_epoch(self, epoch: int) -> None:
        """A first look that spares the transfer; the shard decides when the push is complete."""
        current = self._view.epoch
        if epoch < current:
            raise StaleEpoch(f"epoch {epoch} is over, this shard is in epoch {current}", epoch=current)
        if epoch > current:
            raise NotServing(f"this shard knows epoch {current}, not yet {epoch}")

    def _check_same_push(self, header: TensorHeader) -> None:
        if not header.worker or header.seq < 1 or header.push_id < 1:
            raise InvalidRequest("a push needs a worker, a seq and a push id")
        if not 0 <= header.rate <= 1:
            raise InvalidRequest(f"a push has a factor of the learning rate in (0, 1], not {header.rate}")
        self._first = self._first or header
        if _push_identity(header) != _push_identity(self._first):
            raise InvalidRequest("one stream carries one push")

    # --- payload
    # -----------------------------------------------------------------------------------------------------

    def _add_data(self, data: TensorData) -> None:
        assert self._part is not None
        size = self._dtype.itemsize
        looked = self._finite and self._shared  # what is shared could be changed after a look here, too
        if len(data) % size or self._carry or (len(data) < PIECE_BYTES and self._reader.remaining):
            # not as our client sends it: small pieces are put together, so that they stay few
            self._carry += data
            if len(self._carry) < PIECE_BYTES and self._reader.remaining:
                return
            whole = len(self._carry) - len(self._carry) % size
            data, self._carry = bytes(self._carry[:whole]), self._carry[whole:]
            looked = False
        self._add_piece(self._part, data, looked)

    def _add_piece(self, part: StoreSlice, data: TensorData, looked: bool) -> None:
        table = part.store.table
        piece: Array = np.frombuffer(data, self._dtype)
        if self._dtype != table.dtype:
            piece = bfloat16.lengthen_values(piece)
        if table.finite_only and not looked and not all_finite(piece):
            before = sum(len(earlier) for earlier in self._pieces)
            raise _not_finite(part, before + int(np.isfinite(piece).argmin()))
        self._pieces.append(piece)


def _locate_part(store: BlockStore, header: TensorHeader) -> StoreSlice:
    """Where the values of a table go. Raises :class:`BlockOutOfRange` and :class:`InvalidRequest`."""
    table = store.table
    nothing = np.empty(0, table.dtype)
    names = read_rows(header, table)
    if names is not None:
        if header.dense or header.block_ids:
            raise InvalidRequest(f"table {table.name}: a push is of rows or of blocks, not of both")
        if table.rule.counts_steps and not table.has_row_blocks:
            raise InvalidRequest(f"table {table.name}: rule {table.rule.kind} counts steps of whole blocks")
        positions, rows = store.locate_rows(names)
        return StoreSlice(store, positions, nothing, rows)
    if table.keys is not None and (header.dense or header.block_ids):
        raise InvalidRequest(f"table {table.name} has keys: a push names them")
    if header.dense:
        return StoreSlice(store, None, nothing)
    return StoreSlice(store, store.locate_blocks(ids_from_bytes(header.block_ids, table.blocks)), nothing)


def _not_finite(part: StoreSlice, element: int) -> NonFinite:
    index = int(np.searchsorted(part.layout.starts, element, side="right")) - 1
    where = f"block {part.ids[index]}" if part.rows is None else _row_name(part, index)
    return NonFinite(f"table {part.store.table.name}, {where}: the push has a value that is not finite")


def _row_name(part: StoreSlice, index: int) -> str:
    assert part.rows is not None
    name = part.store.table_rows(part.rows[index : index + 1])
    return f"key {unmix_keys(name.astype(np.uint64))[0]}" if name.dtype == np.uint64 else f"row {name[0]}"


def _push_identity(header: TensorHeader) -> tuple[str, str, int, int, int, int]:
    return header.worker, header.incarnation, header.epoch, header.seq, header.push_id, header.clock
