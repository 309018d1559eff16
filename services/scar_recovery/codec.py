"""What the cores of the recovery coordinator take, from messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.message import Message
from google.protobuf.text_format import MessageToString

from scar.errors import InvalidRequest
from scar.tables import Job
from scar.v1 import recovery_pb2, types_pb2
from scar.wire.codec import member_from_proto
from scar.wire.lost_pushes import unpack_losses
from scar_recovery.core.events import FailureReport
from scar_recovery.core.job_diff import JobFields
from scar_recovery.core.ledger import RerouteReport
from scar_runtime.failure_records import UNKNOWN_SECONDS
from scar_runtime.store.failure_codec import deltas_from_proto
from scar_runtime.store.records import message_digest

MAX_EVIDENCE = 500  # characters
_REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


def job_start_from_proto(request: recovery_pb2.StartJobRequest) -> types_pb2.JobStart | None:
    """Which request it is; None: it does not say. Raises :class:`scar.errors.InvalidRequest`."""
    if not request.request_id:
        return None
    if not _REQUEST_ID.fullmatch(request.request_id):
        raise InvalidRequest(
            f"request_id {request.request_id[:80]!r} of StartJob is not valid",
            "Draw 1 to 64 letters, digits and '-' for each request, such as a UUID",
        )
    return types_pb2.JobStart(request_id=request.request_id, digest=message_digest(request))


def uploaded_from_proto(request: recovery_pb2.StartJobRequest) -> dict[str, tuple[str, ...]]:
    """Keys of the parts of initial arrays that were uploaded, by table."""
    return {name: tuple(one.keys) for name, one in request.uploaded.items()}


def failure_report_from_proto(message: recovery_pb2.FailureReport) -> FailureReport:
    """Raises :class:`scar.errors.InvalidRequest` for one that is malformed."""
    durations = (message.silence, message.detect_seconds, message.suspect_seconds)
    if not all(math.isfinite(seconds) and seconds >= 0 for seconds in durations):
        raise InvalidRequest("silence, detect_seconds and suspect_seconds must be at least 0")
    suspected = message.suspect_seconds if message.HasField("suspect_seconds") else UNKNOWN_SECONDS
    return FailureReport(
        member_from_proto(message.member),
        message.proved,
        message.silence,
        message.detect_seconds,
        message.evidence[:MAX_EVIDENCE],
        suspect_seconds=min(suspected, message.detect_seconds),
    )


def reroute_report_from_proto(message: recovery_pb2.RerouteReport, job: Job) -> RerouteReport:
    """Raises :class:`scar.errors.InvalidRequest` for one that is malformed."""
    return RerouteReport(
        epoch=message.epoch,
        worker=f"{message.worker.name}@{message.worker.incarnation}",
        lost=tuple(unpack_losses(entry, job.table(entry.table).blocks) for entry in message.lost),
        delta=deltas_from_proto(message.delta),
        resent=message.resent,
        first=message.first,
    )


def job_fields_from_proto(spec: types_pb2.JobSpec) -> JobFields:
    tables = {table.name: dict(_fields_of(table)) for table in spec.tables}
    return JobFields(dict(_fields_of(spec)), tables)


def _name_entry(entry: object) -> object:
    if isinstance(entry, Message) and not hasattr(entry, "name"):
        return MessageToString(entry, as_one_line=True)
    return getattr(entry, "name", entry)


def _fields_of(message: Message, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every field by its path; of messages in a list, the names, or all of them in a line each."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, Mapping):
            for key, entry in sorted(value.items()):
                yield f"{prefix}{key}", entry
        elif isinstance(value, Message):
            yield from _fields_of(value, f"{prefix}{field.name}.")
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            yield f"{prefix}{field.name}", [_name_entry(entry) for entry in value]
        else:
            yield f"{prefix}{field.name}", value
