"""What a worker still owes its shards, and what it sends to each next. Pure: events in, decisions out.

:class:`StreamState` decides what goes to one shard next; :class:`PushState` has all streams and says what an
epoch changes. `docs/protocol.md` §3 to §5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from scar._client.core.clocks import DONE, ShardRecord, WorkerClocks
from scar._client.core.comparisons import RecoveredBlocks, take_recovered
from scar._client.core.epoch_change import EpochChange, EpochFollowed
from scar._client.core.pull_buffer import PullBuffer
from scar._client.core.pulled_tables import PulledTables
from scar._client.core.pushes import NOWHERE, ShardPush, TablePush, merge_pushes
from scar._client.core.rerouting import AckedPushes, MovedBlocks, reroute
from scar._client.core.resend_buffer import ResendBuffer
from scar._client.core.shard_map import ShardMap
from scar._client.core.stream_steps import CompareBlocks, NextStep, SendMark, SendPush, SettleEpoch
from scar.event_log import EventRing
from scar.placement import Epoch, Member
from scar.tables import Job

# --- events: what a shard has answered
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PushAcked:
    """The shard, whose open clock is ``clock``, has this push. ``joins``: see :class:`ShardRecord`; ``owed``:
    see :class:`ShardPush`.
    """

    seq: int
    clock: int
    joins: int = 0
    owed: bool = False


@dataclass(frozen=True, slots=True)
class EpochSettled:
    """The shard knows that it has all that was pushed before this epoch."""

    epoch: int
    record: ShardRecord


@dataclass(frozen=True, slots=True)
class MarkTaken:
    """The shard, whose open clock is ``clock``, has this worker's mark, sent in this epoch. ``settled``: it
    has applied all that was pushed to it, but for open clocks.
    """

    epoch: int
    mark: int
    clock: int
    settled: bool = False


@dataclass(frozen=True, slots=True)
class ClockSeen:
    """The shard's open clock is ``clock``, as it said with a pull."""

    clock: int


@dataclass(frozen=True, slots=True)
class StepFailed:
    """The shard has refused what was sent, or did not answer: it is sent again."""

    reason: str


StreamEvent = PushAcked | EpochSettled | MarkTaken | ClockSeen | StepFailed


class StreamState:
    """What one life of one shard is owed. ``sealed``: clocks below count there already, from a predecessor.

    ``record``: what the shard knew of it in epoch ``settled``. ``marked``: epoch and number of the last mark.
    """

    def __init__(self, job: Job, shard: Member, pulled: PulledTables | None) -> None:
        self.shard = shard
        merge = partial(merge_pushes, job) if job.strategy.queues else None
        self.buffer = ResendBuffer(job.consistency == "bsp", merge, job.strategy.kept_clocks, pulled)
        self.comparisons: deque[RecoveredBlocks] = deque()
        self.record: ShardRecord | None = None
        self.marked: tuple[int, int] = (0, -1)
        self.sealed = 0
        self.settled = 0

    def handle(self, event: StreamEvent) -> list[ShardPush]:
        """Take in what the shard has answered. Returns pushes that need not be kept any more."""
        if isinstance(event, PushAcked):
            return self.buffer.acknowledge(event.seq, event.clock, event.joins, event.owed)
        if isinstance(event, EpochSettled):
            self.settled = max(self.settled, event.epoch)
            self.record = event.record
            return self.buffer.see_clock(event.record.clock)
        if isinstance(event, MarkTaken):
            self.marked = (event.epoch, event.mark)
            if event.settled:
                self.buffer.end_owing()
        return [] if isinstance(event, StepFailed) else self.buffer.see_clock(event.clock)

    def repeat_mark(self) -> None:
        """Send the mark again, to hear the shard's clock."""
        self.marked = (0, self.marked[1])

    def next_step(self, shards: ShardMap, clocks: WorkerClocks) -> NextStep | None:
        """What goes to the shard next; None: nothing.

        Pushes of finished clocks come first, then the end of what epochs moved, then the mark, then the rest.
        """
        epoch = shards.epoch.number
        finished = clocks.finished
        mark = clocks.mark_after(self.marked[1])
        if self.buffer.merges and mark is not None:
            # nobody waits for what is on its way, so there is always some
            finished = mark = min(mark, self.buffer.first_clock)
        settle = self.settled < epoch and not self.buffer.blocks_settle()
        due = mark is not None and self.marked != (epoch, mark)
        push = self.buffer.next_push()
        if push is not None and (self.buffer.blocks_mark(finished) or not (settle or due)):
            if push.resent and self.comparisons:  # the restored values, before anything is added to them
                return CompareBlocks(self.comparisons[0], epoch)
            return SendPush(push, epoch, self._dense_tables(push, shards))
        if self.comparisons:
            return CompareBlocks(self.comparisons[0], epoch)
        if settle:
            return SettleEpoch(epoch)
        if due and mark is not None:
            return self._send_mark(epoch, mark, clocks)
        return None

    def _send_mark(self, epoch: int, mark: int, clocks: WorkerClocks) -> SendMark:
        finished = max(mark, self.sealed)
        # else the part belongs to another clock than the mark says
        part = clocks.parts.get(mark) if finished == mark else None
        heard = clocks.final_loss if mark == DONE else None
        return SendMark(epoch, mark, finished, part, heard, clocks.holds(finished - 1))

    def _dense_tables(self, push: ShardPush, shards: ShardMap) -> frozenset[str]:
        index = shards.epoch.shard_index(self.shard.key)
        return frozenset(
            table
            for table, blocks in push.tables.items()
            if blocks.rows is None and len(blocks.ids) == len(shards.owned(table, index))
        )


class PushState:
    """All streams of one worker (its member key). ``orphans``: pushes to blocks without an owner.

    ``story``: epochs that were followed, and what shards have refused; acknowledgements are only counted.
    """

    def __init__(self, job: Job, worker: str) -> None:
        self._job = job
        self._worker = worker
        self._pulled = PulledTables() if job.heals_by_watermark else None
        self.streams: dict[str, StreamState] = {}
        self.orphans: list[ShardPush] = []
        self.acked = AckedPushes(job)
        self.clocks = WorkerClocks()
        self.story = EventRing()
        self._push_id = 0

    def handle(self, key: str, event: StreamEvent, now: float) -> None:
        """A shard has answered. ``now``: seconds of any clock that does not jump."""
        stream = self.streams[key]
        self.acked.release_pushes(stream.handle(event))
        if isinstance(event, MarkTaken):  # the clock is over: nobody waits for this stream
            self.acked.note_released()
        if isinstance(event, EpochSettled | StepFailed):
            self.story.note(shard=stream.shard.name)
        self.story.record(now, event)

    # --- pushes

    def add_push(self, epoch: Epoch, shares: Mapping[str, Mapping[str, TablePush]], limit: int) -> None:
        """Queue one push, cut by owner. ``limit``: bytes that a queue may have where it can be merged."""
        self._push_id += 1  # one that does not count any more has a number, too: its user counts it
        if self.clocks.is_void(epoch):
            return
        for key, tables in shares.items():
            push = ShardPush(self._push_id, self.clocks.finished, tables)
            if key == NOWHERE:
                self.orphans.append(push)
            elif push.clock >= self.streams[key].sealed:
                self.streams[key].buffer.append(push)
        if self._job.strategy.queues:
            self._bound_queues(limit)

    def _bound_queues(self, limit: int) -> None:
        """A queue for a shard that is away takes no more memory than one push of all that waits."""
        if sum(push.bytes for push in self.orphans) > limit:
            self.orphans = [merge_pushes(self._job, self.orphans)]
        for stream in self.streams.values():
            if stream.buffer.waiting_bytes > limit:
                stream.buffer.merge_unsent()

    def begin_pull(self, tables: Iterable[str]) -> int:
        """These tables are pulled, to be kept as copies. Returns the pull's number; 0: clocks say what copies
        contain.
        """
        return 0 if self._pulled is None else self._pulled.begin_pull(tables)

    def hold_pull(self, table: str, number: int) -> None:
        """All that this pull asked of the table is there, and kept."""
        if self._pulled is not None:
            self._pulled.hold_pull(table, number)
            for stream in self.streams.values():
                self.acked.release_pushes(stream.buffer.release_pulled())

    def has_room(self, limit: int) -> bool:
        """Whether every stream has less than ``limit`` bytes under way."""
        streams = self.streams.values()
        return self._job.strategy.queues or all(stream.buffer.waiting_bytes < limit for stream in streams)

    def is_acknowledged(self) -> bool:
        """Whether every shard has everything that was pushed, and the newest mark."""
        if self._job.strategy.queues:
            return True
        idle = not self.orphans and all(stream.buffer.idle for stream in self.streams.values())
        return idle and self.is_marked()

    def is_marked(self) -> bool:
        """Whether every shard has the mark of the last finished clock."""
        return all(stream.marked[1] >= self.clocks.finished for stream in self.streams.values())

    def is_done(self) -> bool:
        """Whether every shard knows that nothing more will come."""
        return all(stream.marked[1] == DONE for stream in self.streams.values())

    def is_drained(self) -> bool:
        """Whether nothing that was pushed need be kept."""
        return not self.orphans and all(stream.buffer.empty for stream in self.streams.values())

    def is_unfinished(self, key: str) -> bool:
        """Whether this stream keeps something, or its shard has not answered yet."""
        return not self.streams[key].buffer.empty or self.streams[key].record is None

    # --- clocks

    def is_introduced(self, epoch: Epoch) -> bool:
        """Whether every shard has said what it knows of this worker since ``epoch`` moved blocks."""
        known = [stream.record and stream.settled >= epoch.number for stream in self.streams.values()]
        return bool(known) and all(known)

    def resume_clocks(self, epoch: Epoch) -> None:
        """Go on where a predecessor of the same name has stopped."""
        records = [stream.record or ShardRecord() for stream in self.streams.values()]
        resumed = self.clocks.resume_at(epoch, records, self._job.strategy.queues)
        for stream, clock in zip(self.streams.values(), resumed, strict=True):
            stream.sealed = clock

    def finish_joined_clocks(self) -> bool:
        """Finish the clocks that kept pushes belong to. False: none was open.

        A shard's open clock never closes without this worker's mark, and a late push that is not owed is
        applied with the clock that was open when it came.
        """
        if self._pulled is not None:
            return False
        pushes = [push for pushes in self._held_pushes().values() for push in pushes]
        last = max((push.needed_clock for push in pushes), default=-1)
        if last < self.clocks.finished:
            return False
        self.clocks.known = last + 1
        return True

    # --- epochs

    def follow_epoch(self, epoch: Epoch, cache: Mapping[str, PullBuffer], now: float) -> EpochChange:
        """Nothing pushed is lost silently or counted twice. ``cache``: what was pulled last, by table."""
        change = self._change_epoch(epoch, cache)
        self.story.record(now, EpochFollowed(epoch), [change])
        return change

    def _change_epoch(self, epoch: Epoch, cache: Mapping[str, PullBuffer]) -> EpochChange:
        outcome = reroute(self._job, epoch, self._worker, self._held_pushes())
        for blocks in outcome.released:
            self.acked.release_blocks(blocks.table, blocks.ids, blocks.push_id)
        losses = self.acked.follow_epoch(epoch, self._worker)
        if epoch.rollback:
            self.clocks.roll_back()
        former = self.streams
        self.streams = {}
        for shard in epoch.shards:
            stream = former[shard.key] if shard.key in former else StreamState(self._job, shard, self._pulled)
            stream.buffer.replace_pushes(outcome.pushes_for(shard.key))
            self.streams[shard.key] = stream
        self.orphans = outcome.pushes_for(NOWHERE)
        abandoned = self._abandon_comparisons(epoch, former)
        return EpochChange(
            opened=[shard for shard in epoch.shards if shard.key not in former],
            closed=[key for key in former if key not in self.streams],
            losses=losses,
            resent=outcome.resent,
            comparisons=self._queue_comparisons(epoch, cache),
            abandoned=abandoned,
        )

    def _held_pushes(self) -> dict[str, Sequence[ShardPush]]:
        held: dict[str, Sequence[ShardPush]] = {
            key: stream.buffer.pushes() for key, stream in self.streams.items()
        }
        held[NOWHERE] = self.orphans
        return held

    def _abandon_comparisons(self, epoch: Epoch, former: Mapping[str, StreamState]) -> list[RecoveredBlocks]:
        """Give up those of blocks that moved again, and of shards that have left."""
        moves = MovedBlocks(self._job, epoch, self._worker)
        abandoned: list[RecoveredBlocks] = []
        for key, stream in former.items():
            for blocks in list(stream.comparisons):
                if key not in self.streams or moves.has_moved(blocks.table, blocks.ids).any():
                    stream.comparisons.remove(blocks)
                    abandoned.append(blocks)
        return abandoned

    def _queue_comparisons(self, epoch: Epoch, cache: Mapping[str, PullBuffer]) -> int:
        recovered = list(take_recovered(epoch, cache, self.clocks.finished, self._job.heals_by_clock))
        for key, blocks in recovered:
            self.streams[key].comparisons.append(blocks)
        return len(recovered)
