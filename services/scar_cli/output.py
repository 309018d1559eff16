"""How everything is printed: tables and colours for people, JSON for programs, one clear red line for errors."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scar.errors import ScarError

PLAIN_WIDTH = 160  # columns when the output is no terminal, so that pipes get whole lines


class Output(StrEnum):
    """What ``-o`` accepts."""

    text = "text"
    json = "json"


def console(stderr: bool = False) -> Console:
    """Colours only on a terminal and without NO_COLOR."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False)


def fail(error: ScarError) -> None:
    """What went wrong and why, then what to do."""
    screen = console(stderr=True)
    screen.print(f"[bold red]error:[/] {escape(error.message)}", soft_wrap=True)
    if error.next_step:
        screen.print(f"[bold]next:[/]  {escape(error.next_step)}", soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """Numbers are aligned to the right by a leading ``>`` in the column's name."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


def show(output: Output, data: object, text: Callable[[Console], None]) -> None:
    """``data`` as JSON, or ``text`` on the console."""
    if output is Output.json:
        sys.stdout.write(json.dumps(plain(data), indent=2) + "\n")
    else:
        text(console())


def plain(value: Any) -> Any:
    """Protocol messages, mappings and sequences as what JSON knows; numbers that JSON lacks become null."""
    if isinstance(value, Message):
        return plain(MessageToDict(value, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def size(count: float) -> str:
    """Bytes for people: 12.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def seconds(value: float) -> str:
    """A duration in seconds for people; negative means that there is none."""
    if value < 0 or not math.isfinite(value):
        return "-"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
