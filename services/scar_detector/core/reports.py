"""Accusations on their way to the recovery coordinator: sent again until one that leads has taken them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scar.placement import Member, Role
from scar_detector.core.events import AccuseMember, SendReport

RETRY_SECONDS = 0.05  # a successor needs a moment to know whom we speak of; doubled up to RETRY_MOST
RETRY_MOST = 1.0  # the longest that a leader which comes after a long absence waits for us
GOLDEN = 0.618034  # multiples of it spread evenly: pauses of many reports differ without a random number
REPORTED = frozenset({Role.SHARD, Role.WORKER})  # coordinators come back by themselves and own nothing


@dataclass
class _PendingReport:
    """``due``: when it is sent again; infinite while an answer is awaited."""

    accusation: AccuseMember
    accused_at: float
    due: float
    pause: float = RETRY_SECONDS


class PendingReports:
    """Reports by number. One that is withdrawn, or sent for another accusation of the same member, gets no
    answer any more.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _PendingReport] = {}
        self._last_number = 0

    def add_report(self, accusation: AccuseMember, now: float) -> None:
        """It is due at once, if members of this role are reported at all."""
        self.withdraw_report(accusation.member)
        if accusation.member.role in REPORTED:
            self._last_number += 1
            self._pending[self._last_number] = _PendingReport(accusation, now, now)

    def withdraw_report(self, member: Member) -> None:
        """It lives: a report that was not taken yet is dropped."""
        for number, report in list(self._pending.items()):
            if report.accusation.member == member:
                del self._pending[number]

    def end_report(self, number: int) -> None:
        self._pending.pop(number, None)

    def retry_report(self, number: int, now: float) -> None:
        report = self._pending.get(number)
        if report is not None:
            report.due = now + report.pause * _jitter(number)
            report.pause = min(RETRY_MOST, 2 * report.pause)

    def send_due(self, now: float) -> list[SendReport]:
        """Reports whose time has come; each waits for its answer from here on."""
        sent = []
        for number, report in self._pending.items():
            if report.due <= now:
                report.due = math.inf
                sent.append(SendReport(number, report.accusation, now - report.accused_at))
        return sent


def _jitter(number: int) -> float:
    """From 0.5 to 1: reports of members that died together do not come again together."""
    return 0.5 + number * GOLDEN % 1 / 2
