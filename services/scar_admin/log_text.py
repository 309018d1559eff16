"""What members write, as whoever can read their logs hands it on."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class LogText(NamedTuple):
    """One line. ``written``: when, in seconds since 1970; 0: only the line itself may tell."""

    member: str
    text: str
    written: float = 0.0


class LogReader(Protocol):
    """For one thread at a time."""

    def read(self) -> list[LogText]:
        """What is new since the last call; at first the ends of the logs.

        Raises :class:`scar.errors.ScarError` when nothing can be read.
        """
        ...
