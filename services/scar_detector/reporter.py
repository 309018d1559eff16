"""Tells the recovery coordinator about deaths. The core decides what is reported, and when again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scar.errors import InvalidRequest, ScarError
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire import codec, tracing
from scar.wire.transport import RECOVERY, Link
from scar_detector.core.events import ReportFailed, ReportTaken, SendReport

REPORT_SECONDS = 0.5  # a leader that is gone must not keep us from its successor

_log = logging.getLogger(__name__)

ReportOutcome = ReportTaken | ReportFailed


class DeathReporter:
    """``recovery``: host:port. Reports are sent from threads of its own, several at once."""

    def __init__(self, recovery: str) -> None:
        self._link = Link(recovery, "recovery", RECOVERY)
        self._stub = recovery_pb2_grpc.RecoveryStub(self._link.channel)
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="report")

    def send_report(self, report: SendReport, on_outcome: Callable[[ReportOutcome], None]) -> None:
        """Once; ``on_outcome`` is called from another thread."""
        self._pool.submit(lambda: on_outcome(self._deliver(report)))

    def close(self) -> None:
        self._link.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, report: SendReport) -> ReportOutcome:
        accusation = report.accusation
        key = accusation.member.key
        silence = accusation.silence + report.waited
        try:
            with tracing.trace_span(f"{accusation.member.name} seen dead", age=silence):
                self._link.call(self._stub.ReportFailure, _report_to_proto(report), REPORT_SECONDS)
        except InvalidRequest as error:
            _log.error("report.refused", extra={"member": key, "reason": error.message})
            return ReportTaken(report.number, error.message)
        except ScarError as error:
            _log.warning("report.failed", extra={"key": key, "reason": error.message})
            return ReportFailed(report.number, error.message)
        _log.info("report.taken", extra={"key": key, "proved": accusation.proved, "seconds": report.waited})
        return ReportTaken(report.number)


def _report_to_proto(report: SendReport) -> recovery_pb2.FailureReport:
    accusation = report.accusation
    silence = accusation.silence + report.waited
    return recovery_pb2.FailureReport(
        member=codec.member_to_proto(accusation.member),
        proved=accusation.proved,
        silence=silence,
        detect_seconds=silence,
        suspect_seconds=accusation.suspected,
        evidence=accusation.evidence,
    )
