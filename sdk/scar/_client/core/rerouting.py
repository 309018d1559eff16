"""What an epoch change means for pushes on their way. Pure: an epoch and kept pushes in, decisions out.

A *contribution* is one push to one block. After every epoch each contribution is in exactly one of three
places: contained in the block's value, kept by the worker (and sent again to the new owner), or reported as
lost. `docs/protocol.md` §5 has the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scar._client.core.pulled_tables import KEPT_BY_CLOCKS
from scar._client.core.pushes import NOWHERE, ShardPush, TablePush, cut_blocks
from scar.blocks import Ids, Positions
from scar.lost_ranges import LostRanges
from scar.placement import NOBODY, BlockGroup, BlockSource, Epoch
from scar.tables import Job

MOST_UNNOTED = 16  # pushes that are released and not noted yet

Shares = dict[str, dict[str, TablePush]]  # key of a stream -> table -> blocks


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedBlocks:
    """Blocks of one push that the worker need not keep any more."""

    table: str
    ids: Ids
    push_id: int


@dataclass(frozen=True, slots=True)
class Rerouting:
    """What to do about an epoch. Keys are member keys of shards, or :data:`NOWHERE`.

    ``kept``: stays where it is, in the order of the stream. ``sent``: to the new owner, under new numbers, in
    the order of the pushes; those among them that count as acknowledged are contained in its value, and kept
    because its source may fail. ``released``: contained in the new owner's value, or void.
    """

    kept: Mapping[str, Sequence[ShardPush]] = field(default_factory=dict)
    sent: Mapping[str, Sequence[ShardPush]] = field(default_factory=dict)
    released: Sequence[ReleasedBlocks] = ()

    def pushes_for(self, key: str) -> list[ShardPush]:
        """What a stream has to keep and send from now on."""
        return [*self.kept.get(key, ()), *self.sent.get(key, ())]

    @property
    def resent(self) -> int:
        """Pushes that go to a new owner."""
        sent = [push for key, pushes in self.sent.items() if key != NOWHERE for push in pushes]
        return len({push.push_id for push in sent if not push.acked})


class AckedPushes:
    """For each block three push ids, from which follows what a restored value lacks.

    The newest push that was released (no longer kept), up to which one the loss was reported, and the last
    one in the value that was restored last: an older copy than that lacks more.

    What is released is noted for its blocks a little later (:meth:`note_released`), as the worker waits for
    nothing then.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._released: dict[str, NDArray[np.int64]] = {}
        self._highest: dict[str, int] = {}  # of those, by table
        self._reported: dict[str, NDArray[np.int64]] = {}
        self._restored: dict[str, NDArray[np.int64]] = {}
        self._unnoted: list[ReleasedBlocks] = []

    def release_pushes(self, pushes: Iterable[ShardPush]) -> None:
        """The worker need not keep these any more."""
        for push in pushes:
            for table, blocks in push.tables.items():
                self.release_blocks(table, blocks.ids, push.push_id)

    def release_blocks(self, table: str, ids: Ids, push_id: int) -> None:
        """The same for some blocks of one push."""
        self._unnoted.append(ReleasedBlocks(table, ids, push_id))
        if len(self._unnoted) > MOST_UNNOTED:
            self.note_released()

    def note_released(self) -> None:
        """Note all that was released for its blocks: one pass over their ids each."""
        for blocks in self._unnoted:
            self._note_blocks(blocks.table, blocks.ids, blocks.push_id)
        self._unnoted.clear()

    def _note_blocks(self, table: str, ids: Ids, push_id: int) -> None:
        newest = self._push_ids(self._released, table)
        highest = self._highest.get(table, 0)
        self._highest[table] = max(highest, push_id)
        if len(ids) == len(newest):
            np.maximum(newest, push_id, out=newest)
            return
        at = ids.astype(np.int64)  # as numpy indexes
        newest[at] = push_id if push_id >= highest else np.maximum(newest[at], push_id)

    def follow_epoch(self, epoch: Epoch, worker: str) -> list[LostRanges]:
        """What the values lack that this epoch has restored. ``worker``: member key of this worker."""
        losses: list[LostRanges] = []
        for group in epoch.moved:
            if epoch.rollback or is_restored(group):
                losses += self.report_losses(group.table, group.ids, group.watermark.get(worker, 0))
        return losses

    def report_losses(self, table: str, ids: Ids, watermark: int) -> list[LostRanges]:
        """What a restored value with this watermark lacks.

        Each contribution is reported once, however often its block dies.
        """
        self.note_released()
        newest = self._push_ids(self._released, table)[ids]
        reported = self._push_ids(self._reported, table)
        restored = self._push_ids(self._restored, table)
        before = restored[ids]
        after = np.maximum(np.maximum(reported[ids], watermark), before)
        restored[ids] = watermark
        reported[ids] = np.where(newest > after, newest, reported[ids])
        # what the value before contained may still be kept here, and is sent again
        ranges = ((np.full(len(ids), watermark), np.minimum(before, newest)), (after, newest))
        losses = []
        for first, last in ranges:
            gone = np.flatnonzero(last > first)
            if len(gone):
                losses.append(LostRanges(table, ids[gone], first[gone], last[gone]))
        return losses

    def _push_ids(self, columns: dict[str, NDArray[np.int64]], table: str) -> NDArray[np.int64]:
        if table not in columns:
            columns[table] = np.zeros(self._job.table(table).blocks, dtype=np.int64)
        return columns[table]


class MovedBlocks:
    """The groups that an epoch moved, by block, and this worker's last push that each one's value has."""

    def __init__(self, job: Job, epoch: Epoch, worker: str) -> None:
        self._groups: dict[str, NDArray[np.int32]] = {}
        self._watermarks = np.array([group.watermark.get(worker, 0) for group in epoch.moved], dtype=np.int64)
        for index, group in enumerate(epoch.moved):
            if group.table not in self._groups:
                self._groups[group.table] = np.full(job.table(group.table).blocks, -1, dtype=np.int32)
            self._groups[group.table][group.ids] = index

    def has_moved(self, table: str, ids: Ids) -> NDArray[np.bool_]:
        """Which of these blocks moved."""
        groups = self._groups.get(table)
        return np.zeros(len(ids), dtype=bool) if groups is None else groups[ids] >= 0

    def watermarks(self, table: str, ids: Ids) -> NDArray[np.int64]:
        """Watermarks of blocks that moved."""
        return self._watermarks[self._groups[table][ids]]


def reroute(job: Job, epoch: Epoch, worker: str, held: Mapping[str, Sequence[ShardPush]]) -> Rerouting:
    """Decide what becomes of kept pushes in this epoch.

    ``held``: key of the stream -> its pushes, in its order. ``worker``: member key of this worker.
    """
    moves = MovedBlocks(job, epoch, worker)
    kept: dict[str, list[ShardPush]] = {}
    sent: dict[str, list[ShardPush]] = {}
    released: list[ReleasedBlocks] = []
    for stream, pushes in held.items():
        home = stream if epoch.shard_index(stream) >= 0 else NOWHERE
        for push in pushes:
            split = _void_push(push) if epoch.rollback else _split_push(job, epoch, moves, push)
            released += split.released
            # a gap in the numbers would stop the stream
            numbered = push.seq > 0 and not push.acked and home != NOWHERE
            if split.kept.tables or numbered:
                kept.setdefault(home, []).append(split.kept)
            for key, moved in split.moved:
                sent.setdefault(key, []).append(moved)
    for pushes in sent.values():
        pushes.sort(key=lambda push: push.push_id)
    return Rerouting(kept, sent, released)


def is_restored(group: BlockGroup) -> bool:
    """Whether the values were put back (and may lack something), not copied from a living owner."""
    return group.source is not BlockSource.DONOR


@dataclass(frozen=True, slots=True)
class _SplitPush:
    kept: ShardPush
    moved: Sequence[tuple[str, ShardPush]]
    released: Sequence[ReleasedBlocks]


def _void_push(push: ShardPush) -> _SplitPush:
    """Full recovery: nothing that was pushed counts any more; what is beyond the watermark is lost."""
    released = [ReleasedBlocks(table, blocks.ids, push.push_id) for table, blocks in push.tables.items()]
    return _SplitPush(replace(push, tables={}), (), released)


def _split_push(job: Job, epoch: Epoch, moves: MovedBlocks, push: ShardPush) -> _SplitPush:
    """The push without what moved; what moved and is not contained in the new owner's value, by new owner."""
    kept: dict[str, TablePush] = {}
    contained: Shares = {}
    moved: Shares = {}
    released: list[ReleasedBlocks] = []
    for table, blocks in push.tables.items():
        gone = moves.has_moved(table, blocks.ids)
        if not gone.any():
            kept[table] = blocks
            continue
        staying = cut_blocks(job, table, blocks, np.flatnonzero(~gone))
        if len(staying.ids):
            kept[table] = staying
        at = np.flatnonzero(gone)
        has_it = moves.watermarks(table, blocks.ids[at]) >= push.push_id
        if job.strategy.asks_workers:
            _share_blocks(job, epoch, table, blocks, at[has_it], contained)
        else:
            released.append(ReleasedBlocks(table, blocks.ids[at[has_it]], push.push_id))
        _share_blocks(job, epoch, table, blocks, at[~has_it], moved)
    untouched = all(kept.get(table) is blocks for table, blocks in push.tables.items())
    return _SplitPush(
        push if untouched else replace(push, tables=kept),
        [
            *((key, _make_contained(push, tables)) for key, tables in contained.items()),
            *((key, _make_resent(push, tables)) for key, tables in moved.items()),
        ],
        released,
    )


def _share_blocks(
    job: Job, epoch: Epoch, table: str, blocks: TablePush, positions: Positions, shares: Shares
) -> None:
    """Add the blocks of a push at these positions to the ``shares`` of their owners."""
    for owner, share in epoch.split(table, blocks.ids[positions]):
        key = NOWHERE if owner == NOBODY else epoch.shards[owner].key
        shares.setdefault(key, {})[table] = cut_blocks(job, table, blocks, positions[share])


def _make_resent(push: ShardPush, tables: Mapping[str, TablePush]) -> ShardPush:
    return ShardPush(push.push_id, push.clock, tables, resent=True, merged=push.merged)


def _make_contained(push: ShardPush, tables: Mapping[str, TablePush]) -> ShardPush:
    """What the new owner's value has is kept as if it had acknowledged it, and goes as other pushes do."""
    return ShardPush(
        push.push_id,
        push.clock,
        tables,
        acked=True,
        applied_clock=push.needed_clock,
        merged=push.merged,
        pulls=push.pulls if push.acked else KEPT_BY_CLOCKS,
    )
