"""Tells callbacks what looks at a cluster show of its training, each clock and each failure once."""

from __future__ import annotations

from collections.abc import Sequence

from scar.callbacks import FailureNote, TrainingCallback
from scar_admin.status import ClusterStatus
from scar_runtime.failure_records import FailureRecord
from scar_runtime.store.failure_codec import failure_from_proto


class CallbackFeed:
    """``close`` tells what is still owed, and closes all."""

    def __init__(self, callbacks: Sequence[TrainingCallback]) -> None:
        self._callbacks = callbacks
        self._told_clocks: set[int] = set()
        self._told_failures: set[int] = set()
        self._open: dict[int, FailureRecord] = {}  # by number: not all of it is known

    def take(self, status: ClusterStatus) -> None:
        """What this look shows for the first time."""
        for clock in sorted(set(status.losses) - self._told_clocks):
            self._told_clocks.add(clock)
            for callback in self._callbacks:
                callback.log_metrics(clock, {"loss": status.losses[clock], **status.metrics.get(clock, {})})
        for failure in map(failure_from_proto, status.failures):
            if failure.number in self._told_failures:
                continue
            self._open[failure.number] = failure
            if failure.epoch and failure.load_seconds and not failure.waiting:
                self._tell_failure(failure.number)

    def close(self) -> None:
        for number in sorted(self._open):
            self._tell_failure(number)
        for callback in self._callbacks:
            callback.close()

    def _tell_failure(self, number: int) -> None:
        failure = self._open.pop(number)
        self._told_failures.add(number)
        phases = (failure.detect_seconds, failure.wait_seconds, failure.commit_seconds, failure.load_seconds)
        note = FailureNote(
            number,
            failure.clock,
            failure.members,
            failure.lost_blocks,
            failure.lost_pushes,
            sum(seconds for seconds in phases if seconds > 0),  # -1: not known
        )
        for callback in self._callbacks:
            callback.log_failure(note)
