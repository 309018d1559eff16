"""What a worker's death means, by strategy: seats, waiting, going back; and the local state that goes back
with the model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import scar
from scar.errors import ConfigError
from scar.placement import Epoch, Member, Role
from scar.tables import Checkpoint
from scar.wire import codec
from scar.wire.epoch_messages import epoch_from_proto, epoch_to_proto
from scar.worker_state import ensure_declared, unpack_state
from scar.worker_strategies import WORKER_STRATEGIES, find_worker_strategy
from scar_recovery.core.actions import CommitEpoch
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.events import (
    EpochCommitted,
    FailureReport,
    JobStarted,
    MemberArrived,
    MemberFailed,
    MemberLeft,
)
from scar_recovery.core.ledger import Ledger
from scar_recovery.core.planner import Planner
from tests.framework.recovery import due, make_job
from tests.unit.ps_support import ME, DrivenShard, first_epoch, job, sender, worker

FULL = Checkpoint("full", 1.0, 8)


class Play:
    """A planner in the epoch of two shards and three workers."""

    def __init__(self, **options: Any) -> None:
        self.planner, self.now = Planner("me"), 0.0
        self.ledger = Ledger(make_job(2, **options))
        self.planner.handle(JobStarted(make_job(2, workers=3, **options), (), 0), 0.0)
        for name in ("ps-0", "ps-1"):
            self.planner.handle(MemberArrived(Member(Role.SHARD, name, name, "host:1")), 0.0)
        for name in ("worker-0", "worker-1", "worker-2"):
            self.joined(name, "first")
        self.epoch = self.commit()

    def joined(self, name: str, life: str) -> None:
        self.planner.handle(MemberArrived(Member(Role.WORKER, name, life)), self.now)

    def dies(self, *names: str) -> Epoch:
        """Together: one epoch leaves all of them out."""
        self.reported(*names)
        return self.commit()

    def reported(self, *names: str) -> None:
        for member in (*self.epoch.shards, *self.epoch.workers):
            if member.name in names:
                report = FailureReport(member, proved=True, evidence="test")
                self.planner.handle(MemberFailed(report), self.now)

    def commit(self) -> Epoch:
        self.now += 1.0
        action = due(self.planner, self.now)
        assert isinstance(action, CommitEpoch)
        intent = replace(action.intent, restart=9) if action.intent.rewinds_workers else action.intent
        self.epoch = draft_epoch(intent, NothingSaved())
        self.planner.handle(EpochCommitted(self.epoch), self.now)
        self.ledger.open_record(intent, action.failures, 0.1, 0.0)
        self.ledger.follow_epoch(self.epoch, self.now)
        return self.epoch


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ({"worker_recovery": "ps"}, ("worker-0", "worker-1", "worker-2")),
        ({"worker_recovery": "ckpt", "checkpoint": FULL}, ("worker-0", "worker-1", "worker-2")),
        ({"worker_recovery": "ignr", "share": "drop"}, ("worker-0", "worker-1", "worker-2")),
        ({"worker_recovery": "ignr"}, ("worker-0", "worker-2")),
    ],
)
def test_who_keeps_a_seat(options: dict[str, Any], ranks: tuple[str, ...]) -> None:
    play = Play(**options)
    away = play.dies("worker-1")
    assert away.ranks == ranks
    assert [member.name for member in away.workers] == ["worker-0", "worker-2"]
    assert away.rank("worker-2") == len(ranks) - 1
    play.joined("worker-1", "second")
    assert play.commit().ranks == ("worker-0", "worker-1", "worker-2")


def test_one_that_goes_by_itself_leaves_no_seat() -> None:
    play = Play(worker_recovery="ps")
    play.planner.handle(MemberLeft(play.epoch.workers[1]), play.now)
    assert play.commit().ranks == ("worker-0", "worker-2")


def test_the_coordinator_says_for_whom_clocks_wait() -> None:
    play = Play(worker_recovery="ps")
    play.dies("worker-1")
    assert play.planner.waits_for == "clocks wait for worker-1 to come back (worker_recovery ps)"
    play.joined("worker-1", "second")
    play.commit()
    assert not play.planner.waits_for


def test_ckpt_takes_every_block_back_once_and_books_it() -> None:
    play = Play(worker_recovery="ckpt", checkpoint=FULL)
    away = play.dies("worker-1")
    assert away.rollback
    assert sum(len(group.ids) for group in away.moved) == make_job(2).blocks
    record = play.ledger.records[0]
    assert (record.strategy, list(record.members), record.number) == (
        "ckpt",
        ["worker-1@first"],
        away.failure,
    )
    assert list(record.waiting) == ["worker-0@first", "worker-2@first"]
    play.joined("worker-1", "second")
    again = play.commit()
    assert not again.rollback
    assert again.restart == away.restart == 9, "who comes back must begin where the others do"


def test_with_every_shard_dead_nothing_is_left_to_take_back() -> None:
    """What comes later comes from the checkpoint, and the ledger says what was done."""
    play = Play(worker_recovery="ckpt", checkpoint=FULL)
    away = play.dies("worker-1", "ps-0", "ps-1")
    assert not away.rollback
    assert away.restart == 0
    for name in ("ps-0", "ps-1"):
        play.planner.handle(MemberArrived(Member(Role.SHARD, name, "second", "host:1")), play.now)
    play.now += 60.0  # nobody waits longer for more shards
    back = play.commit()
    assert not back.rollback
    assert sum(len(group.ids) for group in back.moved) == make_job(2).blocks
    assert [(record.strategy, record.number) for record in play.ledger.records] == [("partial", back.failure)]


@pytest.mark.parametrize("dying", [("worker-1",), ("ps-0", "ps-1", "worker-1")])
def test_a_worker_that_dies_when_no_shard_stays_takes_nothing_back(dying: tuple[str, ...]) -> None:
    """Before the first new shard serves, or together with all shards. The ledger says what was done."""
    play = Play(worker_recovery="ckpt", checkpoint=FULL)
    before = play.epoch if len(dying) > 1 else play.dies("ps-0", "ps-1")
    for name in ("ps-2", "ps-3"):
        play.planner.handle(MemberArrived(Member(Role.SHARD, name, "first", "host:1")), play.now)
    play.reported(*dying)
    play.now += 60.0  # nobody waits longer for more shards
    back = play.commit()
    assert back.shards
    assert not back.rollback
    assert [(one.strategy, one.number) for one in play.ledger.records] == [("partial", back.failure)]
    if before.shards:
        rebuilt = Ledger(make_job(2, worker_recovery="ckpt", checkpoint=FULL))
        rebuilt.rebuild_record(before, back, 0.0)
        assert [one.strategy for one in rebuilt.records] == ["partial"]


def test_a_later_leader_finds_the_rollback_in_its_epoch() -> None:
    play = Play(worker_recovery="ckpt", checkpoint=FULL)
    before, away = play.epoch, play.dies("worker-1")
    rebuilt = Ledger(make_job(2, worker_recovery="ckpt", checkpoint=FULL))
    rebuilt.rebuild_record(before, away, 0.0)
    assert [(list(one.members), one.strategy) for one in rebuilt.records] == [(["worker-1@first"], "ckpt")]
    assert [(one.wait_seconds, one.commit_seconds) for one in rebuilt.records] == [(-1, -1)]


@pytest.mark.parametrize(
    ("options", "closed"), [({"worker_recovery": "ps"}, 0), ({"share": "drop"}, 1), ({}, 1)]
)
def test_whom_clocks_wait_for(options: dict[str, Any], closed: int) -> None:
    spec = job(**options)
    shard = DrivenShard(ME)
    shard.adopt(first_epoch(spec, workers=2), spec)
    seats = ("worker-0", "worker-1") if spec.worker_strategy.seat else ()
    shard.adopt(replace(first_epoch(spec), number=2, moved=(), workers=(worker(0),), seats=seats), spec)
    shard.mark(sender(0), 2, 1, None)
    assert shard.clock == closed


def test_seats_and_restart_survive_the_wire() -> None:
    epoch = replace(first_epoch(job()), seats=("worker-0", "worker-1"), restart=7)
    found = epoch_from_proto(epoch_to_proto(epoch))
    assert (found.seats, found.restart, found.ranks) == (epoch.seats, 7, ("worker-0", "worker-1"))


@pytest.mark.parametrize("name", WORKER_STRATEGIES)
def test_a_job_keeps_its_strategy_on_the_wire(name: str) -> None:
    share = "drop" if name == "ignr" else "takeover"
    made = job(worker_recovery=name, share=share, checkpoint=FULL)
    found = codec.job_from_proto(codec.job_to_proto(made))
    assert found.worker_strategy == made.worker_strategy == find_worker_strategy(name, share)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"worker_recovery": "hope"}, "Use one of ignr, ps, ckpt"),
        ({"share": "half"}, "Use one of takeover, drop"),
        ({"worker_recovery": "ps", "share": "drop"}, "or use ignr"),
        ({"worker_recovery": "ckpt"}, "selection='full'"),
    ],
)
def test_what_cannot_be_says_what_to_do(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        assert job(**options).worker_strategy
    assert says in str(raised.value)


def test_a_step_done_again_draws_the_same_numbers() -> None:
    spec = scar.Job("kept", [scar.worker_state_table(workers=2, size=1)], seed=4)
    first, again, other, later = (
        unpack_state(spec, rank, np.array([step, 2.5])) for rank, step in ((0, 3), (0, 3), (1, 3), (0, 4))
    )
    assert (first.step, first.values.tolist()) == (3, [2.5])
    drawn = first.rng.normal(size=8).tolist()
    assert again.rng.normal(size=8).tolist() == drawn
    assert drawn not in (other.rng.normal(size=8).tolist(), later.rng.normal(size=8).tolist())


def test_worker_state_table_has_to_be_declared() -> None:
    with pytest.raises(ConfigError, match="worker_state_table"):
        ensure_declared(job(), 0)
    with pytest.raises(ConfigError, match="for 2 workers"):
        ensure_declared(scar.Job("kept", [scar.worker_state_table(workers=2)]), 2)
