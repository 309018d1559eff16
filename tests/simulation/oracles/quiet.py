"""Trouble that must stop nothing: the store alone, or Redis alone (G11, G12)."""

from __future__ import annotations

from collections.abc import Collection

from scar.tables import Job

STALL = 30.0  # seconds; a clock takes two, and workers rest for a moment while they are judged
ALONE = ("store-", "redis-")  # kinds of faults that begin like this


class QuietWatch:
    """Looks at a run as long as nothing else has gone wrong in it."""

    def __init__(self) -> None:
        self._clock = -1
        self._moved = 0.0

    def look(self, job: Job, kinds: Collection[str], clock: int, failures: int, now: float) -> list[str]:
        """``kinds``: of faults that have struck so far; ``clock``: the open one on every shard; ``failures``:
        that epochs are about.
        """
        if clock != self._clock:
            self._clock = clock
            self._moved = now
        prefix = next((one for one in ALONE if all(kind.startswith(one) for kind in kinds)), "")
        if not kinds or not prefix:
            return []
        found = []
        if failures:
            found.append(f"{failures} recoveries, and nothing but {prefix[:-1]} was in trouble")
        waits = prefix == "store-" and (job.strategy.stalls or job.strategy.stores)  # for what is durable
        if now - self._moved > STALL and not waits:
            found.append(f"training stands still, and nothing but {prefix[:-1]} was in trouble")
        return found
