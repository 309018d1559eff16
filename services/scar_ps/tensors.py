"""Values on their way out, in wire form: encoded under the store's lock, one run of whole blocks at a time.

The join into a message is the only copy, and it is made while the lock is held; so no block is ever half old and half new.
"""

from __future__ import annotations

from collections.abc import Iterator

from scar.blocks import Array, Positions
from scar.codec import CHUNK_BYTES, Chunk, encode_chunk
from scar.v1.ps_pb2 import TensorHeader
from scar_ps.blockstore import BlockStore, runs


def encoded(header: TensorHeader, store: BlockStore, positions: Positions | None) -> Iterator[bytes]:
    """The stream of these blocks (None: all) behind ``header``, whose table, dtype and size are filled in."""
    layout, size = store.packed(positions), store.table.dtype.itemsize
    header.table, header.dtype, header.dense = store.table.name, store.table.dtype.name, positions is None
    header.bytes = layout.elements * size
    head: TensorHeader | None = header
    for start, stop in runs(layout, CHUNK_BYTES // size):
        with store.lock:
            if positions is None:
                values = store.values[layout.starts[start] : layout.starts[stop]]
            else:
                values = store.layout.gather(store.values, positions[start:stop])
            wires = _wires(head, values)
        yield from wires
        head = None
    if head is not None:
        yield encode_chunk(Chunk(head))


def _wires(header: TensorHeader | None, values: Array) -> list[bytes]:
    raw = values.data.cast("B")
    starts = range(0, len(raw), CHUNK_BYTES)
    return [encode_chunk(Chunk(header if start == 0 else None, raw[start : start + CHUNK_BYTES])) for start in starts]
