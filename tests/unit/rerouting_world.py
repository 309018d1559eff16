"""A small world of shards that die, move and recover by the rules of docs/protocol.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from scar._client.core.pulled_tables import PulledTables
from scar._client.core.pushes import NOWHERE, ShardPush, TablePush
from scar._client.core.rerouting import AckedPushes, reroute
from scar._client.core.resend_buffer import ResendBuffer
from scar.lost_ranges import LostRanges
from scar.placement import NOBODY, BlockGroup, BlockSource, Epoch, Member, Role
from scar.strategies import PUSHES_KEPT
from scar.tables import Job, Table, ragged

WORKER = "worker-0@00000000000a"


BLOCKS = 6


TABLE = Table("w", 9, blocks=ragged([0, 1, 2, 4, 5, 8, 9]))
JOBS = {
    name: Job("model", [TABLE], consistency=kind, sources=sources)
    for name, kind, sources in (
        ("bsp", "bsp", "checkpoint"),
        ("asp", "asp", "checkpoint"),
        ("workers", "bsp", "workers"),
        ("asp-workers", "asp", "workers"),
    )
}


def member(number: int) -> Member:
    return Member(Role.SHARD, f"ps-{number}", f"{number:012x}", "127.0.0.1:1")


@dataclass
class Saved:
    """A block in the store: which pushes its value contains, and what its watermark claims."""

    content: Counter[int] = field(default_factory=Counter)
    watermark: int = 0


@dataclass
class Pull:
    """Of the whole table: what its answers contain, and since when it is under way."""

    number: int
    clock: int
    blocks: dict[int, Saved]


@dataclass
class Pending:
    push_id: int
    late: bool
    joined: int
    ids: list[int]
    owed: bool = False


@dataclass
class Shard:
    """One shard by the rules of docs/protocol.md: dedupe by seq, clocks, settling, watermarks with a base
    for gained blocks.
    """

    key: str
    content: dict[int, Counter[int]] = field(default_factory=dict)
    base: dict[int, int] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    last: int = 0
    watermark: int = 0
    clock: int = 0
    gained: int = 0
    settled: int = 0
    replaying: set[int] = field(default_factory=set)  # blocks that were lost, until the worker has settled
    mark: tuple[int, int] = (0, 0)

    def take(self, part: ShardPush, bsp: bool) -> bool:
        """Returns whether it is owed, or has been."""
        assert part.seq <= self.last + 1, "a gap in the numbers of a stream"
        late = bsp and self.clock > part.clock
        if part.seq <= self.last:
            return late
        self.last = part.seq
        ids = [int(block) for piece in part.tables.values() for block in piece.ids]
        assert set(ids) <= set(self.content), "a block that this shard does not own"
        if not bsp:
            self.apply(part.push_id, ids)
            return False
        owed = [block for block in ids if late and block in self.replaying]
        others = [block for block in ids if block not in owed]
        joined = max(part.clock, self.clock)
        kept = [
            Pending(part.push_id, False, part.clock, owed, True),
            Pending(part.push_id, late, joined, others),
        ]
        self.pending += [one for one in kept if one.ids]
        return late and not others

    def apply(self, push_id: int, ids: Iterable[int]) -> None:
        for block in ids:
            self.content[block][push_id] += 1
        self.watermark = max(self.watermark, push_id)

    def advance(self) -> None:
        finished, epoch = self.mark
        if epoch < self.gained or finished <= self.clock:
            return
        self.apply_pending([one for one in self.pending if one.joined < finished and not one.owed])
        self.clock = finished

    def settle(self, number: int) -> None:
        self.settled = number
        if number >= self.gained:
            self.apply_pending([one for one in self.pending if one.owed])
            self.replaying.clear()

    def apply_pending(self, due: Iterable[Pending]) -> None:
        for pending in due:
            self.pending.remove(pending)
            self.apply(pending.push_id, pending.ids)

    @property
    def saves(self) -> bool:
        return self.settled >= self.gained and not any(pending.late for pending in self.pending)

    def claim(self, block: int) -> int:
        return max(self.watermark, self.base.get(block, 0))

    def drop(self, blocks: Iterable[int]) -> None:
        gone = set(blocks)
        for block in gone:
            self.content.pop(block, None)
            self.replaying.discard(block)
        for pending in self.pending:
            pending.ids = [block for block in pending.ids if block not in gone]


class World:
    """Shards, a store, one worker. Each method is something that may happen at any time; it does nothing
    when it cannot.
    """

    def __init__(self, kind: str) -> None:
        self.job, self.bsp = JOBS[kind], JOBS[kind].consistency == "bsp"
        self.kept = int(self.job.strategy.asks_workers)
        self.shards = {member(i).key: Shard(member(i).key) for i in range(3)}
        self.pulled = PulledTables() if self.kept and not self.bsp else None
        self.pulling: Pull | None = None
        self.copy: Pull | None = None  # which the worker holds
        self.streams = {key: self._stream() for key in self.shards}
        self.orphans: list[ShardPush] = []
        self.saved = [Saved() for _ in range(BLOCKS)]
        self.acked, self.losses = AckedPushes(self.job), list[LostRanges]()
        self.pushed: list[tuple[int, int]] = []
        self.finished = self.push_id = 0
        self.next_shard = 3
        owners = np.arange(BLOCKS, dtype=np.uint16) % 3
        self.epoch = Epoch(1, "a", "model", tuple(member(i) for i in range(3)), (), {"w": owners})
        for block, owner in enumerate(owners):
            self.shards[member(int(owner)).key].content[block] = Counter()

    def _stream(self) -> ResendBuffer:
        return ResendBuffer(self.bsp, closed_kept=self.kept, pulled=self.pulled)

    # --- what happens
    # ------------------------------------------------------------------------------------------------

    def begin_pull(self, choice: int) -> None:
        """A pull of everything, which shards answer at once if nothing is unsettled."""
        shards = [self.shards[shard.key] for shard in self.epoch.shards]
        whole = shards and not (self.epoch.owners["w"] == NOBODY).any()
        if self.pulled is not None and whole and all(shard.settled >= shard.gained for shard in shards):
            blocks = {
                block: Saved(content.copy(), shard.claim(block))
                for shard in shards
                for block, content in shard.content.items()
            }
            self.pulling = Pull(self.pulled.begin_pull(["w"]), self.finished, blocks)

    def end_pull(self, choice: int) -> None:
        """All of it is there, and kept."""
        if self.pulled is not None and self.pulling is not None:
            self.copy, self.pulling = self.pulling, None
            self.pulled.hold_pull("w", self.copy.number)
            for stream in self.streams.values():
                self.acked.release_pushes(stream.release_pulled())

    def push(self, choice: int) -> None:
        ids = np.flatnonzero([(choice >> block) & 1 for block in range(BLOCKS)]).astype(np.uint32)
        layout = self.job.table("w").layout
        self.push_id += 1
        self.pushed += [(self.push_id, int(block)) for block in ids]
        for owner, at in self.epoch.split("w", ids):
            share = ids[at]
            values = np.repeat(share, layout.sizes[share]).astype(np.float32)
            part = ShardPush(self.push_id, self.finished, {"w": TablePush(share, values)})
            if owner == NOBODY:
                self.orphans.append(part)
            else:
                self.streams[self.epoch.shards[owner].key].append(part)

    def deliver(self, choice: int, acknowledged: bool = True) -> None:
        key = self._pick(choice)
        part = self.streams[key].next_push() if key else None
        if part is None:
            return
        shard = self.shards[key]
        for piece in part.tables.values():
            sizes = self.job.table("w").layout.sizes[piece.ids]
            np.testing.assert_array_equal(piece.values, np.repeat(piece.ids, sizes))  # cut where blocks end
        owed = shard.take(part, self.bsp)
        if acknowledged:
            self.acked.release_pushes(self.streams[key].acknowledge(part.seq, shard.clock, owed=owed))

    def lose_answer(self, choice: int) -> None:
        self.deliver(choice, acknowledged=False)

    def lose_request(self, choice: int) -> None:
        key = self._pick(choice)
        if key:
            self.streams[key].next_push()  # it has its number now, and the shard does not know

    def finish_clock(self, choice: int) -> None:
        if not self.orphans and all(stream.idle for stream in self.streams.values()):
            self.finished += 1

    def mark(self, choice: int) -> None:
        key = self._pick(choice)
        if key and not self.streams[key].blocks_mark(self.finished):
            self.shards[key].mark = (self.finished, self.epoch.number)
            self.shards[key].advance()

    def see(self, choice: int) -> None:
        key = self._pick(choice)
        if key:
            if self.shards[key].saves:
                self.streams[key].end_owing()
            self.acked.release_pushes(self.streams[key].see_clock(self.shards[key].clock))

    def settle(self, choice: int) -> None:
        key = self._pick(choice)
        if key and not self.streams[key].blocks_settle():
            self.shards[key].settle(self.epoch.number)

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
        lost = [
            block
            for block in range(BLOCKS)
            if owners[block] == NOBODY or self.epoch.shards[owners[block]] not in alive
        ]
        self._restored(alive, lost)

    def join(self, choice: int) -> None:
        newcomer = member(self.next_shard)
        self.next_shard += 1
        self.shards[newcomer.key] = Shard(newcomer.key, clock=self.finished)
        orphans = np.flatnonzero(self.epoch.owners["w"] == NOBODY)
        self._restored([*self.epoch.shards, newcomer], [int(block) for block in orphans])

    def move(self, choice: int) -> None:
        """A live move of one block: frozen, copied, and given away with everything that its owner had
        applied.
        """
        block, target = choice % BLOCKS, self._pick(choice >> 4)
        owner = self.epoch.owners["w"][block]
        if (
            not target
            or owner == NOBODY
            or self.epoch.shards[owner].key == target
            or len(self.epoch.shards) < 2
        ):
            return
        donor = self.shards[self.epoch.shards[owner].key]
        if not donor.saves:
            return
        owners = self.epoch.owners["w"].copy()
        owners[block] = self.epoch.shard_index(target)
        claim, content = donor.claim(block), donor.content[block].copy()
        ids = np.array([block], np.uint32)
        state = {WORKER: claim}
        group = BlockGroup("w", ids, 0, state, former_owner=donor.key, source=BlockSource.DONOR)
        self._follow(list(self.epoch.shards), owners, [group], {block: Saved(content, claim)})

    def roll_back(self, choice: int) -> None:
        owners = self.epoch.owners["w"]
        if (owners == NOBODY).any():
            return
        for shard in self.shards.values():
            shard.pending.clear()
            shard.watermark = 0
        restored = {
            block: Saved(saved.content.copy(), saved.watermark) for block, saved in enumerate(self.saved)
        }
        self._follow(list(self.epoch.shards), owners.copy(), self._groups(restored), restored, rollback=True)

    # --- epochs
    # ------------------------------------------------------------------------------------------------------

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
        copied = {} if self.copy is None else self.copy.blocks
        held = [
            block
            for block in lost
            if block in copied and copied[block].watermark >= self.saved[block].watermark
        ]
        restored = {block: copied[block] if block in held else self.saved[block] for block in lost}
        restored = {block: Saved(saved.content.copy(), saved.watermark) for block, saved in restored.items()}
        known = sum(self.lost().values())
        self._follow(alive, owners, self._groups(restored), restored)
        if held == lost and self.copy is not None and self.finished <= self.copy.clock + PUSHES_KEPT:
            assert sum(self.lost().values()) == known, "the worker holds all that is not kept"

    def _groups(self, restored: dict[int, Saved]) -> list[BlockGroup]:
        by_claim: dict[int, list[int]] = {}
        for block, saved in restored.items():
            by_claim.setdefault(saved.watermark, []).append(block)
        groups = []
        for claim, blocks in by_claim.items():
            source = BlockSource.OBJECT if claim else BlockSource.INITIAL
            state = {WORKER: claim} if claim else {}
            groups.append(BlockGroup("w", np.array(sorted(blocks), np.uint32), 0, state, source=source))
        return groups

    def _follow(
        self,
        alive: list[Member],
        owners: np.ndarray,
        moved: list[BlockGroup],
        restored: dict[int, Saved],
        rollback: bool = False,
    ) -> None:
        number = self.epoch.number + 1
        self.epoch = Epoch(
            number, "a", "model", tuple(alive), (), {"w": owners}, tuple(moved), rollback=rollback
        )
        if any(group.source is not BlockSource.DONOR for group in moved):
            self._cut_history(restored)
        for shard in alive:
            self.shards[shard.key].drop(restored)
        given = {block for one in moved if one.source is BlockSource.DONOR for block in one.ids.tolist()}
        for block, saved in restored.items():
            if owners[block] != NOBODY:
                owner = self.shards[alive[owners[block]].key]
                owner.content[block], owner.base[block], owner.gained = saved.content, saved.watermark, number
                if block not in given:
                    owner.replaying.add(block)
        held = {**{key: stream.pushes() for key, stream in self.streams.items()}, NOWHERE: self.orphans}
        outcome = reroute(self.job, self.epoch, WORKER, held)
        for blocks in outcome.released:
            self.acked.release_blocks(blocks.table, blocks.ids, blocks.push_id)
        self.losses += self.acked.follow_epoch(self.epoch, WORKER)
        self.streams = {shard.key: self.streams.get(shard.key) or self._stream() for shard in alive}
        for key, stream in self.streams.items():
            stream.replace_pushes(outcome.pushes_for(key))
        self.orphans = outcome.pushes_for(NOWHERE)
        self.check_retained()

    def _cut_history(self, restored: dict[int, Saved]) -> None:
        """A pull that is under way brings nothing; of a copy goes what is newer than what came back."""
        self.pulling = None
        if self.copy is not None:
            for block, saved in restored.items():
                if block in self.copy.blocks and self.copy.blocks[block].watermark > saved.watermark:
                    del self.copy.blocks[block]

    # --- what must hold
    # ----------------------------------------------------------------------------------------------

    def lost(self) -> Counter[tuple[int, int]]:
        existing = set(self.pushed)
        return Counter(
            contribution
            for loss in self.losses
            for block, after, upto in zip(
                loss.ids.tolist(), loss.after.tolist(), loss.upto.tolist(), strict=True
            )
            for contribution in ((push_id, block) for push_id in range(after + 1, upto + 1))
            if contribution in existing
        )

    def check_retained(self) -> None:
        """Nothing is retained twice; nothing that was reported lost is sent again."""
        parts = [part for stream in self.streams.values() for part in stream.pushes()] + self.orphans
        retained = Counter(
            (part.push_id, int(block))
            for part in parts
            for piece in part.tables.values()
            for block in piece.ids
        )
        lost = self.lost()
        assert not [contribution for contribution, count in retained.items() if count > 1]
        assert not [contribution for contribution, count in lost.items() if count > 1]
        assert not set(retained) & set(lost)

    def drain(self) -> None:
        """Let everything arrive: then each contribution must be in its block's value or in the report,
        exactly once.
        """
        if not self.epoch.shards:
            self.join(0)
        for index in range(len(self.epoch.shards)):
            while not self.streams[self._pick(index)].idle:
                self.deliver(index)
        for index in range(len(self.epoch.shards)):
            self.settle(index)
            self.see(index)
        pushes = [push for stream in self.streams.values() for push in stream.pushes()]
        if any(push.needed_clock >= self.finished for push in pushes):
            self.finish_clock(0)
        for index in range(len(self.epoch.shards)):
            self.mark(index)
            self.see(index)
        assert not self.orphans
        assert all(stream.empty for stream in self.streams.values())
        contained: Counter[tuple[int, int]] = Counter()
        for block, owner in enumerate(self.epoch.owners["w"]):
            for push_id, count in self.shards[self.epoch.shards[owner].key].content[block].items():
                contained[push_id, block] += count
        assert contained + self.lost() == Counter(self.pushed)
