"""Arrays that a user gave as the first values of a table, as they lie in the store."""

from __future__ import annotations

import hashlib

import numpy as np

from scar.blocks import Array
from scar.errors import ConfigError, CorruptCheckpoint
from scar.given_rows import unpack_rows
from scar.initial_values import GivenRows
from scar.tables import Table
from scar_runtime.store import Store


def read_initial(store: Store, table: Table) -> Array | GivenRows | None:
    """All elements of a table, flat, or of one with keys rows; None: its values are made by rule. ``store``
    is the job's.

    Raises :class:`CorruptCheckpoint` for what has another size than the table or another digest than its
    key names, and for what are no rows of it; and :class:`scar.errors.ObjectNotFound`.
    """
    if table.init.kind != "given":
        return None
    raw = store.get(table.init.key)
    size = table.elements * table.dtype.itemsize
    if table.keys is None and len(raw) != size:
        raise CorruptCheckpoint(
            f"{table.init.key} has {len(raw)} bytes, the first values of table {table.name} have {size}"
        )
    digest = table.init.key.partition("@")[2]  # jobs that began before there were digests have none
    if digest and hashlib.sha256(raw).hexdigest() != digest:
        raise CorruptCheckpoint(f"{table.init.key} is not the array with which the job began")
    if table.keys is None:
        return np.frombuffer(raw, table.dtype)
    try:
        return unpack_rows(table, raw)
    except ConfigError as error:
        raise CorruptCheckpoint(f"{table.init.key}: {error.message}") from error
