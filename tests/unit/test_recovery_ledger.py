"""What the ledger adds up."""

import math

import numpy as np
import pytest

from scar.codec import ids_to_bytes
from scar.errors import BlockOutOfRange, InvalidRequest
from scar.placement import Epoch, Member, Role
from scar.v1.recovery_pb2 import FailureRecord, LostPushes, RerouteReport, TableDelta
from scar.v1.types_pb2 import Member as MemberMessage
from scar_recovery.ledger import Ledger, lost_pushes
from scar_recovery.members import Report
from scar_recovery.planner import Commit, Planner
from scar_recovery.plans import NothingSaved, draft
from tests.framework.recovery import make_job


def member(role: Role, name: str) -> Member:
    return Member(role, name, "1")


def failed_job(consistency: str = "bsp") -> tuple[Ledger, Epoch]:
    """A ledger with one open failure of ps-0 (20 of 60 blocks) in epoch 2, and two workers."""
    job = make_job(3, consistency=consistency)
    planner = Planner("me")
    planner.begin(job, [], 0, 0.0)
    for name in ("ps-0", "ps-1", "ps-2"):
        planner.members.joined(member(Role.SHARD, name), 0.0)
    for name in ("worker-0", "worker-1"):
        planner.members.joined(member(Role.WORKER, name), 0.0)
    ledger, epoch = Ledger(job), None
    for now in (0.0, 10.1):
        action = planner.tick(now)
        assert isinstance(action, Commit)
        epoch = draft(action.intent, NothingSaved())
        planner.committed(epoch, now)
        ledger.opened(action.intent, action.failures, 0.02, 1e9)
        ledger.followed(epoch, now)
        planner.members.failed(Report(member(Role.SHARD, "ps-0"), True, 0.2, 0.3, "refused"), 10.0)
    assert epoch is not None
    return ledger, epoch


def report(worker: str, *, lost: list[LostPushes] | None = None, delta: list[TableDelta] | None = None) -> RerouteReport:
    return RerouteReport(epoch=2, worker=MemberMessage(name=worker, incarnation="1"), lost=lost, delta=delta, resent=2)


def lost(table: str, ids: list[int], after: int, upto: int) -> LostPushes:
    return LostPushes(table=table, block_ids=ids_to_bytes(np.array(ids, np.uint32)), after=after, upto=upto)


def test_record_of_a_failure() -> None:
    ledger, _ = failed_job()
    (record,) = ledger.records
    assert record.members == ["ps-0@1"]
    assert record.evidence == ["refused"]
    assert (record.number, record.epoch, record.strategy) == (1, 2, "partial")
    assert (record.lost_blocks, record.total_blocks) == (20, 60)
    assert dict(record.sources) == {"initial": 20}
    assert record.detect_seconds == pytest.approx(0.3)
    assert record.commit_seconds == pytest.approx(0.02)
    assert record.delta_norm == -1
    assert record.waiting == ["worker-0@1", "worker-1@1"]
    assert ledger.loading == ["ps-0@1"]
    ledger.stopped_at(2, 5)
    ledger.served(10.6, 7)
    assert record.load_seconds == pytest.approx(0.5)
    assert record.clock == 5
    assert ledger.loading == []


def test_lost_pushes_are_counted_once_per_worker() -> None:
    ledger, _ = failed_job()
    ledger.reported(report("worker-0", lost=[lost("a", [1, 2], 3, 6), lost("b", [0], 4, 8), lost("c", [3], 9, 10)]))
    ledger.reported(report("worker-1", lost=[lost("a", [1], 3, 4)]))
    (record,) = ledger.records
    assert record.lost_pushes == 5 + 1 + 1
    assert record.resent_pushes == 4
    assert not record.waiting
    assert len(record.lost) == 4


def test_repeated_report_counts_once() -> None:
    ledger, _ = failed_job()
    for _ in range(3):
        ledger.reported(report("worker-0", lost=[lost("a", [1], 3, 6)]))
    (record,) = ledger.records
    assert record.lost_pushes == 3
    assert record.waiting == ["worker-1@1"]


def test_delta_is_of_one_worker_per_table() -> None:
    ledger, _ = failed_job()
    squares = [TableDelta(table="a", squared=9.0, blocks=8), TableDelta(table="b", squared=16.0, blocks=12)]
    ledger.reported(report("worker-0", delta=squares))
    ledger.reported(report("worker-1", delta=[TableDelta(table="a", squared=100.0, blocks=3)]))
    (record,) = ledger.records
    assert record.delta_norm == pytest.approx(5.0)
    assert record.delta_exact


@pytest.mark.parametrize(("consistency", "blocks"), [("asp", 20), ("bsp", 19)])
def test_delta_is_not_exact(consistency: str, blocks: int) -> None:
    ledger, _ = failed_job(consistency)
    ledger.reported(report("worker-0", delta=[TableDelta(table="a", squared=1.0, blocks=blocks)]))
    assert not ledger.records[0].delta_exact


def test_delta_ignores_what_is_no_number() -> None:
    ledger, _ = failed_job()
    ledger.reported(report("worker-0", delta=[TableDelta(table="a", squared=math.nan, blocks=3)]))
    assert ledger.records[0].delta_norm == -1


def test_bad_reports_change_nothing() -> None:
    ledger, _ = failed_job()
    with pytest.raises(BlockOutOfRange):
        ledger.reported(report("worker-0", lost=[lost("c", [16], 1, 2)]))
    with pytest.raises(InvalidRequest):
        ledger.reported(report("worker-0", lost=[lost("c", [1], 2, 2)]))
    (record,) = ledger.records
    assert record.waiting == ["worker-0@1", "worker-1@1"]
    assert not record.lost


def test_worker_that_leaves_is_not_waited_for() -> None:
    ledger, epoch = failed_job()
    workers = epoch.workers[:1]
    ledger.followed(Epoch(3, "me", epoch.job, epoch.shards, workers, epoch.owners), 11.0)
    assert ledger.records[0].waiting == ["worker-0@1"]


def test_changed_records_are_given_out_once() -> None:
    ledger, _ = failed_job()
    assert [record.number for record in ledger.unwritten()] == [1]
    assert ledger.unwritten() == []
    ledger.rewrite(1)
    assert [record.number for record in ledger.unwritten()] == [1]


def test_later_leader_goes_on() -> None:
    ledger, _ = failed_job()
    later = Ledger(make_job(), ledger.unwritten(), now=50.0)
    assert later.newest == 1
    assert later.loading == ["ps-0@1"]
    later.reported(report("worker-0", lost=[lost("a", [1], 3, 6)]))
    later.served(50.5, 3)
    assert later.records[0].load_seconds == pytest.approx(0.5)
    assert later.records[0].lost_pushes == 3


def test_union_of_ranges() -> None:
    record = FailureRecord()
    for worker, after, upto in [("w", 5, 9), ("w", 1, 3), ("w", 2, 6), ("v", 0, 1)]:
        record.lost.add(worker=worker, after=after, upto=upto)
    assert lost_pushes(record.lost) == {"w": 8, "v": 1}
