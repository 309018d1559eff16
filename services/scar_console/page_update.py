"""What viewers are sent, and who makes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class PageUpdate:
    """One look as JSON. ``whole``: for who has seen nothing; ``step``: for who has seen the look before.

    ``ended``: there will be no other.
    """

    whole: bytes
    step: bytes
    ended: bool = False


class PageView(Protocol):
    """For one thread at a time; another one may call :meth:`read_saved`."""

    def look(self) -> PageUpdate: ...

    def read_saved(self) -> None:
        """What may take its time, beside the looks."""
        ...


def encode_json(value: object) -> bytes:
    """Raises :class:`ValueError` for a number that is not finite: JSON has none."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
