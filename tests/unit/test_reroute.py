"""Every contribution is contained, retained or reported lost, exactly once, whatever dies and moves in whatever order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.lanes import Retained
from scar.placement import NOBODY, BlockGroup, Epoch, Member, Role, Source
from scar.reroute import NOWHERE, Journal, Loss, Part, Piece, cut, reroute
from scar.tables import Job, Table, ragged

WORKER = "worker-0@00000000000a"
BLOCKS = 6
JOBS = {kind: Job("model", [Table("w", 9, blocks=ragged([0, 1, 2, 4, 5, 8, 9]))], consistency=kind) for kind in ("bsp", "asp")}


def member(number: int) -> Member:
    return Member(Role.SHARD, f"ps-{number}", f"{number:012x}", "127.0.0.1:1")


@dataclass
class Saved:
    """A block in the store: which pushes its value contains, and what its watermark claims."""

    content: Counter[int] = field(default_factory=Counter)
    watermark: int = 0


@dataclass
class Pending:
    push_id: int
    late: bool
    joined: int
    ids: list[int]


@dataclass
class Shard:
    """One shard by the rules of docs/protocol.md: dedupe by seq, clocks, settling, watermarks with a base for gained blocks."""

    key: str
    content: dict[int, Counter[int]] = field(default_factory=dict)
    base: dict[int, int] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    last: int = 0
    watermark: int = 0
    clock: int = 0
    gained: int = 0
    settled: int = 0
    mark: tuple[int, int] = (0, 0)

    def take(self, part: Part, bsp: bool) -> None:
        assert part.seq <= self.last + 1, "a gap in the numbers of a lane"
        if part.seq <= self.last:
            return
        self.last = part.seq
        ids = [int(block) for piece in part.pieces.values() for block in piece.ids]
        assert set(ids) <= set(self.content), "a block that this shard does not own"
        if bsp:
            self.pending.append(Pending(part.push_id, self.clock > part.clock, max(part.clock, self.clock), ids))
        else:
            self.apply(part.push_id, ids)

    def apply(self, push_id: int, ids: Iterable[int]) -> None:
        for block in ids:
            self.content[block][push_id] += 1
        self.watermark = max(self.watermark, push_id)

    def advance(self) -> None:
        finished, epoch = self.mark
        if epoch < self.gained or finished <= self.clock:
            return
        for pending in [pending for pending in self.pending if pending.joined < finished]:
            self.pending.remove(pending)
            self.apply(pending.push_id, pending.ids)
        self.clock = finished

    @property
    def saves(self) -> bool:
        return self.settled >= self.gained and not any(pending.late for pending in self.pending)

    def claim(self, block: int) -> int:
        return max(self.watermark, self.base.get(block, 0))

    def drop(self, blocks: Iterable[int]) -> None:
        gone = set(blocks)
        for block in gone:
            self.content.pop(block, None)
        for pending in self.pending:
            pending.ids = [block for block in pending.ids if block not in gone]


class World:
    """Shards, a store, one worker. Each method is something that may happen at any time; it does nothing when it cannot."""

    def __init__(self, kind: str) -> None:
        self.job, self.bsp = JOBS[kind], kind == "bsp"
        self.shards = {member(i).key: Shard(member(i).key) for i in range(3)}
        self.lanes = {key: Retained(self.bsp) for key in self.shards}
        self.homeless: list[Part] = []
        self.saved = [Saved() for _ in range(BLOCKS)]
        self.journal, self.losses = Journal(self.job), list[Loss]()
        self.pushed: list[tuple[int, int]] = []
        self.finished = self.push_id = 0
        self.next_shard = 3
        owners = np.arange(BLOCKS, dtype=np.uint16) % 3
        self.epoch = Epoch(1, "a", "model", tuple(member(i) for i in range(3)), (), {"w": owners})
        for block, owner in enumerate(owners):
            self.shards[member(int(owner)).key].content[block] = Counter()

    # --- what happens ------------------------------------------------------------------------------------------------

    def push(self, choice: int) -> None:
        ids = np.flatnonzero([(choice >> block) & 1 for block in range(BLOCKS)]).astype(np.uint32)
        layout = self.job.table("w").layout
        self.push_id += 1
        self.pushed += [(self.push_id, int(block)) for block in ids]
        for owner, at in self.epoch.split("w", ids):
            share = ids[at]
            values = np.repeat(share, layout.sizes[share]).astype(np.float32)
            part = Part(self.push_id, self.finished, {"w": Piece(share, values)})
            if owner == NOBODY:
                self.homeless.append(part)
            else:
                self.lanes[self.epoch.shards[owner].key].add(part)

    def deliver(self, choice: int, acknowledged: bool = True) -> None:
        key = self._pick(choice)
        part = self.lanes[key].head() if key else None
        if part is None:
            return
        shard = self.shards[key]
        for piece in part.pieces.values():
            sizes = self.job.table("w").layout.sizes[piece.ids]
            np.testing.assert_array_equal(piece.values, np.repeat(piece.ids, sizes))  # cut where blocks end
        shard.take(part, self.bsp)
        if acknowledged:
            self.journal.release(self.lanes[key].acknowledge(part.seq, shard.clock))

    def lose_answer(self, choice: int) -> None:
        self.deliver(choice, acknowledged=False)

    def lose_request(self, choice: int) -> None:
        key = self._pick(choice)
        if key:
            self.lanes[key].head()  # it has its number now, and the shard does not know

    def finish_clock(self, choice: int) -> None:
        if not self.homeless and all(lane.idle for lane in self.lanes.values()):
            self.finished += 1

    def mark(self, choice: int) -> None:
        key = self._pick(choice)
        if key and not self.lanes[key].before_mark(self.finished):
            self.shards[key].mark = (self.finished, self.epoch.number)
            self.shards[key].advance()

    def see(self, choice: int) -> None:
        key = self._pick(choice)
        if key:
            self.journal.release(self.lanes[key].see(self.shards[key].clock))

    def settle(self, choice: int) -> None:
        key = self._pick(choice)
        if key and not self.lanes[key].unsettled():
            self.shards[key].settled = self.epoch.number

    def save(self, choice: int) -> None:
        key = self._pick(choice)
        if key and self.shards[key].saves:
            for block, content in self.shards[key].content.items():
                self.saved[block] = Saved(content.copy(), self.shards[key].claim(block))

    def die(self, choice: int) -> None:
        alive = [shard for shard in self.epoch.shards if shard.key != self._pick(choice)]
        if len(alive) == len(self.epoch.shards):
            return
        owners = self.epoch.owners["w"]
        lost = [block for block in range(BLOCKS) if owners[block] == NOBODY or self.epoch.shards[owners[block]] not in alive]
        self._restored(alive, lost)

    def join(self, choice: int) -> None:
        newcomer = member(self.next_shard)
        self.next_shard += 1
        self.shards[newcomer.key] = Shard(newcomer.key, clock=self.finished)
        orphans = np.flatnonzero(self.epoch.owners["w"] == NOBODY)
        self._restored([*self.epoch.shards, newcomer], [int(block) for block in orphans])

    def move(self, choice: int) -> None:
        """A live move of one block: frozen, copied, and given away with everything that its owner had applied."""
        block, target = choice % BLOCKS, self._pick(choice >> 4)
        owner = self.epoch.owners["w"][block]
        if not target or owner == NOBODY or self.epoch.shards[owner].key == target or len(self.epoch.shards) < 2:
            return
        donor = self.shards[self.epoch.shards[owner].key]
        if not donor.saves:
            return
        owners = self.epoch.owners["w"].copy()
        owners[block] = self.epoch.shard_index(target)
        claim, content = donor.claim(block), donor.content[block].copy()
        group = BlockGroup("w", np.array([block], np.uint32), donor.key, Source.DONOR, watermark={WORKER: claim})
        self._follow(list(self.epoch.shards), owners, [group], {block: Saved(content, claim)})

    def roll_back(self, choice: int) -> None:
        owners = self.epoch.owners["w"]
        if (owners == NOBODY).any():
            return
        for shard in self.shards.values():
            shard.pending.clear()
            shard.watermark = 0
        restored = {block: Saved(saved.content.copy(), saved.watermark) for block, saved in enumerate(self.saved)}
        self._follow(list(self.epoch.shards), owners.copy(), self._groups(restored), restored, rollback=True)

    # --- epochs ------------------------------------------------------------------------------------------------------

    def _pick(self, choice: int) -> str:
        shards = self.epoch.shards
        return shards[choice % len(shards)].key if shards else ""

    def _restored(self, alive: list[Member], lost: list[int]) -> None:
        index = {shard.key: number for number, shard in enumerate(alive)}
        before = self.epoch.owners["w"]
        owners = np.full(BLOCKS, NOBODY, np.uint16)
        for block in range(BLOCKS):
            if block in lost:
                owners[block] = (block + self.epoch.number) % len(alive) if alive else NOBODY
            else:
                owners[block] = index[self.epoch.shards[before[block]].key]
        restored = {block: Saved(self.saved[block].content.copy(), self.saved[block].watermark) for block in lost}
        self._follow(alive, owners, self._groups(restored), restored)

    def _groups(self, restored: dict[int, Saved]) -> list[BlockGroup]:
        by_claim: dict[int, list[int]] = {}
        for block, saved in restored.items():
            by_claim.setdefault(saved.watermark, []).append(block)
        source = {True: Source.OBJECT, False: Source.INITIAL}
        return [
            BlockGroup("w", np.array(sorted(ids), np.uint32), "", source[claim > 0], watermark={WORKER: claim} if claim else {})
            for claim, ids in by_claim.items()
        ]

    def _follow(
        self,
        alive: list[Member],
        owners: np.ndarray,
        moved: list[BlockGroup],
        restored: dict[int, Saved],
        rollback: bool = False,
    ) -> None:
        number = self.epoch.number + 1
        self.epoch = Epoch(number, "a", "model", tuple(alive), (), {"w": owners}, tuple(moved), rollback=rollback)
        for shard in alive:
            self.shards[shard.key].drop(restored)
        for block, saved in restored.items():
            if owners[block] != NOBODY:
                owner = self.shards[alive[owners[block]].key]
                owner.content[block], owner.base[block], owner.gained = saved.content, saved.watermark, number
        held = {**{key: lane.parts() for key, lane in self.lanes.items()}, NOWHERE: self.homeless}
        outcome = reroute(self.job, self.epoch, WORKER, held, self.journal)
        self.losses += outcome.losses
        self.lanes = {shard.key: self.lanes.get(shard.key) or Retained(self.bsp) for shard in alive}
        for key, lane in self.lanes.items():
            lane.replace(outcome.kept.get(key, []))
            for part in outcome.sent.get(key, []):
                lane.add(part)
        self.homeless = outcome.kept.get(NOWHERE, []) + outcome.sent.get(NOWHERE, [])
        self.check_retained()

    # --- what must hold ----------------------------------------------------------------------------------------------

    def lost(self) -> Counter[tuple[int, int]]:
        existing = set(self.pushed)
        return Counter(
            contribution
            for loss in self.losses
            for push_id in range(loss.after + 1, loss.upto + 1)
            for contribution in ((push_id, int(block)) for block in loss.ids)
            if contribution in existing
        )

    def check_retained(self) -> None:
        """Nothing is retained twice; nothing that was reported lost is sent again."""
        parts = [part for lane in self.lanes.values() for part in lane.parts()] + self.homeless
        retained = Counter(
            (part.push_id, int(block)) for part in parts for piece in part.pieces.values() for block in piece.ids
        )
        lost = self.lost()
        assert not [contribution for contribution, count in retained.items() if count > 1]
        assert not [contribution for contribution, count in lost.items() if count > 1]
        assert not set(retained) & set(lost)

    def drain(self) -> None:
        """Let everything arrive: then each contribution must be in its block's value or in the report, exactly once."""
        if not self.epoch.shards:
            self.join(0)
        for index in range(len(self.epoch.shards)):
            while not self.lanes[self._pick(index)].idle:
                self.deliver(index)
        self.finish_clock(0)
        for index in range(len(self.epoch.shards)):
            self.mark(index)
            self.see(index)
        assert not self.homeless
        assert all(lane.empty for lane in self.lanes.values())
        contained: Counter[tuple[int, int]] = Counter()
        for block, owner in enumerate(self.epoch.owners["w"]):
            for push_id, count in self.shards[self.epoch.shards[owner].key].content[block].items():
                contained[push_id, block] += count
        assert contained + self.lost() == Counter(self.pushed)


COMMON = ["push"] * 5 + ["deliver"] * 9 + ["mark"] * 7 + ["settle"] * 7
EVENTS = [*COMMON, *["finish_clock", "see"] * 3, *["lose_answer", "save", "move"] * 2, "lose_request", "die", "join"]
EVENT = st.tuples(st.sampled_from(EVENTS), st.integers(0, 1 << 10))


def lived(kind: str, history: list[tuple[str, int]]) -> None:
    world = World(kind)
    for event, choice in history:
        getattr(world, event)(choice)
    world.drain()


@pytest.mark.parametrize("kind", JOBS)
@settings(max_examples=100, derandomize=True)
@given(history=st.lists(EVENT | st.just(("roll_back", 0)), max_size=60))
def test_no_contribution_is_lost_in_silence_or_counted_twice(kind: str, history: list[tuple[str, int]]) -> None:
    lived(kind, history)


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("seed", range(4))
def test_long_histories(kind: str, seed: int) -> None:
    """The same where many epochs pile up, which short histories that can be shrunk hardly reach."""
    draw = random.Random(seed)
    for _ in range(40):
        lived(kind, [(draw.choice(EVENTS), draw.randrange(1 << 10)) for _ in range(150)])


def test_losses_are_reported_once_by_block_and_range() -> None:
    journal, ids = Journal(JOBS["asp"]), np.arange(4, dtype=np.uint32)
    journal.released("w", ids, 5)
    journal.released("w", ids[2:], 9)
    first = journal.losses("w", ids, 3)
    assert [(loss.ids.tolist(), loss.after, loss.upto) for loss in first] == [([0, 1], 3, 5), ([2, 3], 3, 9)]
    assert journal.losses("w", ids, 3) == []
    journal.released("w", ids[:1], 12)
    again = journal.losses("w", ids, 3)
    assert [(loss.ids.tolist(), loss.after, loss.upto) for loss in again] == [([0], 5, 12)]


def test_a_part_without_blocks_keeps_its_number() -> None:
    """The shard may have taken it already or not: without it the next number would be a gap or a false duplicate."""
    job, epoch = JOBS["asp"], Epoch(2, "a", "model", (member(0), member(1)), (), {"w": np.ones(BLOCKS, np.uint16)})
    ids = np.array([0], np.uint32)
    moved = BlockGroup("w", ids, member(0).key, Source.DONOR, watermark={WORKER: 0})
    epoch = Epoch(2, "a", "model", epoch.shards, (), epoch.owners, (moved,))
    sent = Part(1, 0, {"w": Piece(ids, np.ones(1, np.float32))}, seq=1)
    unsent = Part(2, 0, {"w": Piece(ids, np.ones(1, np.float32))})
    outcome = reroute(job, epoch, WORKER, {member(0).key: [sent, unsent]}, Journal(job))
    assert [(part.seq, dict(part.pieces)) for part in outcome.kept[member(0).key]] == [(1, {})]
    assert [part.push_id for part in outcome.sent[member(1).key]] == [1, 2]
    assert all(part.seq == 0 and part.owed for part in outcome.sent[member(1).key])
    assert outcome.resent == 2


def test_cut_follows_ragged_blocks() -> None:
    job, ids = JOBS["asp"], np.array([1, 2, 4], np.uint32)  # sizes 1, 2, 3
    piece = Piece(ids, np.arange(6, dtype=np.float32))
    assert cut(job, "w", piece, np.array([0, 2])).values.tolist() == [0, 3, 4, 5]
    assert cut(job, "w", piece, np.arange(3)) is piece
