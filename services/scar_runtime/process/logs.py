"""Log records of a service: one JSON object a line (or text), each with who wrote it and in which epoch.

log.info("shard.adopted", extra={"blocks": 12})      # the message is a fixed event name, data are fields
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from scar.errors import ConfigError

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}


@dataclass
class Context:
    """What every record carries."""

    role: str = ""
    member: str = ""
    incarnation: str = ""
    epoch: Callable[[], int] = int

    def fields(self) -> dict[str, object]:
        named = {"role": self.role, "member": self.member, "incarnation": self.incarnation}
        return {key: value for key, value in named.items() if value} | {"epoch": self.epoch()}


def _extra_fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


class JsonFormatter(logging.Formatter):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields |= self._context.fields() | _extra_fields(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class TextFormatter(logging.Formatter):
    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        data = " ".join(f"{key}={value}" for key, value in _extra_fields(record).items())
        who = f"{self._context.member} e{self._context.epoch()}"
        line = f"{when} {record.levelname[0]} {who} {record.getMessage()} {data}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(form: str, level: str, context: Context, stream: TextIO | None = None) -> None:
    """Send every record of the process to ``stream`` (standard error), once."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(context) if form == "json" else TextFormatter(context))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


def divert_output(file: str) -> None:
    """What this process prints goes to ``file`` from now on; records go on where they went. Raises
    :class:`ConfigError`.
    """
    try:
        printed = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error}", "Set SCAR_OUTPUT to a writable place") from error
    kept = os.fdopen(os.dup(2), "w", buffering=1)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(kept)
    for end in (1, 2):
        os.dup2(printed, end)
    os.close(printed)
