"""When what a worker reports is durable, and what becomes of a record that the store did not take."""

import pytest
from prometheus_client import REGISTRY

from scar.errors import StoreUnavailable
from scar.v1 import recovery_pb2 as pb
from scar.v1.types_pb2 import Member
from scar_recovery.ledger_writer import LedgerWriter
from scar_recovery.recovery_store import RecoveryStore
from tests.framework.lost import lost
from tests.framework.recovery import MemoryStore, make_job

REPORTS = {"lost": {"lost": [lost("a", [1], 2, 5)]}, "resent": {"resent": 3}}


def leader(store: RecoveryStore, failures: int = 1) -> LedgerWriter:
    """It goes on with failures for whose end both workers' reports are missing."""
    waiting = ["worker-0@1", "worker-1@1"]
    records = [pb.FailureRecord(number=n, epoch=n + 1, waiting=waiting) for n in range(1, failures + 1)]
    writer = LedgerWriter(store, "me")
    writer.take_over(records, [])
    return writer


def report(what: str, worker: str = "worker-0", epoch: int = 2) -> pb.RerouteReport:
    return pb.RerouteReport(epoch=epoch, worker=Member(name=worker, incarnation="1"), **REPORTS[what])


def pushes(store: RecoveryStore) -> list[int]:
    """Of each record in the store, as a successor finds it."""
    return [record.lost_pushes + record.resent_pushes for record in store.read_failures()]


@pytest.mark.parametrize("what", REPORTS)
def test_a_report_is_durable_when_it_is_taken(what: str) -> None:
    store = RecoveryStore(MemoryStore(), make_job(3))
    leader(store).accept_report(report(what))
    assert pushes(store) == [3]


@pytest.mark.parametrize("what", REPORTS)
def test_a_record_that_the_store_did_not_take_is_written_with_the_next(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RecoveryStore(MemoryStore(), make_job(3))
    writer = leader(store, failures=2)

    def down(*_: object) -> None:
        raise StoreUnavailable("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_failure", down)
        for epoch in (2, 3):
            with pytest.raises(StoreUnavailable):
                writer.accept_report(report(what, epoch=epoch))
    assert pushes(store) == []
    writer.write()
    assert pushes(store) == [3, 3]


def test_metrics_have_the_phases_that_were_measured_and_where_blocks_came_from() -> None:
    """A failure that this leader has repaired, and one of which its predecessor measured two phases."""
    former = pb.FailureRecord(
        number=1,
        epoch=2,
        detect_seconds=0.25,
        wait_seconds=0.5,
        commit_seconds=-1,
        sources={"object": 7, "initial": 2},
        lost_blocks=9,
    )
    writer = LedgerWriter(RecoveryStore(MemoryStore(), make_job(3)), "me")
    writer.take_over([former], [])
    before = {name: sampled(name) for name in ("detect", "wait", "commit", "load", "object", "initial")}
    writer.record_loaded(2, 5)
    writer.record_loaded(2, 5)  # told again: counted once
    grown = {name: sampled(name) - value for name, value in before.items()}
    wanted = {"detect": 0.25, "wait": 0.5, "commit": 0, "load": 0, "object": 7, "initial": 2}
    assert grown == pytest.approx(wanted)


def sampled(name: str) -> float:
    phase = REGISTRY.get_sample_value("scar_recovery_phase_seconds_sum", {"phase": name})
    return phase or REGISTRY.get_sample_value("scar_recovery_blocks_total", {"source": name}) or 0.0
