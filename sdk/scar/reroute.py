"""What an epoch change means for pushes that are on their way. Pure: an epoch and retained parts in, decisions out.

A *contribution* is one push to one block. After every epoch each contribution is in exactly one of three places: contained in
the block's value, retained by the worker (and sent again to the new owner), or reported as lost. `docs/protocol.md` §5 has the
rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids, Positions
from scar.placement import NOBODY, BlockGroup, Epoch, Source
from scar.tables import Job

NOWHERE = ""  # lane key of parts whose blocks have no owner at the moment


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks of one table (ascending ids) and what was pushed to them, packed flat."""

    ids: Ids
    values: Array


@dataclass(slots=True, eq=False)
class Part:
    """What one ``push()`` owes one shard."""

    push_id: int
    clock: int
    pieces: Mapping[str, Piece]
    seq: int = 0  # number in its lane; 0: never sent
    acked: bool = False
    joined: int = 0  # clock that the shard applies it with: its own, or a later one when it came late
    owed: bool = False  # sent again after an epoch change: the shard's blocks are not settled before it arrived
    count: int = 1  # pushes that it is the sum of; push_id is that of the last

    @property
    def bytes(self) -> int:
        return sum(piece.values.nbytes for piece in self.pieces.values())


@dataclass(frozen=True, slots=True)
class Loss:
    """Push ids in (after, upto] that were acknowledged for these blocks and are not in the restored values."""

    table: str
    ids: Ids
    after: int
    upto: int


class Journal:
    """For each block the newest push that was released (no longer retained), and up to which one the loss was reported."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._released: dict[str, NDArray[np.int64]] = {}
        self._reported: dict[str, NDArray[np.int64]] = {}

    def release(self, parts: Iterable[Part]) -> None:
        for part in parts:
            for table, piece in part.pieces.items():
                self.released(table, piece.ids, part.push_id)

    def released(self, table: str, ids: Ids, push_id: int) -> None:
        newest = self._column(self._released, table)
        if len(ids) == len(newest):
            np.maximum(newest, push_id, out=newest)
        else:
            newest[ids] = np.maximum(newest[ids], push_id)

    def losses(self, table: str, ids: Ids, watermark: int) -> list[Loss]:
        """What a restored value with this watermark lacks. Each contribution is reported once, however often its block dies."""
        newest, reported = self._column(self._released, table)[ids], self._column(self._reported, table)
        after = np.maximum(reported[ids], watermark)
        gone = np.flatnonzero(newest > after)
        reported[ids[gone]] = newest[gone]
        return [
            Loss(table, ids[gone[part]], int(after[gone[part[0]]]), int(newest[gone[part[0]]]))
            for part in _runs(after[gone], newest[gone])
        ]

    def _column(self, columns: dict[str, NDArray[np.int64]], table: str) -> NDArray[np.int64]:
        if table not in columns:
            columns[table] = np.zeros(self._job.table(table).blocks, dtype=np.int64)
        return columns[table]


def _runs(first: NDArray[np.int64], second: NDArray[np.int64]) -> list[Positions]:
    """Positions of equal (first, second) pairs, ascending within each."""
    if not len(first):
        return []
    order = np.lexsort((second, first))
    changes = (np.diff(first[order]) != 0) | (np.diff(second[order]) != 0)
    return [np.sort(part) for part in np.split(order, np.flatnonzero(changes) + 1)]


class Moves:
    """The groups that an epoch moved, by block: which group, and the last push of this worker that its value contains."""

    def __init__(self, job: Job, epoch: Epoch, worker: str) -> None:
        self._groups: dict[str, NDArray[np.int32]] = {}
        self._watermarks = np.array([group.watermark.get(worker, 0) for group in epoch.moved], dtype=np.int64)
        for index, group in enumerate(epoch.moved):
            if group.table not in self._groups:
                self._groups[group.table] = np.full(job.table(group.table).blocks, -1, dtype=np.int32)
            self._groups[group.table][group.ids] = index

    def of(self, table: str, ids: Ids) -> NDArray[np.bool_]:
        """Which of these blocks moved."""
        groups = self._groups.get(table)
        return np.zeros(len(ids), dtype=bool) if groups is None else groups[ids] >= 0

    def watermarks(self, table: str, ids: Ids) -> NDArray[np.int64]:
        """Watermarks of blocks that moved."""
        return self._watermarks[self._groups[table][ids]]


@dataclass(slots=True)
class Outcome:
    """What to do about an epoch. Keys are member keys of shards, or :data:`NOWHERE`."""

    kept: dict[str, list[Part]] = field(default_factory=dict)  # stays where it is, in lane order
    sent: dict[str, list[Part]] = field(default_factory=dict)  # to the new owner, under new numbers, in push order
    losses: list[Loss] = field(default_factory=list)

    @property
    def resent(self) -> int:
        """Pushes that go to a new owner."""
        return len({part.push_id for key, parts in self.sent.items() if key != NOWHERE for part in parts})


def reroute(job: Job, epoch: Epoch, worker: str, held: Mapping[str, Sequence[Part]], journal: Journal) -> Outcome:
    """Follow one epoch. ``held``: lane key -> retained parts, in lane order. ``worker``: member key of this worker."""
    outcome, moves = Outcome(), Moves(job, epoch, worker)
    for lane, parts in held.items():
        home = lane if epoch.shard_index(lane) >= 0 else NOWHERE
        for part in parts:
            kept = _void(part, journal) if epoch.rollback else _split(job, epoch, moves, part, outcome, journal)
            numbered = part.seq > 0 and not part.acked and home != NOWHERE  # a gap in the numbers would stop the lane
            if kept.pieces or numbered:
                outcome.kept.setdefault(home, []).append(kept)
    for parts in outcome.sent.values():
        parts.sort(key=lambda part: part.push_id)
    for group in epoch.moved:
        if epoch.rollback or recovered(group):
            outcome.losses += journal.losses(group.table, group.ids, group.watermark.get(worker, 0))
    return outcome


def recovered(group: BlockGroup) -> bool:
    """True when the blocks' values were put back (and may have lost something), not copied from a living owner."""
    return group.source is not Source.DONOR


def _void(part: Part, journal: Journal) -> Part:
    """Full recovery: nothing that was pushed counts any more; what is beyond the watermark is lost."""
    journal.release([part])
    return replace(part, pieces={})


def _split(job: Job, epoch: Epoch, moves: Moves, part: Part, outcome: Outcome, journal: Journal) -> Part:
    """The part without what moved. What moved and is not contained in the new owner's value is added to ``outcome.sent``."""
    kept: dict[str, Piece] = {}
    fresh: dict[str, dict[str, Piece]] = {}
    for table, piece in part.pieces.items():
        moved = moves.of(table, piece.ids)
        if not moved.any():
            kept[table] = piece
            continue
        stays = cut(job, table, piece, np.flatnonzero(~moved))
        if len(stays.ids):
            kept[table] = stays
        at = np.flatnonzero(moved)
        contained = moves.watermarks(table, piece.ids[at]) >= part.push_id
        journal.released(table, piece.ids[at[contained]], part.push_id)
        missing = at[~contained]
        for owner, share in epoch.split(table, piece.ids[missing]):
            key = NOWHERE if owner == NOBODY else epoch.shards[owner].key
            fresh.setdefault(key, {})[table] = cut(job, table, piece, missing[share])
    for key, pieces in fresh.items():
        outcome.sent.setdefault(key, []).append(Part(part.push_id, part.clock, pieces, owed=True, count=part.count))
    untouched = all(kept.get(table) is piece for table, piece in part.pieces.items())
    return part if untouched else replace(part, pieces=kept)


def cut(job: Job, table: str, piece: Piece, positions: Positions) -> Piece:
    """The blocks of a piece at these (ascending) positions."""
    if len(positions) == len(piece.ids):
        return piece
    layout = job.table(table).layout.take(piece.ids.astype(np.int64))
    return Piece(piece.ids[positions], layout.gather(piece.values, positions))
