"""Failure records in the store: many authors, late writes, repeated attempts; nothing that was told is
ever lost.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from scar.errors import StoreUnavailable
from scar.lost_ranges import LostRanges
from scar.v1.recovery_pb2 import (
    FailureRecord,
    ListFailuresReply,
    ListFailuresRequest,
    TableDelta,
    WorkerReport,
)
from scar.wire.lost_pushes import pack_losses, unpack_losses
from scar_runtime.store.failure_log import FailureLog, list_failures, merge_versions
from scar_runtime.store.records import create_record
from tests.framework.recovery import MemoryStore


def record(*reports: str, waiting: tuple[str, ...] = (), **fields: object) -> FailureRecord:
    told = [WorkerReport(worker=worker, lost_pushes=3, resent_pushes=1) for worker in reports]
    return FailureRecord(number=1, epoch=2, reports=told, waiting=waiting, delta_norm=-1, **fields)  # type: ignore[arg-type]


def test_authors_add_to_each_other_in_any_order() -> None:
    opened = FailureRecord(number=1, members=["ps-0@1"], detect_seconds=0.5, waiting=[])
    former = record("worker-0@1", waiting=("worker-1@1",), load_seconds=0.2, detect_seconds=0.5)
    heir = record("worker-1@1", waiting=("worker-0@1",), clock=7, evidence=["recorded by a later leader"])
    for versions in permutations([opened, former, heir]):
        found = merge_versions(versions)
        assert {one.worker for one in found.reports} == {"worker-0@1", "worker-1@1"}
        assert (found.lost_pushes, found.resent_pushes, list(found.waiting)) == (6, 2, [])
        assert (found.epoch, found.clock, found.load_seconds, found.detect_seconds) == (2, 7, 0.2, 0.5)


@pytest.mark.parametrize(
    ("one", "other", "together"), [(0.0, -1.0, -1.0), (-1.0, 0.2, 0.2), (0.0, 0.2, 0.2), (0.0, 0.0, 0.0)]
)
def test_what_is_known_of_loading_stays(one: float, other: float, together: float) -> None:
    versions = [record(load_seconds=one), record(load_seconds=other)]
    assert merge_versions(versions).load_seconds == together
    assert merge_versions(reversed(versions)).load_seconds == together


def test_what_is_known_of_workers_and_returns_stays() -> None:
    open_still = record(waiting=("worker-0@1",))
    settled = record(settle_seconds=0.4, return_seconds=2.5)
    for versions in permutations([open_still, settled, record(settle_seconds=-1, return_seconds=-1)]):
        found = merge_versions(versions)
        assert (found.settle_seconds, found.return_seconds) == (0.4, 2.5)
    assert merge_versions([open_still]).settle_seconds == 0
    assert merge_versions([record()]).suspect_seconds == -1, "written by a version that did not measure it"
    heard = [record("worker-0@1", waiting=["worker-1@1"]), record("worker-1@1", waiting=["worker-0@1"])]
    assert merge_versions(heard).settle_seconds == -1, "two leaders heard them, none of them both"


def test_size_of_the_perturbation_is_of_who_compared_most() -> None:
    former, heir = record(), record()
    former.reports.add(worker="a", delta=[TableDelta(table="t", squared=9.0, blocks=8)])
    heir.reports.add(worker="b", delta=[TableDelta(table="t", squared=16.0, blocks=4)])
    assert merge_versions([former, heir]).delta_norm == merge_versions([heir, former]).delta_norm == 3.0


def test_versions_of_one_author_replace_each_other() -> None:
    store = MemoryStore()
    log = FailureLog(store)
    for count in range(5):
        log.write(record(*(f"worker-{number}@1" for number in range(count))), "a")
    assert len(store.list("ledger/")) == 1
    (found,) = FailureLog(store).read()
    assert len(found.reports) == 4


def test_a_version_that_arrives_late_takes_nothing_back() -> None:
    """A put that timed out is still on its way while newer versions are written."""
    store = MemoryStore()
    log = FailureLog(store)
    log.write(record(), "a")
    (late,) = store.list("ledger/")
    log.write(record("worker-0@1"), "a")
    create_record(store, late, record())
    (found,) = FailureLog(store).read()
    assert [one.worker for one in found.reports] == ["worker-0@1"]


def test_a_deposed_author_takes_nothing_back_and_is_read() -> None:
    store = MemoryStore()
    former, heir = FailureLog(store), FailureLog(store)
    former.write(record(waiting=("worker-0@1", "worker-1@1")), "a")
    heir.read()
    heir.write(record("worker-1@1", waiting=("worker-0@1",)), "b")
    former.write(record("worker-0@1", waiting=("worker-1@1",)), "a")
    (found,) = heir.read()
    assert found.lost_pushes == 6
    heir.write(found, "b")
    assert len(store.list("ledger/")) == 1, "what was merged is collected"


def test_an_attempt_whose_answer_was_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    log, create = FailureLog(store), MemoryStore.create

    def lost(self: MemoryStore, key: str, data: bytes) -> None:
        create(self, key, data)
        raise StoreUnavailable("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "create", lost)
        with pytest.raises(StoreUnavailable):
            log.write(record(), "a")
    log.write(record("worker-0@1"), "a")
    (found,) = FailureLog(store).read()
    assert found.lost_pushes == 3
    assert len(store.list("ledger/")) == 1


BLOCKS, WORKERS = 1_000_000, 8


def report(log: FailureLog, worker: str, ids: np.ndarray) -> None:
    log.write_lost(1, worker, [pack_losses(LostRanges("e", ids, np.full(len(ids), 1), np.full(len(ids), 9)))])


def test_a_failure_of_a_large_job_costs_little() -> None:
    """A quarter of a million blocks, and eight workers that had pushed to all of them."""
    store = MemoryStore()
    log = FailureLog(store)
    ids = np.sort(np.random.default_rng(0).choice(BLOCKS, BLOCKS // 4, replace=False)).astype(np.uint32)
    told: list[str] = []
    written = 0
    for number in range(WORKERS):
        told.append(f"worker-{number}@1")
        report(log, told[-1], ids)
        log.write(record(*told), "a")
        written += sum(
            len(data) for key, data in store.objects.items() if "lost" not in key and "blocks" not in key
        )
    assert sum(map(len, store.objects.values())) + written < 400 << 10
    (found,) = FailureLog(store).read()
    assert found.ByteSize() < 4 << 10, "lists stay small"
    lost = log.lost(1)
    assert [one.worker for one in lost] == told
    assert np.array_equal(unpack_losses(lost[3].lost[0], BLOCKS).ids, ids)


def test_a_repeated_report_is_written_once() -> None:
    store = MemoryStore()
    for log in (FailureLog(store), FailureLog(store)):
        report(log, "worker-0@1", np.array([1, 5], np.uint32))
    assert len(store.list("ledger/")) == 2
    (lost,) = log.lost(1)
    assert unpack_losses(lost.lost[0]).ids.tolist() == [1, 5]
    assert log.read() == [], "what was lost alone is no failure"


def test_a_long_ledger_is_listed_in_pages() -> None:
    records = [FailureRecord(number=number) for number in range(1, 11)]

    def ask(request: ListFailuresRequest) -> ListFailuresReply:
        rest = [one for one in records if one.number > request.after]
        return ListFailuresReply(failures=rest[:4], more=len(rest) > 4)

    assert list_failures(ask) == records
    assert list_failures(ask, after=6) == records[6:]
