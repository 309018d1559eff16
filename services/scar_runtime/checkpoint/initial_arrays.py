"""Arrays that a user gave as the first values of a table, as they lie in the store: large ones in parts."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids
from scar.errors import ConfigError, CorruptCheckpoint
from scar.given_rows import unpack_rows
from scar.initial_values import GivenRows
from scar.tables import Job, Table
from scar.wire.table_messages import INITIAL_PART_BYTES, part_count
from scar_runtime.store import Store


def read_initial(store: Store, table: Table, ids: Ids) -> Array | GivenRows | None:
    """The elements of a table, flat, of which those of these blocks are right, or of one with keys all rows;
    None: its values are made by rule. ``store`` is the job's. Parts without elements of the blocks are not
    read, and take no memory.

    Raises :class:`CorruptCheckpoint` for what has another size than the table or another digest than its
    key names, and for what are no rows of it; and :class:`scar.errors.ObjectNotFound`.
    """
    if table.init.kind != "given":
        return None
    if table.keys is not None:
        return _read_rows(store, table)
    keys = table.init.part_keys
    if len(keys) == 1:
        return np.frombuffer(_read_part(store, table, keys[0], table.bytes), table.dtype)
    if len(keys) != part_count(table.bytes):
        raise CorruptCheckpoint(f"the first values of table {table.name} are in {len(keys)} parts")
    flat = np.empty(table.elements, table.dtype)
    raw = flat.view(np.uint8)
    for part in _parts_of(table, ids, len(keys)).tolist():
        start = part * INITIAL_PART_BYTES
        place = raw[start : start + INITIAL_PART_BYTES]
        place[:] = np.frombuffer(_read_part(store, table, keys[part], len(place)), np.uint8)
    return flat


def initial_contents(store: Store, job: Job, name: str, ids: Ids) -> tuple[Array, dict[str, Array]]:
    """x(0) of these blocks (ascending ids) of a table, packed: values and all slots. ``store`` is the
    job's. Raises as :func:`read_initial`.
    """
    table = job.table(name)
    given = read_initial(store, table, ids)
    sizes = {slot: table.slot_layout(slot).count_elements(ids) for slot in table.slots}
    zeros = {slot: np.zeros(elements, table.dtype) for slot, elements in sizes.items()}
    return table.initial(job.seed, ids, given), {**zeros, **table.initial_slots(ids, given)}


def _parts_of(table: Table, ids: Ids, parts: int) -> NDArray[np.int64]:
    """Numbers of the parts that have elements of these blocks."""
    starts = table.layout.starts * table.dtype.itemsize
    first = starts[ids] // INITIAL_PART_BYTES
    last = (starts[ids.astype(np.int64) + 1] - 1) // INITIAL_PART_BYTES
    changes = np.bincount(first, minlength=parts + 1) - np.bincount(last + 1, minlength=parts + 1)
    return np.flatnonzero(np.cumsum(changes)[:parts])


def _read_rows(store: Store, table: Table) -> GivenRows:
    raw = b"".join(_read_part(store, table, key) for key in table.init.part_keys)
    try:
        return unpack_rows(table, raw)
    except ConfigError as error:
        raise CorruptCheckpoint(f"{table.init.key}: {error.message}") from error


def _read_part(store: Store, table: Table, key: str, size: int = -1) -> bytes:
    """``size``: in bytes; -1: any."""
    raw = store.get(key)
    if size not in (-1, len(raw)):
        raise CorruptCheckpoint(
            f"{key} has {len(raw)} bytes, the first values of table {table.name} have {size} there"
        )
    digest = key.partition("@")[2]  # jobs that began before there were digests have none
    if digest and hashlib.sha256(raw).hexdigest() != digest:
        raise CorruptCheckpoint(f"{key} is not the array with which the job began")
    return raw
