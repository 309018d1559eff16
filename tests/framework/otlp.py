"""A real OTLP receiver on a port of this machine: keeps the spans that processes send."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class SeenSpan:
    """``member``: whose process sent it. ``parent``: empty for the first of a trace. Times: in seconds."""

    trace: bytes
    span: bytes
    parent: bytes
    name: str
    member: str
    begin: float
    end: float


class OtlpReceiver(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    def __init__(self) -> None:
        self._spans: list[SeenSpan] = []
        self._lock = threading.Lock()
        self.url = ""

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, _context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for group in request.resource_spans:
            about = {one.key: one.value.string_value for one in group.resource.attributes}
            found = [
                SeenSpan(
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    span.name,
                    about["scar.member"],
                    span.start_time_unix_nano / 1e9,
                    span.end_time_unix_nano / 1e9,
                )
                for part in group.scope_spans
                for span in part.spans
            ]
            with self._lock:
                self._spans += found
        return trace_service_pb2.ExportTraceServiceResponse()

    def traces(self) -> list[list[SeenSpan]]:
        """Spans by their trace, each in the order of their beginnings."""
        with self._lock:
            spans = sorted(self._spans, key=lambda span: span.begin)
        return [[one for one in spans if one.trace == trace] for trace in {span.trace for span in spans}]


@contextmanager
def receiving() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    receiver.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()
