"""Replicas of what workers could not give back: at any moment each block can be put back exactly."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

import scar.tables as tables
from scar._client.core.clocks import WorkerClocks
from scar._client.core.held_copies import HeldCopies
from scar._client.core.pull_buffer import PullBuffer, PulledPart
from scar.blocks import Ids
from scar.errors import OutOfOrder
from scar.strategies import PULLS_COUNTED, PULLS_HELD
from scar.tables import Job, Table
from scar_ps.core.events import ClockFinished, PullRequested
from scar_ps.core.replica_store import ReplicationBatch
from scar_ps.core.replication_chain import OutgoingBatch
from scar_ps.core.requests import MustWait
from tests.unit.ps_support import ME, DrivenShard, ids, next_epoch, push, sender, worker
from tests.unit.replication_pair import Pair

MINE = ids(0, 2, 4)
WORKERS = 3
SPEC = Job(
    "test",
    (Table("w", (6, 2), rule=tables.sgd(0.5)), Table("m", (6, 2), rule=tables.momentum(0.5, 0.9))),
    workers=WORKERS,
    sources="workers",
    replicas=1,
    replicate="missing",
)
Bits = tuple[bytes, ...]


class HoldingWorker:
    """What one worker holds, by the client's own rule."""

    def __init__(self, rank: int, spec: Job = SPEC) -> None:
        self.rank = rank
        self.held = HeldCopies(spec, worker(rank).key)
        self.told = 0
        self.seq = 0

    def keep(self, pulled: PullBuffer, clock: int, content: dict[str, int]) -> None:
        here = MINE if pulled.ids is None else pulled.ids
        pulled.parts = [PulledPart(here.astype(np.int64), 1, clock, content)]
        self.held.keep_pull(pulled, clock, self.told)


class DrawnCopies:
    """One owner, its replica, and workers; every step drawn."""

    def __init__(self, seed: int, table: str, spec: Job = SPEC) -> None:
        self.draw = random.Random(seed)
        self.table = table
        self.pair = Pair(spec, WORKERS, {"w": MINE, "m": MINE})
        self.workers = [HoldingWorker(rank) for rank in range(WORKERS)]
        self.history: list[dict[int, Bits]] = []  # by clock, each block's bits when it was open
        self.changes: dict[int, set[int]] = {block: set() for block in MINE.tolist()}
        self.waiting: OutgoingBatch | None = None
        self.sent = 0
        self.checked_from = 0

    @property
    def owner(self) -> DrivenShard:
        return self.pair.me

    def bits(self, block: int) -> Bits:
        store = self.owner.ownership.tables[self.table]
        contents = store.copy_blocks(store.find_blocks(ids(block)))
        return (contents.values.tobytes(), *(slot.tobytes() for slot in contents.slots.values()))

    def note(self) -> None:
        if len(self.history) == self.owner.clock:
            self.history.append({block: self.bits(block) for block in MINE.tolist()})

    # --- steps

    def some(self) -> Ids:
        return np.array(sorted(self.draw.sample(MINE.tolist(), self.draw.randint(1, 3))), np.uint32)

    def play_clock(self) -> None:
        clock = self.owner.clock
        self.note()
        while self.owner.state.announced_clock < clock:
            self.deliver()
        for one in self.draw.sample(self.workers, len(self.workers)):
            one.told = clock
            holds = self.pull(one, clock)
            self.ship_or_not()
            self.push(one, clock)
            self.check()
            self.owner.handle(ClockFinished(sender(one.rank), self.owner.number, clock + 1, holds=holds))
            self.note()
            self.check()
            self.ship_or_not()

    def pull(self, one: HoldingWorker, clock: int) -> bool:
        """Some blocks, all, or nothing; and whether the worker keeps it."""
        kind = self.draw.choice(["none", "some", "some", "whole"])
        if kind == "none":
            return False
        holds = self.draw.random() < 0.8
        self.pull_blocks(one, clock, None if kind == "whole" else self.some(), holds)
        return holds

    def pull_blocks(self, one: HoldingWorker, clock: int, wanted: Ids | None, holds: bool) -> None:
        asked = [(self.table, wanted)]
        event = PullRequested(sender(one.rank), self.owner.number, clock, asked, contents=True)
        (content,) = self.owner.handle(event).contents
        pulled = PullBuffer(SPEC.table(self.table), wanted)
        if content is not None and holds and one.held.can_hold(pulled):
            here = MINE if wanted is None else wanted
            store = self.owner.ownership.tables[self.table]
            values = store.copy_blocks(store.find_blocks(here)).values
            pulled.layout.scatter(pulled.flat, pulled.find_positions(here), values)
            one.keep(pulled, clock, dict(content))

    def push(self, one: HoldingWorker, clock: int) -> None:
        if self.draw.random() < 0.7:
            self.push_blocks(one, clock, self.some())

    def push_blocks(self, one: HoldingWorker, clock: int, blocks: Ids) -> None:
        one.seq += 1
        amounts = [self.draw.uniform(-1, 1) for _ in range(2 * len(blocks))]
        number = self.owner.number
        push(self.owner, one.rank, one.seq, blocks, amounts, table=self.table, clock=clock, epoch=number)
        for block in blocks.tolist():
            self.changes[block].add(clock)

    def ship_or_not(self) -> None:
        """A copy is made, arrives, or is lost on its way or with its answer."""
        step = self.draw.choice(["wait", "wait", "wait", "deliver", "lost", "unanswered"])
        if step == "wait":
            return
        if step == "deliver":
            self.deliver()
        elif (outgoing := self.take()) is not None:
            self.waiting = None
            for batch in outgoing.batches:
                self.owner.failed(batch, gap=step == "unanswered" and self.has_gap(batch))

    def has_gap(self, batch: ReplicationBatch) -> bool:
        """It came, though nobody hears of that: did the replica lack one before it?"""
        try:
            self.pair.other.receive(batch)
        except OutOfOrder:
            return True
        return False

    def take(self) -> OutgoingBatch | None:
        if self.waiting is None:
            try:
                self.waiting = self.pair.load()
            except MustWait:
                return None
        return self.waiting

    def deliver(self) -> None:
        outgoing = self.take()
        if outgoing is not None:
            self.sent += sum(batch.block_count for batch in outgoing.batches)
            try:
                self.pair.bring(ME, outgoing)
            except OutOfOrder:
                for batch in outgoing.batches:
                    self.owner.failed(batch, gap=True)
            self.waiting = None

    def leave(self) -> None:
        """A worker is gone, and what it held with it."""
        self.workers.pop()
        staying = tuple(worker(one.rank) for one in self.workers)
        self.pair.epoch = next_epoch(self.pair.epoch, workers=staying)
        self.waiting = None
        self.checked_from = self.owner.clock + 3  # what it alone held has been copied by then
        for shard in self.pair.shards.values():
            shard.adopt(self.pair.epoch, self.pair.job)

    def play_told(
        self, pulled: Mapping[int, Ids] | None = None, pushed: Mapping[int, Ids] | None = None
    ) -> None:
        """A clock in which these workers (ranks) pull and push these blocks; then what is due is copied."""
        clock = self.owner.clock
        self.note()
        for one in self.workers:
            one.told = clock
            if pulled and one.rank in pulled:
                self.pull_blocks(one, clock, pulled[one.rank], holds=True)
            if pushed and one.rank in pushed:
                self.push_blocks(one, clock, pushed[one.rank])
        for one in self.workers:
            self.owner.handle(ClockFinished(sender(one.rank), self.owner.number, clock + 1, holds=True))
        self.deliver()
        self.note()

    # --- what must be true

    def sources(self, block: int) -> dict[int, Bits]:
        """Clock -> bits of each copy of a block."""
        found = {0: self.history[0][block]}  # x(0)
        for one in self.workers:
            for state in one.held.offer_blocks({self.table: ids(block)}):
                (offered,) = one.held._offered
                at = offered.pulled.find_positions(ids(block))
                found[state.clock] = (offered.pulled.layout.gather(offered.pulled.flat, at).tobytes(),)
        for replica in self.pair.other.replicas._all():
            for state in replica.find_copies([(self.table, ids(block))]):
                store = replica.stores[self.table]
                contents = store.copy_blocks(store.find_blocks(ids(block)))
                slots = (slot.tobytes() for slot in contents.slots.values())
                found[state.clock] = (contents.values.tobytes(), *slots)
        return found

    def check(self) -> None:
        if self.owner.clock < self.checked_from:
            return
        kept = max(one.told for one in self.workers) - SPEC.strategy.kept_clocks
        for block in MINE.tolist():
            found = self.sources(block)
            for clock, bits in found.items():
                assert bits == self.history[clock][block][: len(bits)], (
                    f"block {block} is not of clock {clock}"
                )
            exact = [
                clock for clock in found if not any(clock <= change < kept for change in self.changes[block])
            ]
            assert exact, f"block {block} cannot be put back: {sorted(found)}, kept from {kept}"


@pytest.mark.parametrize("table", ["w", "m"])
@pytest.mark.parametrize("seed", range(20))
def test_each_block_can_be_put_back_exactly_at_any_moment(seed: int, table: str) -> None:
    run = DrawnCopies(seed, table)
    for clock in range(18):
        if clock == 9:
            run.leave()
        run.play_clock()


def test_what_workers_hold_is_not_copied() -> None:
    """Whole pulls in every clock: no message at all."""
    run = DrawnCopies(0, "w")
    for clock in range(6):
        for one in run.workers:
            event = PullRequested(sender(one.rank), 1, clock, [("w", None)], contents=True)
            run.owner.handle(event)
        for one in run.workers:
            run.push(one, clock)
            run.owner.handle(ClockFinished(sender(one.rank), 1, clock + 1, holds=True))
        run.deliver()
        assert run.owner.state.announced_clock == clock + 1
    assert run.sent == 0


def test_a_copy_of_a_clock_waits_for_what_workers_owe_it() -> None:
    pair = Pair(replace(SPEC, tables=SPEC.tables[1:], workers=1), 1, {"m": MINE})
    push(pair.me, 0, 1, MINE, [1.0] * 6, table="m", clock=0)
    pair.me.mark(sender(0), 1, 1)
    pair.ship()
    kept = pair.kept(m=[0, 2, 4])
    assert [state.clock for state in kept] == [1]
    pair.take_over(kept)
    with pytest.raises(MustWait):
        pair.other.handle(PullRequested(sender(0), 2, 0, [("m", MINE)]))


def test_a_worker_says_whether_all_that_it_pulled_is_kept() -> None:
    clocks = WorkerClocks()
    assert not clocks.holds(0), "it has pulled nothing"
    clocks.begin_pull(3)
    clocks.begin_pull(3)
    clocks.hold_pull(3)
    assert not clocks.holds(3), "one is under way, or was not kept"
    clocks.hold_pull(3)
    assert clocks.holds(3)
    clocks.begin_pull(5)
    assert not clocks.holds(3), "long over"


def test_what_nobody_pulls_again_is_copied_before_its_worker_lets_it_go() -> None:
    run = DrawnCopies(0, "w")
    run.play_told(pulled={0: ids(0)}, pushed={0: ids(0)})
    run.play_told(pulled={1: ids(0)})
    assert run.sent == 0, "a worker has it"
    for _ in range(PULLS_COUNTED):
        run.play_told(pulled={0: ids(2)})
        run.check()
    assert run.sent == 1
    for _ in range(PULLS_HELD):
        run.play_told(pulled={1: ids(2)})
        run.check()
    assert run.sent == 1, "once"


def test_what_a_worker_held_that_leaves_is_copied_with_the_next_clock() -> None:
    run = DrawnCopies(0, "w")
    run.play_told(pulled={0: ids(0)}, pushed={0: ids(0)})
    run.play_told(pulled={2: ids(0)})
    run.leave()
    assert run.sent == 0
    run.play_told()
    assert run.sent == 1
