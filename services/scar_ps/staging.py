"""Pushes on their way in: payloads stay in the messages that brought them until they are applied, and are checked there.

Everything is checked before anything is changed: table, dtype, ids, ownership, size (before memory is taken), finite values.
Memory for pushes that are not applied yet is bounded: beyond the limit a sender is told to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import numpy as np

from scar.blocks import Array, all_finite
from scar.codec import Chunk, ids_from_bytes
from scar.errors import Busy, InvalidRequest, NonFinite, NotServing, ShapeMismatch, StaleEpoch, UnknownTable
from scar.v1.ps_pb2 import TensorHeader
from scar_ps.barrier import Sender
from scar_ps.blockstore import Part
from scar_ps.requests import Push, View
from scar_ps.segments import Segments

PIECE_BYTES = 64 << 10  # of the parts in which a payload is kept, at least


class Staging:
    """Room for pushes that arrive. ``limit``: bytes, or more where the view calls for it; ``kept``: bytes that wait."""

    def __init__(self, limit: int, kept: Callable[[], int]) -> None:
        self._limit, self._kept = limit, kept
        self._arriving = 0
        self._lock = Lock()

    @contextmanager
    def open(self, view: View) -> Iterator[Stage]:
        """A place for one push; what it reserved is free again at the end."""
        stage = Stage(view, lambda count: self._reserve(count, view.staged_limit))
        try:
            yield stage
        finally:
            with self._lock:
                self._arriving -= stage.reserved

    def _reserve(self, count: int, least: int) -> None:
        limit = max(self._limit, least)
        with self._lock:
            used = self._arriving + self._kept()
            if used + count > limit:
                raise Busy(
                    f"{used} bytes of pushes are waiting already, {count} more would pass the limit of {limit}",
                    "Push less in one clock, or raise SCAR_STAGED_BYTES (--staged-bytes) of the shards",
                )
            self._arriving += count


class Stage:
    """One push while its stream arrives: :meth:`take` each chunk, then :meth:`push`."""

    def __init__(self, view: View, reserve: Callable[[int], None]) -> None:
        self.reserved = 0
        self._view, self._reserve = view, reserve
        self._first: TensorHeader | None = None
        self._parts: dict[str, Part] = {}
        self._part: Part | None = None
        self._pieces: list[Array] = []  # of the current table
        self._carry = bytearray()  # bytes that are no piece yet
        self._at = self._size = 0  # bytes of the current table that have arrived, of those that will

    def take(self, chunk: Chunk) -> None:
        if chunk.header is not None:
            self._begin(chunk.header)
        if len(chunk.data):
            self._fill(chunk.data)

    def push(self) -> Push:
        """The whole push. Raises :class:`ShapeMismatch` when the stream ended early."""
        self._complete()
        if self._first is None:
            raise InvalidRequest("a push needs at least one table")
        header = self._first
        sender = Sender(header.worker, header.incarnation)
        return Push(sender, header.epoch, header.seq, header.push_id, header.clock, self._parts, header.rate or 1.0)

    def _begin(self, header: TensorHeader) -> None:
        self._complete()
        self._check_epoch(header.epoch)
        self._check_same_push(header)
        store = self._view.tables.get(header.table)
        if store is None:
            raise UnknownTable(f"the job has no table {header.table!r}")
        if header.table in self._parts:
            raise InvalidRequest(f"table {header.table} occurs twice in one push")
        if header.dtype != store.table.dtype.name:
            raise ShapeMismatch(f"table {header.table} is {store.table.dtype.name}, the push {header.dtype!r}")
        positions = None if header.dense else store.locate(ids_from_bytes(header.block_ids, store.table.blocks))
        elements = store.packed(positions).elements
        size = elements * store.table.dtype.itemsize
        if header.bytes != size:
            raise ShapeMismatch(f"table {header.table}: these blocks have {size} bytes, the push {header.bytes}")
        self._reserve(size)
        self.reserved += size
        self._part = Part(store, positions, Segments((), store.table.dtype))
        self._parts[header.table] = self._part
        self._pieces, self._at, self._size = [], 0, size

    def _check_epoch(self, epoch: int) -> None:
        """A first look that spares the transfer; the shard decides when the push is complete."""
        if epoch < self._view.epoch:
            raise StaleEpoch(f"epoch {epoch} is over, this shard is in epoch {self._view.epoch}", epoch=self._view.epoch)
        if epoch > self._view.epoch:
            raise NotServing(f"this shard knows epoch {self._view.epoch}, not yet {epoch}")

    def _check_same_push(self, header: TensorHeader) -> None:
        if not header.worker or header.seq < 1 or header.push_id < 1:
            raise InvalidRequest("a push needs a worker, a seq and a push id")
        if not 0 <= header.rate <= 1:
            raise InvalidRequest(f"a push has a factor of the learning rate in (0, 1], not {header.rate}")
        self._first = self._first or header
        if _identity(header) != _identity(self._first):
            raise InvalidRequest("one stream carries one push")

    def _fill(self, data: memoryview | bytes) -> None:
        if self._part is None or self._at + len(data) > self._size:
            raise ShapeMismatch("a push has more data than its headers say")
        self._at += len(data)
        odd = len(data) % self._part.store.table.dtype.itemsize
        if odd or self._carry or (len(data) < PIECE_BYTES and self._at < self._size):
            self._carry += data  # not as our client sends it: small pieces are put together, so that they stay few
            if len(self._carry) < PIECE_BYTES and self._at < self._size:
                return
            whole = len(self._carry) - len(self._carry) % self._part.store.table.dtype.itemsize
            data, self._carry = bytes(self._carry[:whole]), self._carry[whole:]
        self._keep(self._part, data)

    def _keep(self, part: Part, data: memoryview | bytes) -> None:
        table, piece = part.store.table, np.frombuffer(data, part.store.table.dtype)
        if table.dtype.kind == "f" and not table.allow_nonfinite and not all_finite(piece):
            before = sum(len(kept) for kept in self._pieces)
            raise self._not_finite(part, before + int(np.isfinite(piece).argmin()))
        self._pieces.append(piece)

    @staticmethod
    def _not_finite(part: Part, element: int) -> NonFinite:
        starts = part.store.packed(part.positions).starts
        block = part.ids[int(np.searchsorted(starts, element, side="right")) - 1]
        return NonFinite(f"table {part.store.table.name}, block {block}: the push has a value that is not finite")

    def _complete(self) -> None:
        """The current table is over."""
        if self._part is None:
            return
        table = self._part.store.table
        if self._at < self._size:
            raise ShapeMismatch(f"table {table.name}: {self._at} of {self._size} bytes arrived")
        self._part.values = Segments(self._pieces, table.dtype)


def _identity(header: TensorHeader) -> tuple[str, str, int, int, int, int]:
    return header.worker, header.incarnation, header.epoch, header.seq, header.push_id, header.clock
