"""What a shard that is about to go has not saved is saved in parts, what would be missed most first.

Nobody knows how long it still lives. So each part counts by itself: a round of the largest distances that are
left. The first one is small; the next may take as long as choosing it does, or a third of the time so far, so
that little is lost with the part under way, and little time goes into choosing. While blocks move, each epoch
voids the part under way: then parts stay short.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event

from scar.placement import Member
from scar.tables import Job
from scar.v1 import checkpoint_pb2
from scar_recovery.core.rebalance import block_bytes
from scar_runtime.checkpoint.selection import blocks_per_round

PART_SHARE = 1 / 3  # of the time so far that the next part may take
QUICK_SECONDS = 0.1  # a part may always take so long
GROWTH = 4.0  # of a part from one to the next, at most
AFTER_FAILURE = 0.25
FAILURES = 6  # in a row, after which no more is tried
RETRY_SECONDS = 0.05  # after the first of them; doubled with each
FLUSH_SECONDS = 120.0  # for all: the longest notice that anybody gives

Trigger = Callable[[checkpoint_pb2.TriggerRequest, float], tuple[str, checkpoint_pb2.RoundReport]]

_log = logging.getLogger(__name__)


class ShardFlush:
    """``trigger``: runs a round within so many seconds; why it failed (empty: it did not), and its report.

    ``first_bytes``: of the first part, about; ``closed``: set when this leadership ends.
    """

    def __init__(self, trigger: Trigger, job: Job, shard: Member, first_bytes: int, closed: Event) -> None:
        self._trigger = trigger
        self._job = job
        self._shard = shard
        self._closed = closed
        self._fraction = min(1.0, first_bytes / max(1, int(block_bytes(job).sum())))
        self._last: checkpoint_pb2.RoundReport | None = None  # of the last part; None: it failed, or none was
        self._failures = 0

    def run(self, seconds: float, is_there: Callable[[], bool], saved: Callable[[], None]) -> None:
        """Returns when nothing is left to save, the shard has gone, or saving fails again and again.

        ``saved`` is called, once, when all is safe, a part could not be saved, or after about ``seconds``:
        then blocks may move. Never raises.
        """
        began = time.monotonic()
        told = False
        while not self._closed.is_set() and is_there() and self._failures < FAILURES:
            elapsed = time.monotonic() - began
            if not told and (elapsed >= seconds or self._failures):
                told = True
                saved()
            if elapsed >= FLUSH_SECONDS or self._save_part(seconds, elapsed):
                break
        if not told:
            saved()

    def _save_part(self, seconds: float, elapsed: float) -> bool:
        """True: nothing that has changed is left."""
        alone = elapsed < seconds
        self._size_part(PART_SHARE * elapsed if alone else 0.0)
        asked = blocks_per_round(self._fraction, self._job)
        request = checkpoint_pb2.TriggerRequest(
            selection="priority", fraction=asked / self._job.blocks, shard=self._shard.key
        )
        problem, report = self._trigger(request, (seconds if alone else FLUSH_SECONDS) - elapsed)
        about = {"shard": self._shard.key, "blocks": report.blocks_saved, "asked": asked}
        _log.info("shard.flushed", extra=about | {"bytes": report.bytes, "problem": problem})
        if report.unchanged:
            return True
        self._last = None if problem else report
        self._failures = self._failures + 1 if problem else 0
        if problem:
            self._fraction *= AFTER_FAILURE
            self._closed.wait(RETRY_SECONDS * 2 ** (self._failures - 1))
        return not problem and report.blocks_saved < asked

    def _size_part(self, seconds: float) -> None:
        """The next part may take so long, or as long as the last one took to choose."""
        if self._last is not None:
            allowed = max(QUICK_SECONDS, self._last.select_seconds, seconds)
            growth = min(GROWTH, allowed / max(self._last.commit_seconds, 1e-3))
            self._fraction = min(1.0, self._fraction * growth)
