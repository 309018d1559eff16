"""What viewers are sent, and who makes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from scar_runtime.loss_curve import LossCurve


@dataclass(frozen=True)
class PageUpdate:
    """One look as JSON. ``whole``: for who has seen nothing; ``step``: for who has seen the look before.

    ``ended``: there will be no other.
    """

    whole: bytes
    step: bytes
    ended: bool = False


class PageView(Protocol):
    """For one thread at a time; two others may call :meth:`read_saved` and :meth:`read_logs`."""

    def look(self) -> PageUpdate: ...

    def read_saved(self) -> None:
        """What may take its time, beside the looks."""
        ...

    def read_logs(self) -> None:
        """The same, of another thread."""
        ...


def curve_document(curve: LossCurve, clock: int = 0) -> dict[str, Any]:
    """From this clock on."""
    points = curve.points_from(clock)
    return {"from": clock, "clocks": [one[0] for one in points], "losses": [one[1] for one in points]}


def encode_json(value: object) -> bytes:
    """Raises :class:`ValueError` for a number that is not finite: JSON has none."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")
