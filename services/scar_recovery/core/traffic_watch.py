"""When shards are asked for their traffic, and what is done with the answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from scar.placement import Epoch
from scar_recovery.core.actions import ReadTraffic
from scar_recovery.core.events import TrafficRead
from scar_recovery.core.hot_blocks import ShardTraffic, busiest_share

# training has so many times as long for itself as it waited for an exchange, before the next one
REST = 20.0
HELPED = 0.95  # of the busiest shard's share before an exchange, at most, or the exchange was of no use
REST_MOST = 3600.0  # seconds after exchanges that were of no use: twice as long after each
USELESS_MOST = 32  # in a row that are counted
NEVER = float("inf")


class TrafficWatch:
    """Of one job under one leader. ``seconds``: between two looks; 0: it never looks.

    Shards count from their epoch on, so the first look is so long after it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loaded = False  # the newest epoch
        self._next = NEVER
        self._rest_until = 0.0
        self._answer: tuple[ShardTraffic, ...] = ()
        # of the busiest shard, by the mean, as the last exchange began; 0: none did
        self._share_before = 0.0
        self._useless = 0  # exchanges in a row

    def adopt_epoch(self) -> None:
        """What was counted is of another placement."""
        self._loaded = False
        self._next = NEVER
        self._answer = ()

    def epoch_loaded(self, now: float, moved_for: float) -> None:
        """``moved_for``: seconds for which training waited for an exchange that led to this epoch; 0: none
        did.
        """
        self._rest_until = max(self._rest_until, now + REST * moved_for)
        if self._seconds and not self._loaded:
            self._next = now + self._seconds
        self._loaded = True

    def next_due(self, epoch: Epoch) -> float:
        """When :meth:`ask` or :meth:`take_answer` has something to do."""
        if self._answer:
            return 0.0
        return max(self._next, self._rest_until) if len(epoch.shards) > 1 else NEVER

    def ask(self, epoch: Epoch) -> ReadTraffic:
        self._next = NEVER
        return ReadTraffic(epoch.number, epoch.shards)

    def record(self, event: TrafficRead, now: float) -> None:
        """An answer to :meth:`ask`, of this epoch. Rates of blocks are estimates: where an exchange did not
        do what they promised, the next one has to wait.
        """
        self._answer = event.traffic
        self._next = now + self._seconds
        before, self._share_before = self._share_before, 0.0
        if self._answer and before and busiest_share([one.rate for one in self._answer]) > HELPED * before:
            self._useless = min(self._useless + 1, USELESS_MOST)
            self._rest_until = now + min(REST_MOST, self._seconds * 2**self._useless)
            self._answer = ()
        elif before or not self._answer:
            self._useless = 0

    def take_answer(self) -> tuple[ShardTraffic, ...]:
        """(): none is there, or traffic is level."""
        answer, self._answer = self._answer, ()
        return answer

    def begin_exchange(self, traffic: Sequence[ShardTraffic]) -> None:
        """Because of this answer."""
        self._share_before = busiest_share([one.rate for one in traffic])
