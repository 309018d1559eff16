"""How output is printed: tables and colours for people, JSON for programs, one line for errors."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scar.errors import ScarError
from scar.wire.codec import ids_from_bytes

PLAIN_WIDTH = 160  # columns when the output is no terminal, so that pipes get whole lines


class OutputFormat(StrEnum):
    """What ``-o`` accepts."""

    text = "text"
    json = "json"


def make_console(stderr: bool = False) -> Console:
    """Colours only on a terminal and without NO_COLOR."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False)


def print_error(error: ScarError) -> None:
    """What went wrong and why, then what to do."""
    screen = make_console(stderr=True)
    screen.print(f"[bold red]error:[/] {escape(error.message)}", soft_wrap=True)
    if error.next_step:
        screen.print(f"[bold]next:[/]  {escape(error.next_step)}", soft_wrap=True)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """Numbers are aligned to the right by a leading ``>`` in the column's name."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(
            column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True
        )
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


def print_result(output: OutputFormat, data: object, text: Callable[[Console], None]) -> None:
    """``data`` as JSON, or ``text`` on the console."""
    if output is OutputFormat.json:
        sys.stdout.write(json.dumps(json_value(data), indent=2) + "\n")
    else:
        text(make_console())


def json_value(value: Any) -> Any:
    """Protocol messages, mappings and sequences as what JSON knows; numbers that JSON lacks become null."""
    if isinstance(value, Message):
        fields = [one for one in value.DESCRIPTOR.fields if not one.has_presence or value.HasField(one.name)]
        return {field.name: _field_value(field, getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): json_value(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [json_value(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _field_value(field: Any, value: Any) -> Any:
    """A field as JSON.

    Protobuf's own JSON has large integers as strings and bytes in base64, which programs would have to
    decode.
    """
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if field.type == FieldDescriptor.TYPE_BYTES:
        return ids_from_bytes(value).tolist() if field.name == "block_ids" else len(value)
    return json_value(value)


def format_count(number: int, one: str, many: str = "") -> str:
    """``1 failure``, ``2 failures``. ``many``: where an "s" does not do."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def format_size(count: float) -> str:
    """Bytes for people: 12.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(value: float) -> str:
    """A duration in seconds for people; negative means that there is none."""
    if value < 0 or not math.isfinite(value):
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"


def format_loss(loss: float | None, fraction: float = 1.0) -> str:
    """A loss that is not of all data says so."""
    return format_number(loss) + (f" (of {fraction:.1%} of the data)" if fraction < 1 else "")


def format_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
