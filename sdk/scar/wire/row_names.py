"""Rows on the wire, by whatever they are named: numbers of rows, or images of keys."""

from __future__ import annotations

import numpy as np

from scar.blocks import RowNames, is_ascending
from scar.errors import InvalidRequest
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.wire.codec import ids_from_bytes

RowMessage = ps_pb2.TensorHeader | ps_pb2.TableBlocks


def set_rows(message: RowMessage, rows: RowNames | None) -> None:
    """Say which rows the message is about; None: it is about blocks."""
    if rows is None:
        return
    if rows.dtype == np.uint64:
        message.keys = np.ascontiguousarray(rows, "<u8").tobytes()
    else:
        message.rows = np.ascontiguousarray(rows, "<u4").tobytes()


def read_rows(message: RowMessage, table: Table) -> RowNames | None:
    """Strictly ascending rows, or images of keys; None: the message is about blocks.

    Raises :class:`InvalidRequest`, and :class:`BlockOutOfRange` for a row that the table does not have.
    """
    if not message.rows and not message.keys:
        return None
    if (message.rows and message.keys) or bool(message.keys) != (table.keys is not None):
        kind = "keys" if table.keys is not None else "numbers"
        raise InvalidRequest(f"rows of table {table.name} are named by {kind}, and by nothing else")
    return images_from_bytes(message.keys) if message.keys else ids_from_bytes(message.rows, table.shape[0])


def images_from_bytes(raw: bytes) -> RowNames:
    """Strictly ascending images of keys. Raises :class:`InvalidRequest` otherwise."""
    if len(raw) % 8:
        raise InvalidRequest(f"keys have {len(raw)} bytes, not a multiple of 8")
    images = np.frombuffer(raw, dtype="<u8")
    if not is_ascending(images):
        raise InvalidRequest("images of keys must be strictly ascending")
    return images
