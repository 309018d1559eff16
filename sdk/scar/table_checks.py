"""What a declared table has to keep to. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scar.blocks import is_ascending
from scar.errors import ConfigError, use_one_of
from scar.given_rows import ensure_rows_fit
from scar.keyed_rows import check_keyed

if TYPE_CHECKING:
    from scar.tables import Table

DTYPES = ("float32", "float64", "int32", "int64")
NORMS = ("l2", "l1", "tv", "histogram")  # the last: for tables of categories, see scar_ps.core.distances
# per job; descriptions come over the wire, so sizes are checked before anything is allocated
MAX_BLOCKS = 10_000_000  # an epoch has up to 2 bytes for each of them, and workers get it as one message
MAX_ELEMENTS = 1 << 40
MAX_ROWS = 1 << 32  # of a table, that a call can name
KEYED = "keys=, dim= and capacity="
KEYED_ADVICE = "Give a shape; or keys='int64' (or scar.keys(...)), dim= and capacity=, and no shape"


def ensure_table_valid(table: Table) -> None:
    """Raises :class:`ConfigError`."""
    _check_shape(table)
    _check_norm(table)
    _check_blocks(table)
    if table.keys is not None:
        check_keyed(table.name, table.shape, table.blocks, table.init, table.rule.counts_steps)
        if table.weights is not None or table.norm == "histogram":
            raise ConfigError(
                f"table {table.name} has keys, and so neither weights of blocks nor norm histogram"
            )


def check_job_name(name: str) -> None:
    """Raises :class:`ConfigError`."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise ConfigError(f"job name {name!r} is not valid", "Use 1 to 63 lower-case letters, digits and '-'")


def check_table_name(name: str) -> None:
    """Raises :class:`ConfigError`."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise ConfigError(f"table name {name!r} is not valid", "Use 1 to 64 letters, digits, '_', '.', '-'")


def _check_shape(table: Table) -> None:
    check_table_name(table.name)
    if not table.shape or min(table.shape) < 1:
        raise ConfigError(
            f"table {table.name}: shape {table.shape} has no elements", "Every axis needs at least 1"
        )
    if table.elements > MAX_ELEMENTS:
        raise ConfigError(f"table {table.name}: shape {table.shape} has more than {MAX_ELEMENTS} elements")


def _check_norm(table: Table) -> None:
    if table.norm not in NORMS:
        raise ConfigError(
            f"table {table.name}: norm {table.norm!r} is unknown", use_one_of(table.norm, NORMS)
        )
    if table.rule.kind not in ("assign", "add") and table.dtype.kind != "f":
        raise ConfigError(
            f"table {table.name}: rule {table.rule.kind} needs a float dtype",
            "Use a float dtype, or rule add",
        )
    if table.norm == "histogram" and table.dtype != np.int32:
        raise ConfigError(
            f"table {table.name}: norm histogram is for categories, not {table.dtype}", "Use dtype int32"
        )


def _check_blocks(table: Table) -> None:
    if not table.cut.offsets and table.cut.pieces < 1 and table.cut.rows < 1:
        raise ConfigError(f"table {table.name}: rows per block must be at least 1")
    if table.blocks > MAX_BLOCKS:
        raise ConfigError(
            f"table {table.name} has more than {MAX_BLOCKS} blocks", "Use larger blocks: scar.rows(n)"
        )
    if table.cut.offsets and not _grow_to(table.row_offsets, table.shape[0]):
        raise ConfigError(f"table {table.name}: block offsets must grow from 0 to {table.shape[0]}")
    if table.weights is not None and not (
        table.weights.shape == (table.blocks,)
        and bool((np.isfinite(table.weights) & (table.weights > 0)).all())
    ):
        raise ConfigError(
            f"table {table.name}: weights must be {table.blocks} positive numbers, one for each block"
        )
    if table.init.others and (table.keys is None or table.init.kind != "given"):
        raise ConfigError(
            f"table {table.name} has no keys, and so no given rows of keys", "Use scar.given(array)"
        )
    if table.init.rows is not None:
        ensure_rows_fit(table, table.init.rows)
    array = table.init.array
    if array is not None and array.shape != table.shape:
        raise ConfigError(f"table {table.name}: given array has shape {array.shape}, the table {table.shape}")


def _grow_to(offsets: NDArray[np.int64], end: int) -> bool:
    """From 0 to ``end``. Compared, not subtracted: a difference of two int64 can wrap."""
    ends_fit = len(offsets) > 1 and offsets[0] == 0 and offsets[-1] == end
    return bool(ends_fit) and is_ascending(offsets)


def parse_dtype(table: str, name: str) -> np.dtype[np.generic]:
    """Raises :class:`ConfigError`."""
    try:
        if isinstance(name, str) and not re.fullmatch(r"[<>=|]?[A-Za-z]+[0-9]{0,3}", name):
            raise ValueError(name)  # numpy would take it for the source of a structure
        dtype = np.dtype(name)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"table {table}: dtype {name!r} is unknown", use_one_of(name, DTYPES)) from error
    if dtype.name not in DTYPES or not dtype.isnative:
        raise ConfigError(
            f"table {table}: dtype {name!r} is not supported", f"Use one of {', '.join(DTYPES)}"
        )
    return dtype
