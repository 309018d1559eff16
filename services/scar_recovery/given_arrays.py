"""Initial arrays that come with a job's start, or were uploaded before it: their keys in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scar.errors import InvalidRequest, ObjectNotFound, TooLarge
from scar.given_rows import unpack_rows
from scar.tables import Job, Table
from scar.wire.table_messages import INITIAL_PART_BYTES, part_count
from scar_runtime.store import Store
from scar_runtime.store.layout import INITIAL, folder, initial_key, table_of_initial


@dataclass(frozen=True)
class GivenArrays:
    """``sent``: bytes of a whole array, by table; ``uploaded``: keys of the parts of one, by table."""

    sent: Mapping[str, bytes] = field(default_factory=dict)
    uploaded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def keys_of(self, table: Table) -> tuple[str, ...]:
        """Of all its parts. Raises :class:`InvalidRequest` for what cannot be this table's array."""
        if table.name in self.sent:
            raw = self.sent[table.name]
            if table.keys is None and len(raw) != table.bytes:
                raise _missing(table)
            if table.keys is not None:
                unpack_rows(table, raw)
            return (initial_key(table.name, raw),)
        keys = self.uploaded.get(table.name, ())
        names = set(map(table_of_initial, keys))
        if names != {table.name} or (table.keys is None and len(keys) != part_count(table.bytes)):
            raise _missing(table)
        return keys

    def put_sent(self, store: Store, job: Job) -> None:
        """``store``: the job's. Before the job's record, from which on x(0) can be made by anybody."""
        for table in job.tables:
            if table.init.key and table.name in self.sent:
                store.put(table.init.key, self.sent[table.name])

    def require_uploaded(self, store: Store, job: Job) -> None:
        """Raises :class:`InvalidRequest` where a part is not there, or has not its size."""
        for table in job.tables:
            if not table.init.key or table.name in self.sent:
                continue
            *full, last = table.init.part_keys
            rest = table.bytes - len(full) * INITIAL_PART_BYTES if table.keys is None else 0
            whole = all(_ends_at(store, key, INITIAL_PART_BYTES) for key in full)
            if not whole or (rest and not _ends_at(store, last, rest)):
                raise _missing(table)


def put_part(store: Store, table: str, data: bytes) -> str:
    """Key of the part in the job's ``store``."""
    if not 0 < len(data) <= INITIAL_PART_BYTES:
        raise TooLarge(
            f"a part of an initial array has {len(data)} bytes", f"Send 1 to {INITIAL_PART_BYTES} bytes"
        )
    key = initial_key(table, data)
    store.put(key, data)
    return key


def remove_unnamed(store: Store, job: Job) -> None:
    """Parts of uploads that somebody began and did not end."""
    named = {key for table in job.tables for key in table.init.part_keys}
    for key in store.list(folder(INITIAL)):
        if key not in named:
            store.delete(key)


def _ends_at(store: Store, key: str, size: int) -> bool:
    try:
        return len(store.get_range(key, size - 1, 2)) == 1
    except ObjectNotFound:
        return False


def _missing(table: Table) -> InvalidRequest:
    return InvalidRequest(
        f"table {table.name}: the given initial array is missing or has not {table.bytes} bytes"
    )
