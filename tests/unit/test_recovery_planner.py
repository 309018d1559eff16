"""When the planner creates an epoch, and what is in it. Time is made up."""

import numpy as np
import pytest

from scar.errors import Fenced, NotServing
from scar.placement import NOBODY, Epoch, Member, Role, Source, concatenated, owned_counts
from scar.tables import Job
from scar_recovery.members import Report
from scar_recovery.planner import Commit, Confirm, Move, Planner, Settings
from scar_recovery.plans import Moved, NothingSaved, draft
from tests.framework.recovery import make_job

LEASE = 2.0


def shard(name: str, life: str = "1") -> Member:
    return Member(Role.SHARD, name, f"{name}-{life}", "host:1")


def worker(name: str, life: str = "1") -> Member:
    return Member(Role.WORKER, name, f"{name}-{life}")


def commit(planner: Planner, now: float, cause: str = "") -> Epoch:
    """The epoch that is due now, created."""
    action = planner.tick(now)
    assert isinstance(action, Commit), action
    epoch = draft(action.intent, NothingSaved())
    planner.committed(epoch, now)
    assert not cause or epoch.cause == cause
    return epoch


def started(job: Job | None = None, shards: int = 3, **settings: float) -> Planner:
    """A planner in epoch 1 at time 0, everything loaded."""
    planner = Planner("me", Settings(lease=LEASE, **settings))  # type: ignore[arg-type]
    planner.begin(job or make_job(shards), [], 0, 0.0)
    for number in range(shards):
        planner.members.joined(shard(f"ps-{number}"), 0.0)
    commit(planner, 0.0, "start")
    planner.loaded(1)
    return planner


def failed(planner: Planner, member: Member, now: float, proved: bool = True, silence: float = 0.0) -> None:
    planner.members.failed(Report(member, proved, silence), now)


def test_starts_when_enough_shards_are_there() -> None:
    planner = Planner("me")
    for name in ("ps-10", "ps-2"):
        planner.members.joined(shard(name), 0.0)
    assert planner.tick(1.0) is None
    planner.begin(make_job(3), [], 0, 1.0)
    assert planner.tick(1.0) is None
    assert planner.waits_for == "waiting for shards: 2 of 3 have joined"
    planner.members.joined(shard("ps-0"), 2.0)
    epoch = commit(planner, 2.0, "start")
    assert [member.name for member in epoch.shards] == ["ps-0", "ps-2", "ps-10"]
    assert {group.source for group in epoch.moved} == {Source.INITIAL}
    assert sum(len(group.ids) for group in epoch.moved) == planner.job.blocks if planner.job else False
    assert planner.waits_for == ""


def test_workers_share_an_epoch_and_keep_their_ranks() -> None:
    planner = started()
    planner.members.joined(worker("worker-1"), 1.0)
    planner.members.joined(worker("worker-0"), 1.04)
    assert planner.tick(1.04) is None
    assert planner.wake(1.04) == pytest.approx(0.01)
    epoch = commit(planner, 1.06, "workers")
    assert [member.name for member in epoch.workers] == ["worker-0", "worker-1"]
    assert epoch.moved == ()
    planner.members.joined(worker("worker-0", "2"), 2.0)
    epoch = commit(planner, 2.06, "workers")
    assert [member.incarnation for member in epoch.workers] == ["worker-0-2", "worker-1-1"]
    assert "worker-0-1" in epoch.fenced
    planner.members.left(worker("worker-1"), 3.0)
    assert [member.name for member in commit(planner, 3.06).workers] == ["worker-0"]
    with pytest.raises(Fenced):
        planner.members.joined(worker("worker-1"), 3.1)


def test_proved_death_is_repaired_at_once_and_failures_are_batched() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    assert planner.tick(1.02) is None
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
        assert sorted(restored) == sorted(before.owned_by(shard("ps-0").key)[table])  # nothing else is put back


def test_suspect_is_declared_dead_only_after_its_lease_and_one_more_question() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 10.0, proved=False, silence=0.5)
    assert planner.tick(10.0) is None
    assert planner.wake(10.0) == pytest.approx(1.5)
    assert "lease is awaited" in planner.waits_for
    assert planner.tick(11.51) == Confirm((shard("ps-1"),))
    planner.members.confirmed("ps-1@ps-1-1", False, 11.6)
    assert commit(planner, 11.6, "failure").fenced == ("ps-1-1",)


@pytest.mark.parametrize("sign", ["joined", "renewed", "confirmed"])
def test_suspect_that_is_heard_again_is_not_declared_dead(sign: str) -> None:
    planner = started()
    failed(planner, shard("ps-1"), 10.0, proved=False, silence=1.0)
    if sign == "joined":
        planner.members.joined(shard("ps-1"), 10.9)
    elif sign == "renewed":
        planner.members.renewed(shard("ps-1"), 10.9)
    else:
        planner.members.confirmed("ps-1@ps-1-1", True, 11.0)
    assert planner.members.failures == []
    assert planner.tick(20.0) is None
    failed(planner, shard("ps-1"), 11.0, proved=False, silence=5.0)  # the detector is behind: our own sign of life counts
    assert planner.wake(11.0) >= 1.89


def test_of_two_reports_the_one_that_knows_of_the_longer_silence_counts() -> None:
    """A new leader's own question knows of none; each report alone is a bound, and so is the better one."""
    planner = started()
    for when, silence in ((10.0, 0.0), (10.5, 1.5), (10.6, 0.1)):
        failed(planner, shard("ps-1"), when, proved=False, silence=silence)
    (suspect,) = planner.members.suspects()
    assert suspect.allowed == pytest.approx(11.0)
    assert suspect.waits == pytest.approx(0.4), "from the newest report, so that the phases of a record add up"


def test_silence_does_not_count_from_before_this_leadership() -> None:
    old = started()
    assert old.epoch is not None
    planner = Planner("next", Settings(lease=LEASE))
    planner.begin(make_job(), [old.epoch], 0, 100.0)
    failed(planner, shard("ps-1"), 100.0, proved=False, silence=50.0)
    assert commit(planner, 100.2, "leader").moved == ()
    assert planner.tick(102.1) is None  # from the leader's epoch on, since a predecessor may have renewed until then
    assert isinstance(planner.tick(102.3), Confirm)


def test_no_lease_for_the_dead() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    with pytest.raises(NotServing):
        planner.members.renewed(shard("ps-1"), 1.01)
    commit(planner, 1.1)
    with pytest.raises(Fenced):
        planner.members.renewed(shard("ps-1"), 1.2)
    with pytest.raises(Fenced):
        planner.members.joined(shard("ps-1"), 1.2)


def test_quick_restart_is_a_death_then_a_rebalance() -> None:
    planner = started()
    planner.members.joined(shard("ps-1", "2"), 1.0)
    epoch = commit(planner, 1.1, "failure")
    assert [member.incarnation for member in epoch.shards] == ["ps-0-1", "ps-1-2", "ps-2-1"]
    assert owned_counts(epoch.owners, 3).tolist() == [30, 0, 30]
    assert planner.tick(1.1) is None
    planner.loaded(2)
    move = planner.tick(1.1)
    assert isinstance(move, Move)
    assert {transfer.target.key for transfer in move.transfers} == {"ps-1@ps-1-2"}


def finish_moves(planner: Planner, now: float) -> list[Epoch]:
    """Carry out moves until there are none."""
    created = []
    while isinstance(move := planner.tick(now), Move):
        planner.moved(move.number, [Moved(transfer, 9, {"w@1": 4}) for transfer in move.transfers], True, now)
        created.append(commit(planner, now))
        planner.loaded(created[-1].number)
        assert len(created) < 100
    assert move is None
    return created


def test_join_moves_blocks_in_slices_until_level() -> None:
    planner = started(move_bytes=40)
    planner.members.joined(shard("ps-3"), 1.0)
    assert commit(planner, 1.1, "join").moved == ()
    planner.loaded(2)
    epochs = finish_moves(planner, 1.2)
    assert len(epochs) > 2
    assert {epoch.cause for epoch in epochs} == {"join"}
    counts = owned_counts(epochs[-1].owners, 4)
    assert int(counts.max() - counts.min()) <= 1
    groups = [group for epoch in epochs for group in epoch.moved]
    assert {group.source for group in groups} == {Source.DONOR}
    assert {group.clock for group in groups} == {9}
    assert all(group.watermark == {"w@1": 4} for group in groups)
    assert epochs[-1].clock == 9


def test_leaving_shard_gives_everything_and_is_left_out_with_its_last_block() -> None:
    planner = started(rebalance=False)
    planner.members.left(shard("ps-1"), 1.0)
    assert planner.owned("ps-1@ps-1-1") == 20
    epochs = finish_moves(planner, 1.0)
    assert {epoch.cause for epoch in epochs} == {"leave"}
    assert [member.name for member in epochs[-1].shards] == ["ps-0", "ps-2"]
    assert owned_counts(epochs[-1].owners, 2).tolist() == [30, 30]
    assert planner.owned("ps-1@ps-1-1") == 0
    assert epochs[-1].fenced == ()


def test_nobody_to_give_to() -> None:
    planner = started(shards=1)
    planner.members.left(shard("ps-0"), 1.0)
    assert planner.tick(5.0) is None
    assert planner.owned("ps-0@ps-0-1") == 60


def test_failed_move_ends_its_freeze_by_an_epoch_and_is_tried_later() -> None:
    planner = started()
    planner.members.joined(shard("ps-3"), 1.0)
    commit(planner, 1.1)
    planner.loaded(2)
    assert isinstance(planner.tick(1.1), Move)
    planner.members.joined(worker("worker-0"), 1.1)
    assert planner.tick(1.5) is None  # workers wait for the end of a move, not the other way round
    planner.moved(2, [], False, 1.5)
    epoch = commit(planner, 1.5, "join")
    assert epoch.moved == ()
    assert [member.name for member in epoch.workers] == ["worker-0"]
    planner.loaded(3)
    assert planner.tick(1.6) is None
    assert isinstance(planner.tick(2.6), Move)


def test_moves_that_never_work_are_tried_less_and_less_often() -> None:
    planner, now, waits = started(), 1.0, []
    planner.members.joined(shard("ps-3"), now)
    commit(planner, now + 0.1)
    for number in range(2, 10):
        planner.loaded(number)
        wait = planner.wake(now)
        waits.append(round(wait, 1))
        now += wait
        assert isinstance(planner.tick(now), Move)
        planner.moved(number, [], False, now)
        commit(planner, now, "join")
    assert waits[1:] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]


def test_all_shards_dead_then_assigned_from_the_store() -> None:
    planner = started()
    for number in range(3):
        failed(planner, shard(f"ps-{number}"), 1.0)
    epoch = commit(planner, 1.1, "failure")
    assert epoch.shards == ()
    assert bool((concatenated(make_job(), epoch.owners) == NOBODY).all())
    assert planner.recovering == [f"ps-{n}@ps-{n}-1" for n in range(3)]
    planner.members.joined(shard("ps-0", "2"), 2.0)
    assert planner.tick(2.2) is None
    planner.members.joined(shard("ps-1", "2"), 2.25)
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
    planner.begin(make_job(), [first, second], 1, 5.0)
    third = commit(planner, 5.0, "leader")
    assert third.moved == ()
    for number in range(3):
        planner.members.joined(shard(f"ps-{number}", "2"), 6.0)
    fourth = commit(planner, 6.1, "failure")
    assert fourth.failure == 1
    assert sum(len(group.ids) for group in fourth.moved) == 60
    assert {group.former_owner for group in fourth.moved} == {f"ps-{n}@ps-{n}-1" for n in range(3)}


def test_resume_with_new_shards_takes_two_epochs() -> None:
    old = started()
    assert old.epoch is not None
    planner = Planner("next")
    for number in range(3):
        planner.members.joined(shard(f"ps-{number}", "2"), 4.0)
    planner.begin(make_job(), [old.epoch], 0, 5.0)
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
    planner.members.joined(worker("worker-0"), 2.0)
    assert not commit(planner, 2.1, "workers").rollback


def test_reports_about_strangers_change_nothing() -> None:
    planner = started()
    failed(planner, shard("ps-9"), 1.0)
    failed(planner, shard("ps-1", "older"), 1.0)
    assert planner.tick(9.0) is None


def test_arrival_that_dies_before_it_is_admitted() -> None:
    planner = started()
    planner.members.joined(shard("ps-3"), 1.0)
    failed(planner, shard("ps-3"), 1.01)
    assert planner.tick(9.0) is None


def test_draft_is_fast_for_a_million_blocks() -> None:
    from time import perf_counter

    from scar.tables import Table

    planner = started(Job("big", [Table("a", (1_000_000, 4))], shards=4), shards=4)
    failed(planner, shard("ps-1"), 1.0)
    begin = perf_counter()
    epoch = commit(planner, 1.1)
    assert perf_counter() - begin < 2.0
    assert int(np.sum(owned_counts(epoch.owners, 3))) == 1_000_000


def test_the_last_epoch_of_a_job_sends_everybody_away() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    planner.end()
    assert planner.ending
    assert not planner.ended
    epoch = commit(planner, 1.0, "end")
    assert (epoch.shards, epoch.workers, epoch.failure) == ((), (), 0)
    assert set(epoch.fenced) == {shard(f"ps-{number}").incarnation for number in range(3)}
    assert planner.ended
    planner.members.joined(shard("ps-0", "2"), 2.0)
    assert planner.tick(10.0) is None
    assert planner.wake(10.0) == float("inf")


def test_a_job_that_had_ended_goes_on_from_the_store() -> None:
    job = make_job(3)
    planner = started(job)
    first = planner.epoch
    planner.end()
    last = commit(planner, 1.0, "end")
    assert first is not None
    successor = Planner("next", Settings(lease=LEASE))
    successor.begin(job, [first, last], 0, 5.0)
    for number in range(3):
        successor.members.joined(shard(f"ps-{number}", "2"), 5.0)
    commit(successor, 5.0, "leader")
    epoch = commit(successor, 6.0, "resume")
    assert epoch.failure == 0
    assert (concatenated(job, epoch.owners) != NOBODY).all()
    assert len(epoch.shards) == 3
