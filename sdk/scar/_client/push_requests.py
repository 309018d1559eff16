"""A push as a user asks for it: names, arrays and ids in, packed tables out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from numpy.typing import ArrayLike

from scar._client.core.pushes import PackedTable, not_finite, pack_table
from scar._client.pull_requests import TableIds, select_blocks
from scar.bfloat16 import round_to_bfloat16
from scar.errors import InvalidRequest, NonFinite
from scar.row_copies import all_finite
from scar.tables import Job, Table


def pack_tables(
    job: Job,
    tables: str | Mapping[str, ArrayLike],
    values: ArrayLike | None,
    ids: TableIds = None,
    bfloat16: Collection[str] = (),
    rows: TableIds = None,
) -> dict[str, PackedTable]:
    """As :meth:`scar.Worker.push` has them. Raises what it raises."""
    single = isinstance(tables, str)
    arrays = _arrays_by_table(tables, values)
    if unknown := sorted(set(bfloat16) - arrays.keys()):
        raise InvalidRequest(f"bfloat16 names {', '.join(unknown)}, which this push has not")
    packed = {}
    for name, array in arrays.items():
        asked = select_blocks(job, name, ids, rows, single)
        packed[name] = pack_table(job.table(name), array, asked.ids, asked.rows)
    return packed | {name: _round_table(job.table(name), packed[name]) for name in bfloat16}


def _arrays_by_table(
    tables: str | Mapping[str, ArrayLike], values: ArrayLike | None
) -> Mapping[str, ArrayLike]:
    if isinstance(tables, str):
        if values is None:
            raise InvalidRequest(f"push({tables!r}) needs values")
        return {tables: values}
    if values is not None:
        raise InvalidRequest("push takes one table and its values, or a dict of tables")
    return tables


def _round_table(table: Table, packed: PackedTable) -> PackedTable:
    if table.dtype_name != "float32" or table.allow_nonfinite:
        kind = table.dtype_name + " with allow_nonfinite" * table.allow_nonfinite
        raise InvalidRequest(
            f"table {table.name} is {kind}: only finite float32 is pushed as bfloat16",
            "Leave its name out of bfloat16",
        )
    if not all_finite(packed.values):
        raise not_finite(table.name)
    values = round_to_bfloat16(packed.values)
    if not all_finite(values):
        raise NonFinite(f"table {table.name}: the push has a value beyond the largest of bfloat16")
    return replace(packed, values=values, short=True)
