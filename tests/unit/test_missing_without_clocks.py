"""SSP and ASP: replicas of what workers could not give back. Nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

import scar.tables as tables
from scar._client.core.pull_buffer import PullBuffer, PulledPart
from scar._client.core.pulled_tables import PulledTables
from scar._client.core.pushes import ShardPush, TablePush
from scar._client.core.resend_buffer import ResendBuffer
from scar.blocks import BlockState, Ids
from scar.strategies import HOLDERS_COUNTED, PUSHES_KEPT
from scar.tables import Table
from scar_ps.core.events import AcknowledgementDue, ClockFinished, PullRequested, PushReceived
from scar_ps.core.pull_holders import PullHolders
from scar_ps.core.pushes import PushApplied
from scar_ps.core.requests import MustWait, StagedPush
from tests.unit.ps_support import group, ids, next_epoch, part, sender, worker
from tests.unit.test_missing_copies import MINE, SPEC, WORKERS, DrawnCopies, HoldingWorker

FREE = replace(
    SPEC,
    consistency="asp",
    tables=(Table("w", (6, 2), dtype="int64", rule=tables.add()), SPEC.tables[1]),
)


@dataclass
class WaitingPush:
    """It is applied, and acknowledged when the replica has what it has to have."""

    sent: ShardPush
    applied: PushApplied


class FreeWorker(HoldingWorker):
    """With its clock and its stream, by the client's own rules."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, FREE)
        self.clock = 0
        self.tables = PulledTables()
        self.buffer = ResendBuffer(until_closed=False, pulled=self.tables)
        self.waiting: WaitingPush | None = None
        self.pulls = self.kept = 0  # of this clock
        self.pushed: dict[int, dict[int, int]] = {}  # push id -> block -> amount

    def acknowledge(self) -> None:
        assert self.waiting is not None
        self.buffer.acknowledge(self.waiting.sent.seq, 0)
        self.waiting = None


class FreeCopies(DrawnCopies):
    """One owner, its replica, and workers that do not wait for each other."""

    workers: list[FreeWorker]  # type: ignore[assignment]

    def __init__(self, seed: int, table: str) -> None:
        super().__init__(seed, table, FREE)
        self.workers = [FreeWorker(rank) for rank in range(WORKERS)]
        self.whole = self.draw.choice([0.3, 0.9, 1.0])  # share of pulls that are of everything

    def step(self) -> None:
        one = self.draw.choice(self.workers)
        kind = self.draw.choice(["pull", "push", "push", "answer", "answer", "mark"])
        if kind == "pull":
            wanted = None if self.draw.random() < self.whole else self.some()
            self.pull_free(one, wanted, arrives=self.draw.random() < 0.9)
        elif kind == "answer":
            self.answer(one)
        elif one.waiting is None and kind == "push":
            self.push_free(one, self.draw.choice([MINE, self.some()]))
        elif one.waiting is None:
            self.mark(one)
        self.check_free()
        self.ship_or_not()
        self.check_free()

    def pull_free(self, one: FreeWorker, wanted: Ids | None, arrives: bool) -> None:
        event = PullRequested(
            sender(one.rank), self.owner.number, 0, [(self.table, wanted)], contents=True, clock=one.clock
        )
        pulled = PullBuffer(FREE.table(self.table), wanted)
        holdable = one.held.can_hold(pulled)
        if holdable:
            pulled.number = one.tables.begin_pull([self.table])
            one.pulls += 1
        (content,) = self.owner.handle(event).contents
        if not (arrives and holdable and content is not None):
            return
        store = self.owner.ownership.tables[self.table]
        values = store.copy_blocks(store.find_blocks(MINE)).values
        pulled.layout.scatter(pulled.flat, pulled.find_positions(MINE), values)
        pulled.parts = [PulledPart(MINE.astype(np.int64), 1, 0, dict(content))]
        one.held.keep_pull(pulled, one.clock)  # blocks of the other shard are never asked for here
        one.tables.hold_pull(self.table, pulled.number)
        one.buffer.release_pulled()
        one.kept += 1

    def push_free(self, one: FreeWorker, blocks: Ids) -> None:
        one.seq += 1
        amounts = {block: self.draw.randint(1, 1 << 30) for block in blocks.tolist()}
        values = np.repeat(np.array(list(amounts.values())), 2)
        one.pushed[one.seq] = amounts
        one.buffer.append(ShardPush(one.seq, one.clock, {self.table: TablePush(blocks, values)}))
        sent = one.buffer.next_push()
        assert sent is not None
        parts = {self.table: part(self.owner, self.table, blocks, values)}
        staged = StagedPush(sender(one.rank), self.owner.number, sent.seq, sent.push_id, one.clock, parts)
        one.waiting = WaitingPush(sent, self.owner.handle(PushReceived(staged)))
        if not one.waiting.applied.delayed:
            one.acknowledge()

    def answer(self, one: FreeWorker) -> None:
        if one.waiting is not None:
            try:
                self.owner.handle(AcknowledgementDue(one.waiting.applied.update))
            except MustWait:
                return
            one.acknowledge()

    def mark(self, one: FreeWorker) -> None:
        holds = one.pulls > 0 and one.pulls == one.kept
        one.clock += 1
        one.pulls = one.kept = 0
        self.owner.handle(ClockFinished(sender(one.rank), self.owner.number, one.clock, holds=holds))

    # --- what must be true

    def states(self, block: int) -> Iterator[tuple[BlockState, int | None]]:
        """Each copy of a block, with its value."""
        for one in self.workers:
            for state in one.held.offer_blocks({self.table: ids(block)}):
                (offered,) = one.held._offered
                at = offered.pulled.find_positions(ids(block))
                yield state, int(offered.pulled.layout.gather(offered.pulled.flat, at)[0])
        for replica in self.pair.other.replicas._all():
            for state in replica.find_copies([(self.table, ids(block))]):
                store = replica.stores[self.table]
                yield state, int(store.copy_blocks(store.find_blocks(ids(block))).values[0])

    def check_free(self) -> None:
        """The freshest copy, and what living workers would send again, are all that was acknowledged."""
        for block in MINE.tolist():
            alive = {worker(one.rank).key: one for one in self.workers}
            found = [(BlockState(self.table, ids(block)), 0), *self.states(block)]
            state, value = max(found, key=lambda one: sum(one[0].watermark.get(key, 0) for key in alive))
            for key, one in alive.items():
                pushes = one.buffer.pushes()
                kept = {one.push_id for one in pushes if block in one.tables[self.table].ids.tolist()}
                pushed = {number for number, amounts in one.pushed.items() if block in amounts}
                lacking = {number for number in pushed if number > state.watermark.get(key, 0)} - kept
                assert not lacking, f"block {block}: pushes {lacking} of {key} are gone"
            if self.table == "w" and len(alive) == WORKERS:
                again = sum(
                    one.pushed[push.push_id].get(block, 0)
                    for key, one in alive.items()
                    for push in one.buffer.pushes()
                    if push.push_id > state.watermark.get(key, 0)
                )
                store = self.owner.ownership.tables["w"]
                assert value + again == int(store.copy_blocks(store.find_blocks(ids(block))).values[0])


@pytest.mark.parametrize("table", ["w", "m"])
@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_is_lost_with_its_owner_at_any_moment(seed: int, table: str) -> None:
    run = FreeCopies(seed, table)
    for number in range(240):
        if number == 120:
            while any(one.waiting for one in run.workers):
                run.deliver()
                for one in run.workers:
                    run.answer(one)
            run.leave()
            run.deliver()
        run.step()


def test_what_everybody_holds_is_not_copied_and_nobody_waits() -> None:
    run = FreeCopies(0, "w")
    run.deliver()
    for clock in range(6):
        for one in run.workers:
            run.pull_free(one, None, arrives=True)
            if clock:
                run.push_free(one, MINE)
                assert one.waiting is None
            run.mark(one)
        run.check_free()
    assert run.sent == 0


def test_tables_with_slots_are_copied_before_a_push_is_acknowledged() -> None:
    run = FreeCopies(0, "m")
    (one, *_) = run.workers
    run.pull_free(one, None, arrives=True)
    run.push_free(one, ids(0, 2))
    run.answer(one)
    assert one.waiting is not None
    run.deliver()
    run.answer(one)
    assert one.waiting is None
    assert run.sent == 2


def test_a_table_that_is_not_pulled_any_more_is_copied_before_its_pushes_are_let_go() -> None:
    assert HOLDERS_COUNTED < PUSHES_KEPT
    run = FreeCopies(0, "w")
    run.deliver()
    (one, *_) = run.workers
    run.pull_free(one, None, arrives=True)
    run.mark(one)
    for clock in range(1, PUSHES_KEPT + 3):
        run.push_free(one, ids(0))
        assert (one.waiting is None) is (clock <= HOLDERS_COUNTED)
        run.deliver()
        run.answer(one)
        run.check_free()
        run.mark(one)
    assert len(one.buffer.pushes()) == PUSHES_KEPT + 1


def test_what_a_worker_pushed_that_leaves_is_copied() -> None:
    run = FreeCopies(0, "w")
    run.deliver()
    for one in run.workers:
        run.pull_free(one, None, arrives=True)
        run.mark(one)
    run.push_free(run.workers[-1], MINE)
    run.deliver()
    assert run.sent == 0, "it would send it again itself"
    run.leave()
    run.deliver()
    assert run.sent == len(MINE)


def test_a_mark_may_come_after_the_next_pull() -> None:
    run = FreeCopies(0, "w")
    (one, *_) = run.workers
    run.pull_free(one, None, arrives=True)
    one.clock = 1
    run.pull_free(one, None, arrives=True)
    for clock in (0, 1):
        run.owner.handle(ClockFinished(sender(one.rank), run.owner.number, clock + 1, holds=True))
        assert run.owner.state.pull_holders._held["w"] == {worker(one.rank).key: clock}


@pytest.mark.parametrize("gained", [False, True])
def test_a_table_is_held_whole_or_not_at_all(gained: bool) -> None:
    """A block comes from another shard between the pull and the mark."""
    run = FreeCopies(0, "w")
    (one, *_) = run.workers
    run.pull_free(one, None, arrives=True)
    if gained:
        moved = [group("w", ids(1))]
        run.owner.adopt(next_epoch(run.pair.epoch, gained={"w": ids(1)}, moved=moved), FREE)
    run.mark(one)
    assert run.owner.state.pull_holders.hold("w") is not gained


def test_a_holder_is_one_that_its_mark_has_named() -> None:
    holders = PullHolders()
    holders.note_push("a", ["w"], 3)
    assert not holders.hold("w")
    holders.confirm("a", "w", 3)
    assert holders.hold("w")
    assert not holders.hold("v"), "nobody has pulled it"
    holders.note_push("b", ["w"], 3)
    assert not holders.hold("w"), "b keeps nothing"
    holders.confirm("b", "w", 4)
    holders.note_push("a", ["v"], 3 + HOLDERS_COUNTED)
    assert holders.hold("w")
    holders.note_push("a", ["v"], 4 + HOLDERS_COUNTED)
    assert not holders.hold("w"), "a has not pulled it for long"
    holders.clear()
    holders.confirm("a", "w", 9)
    assert holders.hold("w"), "what was pushed before is in what a has pulled"
