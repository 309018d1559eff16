"""What the ledger adds up."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from scar.errors import BlockOutOfRange, InvalidRequest
from scar.lost_ranges import count_lost_pushes
from scar.placement import BlockSource, Epoch, Member, Role
from scar.strategies import StrategyChoice
from scar.v1 import recovery_pb2
from scar.v1.recovery_pb2 import LostPushes, TableDelta
from scar.v1.types_pb2 import Member as MemberMessage
from scar_recovery.codec import reroute_report_from_proto
from scar_recovery.core.actions import CommitEpoch
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.events import EpochCommitted, FailureReport, JobStarted, MemberArrived, MemberFailed
from scar_recovery.core.ledger import Ledger, RerouteReport
from scar_recovery.core.planner import Planner
from scar_runtime.failure_records import FailureRecord, merge_records
from scar_runtime.store.failure_codec import failure_from_proto, failure_to_proto
from tests.framework.lost import loss, lost
from tests.framework.recovery import due, make_job


def member(role: Role, name: str) -> Member:
    return Member(role, name, "1")


def failed_job(consistency: str = "bsp", **changes: object) -> tuple[Ledger, Epoch]:
    """A ledger with one open failure of ps-0 (20 of 60 blocks) in epoch 2, and two workers."""
    job = replace(make_job(3, consistency=consistency), **changes)  # type: ignore[arg-type]
    planner = Planner("me")
    planner.handle(JobStarted(job, (), 0), 0.0)
    for name in ("ps-0", "ps-1", "ps-2"):
        planner.handle(MemberArrived(member(Role.SHARD, name)), 0.0)
    for name in ("worker-0", "worker-1"):
        planner.handle(MemberArrived(member(Role.WORKER, name)), 0.0)
    ledger, epoch = Ledger(job), None
    for now in (0.0, 10.1):
        action = due(planner, now)
        assert isinstance(action, CommitEpoch)
        epoch = draft_epoch(action.intent, NothingSaved())
        planner.handle(EpochCommitted(epoch), now)
        ledger.open_record(action.intent, action.failures, 0.02, 1e9)
        ledger.follow_epoch(epoch, now)
        planner.handle(
            MemberFailed(FailureReport(member(Role.SHARD, "ps-0"), True, 0.2, 0.3, "refused", 0.1)), 10.0
        )
    assert epoch is not None
    return ledger, epoch


def report(
    worker: str,
    *,
    lost: list[LostPushes] | None = None,
    delta: list[TableDelta] | None = None,
    epoch: int = 2,
    first: bool = False,
) -> RerouteReport:
    member = MemberMessage(name=worker, incarnation="1")
    message = recovery_pb2.RerouteReport(
        epoch=epoch, worker=member, lost=lost, delta=delta, resent=2, first=first
    )
    return reroute_report_from_proto(message, make_job(3))


def test_the_ledger_names_the_strategy_that_was_chosen() -> None:
    ledger, _ = failed_job(recovery="auto", choice=StrategyChoice(reason="it adds least"))
    assert [record.strategy for record in ledger.records] == ["partial"]


def test_record_of_a_failure() -> None:
    ledger, _ = failed_job()
    (record,) = ledger.records
    assert record.members == ("ps-0@1",)
    assert record.evidence == ("refused",)
    assert (record.number, record.epoch, record.strategy) == (1, 2, "partial")
    assert (record.lost_blocks, record.total_blocks) == (20, 60)
    assert dict(record.sources) == {"initial": 20}
    assert (record.suspect_seconds, record.detect_seconds) == pytest.approx((0.1, 0.3))
    assert record.commit_seconds == pytest.approx(0.02)
    assert record.delta_norm == -1
    assert record.waiting == ("worker-0@1", "worker-1@1")
    assert ledger.loading == ["ps-0@1"]
    ledger.record_clocks("ps-1@1", {2: 5})
    ledger.finish_loading(10.6, 7, 2)
    (record,) = ledger.records
    assert record.load_seconds == pytest.approx(0.5)
    assert record.clock == 5
    assert ledger.loading == []


def test_the_clock_is_the_highest_that_a_shard_told_first_after_the_failure() -> None:
    ledger, _ = failed_job()
    ledger.record_clocks("ps-1@1", {1: 14})  # an answer that was late
    ledger.record_clocks("ps-0@2", {2: 3})  # it is new
    ledger.record_clocks("ps-1@1", {3: 16})  # epoch 3 came before it was asked
    ledger.record_clocks("ps-1@1", {4: 18})
    ledger.finish_loading(10.6, 18, 2)
    assert ledger.records[0].clock == 16


def test_the_clock_is_that_of_the_repair_however_late_a_shard_is_asked() -> None:
    """Simulated seed 320: a leader stood still for 34 s, and training went on meanwhile."""
    ledger, epoch = failed_job()
    ledger.record_clocks("ps-1@1", {1: 9, 2: 16, 3: 25})
    assert ledger.records[0].clock == 16
    successor = Ledger(make_job(3), ledger.records)
    successor.follow_epoch(replace(epoch, number=3, cause="leader", failure=0, moved=()), 44.0)
    successor.record_clocks("ps-1@1", {2: 16, 3: 25})
    assert successor.records[0].clock == 16


def test_a_shard_that_joins_later_cannot_tell_the_clock_of_a_failure() -> None:
    ledger, epoch = failed_job()
    ledger.record_clocks("ps-1@1", {2: 16})
    joined = member(Role.SHARD, "ps-3")
    ledger.follow_epoch(replace(epoch, number=3, failure=0, moved=(), shards=(*epoch.shards, joined)), 10.2)
    ledger.record_clocks("ps-3@1", {3: 18})  # training has gone on since
    ledger.finish_loading(10.6, 18, 2)
    assert ledger.records[0].clock == 16


def test_the_survivors_tell_the_clock_to_a_leader_that_comes_after_the_repair() -> None:
    ledger, epoch = failed_job()
    successor = Ledger(make_job(3), ledger.records)
    successor.follow_epoch(replace(epoch, number=3, cause="leader", failure=0, moved=()), 10.2)
    successor.record_clocks("ps-1@1", {3: 16})
    assert successor.records[0].clock == 16


def test_shards_may_tell_their_clock_before_the_ledger_knows_the_epoch() -> None:
    _, epoch = failed_job()
    ledger = Ledger(make_job(3), [FailureRecord(1, ("ps-0@1",), lost_blocks=20)])
    ledger.record_clocks("ps-1@1", {2: 16})
    ledger.follow_epoch(epoch, 10.1)
    ledger.record_clocks("ps-0@2", {2: 3})
    ledger.finish_loading(10.6, 18, 2)
    assert ledger.records[0].clock == 16


def test_where_no_survivor_tells_a_clock_that_of_what_came_back_is_known() -> None:
    _, epoch = failed_job()
    groups = [replace(group, source=BlockSource.OBJECT, object_key="o", clock=14) for group in epoch.moved]
    ledger = Ledger(make_job(3), [FailureRecord(1, ("ps-0@1",), lost_blocks=20)])
    ledger.follow_epoch(replace(epoch, moved=tuple(groups)), 10.1)
    ledger.record_clocks("ps-0@2", {2: 0})
    ledger.finish_loading(10.6, 0, 2)
    assert ledger.records[0].clock == 14


def test_lost_pushes_are_counted_once_per_worker() -> None:
    ledger, _ = failed_job()
    ledger.add_report(
        report("worker-0", lost=[lost("a", [1, 2], 3, 6), lost("b", [0], 4, 8), lost("c", [3], 9, 10)]),
        11.0,
    )
    ledger.add_report(report("worker-1", lost=[lost("a", [1], 3, 4)]), 11.0)
    (record,) = ledger.records
    assert record.lost_pushes == 5 + 1 + 1
    assert record.resent_pushes == 4
    assert not record.waiting
    assert [(one.lost_pushes, one.resent_pushes) for one in record.reports] == [(6, 2), (1, 2)]


def test_repeated_report_counts_once() -> None:
    ledger, _ = failed_job()
    for _ in range(3):
        ledger.add_report(report("worker-0", lost=[lost("a", [1], 3, 6)]), 11.0)
    (record,) = ledger.records
    assert record.lost_pushes == 3
    assert record.waiting == ("worker-1@1",)


def test_delta_is_of_one_worker_per_table() -> None:
    ledger, _ = failed_job()
    squares = [TableDelta(table="a", squared=9.0, blocks=8), TableDelta(table="b", squared=16.0, blocks=12)]
    ledger.add_report(report("worker-0", delta=squares), 11.0)
    ledger.add_report(report("worker-1", delta=[TableDelta(table="a", squared=100.0, blocks=3)]), 11.0)
    (record,) = ledger.records
    assert record.delta_norm == pytest.approx(5.0)
    assert record.delta_exact


@pytest.mark.parametrize(("consistency", "blocks"), [("asp", 20), ("bsp", 19)])
def test_delta_is_not_exact(consistency: str, blocks: int) -> None:
    ledger, _ = failed_job(consistency)
    ledger.add_report(report("worker-0", delta=[TableDelta(table="a", squared=1.0, blocks=blocks)]), 11.0)
    assert not ledger.records[0].delta_exact


def test_delta_of_an_earlier_clock_is_not_exact_and_one_of_the_open_clock_is_preferred() -> None:
    ledger, _ = failed_job()
    behind = TableDelta(table="a", squared=25.0, blocks=20, behind=True)
    ledger.add_report(report("worker-0", delta=[behind]), 11.0)
    assert not ledger.records[0].delta_exact
    ledger.add_report(report("worker-1", delta=[TableDelta(table="a", squared=9.0, blocks=20)]), 11.0)
    (record,) = ledger.records
    assert record.delta_exact
    assert record.delta_norm == pytest.approx(3.0)


MISSING: dict[str, object] = {"sources": "workers", "replicas": 1, "replicate": "missing"}


def repaired(source: BlockSource, **options: object) -> Ledger:
    """A ledger whose open failure was repaired from one source alone."""
    _, epoch = failed_job()
    moved = tuple(replace(group, source=source, sender="x@1") for group in epoch.moved)
    ledger = Ledger(
        replace(make_job(3, consistency="bsp"), **options),  # type: ignore[arg-type]
        [FailureRecord(1, ("ps-0@1",), lost_blocks=20, delta_norm=-1.0)],
    )
    ledger.follow_epoch(replace(epoch, moved=moved), 10.1)
    return ledger


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("source", "options"),
    [
        (BlockSource.WORKER, {"sources": "workers"}),
        (BlockSource.WORKER, MISSING),
        (BlockSource.REPLICA, MISSING),  # all of them: no worker had given one back
    ],
)
def test_delta_of_what_memory_gave_back_is_unknown_when_pushes_are_lost(
    order: int, source: BlockSource, options: dict[str, object]
) -> None:
    """It is compared as of its own clock, and the pushes belong to later ones."""
    ledger = repaired(source, **options)
    told = [
        report("worker-0", delta=[TableDelta(table="a", squared=0.0, blocks=20)]),
        report("worker-1", lost=[lost("a", [1], 3, 4)]),
    ][::order]
    ledger.add_report(told[0], 11.0)
    if order > 0:
        assert (ledger.records[0].delta_norm, ledger.records[0].delta_exact) == (0.0, True)
    before = ledger.records[0]
    ledger.add_report(told[1], 11.0)
    assert (ledger.records[0].delta_norm, ledger.records[0].delta_exact) == (-1.0, False)
    stored = [failure_from_proto(failure_to_proto(one)) for one in (before, ledger.records[0])]
    for merged in (merge_records(stored), merge_records(stored[::-1])):
        assert (merged.delta_norm, merged.delta_exact) == (-1.0, False)


@pytest.mark.parametrize(
    ("source", "options"),
    [(BlockSource.REPLICA, {"replicas": 1}), (BlockSource.OBJECT, {}), (BlockSource.OBJECT, MISSING)],
)
def test_delta_of_what_is_compared_with_the_newest_values_holds_the_lost_pushes(
    source: BlockSource, options: dict[str, object]
) -> None:
    ledger = repaired(source, **options)
    ledger.add_report(report("worker-0", delta=[TableDelta(table="a", squared=9.0, blocks=20)]), 11.0)
    ledger.add_report(report("worker-1", lost=[lost("a", [1], 3, 4)]), 11.0)
    assert (ledger.records[0].delta_norm, ledger.records[0].delta_exact) == (3.0, True)


def test_delta_ignores_what_is_no_number() -> None:
    ledger, _ = failed_job()
    ledger.add_report(report("worker-0", delta=[TableDelta(table="a", squared=math.nan, blocks=3)]), 11.0)
    assert ledger.records[0].delta_norm == -1


def test_bad_reports_change_nothing() -> None:
    ledger, _ = failed_job()
    with pytest.raises(BlockOutOfRange):
        ledger.add_report(report("worker-0", lost=[lost("c", [16], 1, 2)]), 11.0)
    with pytest.raises(InvalidRequest):
        ledger.add_report(report("worker-0", lost=[lost("c", [1], 2, 2)]), 11.0)
    assert ledger.awaiting_record(report("worker-0")) == 1
    (record,) = ledger.records
    assert record.waiting == ("worker-0@1", "worker-1@1")
    assert not record.reports


def test_worker_that_leaves_is_not_waited_for() -> None:
    ledger, epoch = failed_job()
    workers = epoch.workers[:1]
    ledger.follow_epoch(Epoch(3, "me", epoch.job, epoch.shards, workers, epoch.owners), 11.0)
    assert ledger.records[0].waiting == ("worker-0@1",)


def test_worker_that_begins_later_is_not_waited_for() -> None:
    """A leader took it in before it asked for epochs (simulated seed 3)."""
    ledger, _ = failed_job()
    ledger.take_unwritten()
    ledger.add_report(report("worker-0", epoch=3), 11.0)
    assert ledger.records[0].waiting == ("worker-0@1", "worker-1@1"), "its report of epoch 2 may follow"
    ledger.add_report(report("worker-1", epoch=3, first=True), 11.0)
    assert ledger.records[0].waiting == ("worker-0@1",)
    assert not ledger.records[0].reports
    assert [record.number for record in ledger.take_unwritten()] == [1]


def test_workers_have_settled_when_the_last_one_has_reported() -> None:
    ledger, _ = failed_job()
    ledger.add_report(report("worker-1"), 10.4)
    assert ledger.records[0].settle_seconds == 0
    ledger.add_report(report("worker-0"), 11.6)
    assert ledger.records[0].settle_seconds == pytest.approx(1.5)
    ledger.add_report(report("worker-0"), 20.0)
    assert ledger.records[0].settle_seconds == pytest.approx(1.5), "it was said twice"


def test_workers_have_settled_when_the_last_one_is_gone_or_begins_later() -> None:
    for tell in (
        lambda ledger, epoch: ledger.follow_epoch(replace(epoch, number=3, failure=0, workers=()), 12.1),
        lambda ledger, epoch: [
            ledger.add_report(report(name, epoch=3, first=True), 12.1) for name in ("worker-0", "worker-1")
        ],
    ):
        ledger, epoch = failed_job()
        tell(ledger, epoch)
        assert ledger.records[0].settle_seconds == pytest.approx(2.0)


def return_of(ledger: Ledger, epoch: Epoch, owners: int, now: float) -> float:
    """ps-0 joins in epoch 3, and in epoch 4 it has the blocks that shard ``owners`` had."""
    back = (*epoch.shards, Member(Role.SHARD, "ps-0", "2"))
    joined = replace(epoch, number=3, failure=0, moved=(), shards=back)
    ledger.follow_epoch(joined, now)
    ledger.finish_loading(now, 9, 3)
    assert ledger.records[0].return_seconds == 0, "it has no blocks yet"
    moved = {table: np.where(of == owners, len(epoch.shards), of) for table, of in epoch.owners.items()}
    ledger.follow_epoch(replace(joined, number=4, owners=moved), now + 0.5)
    ledger.finish_loading(now + 0.7, 9, 3)
    assert ledger.records[0].return_seconds == 0, "its blocks are on their way"
    ledger.finish_loading(now + 1.0, 9, 4)
    return ledger.records[0].return_seconds


def test_who_died_is_back_when_its_successor_serves_blocks() -> None:
    ledger, epoch = failed_job()
    ledger.finish_loading(10.6, 7, 2)
    assert ledger.records[0].return_seconds == 0
    assert return_of(ledger, epoch, 0, 20.1) == pytest.approx(11.0)
    ledger.finish_loading(30.0, 9, 4)
    assert ledger.records[0].return_seconds == pytest.approx(11.0), "it came back once"


def test_a_later_leader_does_not_know_how_long_it_took_until_all_were_back() -> None:
    ledger, epoch = failed_job()
    later = Ledger(make_job(3), ledger.records)
    assert return_of(later, epoch, 0, 20.1) == -1
    later.add_report(report("worker-0"), 21.0)
    later.add_report(report("worker-1"), 21.0)
    assert later.records[0].settle_seconds == -1


def test_a_worker_is_back_when_it_is_in_an_epoch_again() -> None:
    ledger, _ = failed_job()
    record = replace(ledger.records[0], members=("ps-0@1", "worker-0@0"))
    ledger._records[record.number] = replace(record, members=("worker-0@0",))
    ledger.finish_loading(10.6, 7, 2)
    assert ledger.records[0].return_seconds == pytest.approx(0.5)
    ledger._records[record.number] = record
    ledger.finish_loading(10.7, 7, 2)
    assert ledger.records[0].return_seconds == 0, "the shard is not"


def test_changed_records_are_given_out_once() -> None:
    ledger, _ = failed_job()
    assert [record.number for record in ledger.take_unwritten()] == [1]
    assert ledger.take_unwritten() == []
    ledger.mark_unwritten(1)
    assert [record.number for record in ledger.take_unwritten()] == [1]


def test_later_leader_goes_on() -> None:
    ledger, _ = failed_job()
    later = Ledger(make_job(), ledger.take_unwritten())
    assert later.newest == 1
    assert later.loading == ["ps-0@1"]
    later.add_report(report("worker-0", lost=[lost("a", [1], 3, 6)]), 11.0)
    later.finish_loading(50.5, 3, 2)
    assert later.records[0].load_seconds == -1, "blocks were being loaded before this leader led"
    assert later.loading == []
    assert later.records[0].lost_pushes == 3


def test_union_of_ranges() -> None:
    losses = [loss("t", [0], 5, 9), loss("t", [1], 1, 3), loss("u", [0], 2, 6), loss("u", [1], 2, 6)]
    assert count_lost_pushes(losses) == 8
    assert count_lost_pushes([loss("t", [0], 0, 1)]) == 1
    assert count_lost_pushes([]) == 0


@pytest.mark.parametrize(
    ("manifest", "words"),
    [(79, "manifest 79 leaves out what was saved"), (0, r"back to x\(0\)")],
)
def test_a_repair_says_that_something_newer_could_not_be_read(manifest: int, words: str) -> None:
    """Also the record that a later leader makes: else pushes are lost and nobody knows why."""
    _, epoch = failed_job()
    ledger = Ledger(make_job(3))
    ledger.rebuild_record(epoch, epoch, 1e9)
    ledger.follow_epoch(replace(epoch, resave=True, manifest=manifest), None)
    (record,) = ledger.records
    assert len(record.damage) == 1
    assert re.search(words, record.damage[0])
