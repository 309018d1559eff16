"""When a finished job's end is saved and recorded, and how often that is tried. Pure.

The epoch with which the last workers leave says that the job has finished (``Epoch.finished``). Times are
seconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from scar.placement import END, Epoch

RETRY = 0.5  # seconds until a round that failed is asked for again: at first,
RETRY_MOST = 5.0  # and when it fails again and again


@dataclass(frozen=True)
class EpochSeen:
    """The newest epoch; None: there is none."""

    epoch: Epoch | None


@dataclass(frozen=True)
class EndRecorded:
    """The record of the end with this number is durable."""

    number: int


@dataclass(frozen=True)
class RecordingFailed:
    reason: str


JobEndEvent = EpochSeen | EndRecorded | RecordingFailed


@dataclass(frozen=True)
class RecordEnd:
    """Save every block and create the record with this number: ``EndRecorded`` or ``RecordingFailed``."""

    epoch: Epoch

    @property
    def number(self) -> int:
        return self.epoch.finished


def finished_epoch(epoch: Epoch | None) -> Epoch | None:
    """This epoch, if the job's workers had done their work by then."""
    return epoch if epoch is not None and epoch.finished and epoch.cause != END else None


class JobEnd:
    """The end of one job."""

    def __init__(self) -> None:
        self._epoch: Epoch | None = None  # the newest, if the workers had done their work by then
        self._recorded = 0
        self._not_before = 0.0
        self._pause = RETRY
        self._reason = ""

    def handle(self, event: JobEndEvent, now: float) -> tuple[RecordEnd, ...]:
        match event:
            case EpochSeen(epoch):
                self._epoch = finished_epoch(epoch)
                return self._decide(now)
            case EndRecorded(number):
                self._recorded = number
                self._reason = ""
                self._pause = RETRY
            case RecordingFailed(reason):
                self._retry_later(reason, now)
        return ()

    def _decide(self, now: float) -> tuple[RecordEnd, ...]:
        if self._epoch is None or self._recorded == self._epoch.finished or now < self._not_before:
            return ()
        return (RecordEnd(self._epoch),)

    def _retry_later(self, reason: str, now: float) -> None:
        self._reason = reason
        self._not_before = now + self._pause
        self._pause = min(2 * self._pause, RETRY_MOST)

    # --- questions

    @property
    def problem(self) -> str:
        """Why the last state is not durable yet, in words; empty: nothing is wrong."""
        if not self._reason or self._epoch is None:
            return ""
        return f"the job is over, but its model is not saved yet: {self._reason}"
