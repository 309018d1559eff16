"""Reports of deaths: sent again until they are taken, and not any more once they are withdrawn."""

from __future__ import annotations

import queue
from itertools import pairwise

import pytest

from scar.errors import InvalidRequest, NotServing, ScarError
from scar.placement import Member, Role
from scar_detector.core.events import AccuseMember, ReportFailed, ReportTaken, SendReport
from scar_detector.core.reports import RETRY_MOST, RETRY_SECONDS, PendingReports
from scar_detector.reporter import DeathReporter, ReportOutcome
from tests.unit.detector_world import cluster

SHARD = Member(Role.SHARD, "ps-0", "0123456789ab", "127.0.0.1:1")
WORKER = Member(Role.WORKER, "worker-0", "0123456789ab")
PROVED = AccuseMember(SHARD, True, 1.0, "its port is closed", 0.25)
SUSPECTED = AccuseMember(SHARD, False, 1.0, "silent")


def sent(reports: PendingReports, now: float) -> list[tuple[str, float]]:
    return [(report.accusation.member.name, report.waited) for report in reports.send_due(now)]


def test_a_report_is_sent_again_until_it_is_taken() -> None:
    reports = PendingReports()
    reports.add_report(PROVED, 10.0)
    assert sent(reports, 10.0) == [("ps-0", 0.0)]
    assert sent(reports, 12.0) == [], "its answer is awaited"
    reports.retry_report(1, 12.0)
    assert sent(reports, 12.0) == []
    assert sent(reports, 12.0 + RETRY_SECONDS) == [("ps-0", pytest.approx(2.0 + RETRY_SECONDS))]
    reports.end_report(1)
    assert sent(reports, 100.0) == []


def test_it_is_sent_again_soon_however_often_and_more_and_more_slowly() -> None:
    reports = PendingReports()
    reports.add_report(PROVED, 0.0)
    waits, now = [], 0.0
    for _ in range(20):
        start = now
        while not sent(reports, now):
            now += 0.01
        waits.append(round(now - start, 6))
        reports.retry_report(1, now)
    assert max(waits) <= RETRY_MOST + 0.011
    assert waits == sorted(waits)
    assert now > 20 * RETRY_MOST / 3, "who is away for long is asked twice a second at most"


def test_reports_of_members_that_died_together_come_again_apart() -> None:
    reports = PendingReports()
    dead = [Member(Role.SHARD, f"ps-{index}", f"{index:012x}") for index in range(8)]
    for member in dead:
        reports.add_report(AccuseMember(member, True, 1.0, "its port is closed"), 0.0)
    now = 0.0
    for _ in range(8):  # each is refused as soon as it comes
        for report in reports.send_due(now):
            reports.retry_report(report.number, now)
        now += RETRY_MOST
    dues = sorted(report.due for report in reports._pending.values())
    assert min(later - earlier for earlier, later in pairwise(dues)) > RETRY_MOST / 100


def test_a_report_that_is_withdrawn_is_not_sent_again() -> None:
    reports = PendingReports()
    reports.add_report(SUSPECTED, 0.0)
    assert sent(reports, 0.0) == [("ps-0", 0.0)]
    reports.withdraw_report(SHARD)
    reports.add_report(AccuseMember(WORKER, True, 1.0, "its port is closed"), 0.1)
    reports.retry_report(1, 0.1)
    for step in range(10):
        assert all(name == "worker-0" for name, _ in sent(reports, 0.1 + step))
        reports.retry_report(2, 0.1 + step)


def test_a_late_answer_about_an_older_report_ends_no_newer_one() -> None:
    reports = PendingReports()
    reports.add_report(SUSPECTED, 0.0)
    reports.send_due(0.0)
    reports.withdraw_report(SHARD)
    reports.add_report(PROVED, 1.0)
    reports.end_report(1)
    assert sent(reports, 1.0) == [("ps-0", 0.0)]


def test_coordinators_are_not_reported() -> None:
    reports = PendingReports()
    for role in (Role.CHECKPOINT, Role.RECOVERY, Role.DETECTOR):
        reports.add_report(AccuseMember(Member(role, "c-0", "0123456789ab"), True, 1.0, ""), 0.0)
    assert sent(reports, 1.0) == []


def test_the_detector_retries_and_stops_when_the_member_lives_after_all() -> None:
    world, members = cluster()
    world.takes_reports = False
    world.freeze(members[1])
    world.run(2)
    assert len(world.accused()) == 1
    assert len(world.reports) > 2
    assert {report.accusation.member for report in world.reports} == {members[1]}
    waits = [report.waited for report in world.reports]
    assert waits == sorted(waits), "the silence that it tells of grows"
    world.add(members[1])
    world.run(8)
    said = len(world.reports)
    world.run(2)
    assert len(world.reports) == said


class Recovery:
    """Answers by an error, or takes the report."""

    def __init__(self, error: ScarError | None) -> None:
        self.error = error

    def call(self, _method: object, request: object, _timeout: float) -> None:
        assert request.member.name == "ps-0"  # type: ignore[attr-defined]
        assert request.silence == request.detect_seconds == 1.5  # type: ignore[attr-defined]
        assert request.suspect_seconds == 0.25  # type: ignore[attr-defined]
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, ReportTaken(7)),
        (NotServing("on standby"), ReportFailed(7, "on standby")),
        (InvalidRequest("nonsense"), ReportTaken(7, "nonsense")),
    ],
)
def test_what_recovery_says_becomes_an_event(error: ScarError | None, outcome: ReportOutcome) -> None:
    reporter = DeathReporter("127.0.0.1:1")
    reporter._link = Recovery(error)  # type: ignore[assignment]
    heard: queue.SimpleQueue[ReportOutcome] = queue.SimpleQueue()
    reporter.send_report(SendReport(7, PROVED, 0.5), heard.put)
    assert heard.get(timeout=10) == outcome
    reporter.close()
