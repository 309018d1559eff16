"""When the planner creates an epoch, and what is in it. Time is made up."""

from dataclasses import replace

import numpy as np
import pytest

from scar.errors import Fenced, NotServing
from scar.placement import NOBODY, BlockSource, concatenate_owners
from scar.tables import Job
from scar_recovery.core.actions import ConfirmSuspects, MoveBlocks
from scar_recovery.core.events import (
    EpochLoaded,
    JobEnded,
    JobStarted,
    MemberArrived,
    MemberHeard,
    MemberLeft,
    SuspectsAnswered,
)
from scar_recovery.core.planner import Planner
from scar_recovery.core.settings import PlannerSettings
from tests.framework.recovery import due, make_job, owned_counts
from tests.unit.planner_steps import LEASE, commit, failed, shard, started, worker


def test_starts_when_enough_shards_are_there() -> None:
    planner = Planner("me")
    for name in ("ps-10", "ps-2"):
        planner.handle(MemberArrived(shard(name)), 0.0)
    assert due(planner, 1.0) is None
    planner.handle(JobStarted(make_job(3), (), 0), 1.0)
    assert due(planner, 1.0) is None
    assert planner.waits_for == "waiting for shards: 2 of 3 have joined"
    planner.handle(MemberArrived(shard("ps-0")), 2.0)
    epoch = commit(planner, 2.0, "start")
    assert [member.name for member in epoch.shards] == ["ps-0", "ps-2", "ps-10"]
    assert {group.source for group in epoch.moved} == {BlockSource.INITIAL}
    assert sum(len(group.ids) for group in epoch.moved) == planner.job.blocks if planner.job else False
    assert planner.waits_for == ""


def test_workers_share_an_epoch_and_keep_their_ranks() -> None:
    planner = started()
    planner.handle(MemberArrived(worker("worker-1")), 1.0)
    planner.handle(MemberArrived(worker("worker-0")), 1.04)
    assert due(planner, 1.04) is None
    assert planner.wake_after(1.04) == pytest.approx(0.01)
    epoch = commit(planner, 1.06, "workers")
    assert [member.name for member in epoch.workers] == ["worker-0", "worker-1"]
    assert epoch.moved == ()
    planner.handle(MemberArrived(worker("worker-0", "2")), 2.0)
    epoch = commit(planner, 2.06, "workers")
    assert [member.incarnation for member in epoch.workers] == ["worker-0-2", "worker-1-1"]
    assert "worker-0-1" in epoch.fenced
    planner.handle(MemberLeft(worker("worker-1")), 3.0)
    assert [member.name for member in commit(planner, 3.06).workers] == ["worker-0"]
    with pytest.raises(Fenced):
        planner.members.check_arrival(worker("worker-1"))


def test_proved_death_is_repaired_at_once_and_failures_are_batched() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    assert due(planner, 1.02) is None
    failed(planner, shard("ps-2"), 1.02)
    epoch = commit(planner, 1.031, "failure")
    assert [member.name for member in epoch.shards] == ["ps-0"]
    assert {"ps-1-1", "ps-2-1"} <= set(epoch.fenced)
    assert epoch.failure == 1
    assert {group.former_owner for group in epoch.moved} == {"ps-1@ps-1-1", "ps-2@ps-2-1"}


def test_lost_blocks_are_dealt_evenly_and_reproducibly() -> None:
    dealt = []
    for _ in range(2):
        planner = started(shards=4)
        failed(planner, shard("ps-3"), 1.0)
        dealt.append(commit(planner, 1.1))
    counts = owned_counts(dealt[0].owners, 3)
    assert int(counts.max() - counts.min()) <= 1
    assert all(bool((dealt[0].owners[table] == dealt[1].owners[table]).all()) for table in dealt[0].owners)


def test_survivors_keep_their_blocks() -> None:
    planner = started()
    before = planner.epoch
    assert before is not None
    failed(planner, shard("ps-0"), 1.0)
    after = commit(planner, 1.1)
    for table in before.owners:
        for member in after.shards:
            assert set(before.owned_by(member.key)[table]) <= set(after.owned_by(member.key)[table])
        restored = np.concatenate([group.ids for group in after.moved if group.table == table])
        # nothing else is put back
        assert sorted(restored) == sorted(before.owned_by(shard("ps-0").key)[table])


def test_suspect_is_declared_dead_only_after_its_lease_and_one_more_question() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 10.0, proved=False, silence=0.5)
    assert due(planner, 10.0) is None
    assert planner.wake_after(10.0) == pytest.approx(1.5)
    assert "lease is awaited" in planner.waits_for
    assert due(planner, 11.51) == ConfirmSuspects((shard("ps-1"),))
    planner.handle(SuspectsAnswered((), ("ps-1@ps-1-1",)), 11.6)
    assert commit(planner, 11.6, "failure").fenced == ("ps-1-1",)


@pytest.mark.parametrize("sign", ["joined", "renewed", "confirmed"])
def test_suspect_that_is_heard_again_is_not_declared_dead(sign: str) -> None:
    planner = started()
    failed(planner, shard("ps-1"), 10.0, proved=False, silence=1.0)
    if sign == "joined":
        planner.handle(MemberArrived(shard("ps-1")), 10.9)
    elif sign == "renewed":
        planner.members.check_lease(shard("ps-1"))
        planner.handle(MemberHeard(shard("ps-1").key), 10.9)
    else:
        planner.handle(SuspectsAnswered(("ps-1@ps-1-1",), ()), 11.0)
    assert planner.members.failures == []
    assert due(planner, 20.0) is None
    # the detector is behind: our own sign of life counts
    failed(planner, shard("ps-1"), 11.0, proved=False, silence=5.0)
    assert planner.wake_after(11.0) >= 1.89


def test_of_two_reports_the_one_that_knows_of_the_longer_silence_counts() -> None:
    """A new leader's own question knows of none; each report alone is a bound, and so is the better one."""
    planner = started()
    for when, silence in ((10.0, 0.0), (10.5, 1.5), (10.6, 0.1)):
        failed(planner, shard("ps-1"), when, proved=False, silence=silence)
    (suspect,) = planner.members.suspects()
    assert suspect.allowed == pytest.approx(11.0)
    assert suspect.wait_seconds == pytest.approx(0.4), (
        "from the newest report, so that the phases of a record add up"
    )


def test_silence_does_not_count_from_before_this_leadership() -> None:
    old = started()
    assert old.epoch is not None
    planner = Planner("next", PlannerSettings(lease=LEASE))
    planner.handle(JobStarted(make_job(), (old.epoch,), 0), 100.0)
    failed(planner, shard("ps-1"), 100.0, proved=False, silence=50.0)
    assert commit(planner, 100.2, "leader").moved == ()
    # from the leader's epoch on, since a predecessor may have renewed until then
    assert due(planner, 102.1) is None
    assert isinstance(due(planner, 102.3), ConfirmSuspects)


def test_the_longer_lease_of_a_shard_counts_in_this_leadership_and_the_next() -> None:
    """Else its blocks had two owners for as long as both serve: while a cluster gets another lease."""
    longer = replace(shard("ps-1", "2"), lease_seconds=3 * LEASE)
    old = started()
    old.handle(MemberArrived(longer), 1.0)  # and its predecessor is dead
    epoch = commit(old, 1.1)
    assert longer.key in {member.key for member in epoch.shards}
    failed(old, shard("ps-1", "2"), 10.0, proved=False)  # who reports knows nothing of it
    assert due(old, 15.9) is None
    assert isinstance(due(old, 16.1), ConfirmSuspects)
    planner = Planner("next", PlannerSettings(lease=LEASE))
    planner.handle(JobStarted(make_job(), (epoch,), 0), 100.0)
    failed(planner, shard("ps-1", "2"), 100.0, proved=False, silence=50.0)
    commit(planner, 100.2, "leader")
    assert due(planner, 106.1) is None
    assert isinstance(due(planner, 106.3), ConfirmSuspects)


def test_no_lease_for_the_dead() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    with pytest.raises(NotServing):
        planner.members.check_lease(shard("ps-1"))
    commit(planner, 1.1)
    with pytest.raises(Fenced):
        planner.members.check_lease(shard("ps-1"))
    with pytest.raises(Fenced):
        planner.members.check_arrival(shard("ps-1"))


def test_quick_restart_is_a_death_then_a_rebalance() -> None:
    planner = started()
    planner.handle(MemberArrived(shard("ps-1", "2")), 1.0)
    epoch = commit(planner, 1.1, "failure")
    assert [member.incarnation for member in epoch.shards] == ["ps-0-1", "ps-1-2", "ps-2-1"]
    assert owned_counts(epoch.owners, 3).tolist() == [30, 0, 30]
    assert due(planner, 1.1) is None
    planner.handle(EpochLoaded(2), 0.0)
    move = due(planner, 1.1)
    assert isinstance(move, MoveBlocks)
    assert {transfer.target.key for transfer in move.transfers} == {"ps-1@ps-1-2"}


def test_who_was_declared_dead_stays_fenced() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    commit(planner, 1.1, "failure")
    planner.handle(MemberArrived(worker("worker-0")), 2.0)
    assert commit(planner, 2.1, "workers").fenced == ("ps-1-1",)
    failed(planner, shard("ps-2"), 3.0)
    assert commit(planner, 3.1, "failure").fenced == ("ps-1-1", "ps-2-1")


def test_all_shards_dead_then_assigned_from_the_store() -> None:
    planner = started()
    for number in range(3):
        failed(planner, shard(f"ps-{number}"), 1.0)
    epoch = commit(planner, 1.1, "failure")
    assert epoch.shards == ()
    assert bool((concatenate_owners(make_job(), epoch.owners) == NOBODY).all())
    assert planner.recovering == [f"ps-{n}@ps-{n}-1" for n in range(3)]
    planner.handle(MemberArrived(shard("ps-0", "2")), 2.0)
    assert due(planner, 2.2) is None
    planner.handle(MemberArrived(shard("ps-1", "2")), 2.25)
    epoch = commit(planner, 2.31, "failure")
    assert epoch.failure == 1
    assert owned_counts(epoch.owners, 2).tolist() == [30, 30]
    assert {group.former_owner for group in epoch.moved} == {f"ps-{n}@ps-{n}-1" for n in range(3)}
    assert planner.recovering == []


def test_orphans_are_known_to_a_later_leader() -> None:
    old = started()
    assert old.epoch is not None
    first = old.epoch
    for number in range(3):
        failed(old, shard(f"ps-{number}"), 1.0)
    second = commit(old, 1.1)
    planner = Planner("next")
    planner.handle(
        JobStarted(
            make_job(),
            (
                first,
                second,
            ),
            1,
        ),
        5.0,
    )
    third = commit(planner, 5.0, "leader")
    assert third.moved == ()
    for number in range(3):
        planner.handle(MemberArrived(shard(f"ps-{number}", "2")), 6.0)
    fourth = commit(planner, 6.1, "failure")
    assert fourth.failure == 1
    assert sum(len(group.ids) for group in fourth.moved) == 60
    assert {group.former_owner for group in fourth.moved} == {f"ps-{n}@ps-{n}-1" for n in range(3)}


def test_resume_with_new_shards_takes_two_epochs() -> None:
    old = started()
    assert old.epoch is not None
    planner = Planner("next")
    for number in range(3):
        planner.handle(MemberArrived(shard(f"ps-{number}", "2")), 4.0)
    planner.handle(JobStarted(make_job(), (old.epoch,), 0), 5.0)
    commit(planner, 5.0, "leader")
    epoch = commit(planner, 5.1, "failure")
    assert [member.incarnation for member in epoch.shards] == [f"ps-{n}-2" for n in range(3)]
    assert sum(len(group.ids) for group in epoch.moved) == 60


def test_full_recovery_rolls_everything_back() -> None:
    from scar.tables import Checkpoint

    planner = started(make_job(3, recovery="full", checkpoint=Checkpoint(selection="full")))
    failed(planner, shard("ps-1"), 1.0)
    epoch = commit(planner, 1.1, "failure")
    assert epoch.rollback
    assert sum(len(group.ids) for group in epoch.moved) == 60
    owners = {group.former_owner for group in epoch.moved}
    assert owners == {f"ps-{n}@ps-{n}-1" for n in range(3)}
    failed(planner, worker("nobody"), 2.0)
    planner.handle(MemberArrived(worker("worker-0")), 2.0)
    assert not commit(planner, 2.1, "workers").rollback


def test_reports_about_strangers_change_nothing() -> None:
    planner = started()
    failed(planner, shard("ps-9"), 1.0)
    failed(planner, shard("ps-1", "older"), 1.0)
    assert due(planner, 9.0) is None


def test_arrival_that_dies_before_it_is_admitted() -> None:
    planner = started()
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    failed(planner, shard("ps-3"), 1.01)
    assert due(planner, 9.0) is None


def test_draft_is_fast_for_a_million_blocks() -> None:
    from time import thread_time  # of this thread: what else runs on the machine does not count

    from scar.tables import Table

    planner = started(Job("big", [Table("a", (1_000_000, 4))], shards=4), shards=4)
    failed(planner, shard("ps-1"), 1.0)
    begin = thread_time()
    epoch = commit(planner, 1.1)
    assert thread_time() - begin < 2.0
    assert int(np.sum(owned_counts(epoch.owners, 3))) == 1_000_000


def test_the_last_epoch_of_a_job_sends_everybody_away() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    planner.handle(JobEnded(), 0.0)
    assert planner.ending
    assert not planner.ended
    epoch = commit(planner, 1.0, "end")
    assert (epoch.shards, epoch.workers, epoch.failure) == ((), (), 0)
    assert set(epoch.fenced) == {shard(f"ps-{number}").incarnation for number in range(3)}
    assert planner.ended
    planner.handle(MemberArrived(shard("ps-0", "2")), 2.0)
    assert due(planner, 10.0) is None
    assert planner.wake_after(10.0) == float("inf")


def test_a_job_that_had_ended_goes_on_from_the_store() -> None:
    job = make_job(3)
    planner = started(job)
    first = planner.epoch
    planner.handle(JobEnded(), 0.0)
    last = commit(planner, 1.0, "end")
    assert first is not None
    successor = Planner("next", PlannerSettings(lease=LEASE))
    successor.handle(
        JobStarted(
            job,
            (
                first,
                last,
            ),
            0,
        ),
        5.0,
    )
    for number in range(3):
        successor.handle(MemberArrived(shard(f"ps-{number}", "2")), 5.0)
    commit(successor, 5.0, "leader")
    epoch = commit(successor, 6.0, "resume")
    assert epoch.failure == 0
    assert (concatenate_owners(job, epoch.owners) != NOBODY).all()
    assert len(epoch.shards) == 3
