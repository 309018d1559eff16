"""What happens around every call: typed errors on the wire, metrics, and decoding that refuses politely.

A :class:`scar.errors.ScarError` becomes its gRPC code with its class and next step as trailing metadata.
Anything else is a bug: it is logged with its traceback and the caller sees ``Internal`` without details. Only
methods of ``scar.v1`` are wrapped, since health and reflection handlers carry marks of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from scar import errors
from scar_runtime.process.access import CallerCheck, check_nobody
from scar_runtime.process.metrics import RPC_SECONDS
from scar_runtime.process.request_streams import RequestStreams

OURS = "/scar.v1."
PROBE = "MemberService/Probe"  # what a failure detector asks
_log = logging.getLogger(__name__)

Behavior = Callable[[Any, grpc.ServicerContext], Any]
Decode = Callable[[bytes], Any]
OpenRequest = Callable[[Iterator[bytes], grpc.ServicerContext], AbstractContextManager[Any]]


class Guard(grpc.ServerInterceptor):  # type: ignore[misc]
    """Wraps handlers of all four kinds. Requests are read and decoded here, so that a malformed one, and one
    whose sender is silent, is the caller's typed error.

    ``check``: whether the caller may call a method at all; it raises the error to answer with. ``probes``:
    the threads for :data:`PROBE`; None: the same as for all.
    """

    def __init__(
        self,
        check: CallerCheck = check_nobody,
        requests: RequestStreams | None = None,
        probes: ThreadPoolExecutor | None = None,
    ) -> None:
        self._check = check
        self._requests = requests or RequestStreams()
        self._probes = probes
        self._wrapped: dict[str, tuple[grpc.RpcMethodHandler, grpc.RpcMethodHandler]] = {}  # by method

    def intercept_service(
        self, continuation: Any, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        handler = continuation(details)
        if handler is None or not details.method.startswith(OURS):
            return handler
        known = self._wrapped.get(details.method)
        if known is None or known[0] is not handler:  # gRPC asks at every call
            known = self._wrapped[details.method] = (handler, self._wrap(handler, details.method))
        return known[1]

    def _wrap(self, handler: grpc.RpcMethodHandler, path: str) -> grpc.RpcMethodHandler:
        method = path.removeprefix(OURS)
        opened = self._opener(handler)
        serialize = handler.response_serializer
        # for gRPC all requests are streams: it would wait for the only message of one for ever
        if handler.response_streaming:
            stream = handler.unary_stream or handler.stream_stream
            answers = _observe_stream(stream, opened, self._check, method)
            return grpc.stream_stream_rpc_method_handler(answers, None, serialize)
        unary = handler.unary_unary or handler.stream_unary
        answer: Any = _observe_unary(unary, opened, self._check, method)
        if method == PROBE:
            answer.experimental_thread_pool = self._probes
        return grpc.stream_unary_rpc_method_handler(answer, None, serialize)

    def _opener(self, handler: grpc.RpcMethodHandler) -> OpenRequest:
        decode = _safe_decoder(handler.request_deserializer)
        requests = self._requests
        if handler.request_streaming:
            return partial(_open_messages, requests, decode)
        return lambda raws, context: nullcontext(decode(requests.read_one(raws, context)))


@contextmanager
def _open_messages(
    requests: RequestStreams, decode: Decode, raws: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[Iterator[Any]]:
    """Nobody waits for them once the handler has ended: its error may keep them for long."""
    with closing(requests.read(raws, context)) as messages:
        yield map(decode, messages)


def _safe_decoder(deserialize: Decode | None) -> Decode:
    def decode(raw: bytes) -> Any:
        if deserialize is None:
            return raw
        try:
            return deserialize(raw)
        except DecodeError:
            raise errors.InvalidRequest("the request is no message of this method") from None

    return decode


def _observe_unary(behavior: Behavior, opened: OpenRequest, check: CallerCheck, method: str) -> Behavior:
    def call(raws: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        with _GuardedCall(context, method):
            check(context, method)
            with opened(raws, context) as request:
                return behavior(request, context)

    return call


def _observe_stream(behavior: Behavior, opened: OpenRequest, check: CallerCheck, method: str) -> Behavior:
    def call(raws: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
        with _GuardedCall(context, method):
            check(context, method)
            with opened(raws, context) as request:
                yield from behavior(request, context)

    return call


class _GuardedCall:
    """Translates what is raised inside, and times it. The caller may be gone already: then there is nobody
    to tell. A class, as a generator's context manager takes several times as long, at every call.
    """

    __slots__ = ("_context", "_method", "_started")

    def __init__(self, context: grpc.ServicerContext, method: str) -> None:
        self._context = context
        self._method = method

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        code = grpc.StatusCode.CANCELLED if kind is GeneratorExit else grpc.StatusCode.OK
        try:
            if isinstance(error, Exception):
                known = self._known(error)
                code = known.code
                self._context.set_trailing_metadata(errors.to_metadata(known))
                self._context.abort(code, known.message)
        finally:
            RPC_SECONDS.labels(self._method, code.name).observe(time.monotonic() - self._started)

    def _known(self, error: Exception) -> errors.ScarError:
        """What the caller is told."""
        if not self._context.is_active():
            return errors.Unreachable("the caller has gone")
        known = _typed_error(error)
        if known is None:
            _log.error("rpc.failed", extra={"method": self._method}, exc_info=error)
            known = errors.Internal(f"{self._method} failed")
        return known


def _typed_error(error: Exception) -> errors.ScarError | None:
    """The error to send; None for a bug. A peer's failure that a handler let through keeps its class."""
    if isinstance(error, errors.ScarError):
        return error
    return errors.from_rpc(error) if isinstance(error, grpc.RpcError) else None
