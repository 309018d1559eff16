"""What a worker tells recovery about an epoch is told until it is taken, or the worker ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from scar._client.core.epoch_change import EpochChange
from scar._client.reroute_reports import RerouteReports
from scar.errors import DeadlineExceeded, InvalidRequest, NotServing, ScarError, StoreFull, Unreachable
from scar.placement import Epoch, Member, Role
from scar.v1.recovery_pb2 import RerouteReport
from scar.wire.lost_pushes import unpack_losses
from scar.wire.transport import Deadline
from tests.framework.lost import loss

WORKER = Member(Role.WORKER, "worker-0", "1")


class Recovery:
    """Answers with these errors, one after the other, then takes everything."""

    def __init__(self, *problems: ScarError) -> None:
        self.problems = list(problems)
        self.taken: list[RerouteReport] = []
        self.asked = threading.Semaphore(0)

    def report_reroute(self, message: RerouteReport, deadline: Deadline) -> None:
        self.asked.release()
        if self.problems:
            raise self.problems.pop(0)
        self.taken.append(message)


class Away(Recovery):
    """Holds every call until its deadline, which ends when the worker ends."""

    def report_reroute(self, message: RerouteReport, deadline: Deadline) -> None:
        self.asked.release()
        while not deadline.expired:
            time.sleep(0.001)
        raise DeadlineExceeded("nobody answers")


@pytest.fixture
def begin() -> Iterator[Callable[[Recovery], RerouteReports]]:
    begun: list[RerouteReports] = []

    def make(recovery: Recovery) -> RerouteReports:
        begun.append(RerouteReports(WORKER, recovery))  # type: ignore[arg-type]
        return begun[-1]

    yield make
    for reports in begun:
        reports.close()


def lost(reports: RerouteReports, number: int, comparisons: int = 0) -> None:
    change = EpochChange((), (), losses=[loss("w", [1, 2], 3, 9)], comparisons=comparisons)
    reports.open_draft(Epoch(number, "me", "job", (), (), {}, failure=1), change)


@pytest.mark.parametrize(
    "problem",
    [Unreachable("gone"), NotServing("standby"), DeadlineExceeded("no answer"), StoreFull("no space")],
    ids=lambda problem: type(problem).__name__,
)
def test_a_report_is_told_until_it_is_taken(
    begin: Callable[[Recovery], RerouteReports], problem: ScarError
) -> None:
    recovery = Recovery(problem, problem, problem)
    reports = begin(recovery)
    lost(reports, 2)
    lost(reports, 3)
    assert reports.flush(20)
    assert [message.epoch for message in recovery.taken] == [2, 3]


def test_where_a_worker_begins_is_told_though_it_cost_nothing(
    begin: Callable[[Recovery], RerouteReports],
) -> None:
    recovery = Recovery()
    reports = begin(recovery)
    reports.open_draft(Epoch(5, "me", "job", (), (), {}), EpochChange((), ()), first=True)
    reports.open_draft(Epoch(6, "me", "job", (), (), {}), EpochChange((), ()))
    assert reports.flush(20)
    assert [(message.epoch, message.first) for message in recovery.taken] == [(5, True)]


def test_what_is_never_accepted_does_not_hold_up_the_rest(
    begin: Callable[[Recovery], RerouteReports],
) -> None:
    recovery = Recovery(InvalidRequest("no such table"))
    reports = begin(recovery)
    lost(reports, 2)
    lost(reports, 3)
    assert reports.flush(20)
    assert [message.epoch for message in recovery.taken] == [3]


def test_a_worker_that_ends_tells_what_it_knows(begin: Callable[[Recovery], RerouteReports]) -> None:
    """Comparisons that never come must not hold back what was lost."""
    recovery = Recovery()
    reports = begin(recovery)
    lost(reports, 2, comparisons=3)
    reports.release_drafts()
    assert reports.flush(20)
    assert [unpack_losses(message.lost[0]).upto.tolist() for message in recovery.taken] == [[9, 9]]


def test_the_end_waits_a_bounded_time(begin: Callable[[Recovery], RerouteReports]) -> None:
    recovery = Away()
    reports = begin(recovery)
    lost(reports, 2)
    assert recovery.asked.acquire(timeout=10)
    assert not reports.flush(0.01)
    reports.close()
    reports._thread.join(10)
    assert not reports._thread.is_alive(), "the call in flight ends with the worker"


def test_reports_that_wait_take_bounded_memory(
    begin: Callable[[Recovery], RerouteReports], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scar._client.reroute_reports.PENDING_BYTES", 1000)
    reports = begin(Away())
    for number in range(2, 40):
        lost(reports, number)
    assert sum(one.ByteSize() for one in reports._pending) <= 1000
    assert reports._pending[-1].epoch == 39
