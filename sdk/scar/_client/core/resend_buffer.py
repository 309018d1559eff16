"""What is kept of pushes until they are applied, to be sent again. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from scar._client.core.clocks import DONE
from scar._client.core.pulled_tables import PulledTables
from scar._client.core.pushes import ShardPush
from scar.strategies import PUSHES_KEPT


class ResendBuffer:
    """Pushes of one stream that may have to be sent again, in order.

    ``until_closed``: keep them after the acknowledgement, until their clock is closed (BSP), and as many
    more clocks as ``closed_kept``. ``merge``: makes one push of those that wait behind one that is under way.
    ``pulled``: keep them until its pulls contain them.
    """

    def __init__(
        self,
        until_closed: bool,
        merge: Callable[[Sequence[ShardPush]], ShardPush] | None = None,
        closed_kept: int = 0,
        pulled: PulledTables | None = None,
    ) -> None:
        self._until_closed = until_closed
        self._closed_kept = closed_kept
        self._merge = merge
        self._pulled = pulled
        self._acked: list[ShardPush] = []
        self._waiting: deque[ShardPush] = deque()
        self._seq = 0
        self._newest = 0  # clock of what was acknowledged
        self.clock = 0  # newest open clock that the shard has told
        self.waiting_bytes = 0

    def append(self, push: ShardPush) -> None:
        self._waiting.append(push)
        self.waiting_bytes += push.bytes

    def next_push(self) -> ShardPush | None:
        """The oldest push that is not acknowledged; it gets its number now, because it is sent next."""
        if not self._waiting:
            return None
        if not self._waiting[0].seq:
            self.merge_unsent()
        if not self._waiting[0].seq:
            self._seq += 1
            self._waiting[0] = replace(self._waiting[0], seq=self._seq)
        return self._waiting[0]

    def merge_unsent(self) -> None:
        """Make one of all pushes that were never sent, where that is allowed."""
        unsent = [push for push in self._waiting if not push.seq]
        if self._merge is not None and len(unsent) > 1:
            self._waiting = deque([*(push for push in self._waiting if push.seq), self._merge(unsent)])
            self.waiting_bytes = sum(push.bytes for push in self._waiting)

    def acknowledge(self, seq: int, clock: int, joins: int = 0, owed: bool = False) -> list[ShardPush]:
        """The shard, whose open clock is ``clock``, has this number. Returns what need not be kept any more.

        ``joins``: its open clock when it does not tell everybody yet; a late push is applied with that one,
        or before it closes where it is ``owed``.
        """
        if not self._waiting or self._waiting[0].seq != seq:
            return []
        push = self._waiting.popleft()
        self.waiting_bytes -= push.bytes
        if self._pulled is not None:
            self._newest = max(self._newest, push.clock)
            self._acked.append(replace(push, acked=True, pulls=self._pulled.begun))
            return self.release_pulled()
        if not self._until_closed:
            return [push]
        applied = max(push.clock, clock, joins)
        self._acked.append(replace(push, acked=True, applied_clock=applied, owed=owed))
        return self.see_clock(clock)

    def see_clock(self, clock: int) -> list[ShardPush]:
        """The shard contains what it applied before its open clock ``clock``. Returns what is released."""
        self.clock = max(self.clock, clock)
        if not self._until_closed:
            return []
        oldest = self.clock - self._closed_kept
        released = [push for push in self._acked if push.applied_clock < oldest]
        if released:
            self._acked = [push for push in self._acked if push.applied_clock >= oldest]
        return released

    def end_owing(self) -> None:
        """The shard has applied what is owed, each push with its own clock."""
        self._acked = [
            replace(push, owed=False, applied_clock=push.needed_clock) if push.owed else push
            for push in self._acked
        ]

    def release_pulled(self) -> list[ShardPush]:
        """Copies may contain more than before, or what is not pulled again was kept for long enough. Returns
        what is released.
        """
        pulled = self._pulled
        if pulled is None:
            return []
        oldest = self._newest - PUSHES_KEPT
        released = [push for push in self._acked if push.clock < oldest or pulled.contain(push)]
        if released:
            gone = {id(push) for push in released}
            self._acked = [push for push in self._acked if id(push) not in gone]
        return released

    def pushes(self) -> list[ShardPush]:
        return [*self._acked, *self._waiting]

    def replace_pushes(self, pushes: Sequence[ShardPush]) -> None:
        """What is left of :meth:`pushes` after an epoch change, in the same order, and what it added."""
        self._acked = [push for push in pushes if push.acked]
        self._waiting = deque(push for push in pushes if not push.acked)
        self.waiting_bytes = sum(push.bytes for push in self._waiting)

    def blocks_mark(self, finished: int) -> bool:
        """Whether pushes wait that must arrive before the mark of ``finished`` clocks."""
        return any(push.resent or push.clock < finished for push in self._waiting)

    def blocks_settle(self) -> bool:
        """Whether something that was sent again because of an epoch is not acknowledged."""
        return any(push.resent for push in self._waiting)

    @property
    def merges(self) -> bool:
        return self._merge is not None

    @property
    def first_clock(self) -> int:
        """Lowest clock of what waits; no clock: :data:`DONE`."""
        return min((push.clock for push in self._waiting), default=DONE)

    @property
    def idle(self) -> bool:
        """Everything is acknowledged."""
        return not self._waiting

    @property
    def empty(self) -> bool:
        """Everything is applied."""
        applied = not self._until_closed or all(push.applied_clock < self.clock for push in self._acked)
        return applied and not self._waiting
