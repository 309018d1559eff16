"""Traces by OpenTelemetry: spans, and the W3C traceparent in the metadata of calls. Imported when asked for.

Samplers, batches and headers are set as everywhere, by OTEL_TRACES_SAMPLER, OTEL_BSP_* and
OTEL_EXPORTER_OTLP_*.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from scar.wire.tracing import Operation

OURS = "/scar.v1."
TRACED = frozenset(  # the rest is heartbeats, looks and pulls
    {
        *("ShardData/Push", "ShardData/PushSmall", "ShardData/Restore"),
        *("ShardControl/Distances", "ShardControl/Count", "ShardControl/Save", "ShardControl/Finish"),
        *("ShardControl/Adopt", "ShardControl/Claim", "Recovery/ReportFailure"),
    }
)
MAX_OPERATIONS = 256  # those that began last; older ones are forgotten
CLOSE_MS = 3000
_W3C = TraceContextTextMapPropagator()


@dataclass(frozen=True)
class KnownOperation:
    """``span``: None for what is only remembered."""

    context: Context
    span: trace.Span | None = None


class OtelTracer:
    """``receiver``: URL of OTLP over gRPC; https for TLS. Any thread may call it."""

    def __init__(self, receiver: str, role: str, member: str, incarnation: str) -> None:
        about = {
            "service.namespace": "scar",
            "service.name": f"scar-{role}",
            "service.instance.id": f"{member}@{incarnation}",
            "scar.member": member,
        }
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=receiver)))
        self._tracer = self._provider.get_tracer("scar")
        self._known: dict[Operation, KnownOperation] = {}
        self._lock = threading.Lock()

    @contextmanager
    def trace_span(self, name: str, under: Iterable[Operation], age: float) -> Iterator[None]:
        began = time.time_ns() - int(1e9 * age)
        with self._tracer.start_as_current_span(name, self._context_of(under), start_time=began):
            yield

    def begin_operation(self, operation: Operation, name: str, under: Iterable[Operation]) -> None:
        above = self._context_of(under)
        with self._lock:
            if operation in self._known:
                return
            attributes = {f"scar.{operation[0]}": operation[1]}
            span = self._tracer.start_span(name, above, attributes=attributes)
            self._keep(operation, KnownOperation(trace.set_span_in_context(span), span))

    @contextmanager
    def join_operation(self, operation: Operation) -> Iterator[None]:
        with self._lock:
            known = self._known.get(operation)
        token = contexts.attach(known.context) if known is not None else None
        try:
            yield
        finally:
            if token is not None:
                contexts.detach(token)

    def remember_operation(self, operation: Operation) -> None:
        with self._lock:
            if operation not in self._known:
                self._keep(operation, KnownOperation(contexts.get_current()))

    def end_operation(self, operation: Operation) -> None:
        """What comes after it still belongs to it."""
        kind, number = operation
        with self._lock:
            for one, known in self._known.items():
                if known.span is not None and one[0] == kind and one[1] <= number:  # type: ignore[operator]
                    known.span.end()
                    self._known[one] = KnownOperation(known.context)

    def wrap_channel(self, channel: grpc.Channel) -> grpc.Channel:
        return grpc.intercept_channel(channel, TracedCalls(self._tracer))

    def server_interceptor(self) -> grpc.ServerInterceptor:
        return ServedCalls(self._tracer)

    def close(self) -> None:
        self._provider.force_flush(CLOSE_MS)
        self._provider.shutdown()

    def _context_of(self, under: Iterable[Operation]) -> Context | None:
        """None: whatever this thread does."""
        with self._lock:
            return next((self._known[one].context for one in under if one in self._known), None)

    def _keep(self, operation: Operation, known: KnownOperation) -> None:
        self._known[operation] = known
        while len(self._known) > MAX_OPERATIONS:
            oldest = self._known.pop(next(iter(self._known)))
            if oldest.span is not None:
                oldest.span.end()


class CallDetails(NamedTuple):
    """As gRPC hands them to an interceptor."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class TracedCalls(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # grpc has no types
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """A span for each call of :data:`TRACED`; the call carries it."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return self._call(continuation, details, request)

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        return self._call(continuation, details, requests)

    def _call(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        name = details.method.removeprefix(OURS)
        if name not in TRACED:
            return continuation(details, request)
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=_about(name))
        carried: dict[str, str] = {}
        _W3C.inject(carried, trace.set_span_in_context(span))
        metadata = [*(details.metadata or ()), *carried.items()]
        made = CallDetails(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        try:
            call = continuation(made, request)
        except BaseException:  # the channel is closed
            span.end()
            raise
        call.add_done_callback(lambda ended: _end_call(span, ended))
        return call


class ServedCalls(grpc.ServerInterceptor):  # type: ignore[misc]
    """A span for each call of :data:`TRACED` that is answered here, below the one that it carries."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def intercept_service(
        self, continuation: Any, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        handler = continuation(details)
        name = details.method.removeprefix(OURS)
        answer = handler and handler.stream_unary  # the guard makes streams of all requests
        if answer is None or name not in TRACED:
            return handler
        carried = {key: value for key, value in details.invocation_metadata if isinstance(value, str)}
        above = _W3C.extract(carried)

        def traced(requests: Any, context: grpc.ServicerContext) -> Any:
            with self._tracer.start_as_current_span(name, above, SpanKind.SERVER, _about(name)):
                return answer(requests, context)

        return grpc.stream_unary_rpc_method_handler(
            traced, handler.request_deserializer, handler.response_serializer
        )


def _about(name: str) -> dict[str, str]:
    service, _, method = name.partition("/")
    return {"rpc.system": "grpc", "rpc.service": f"scar.v1.{service}", "rpc.method": method}


def _end_call(span: trace.Span, call: Any) -> None:
    code = call.code()
    if code is not grpc.StatusCode.OK:
        span.set_status(StatusCode.ERROR, code.name if code is not None else "cancelled")
    span.end()
