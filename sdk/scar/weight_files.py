"""Safetensors files as first values of a job's tables: pretrained weights, or what another job exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scar.errors import ConfigError
from scar.given_rows import given_rows
from scar.initial_values import given
from scar.keyed_rows import KeyedValues
from scar.table_checks import ensure_table_valid
from scar.tables import Job, Table

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32"}


def init_from(job: Job, file: str | Path, *, strict: bool = True) -> Job:
    """The same job, whose tables begin with the tensors of their names in a safetensors file.

    A table with keys has two, "<name>.keys" and "<name>.values"; rows of other keys begin as declared. Shapes
    are the tables', where a tensor without axes fits a table of shape (1,); dtypes, too, but for those
    that grow without loss, as float16 to float32. ``strict=False``: tables that are not in the file keep
    their own first values, and tensors that are no table are left out. Raises :class:`ConfigError` that names
    what does not fit, before any values are read. A job that is resumed goes on from its own values.
    """
    with open_tensors(file, "numpy") as tensors:
        names = set(tensors.keys())
        parts = {table.name: _tensor_names(table) for table in job.tables}
        ensure_names_match(file, names, {name for found in parts.values() for name in found}, strict)
        found = [table for table in job.tables if names.issuperset(parts[table.name])]
        for table in found:
            _ensure_fits(file, table, *map(tensors.get_slice, parts[table.name]))
        values = {table.name: [tensors.get_tensor(name) for name in parts[table.name]] for table in found}
    return replace(job, tables=[_with_values(table, values.get(table.name)) for table in job.tables])


def _tensor_names(table: Table) -> list[str]:
    return [table.name] if table.keys is None else [f"{table.name}.{part}" for part in KeyedValues._fields]


@contextmanager
def open_tensors(file: str | Path, framework: str) -> Iterator[Any]:
    """What :func:`safetensors.safe_open` gives. Raises :class:`ConfigError` for what is no such file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ConfigError(
            "the package safetensors is not installed", "Run: pip install safetensors"
        ) from error
    try:
        opened = safe_open(file, framework)
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"{file} cannot be read as safetensors: {error}",
            "Give a file of scar checkpoints export, or of safetensors' save_file",
        ) from error
    with opened as tensors:
        yield tensors


def ensure_names_match(file: str | Path, names: set[str], wanted: set[str], strict: bool) -> None:
    """Raises :class:`ConfigError` unless all that is wanted is there, and nothing else; without ``strict``
    only where nothing of it is.
    """
    missing = sorted(wanted - names)
    unknown = sorted(names - wanted)
    if not missing and (not unknown or not strict):
        return
    if not strict and names & wanted:
        return
    said = [f"has no {_some(missing)}"] if missing else []
    said += [f"has {_some(unknown)}, which the model has not"] if unknown else []
    raise ConfigError(
        f"{file} {' and '.join(said)}",
        "Give a file of this model; strict=False (in Python) takes what both have",
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _ensure_fits(file: str | Path, table: Table, *parts: Any) -> None:
    """``parts``: their shapes and dtypes, as the head of the file has them."""
    tensor = parts[-1]
    shape = tuple(tensor.get_shape())
    if table.keys is not None:
        rows = tuple(parts[0].get_shape())
        fits = parts[0].get_dtype() == "I64" and len(rows) == 1 and shape == (*rows, *table.shape[1:])
        wanted: tuple[Any, ...] = ("number of keys", *table.shape[1:])
    else:
        fits = (shape or (1,)) == table.shape
        wanted = table.shape
    if not fits:
        raise ConfigError(
            f"{table.name} has shape {shape} in {file}, and {wanted} in the job",
            "Declare the table as it was saved, or leave it out of the file by strict=False",
        )
    dtype = _DTYPES.get(tensor.get_dtype())
    if dtype is None or not np.can_cast(dtype, table.dtype, "safe"):
        raise ConfigError(
            f"{table.name} is {dtype or tensor.get_dtype()} in {file}, and {table.dtype_name} in the job:"
            " values would be lost, or are not known to numpy",
            f"Convert the file to {table.dtype_name}; scar.torch.import_safetensors does it for a model",
        )


def _with_values(table: Table, parts: list[Any] | None) -> Table:
    if parts is None:
        return table
    other = copy(table)
    if table.keys is not None:
        other.init = given_rows(parts[0], parts[1], table.init)
    else:
        other.init = given(parts[0].reshape(table.shape).astype(table.dtype, copy=False))
    ensure_table_valid(other)
    return other
