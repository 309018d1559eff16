"""Rows with which a table with keys begins: what a user gives, its bytes, and where the rows lie. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from scar.blocks import Array, Ids
from scar.errors import ConfigError, InvalidRequest
from scar.initial_values import GivenRows, Init, zeros
from scar.keyed_rows import INDEX_BYTES, KEY_SLOT, USED_SLOT, block_of_images, check_keys

if TYPE_CHECKING:
    from scar.tables import Table

FIRST_USED = 1  # as if they had been pushed to in clock 0: the first to go where room is short


def given_rows(keys: ArrayLike, values: ArrayLike, others: Init | None = None) -> Init:
    """Rows that these keys have from the start, of a table with keys; they are uploaded when the job starts.

    ``keys``: int64[n], each once; ``values``: [n, dim]. ``others``: what rows of other keys begin with,
    default zeros; so does a row that was evicted and comes again. Raises :class:`ConfigError`.
    """
    others = others or zeros()
    try:
        images = check_keys("of given rows", keys)
    except InvalidRequest as error:
        raise ConfigError(error.message) from error
    matrix = np.asarray(values)
    order = np.argsort(images)
    images = images[order]
    if matrix.ndim != 2 or len(matrix) != len(images) or (images[1:] == images[:-1]).any():
        raise ConfigError(
            f"given rows are {len(images)} keys with values of shape {matrix.shape}",
            "Give each key once, and a row of values for each",
        )
    rows = GivenRows(images, matrix[order])
    return Init("given", others.low, others.high, others=others.others or others.kind, rows=rows)


def ensure_rows_fit(table: Table, rows: GivenRows) -> None:
    """Raises :class:`ConfigError` for rows of another width, or more than a block has room for."""
    if rows.values.shape[1:] != table.shape[1:]:
        raise ConfigError(
            f"table {table.name}: given rows have {rows.values.shape[1:]} elements, its own {table.shape[1:]}"
        )
    room = table.shape[0] // table.blocks
    counts = np.bincount(block_of_images(rows.images, table.blocks), minlength=table.blocks)
    if counts.max() > room:
        raise ConfigError(
            f"table {table.name}: {len(rows.images)} rows are given, {counts.max()} of them to a block"
            f" with room for {room}",
            "Use a larger capacity: keys fall to blocks at random, so leave a fifth free",
        )


def pack_rows(rows: GivenRows, dtype: np.dtype[np.generic]) -> bytes:
    """Images of keys, ascending, then their values."""
    return rows.images.astype("<u8").tobytes() + rows.values.astype(dtype).tobytes()


def unpack_rows(table: Table, raw: bytes) -> GivenRows:
    """Raises :class:`ConfigError` for what are no rows of this table."""
    width = INDEX_BYTES + table.row_elements * table.dtype.itemsize
    count, rest = divmod(len(raw), width)
    if rest or count > table.shape[0]:
        raise ConfigError(f"table {table.name}: {len(raw)} bytes are no given rows of {width} bytes each")
    images = np.frombuffer(raw, "<u8", count)
    if (images[1:] <= images[:-1]).any():
        raise ConfigError(f"table {table.name}: keys of given rows are not in order")
    values = np.frombuffer(raw, table.dtype, count * table.row_elements, count * INDEX_BYTES)
    rows = GivenRows(images, values.reshape(count, *table.shape[1:]))
    ensure_rows_fit(table, rows)
    return rows


def place_rows(table: Table, rows: GivenRows, ids: Ids) -> tuple[Array, Mapping[str, Array]]:
    """Values and slots of these blocks (ascending ids), packed: each block's first rows, by image."""
    room = table.shape[0] // table.blocks
    blocks = block_of_images(rows.images, table.blocks)
    firsts, ends = (np.searchsorted(blocks, ids, side) for side in ("left", "right"))
    counts = ends - firsts
    rank = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(np.arange(len(ids)) * room, counts) + rank
    source = np.repeat(firsts, counts) + rank
    values = np.zeros((len(ids) * room, table.row_elements), table.dtype)
    values[at] = rows.values.reshape(-1, table.row_elements)[source]
    keys, used = (np.zeros(len(ids) * room, np.uint64) for _ in range(2))
    keys[at] = rows.images[source]
    used[at] = FIRST_USED
    return values.reshape(-1), {KEY_SLOT: keys.view(table.dtype), USED_SLOT: used.view(table.dtype)}
