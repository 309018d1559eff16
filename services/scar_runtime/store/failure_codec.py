"""Failure records as messages."""

from __future__ import annotations

from collections.abc import Iterable

from scar.v1 import recovery_pb2
from scar_runtime.failure_records import UNKNOWN_SECONDS, FailureRecord, TableDelta, WorkerReport


def failure_to_proto(record: FailureRecord) -> recovery_pb2.FailureRecord:
    message = recovery_pb2.FailureRecord(
        number=record.number,
        members=record.members,
        evidence=record.evidence,
        strategy=record.strategy,
        epoch=record.epoch,
        manifest=record.manifest,
        clock=record.clock,
        lost_blocks=record.lost_blocks,
        total_blocks=record.total_blocks,
        sources=record.sources,
        detect_seconds=record.detect_seconds,
        wait_seconds=record.wait_seconds,
        commit_seconds=record.commit_seconds,
        load_seconds=record.load_seconds,
        delta_norm=record.delta_norm,
        delta_exact=record.delta_exact,
        lost_pushes=record.lost_pushes,
        resent_pushes=record.resent_pushes,
        created=record.created,
        waiting=record.waiting,
        damage=record.damage,
        rollback=record.rollback,
        restored_clock=record.restored_clock,
        replayed=record.replayed,
        suspect_seconds=record.suspect_seconds,
        settle_seconds=record.settle_seconds,
        return_seconds=record.return_seconds,
    )
    for report in record.reports:
        message.reports.append(_report_to_proto(report))
    return message


def failure_from_proto(message: recovery_pb2.FailureRecord) -> FailureRecord:
    return FailureRecord(
        number=message.number,
        members=tuple(message.members),
        evidence=tuple(message.evidence),
        strategy=message.strategy,
        epoch=message.epoch,
        manifest=message.manifest,
        clock=message.clock,
        lost_blocks=message.lost_blocks,
        total_blocks=message.total_blocks,
        sources=dict(message.sources),
        detect_seconds=message.detect_seconds,
        wait_seconds=message.wait_seconds,
        commit_seconds=message.commit_seconds,
        load_seconds=message.load_seconds,
        delta_norm=message.delta_norm,
        delta_exact=message.delta_exact,
        lost_pushes=message.lost_pushes,
        resent_pushes=message.resent_pushes,
        created=message.created,
        waiting=tuple(message.waiting),
        reports=tuple(_report_from_proto(report) for report in message.reports),
        damage=tuple(message.damage),
        rollback=message.rollback,
        restored_clock=message.restored_clock,
        replayed=message.replayed,
        suspect_seconds=message.suspect_seconds if message.HasField("suspect_seconds") else UNKNOWN_SECONDS,
        settle_seconds=message.settle_seconds,
        return_seconds=message.return_seconds,
    )


def deltas_from_proto(messages: Iterable[recovery_pb2.TableDelta]) -> tuple[TableDelta, ...]:
    return tuple(TableDelta(one.table, one.squared, one.blocks, one.behind, one.sent) for one in messages)


def _report_to_proto(report: WorkerReport) -> recovery_pb2.WorkerReport:
    delta = [
        recovery_pb2.TableDelta(
            table=one.table, squared=one.squared, blocks=one.blocks, behind=one.behind, sent=one.sent
        )
        for one in report.delta
    ]
    return recovery_pb2.WorkerReport(
        worker=report.worker,
        lost_pushes=report.lost_pushes,
        resent_pushes=report.resent_pushes,
        delta=delta,
    )


def _report_from_proto(message: recovery_pb2.WorkerReport) -> WorkerReport:
    delta = deltas_from_proto(message.delta)
    return WorkerReport(message.worker, message.lost_pushes, message.resent_pushes, delta)


def recovery_seconds(record: recovery_pb2.FailureRecord) -> float:
    """From the report to the last block that is served again, as far as it was measured."""
    return sum(max(0.0, one) for one in (record.wait_seconds, record.commit_seconds, record.load_seconds))
