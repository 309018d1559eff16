"""Lost pushes as they travel and are stored: by columns, about a byte for each block and column.

A column is zlib of the first bytes of all its little-endian numbers, then the second ones, and so on.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array
from scar.errors import BlockOutOfRange, InvalidRequest
from scar.lost_ranges import LostRanges
from scar.tables import MAX_BLOCKS
from scar.v1.recovery_pb2 import LostPushes

LEVEL = 6  # of zlib


def pack_losses(loss: LostRanges) -> LostPushes:
    """One message for the lost pushes of one table."""
    return LostPushes(
        table=loss.table,
        block_ids=_pack_column(np.diff(loss.ids.astype(np.int64), prepend=-1), "<u4"),
        after=_pack_column(loss.after, "<u8"),
        upto=_pack_column(loss.upto, "<u8"),
    )


def unpack_losses(message: LostPushes, blocks: int = MAX_BLOCKS) -> LostRanges:
    """Raises :class:`InvalidRequest` for anything but ascending ids below ``blocks`` and a range for each."""
    ids = np.cumsum(_unpack_column(message.block_ids, "<u4", blocks), dtype=np.int64) - 1
    if len(ids) and int(ids.max()) >= blocks:
        raise BlockOutOfRange(f"block {int(ids.max())} is out of range, table {message.table} has {blocks}")
    after, upto = (_unpack_column(column, "<u8", len(ids)) for column in (message.after, message.upto))
    if not len(ids) == len(after) == len(upto) or not (np.diff(ids, prepend=-1) > 0).all():
        raise InvalidRequest(
            f"lost pushes of table {message.table} must name ascending blocks and a range for each"
        )
    if not (after < upto).all() or (len(upto) and int(upto.max()) >= 1 << 63):
        raise InvalidRequest(f"lost pushes of table {message.table} must be ranges (after, upto]")
    return LostRanges(message.table, ids.astype(np.uint32), after.astype(np.int64), upto.astype(np.int64))


def _pack_column(column: Array, dtype: str) -> bytes:
    numbers = np.ascontiguousarray(column, dtype=dtype)
    return zlib.compress(numbers.view(np.uint8).reshape(-1, numbers.itemsize).T.tobytes(), LEVEL)


def _unpack_column(packed: bytes, dtype: str, most: int) -> NDArray[np.unsignedinteger]:
    """At most ``most`` numbers, whatever the sender has packed."""
    unpack = zlib.decompressobj()
    size = np.dtype(dtype).itemsize
    try:
        raw = unpack.decompress(packed, most * size + 1)
    except zlib.error as error:
        raise InvalidRequest("lost pushes are malformed") from error
    if len(raw) > most * size or len(raw) % size:
        raise InvalidRequest("lost pushes are malformed or too many")
    return np.frombuffer(raw, np.uint8).reshape(size, -1).T.copy().view(dtype).reshape(-1)
