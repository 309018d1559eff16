"""Tells the recovery coordinator about deaths, again and again until it has taken the report."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scar import codec
from scar.errors import InvalidRequest, ScarError
from scar.placement import Member, Role
from scar.transport import RECOVERY, Backoff, Link
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar_detector.detector import Accuse

REPORT_SECONDS = 0.5  # a leader that is gone must not keep us from its successor
REPORTED = frozenset({Role.SHARD, Role.WORKER})  # coordinators come back by themselves and own nothing

_log = logging.getLogger(__name__)


class Reporter:
    """``recovery``: host:port. Reports are sent from threads of its own, several at once."""

    def __init__(self, recovery: str, stopping: threading.Event, now: Callable[[], float] = time.monotonic) -> None:
        self._link = Link(recovery, "recovery", RECOVERY)
        self._stub = recovery_pb2_grpc.RecoveryStub(self._link.channel)
        self._stopping = stopping
        self._now = now
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="report")
        self._withdrawn: set[str] = set()

    def report(self, accusation: Accuse) -> None:
        if accusation.member.role in REPORTED:
            self._withdrawn.discard(accusation.member.key)
            self._pool.submit(self._deliver, accusation, self._now())

    def withdraw(self, member: Member) -> None:
        """It lives: a report that was not delivered yet is dropped."""
        self._withdrawn.add(member.key)

    def close(self) -> None:
        self._link.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, accusation: Accuse, accused: float) -> None:
        backoff = Backoff(first=0.05, most=0.25)  # its successor needs a moment to know whom we speak of
        while not self._stopping.is_set() and accusation.member.key not in self._withdrawn:
            waited = self._now() - accused
            try:
                self._link.call(self._stub.ReportFailure, _report(accusation, waited), REPORT_SECONDS)
            except InvalidRequest as error:
                _log.error("report.refused", extra={"member": accusation.member.key, "reason": error.message})
                return
            except ScarError as error:
                _log.warning("report.failed", extra={"key": accusation.member.key, "reason": error.message})
                self._stopping.wait(backoff.next())
            else:
                _log.info("report.taken", extra={"key": accusation.member.key, "proved": accusation.proved, "seconds": waited})
                return


def _report(accusation: Accuse, waited: float) -> recovery_pb2.FailureReport:
    return recovery_pb2.FailureReport(
        member=codec.member_to_proto(accusation.member),
        proved=accusation.proved,
        silence=accusation.silence + waited,
        detect_seconds=accusation.silence + waited,
        evidence=accusation.evidence,
    )
