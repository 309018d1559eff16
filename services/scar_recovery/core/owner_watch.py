"""Whether the cluster that owns a job still lives, judged by its beats in the store. Pure.

Wall clocks are never compared: what counts is for how long a beat has not changed on our own clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

EXPIRY = 5.0  # seconds without a beat after which an owner is gone


class OwnerVerdict(Enum):
    ALIVE = "alive"  # it has beaten between two looks that were close to each other
    UNKNOWN = "unknown"  # it has to be watched for longer
    SILENT = "silent"


@dataclass(frozen=True)
class BeatSeen:
    """``sign``: what changes whenever the owner of ``job`` does something."""

    job: str
    sign: tuple[int, bytes]


@dataclass(frozen=True)
class BeatObservation:
    """What an owner's beat looked like: unchanged since ``since``, last looked at ``looked``."""

    sign: tuple[int, bytes]
    since: float
    looked: float


class OwnerWatch:
    """Beats of the owners of all jobs that were asked about. Times: seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._observations: dict[str, BeatObservation] = {}  # by job

    def handle(self, event: BeatSeen, now: float) -> OwnerVerdict:
        known = self._observations.get(event.job)
        if known is None or event.sign != known.sign:
            self._observations[event.job] = BeatObservation(event.sign, now, now)
            beats = known is not None and now - known.looked < EXPIRY
            return OwnerVerdict.ALIVE if beats else OwnerVerdict.UNKNOWN
        self._observations[event.job] = replace(known, looked=now)
        return OwnerVerdict.SILENT if now - known.since >= EXPIRY else OwnerVerdict.UNKNOWN
