"""In what two descriptions of a job differ, in words. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

SHOWN = 12  # an error has to fit into the headers of an answer


@dataclass(frozen=True)
class JobFields:
    """A job's description by the paths of its fields (``rule.lr``), those of each table apart."""

    fields: Mapping[str, object]
    tables: Mapping[str, Mapping[str, object]]


def describe_differences(known: JobFields, asked: JobFields) -> str:
    """Field by field: ``w.rule.lr: 0.2 -> 0.1, workers: 2 -> 3``; empty when they are the same."""
    found = _changed_fields(known.fields, asked.fields)
    for name, fields in asked.tables.items():
        if name in known.tables:
            found += _changed_fields(known.tables[name], fields, f"{name}.")
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _changed_fields(known: Mapping[str, object], asked: Mapping[str, object], prefix: str = "") -> list[str]:
    names = [name for name in (dict(known) | dict(asked)) if known.get(name) != asked.get(name)]
    return [f"{prefix}{name}: {_show(known.get(name))} -> {_show(asked.get(name))}" for name in names]


def _show(value: object) -> str:
    if isinstance(value, bytes):  # compressed arrays: that they differ is all that can be said in a line
        return f"[{zlib.crc32(value):08x}]" if value else "-"
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value in (None, "") else str(value)
