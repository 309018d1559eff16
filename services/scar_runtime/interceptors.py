"""What happens around every call: typed errors on the wire, metrics, and decoding that refuses politely.

A :class:`scar.errors.ScarError` becomes its gRPC code with its class and next step as trailing metadata. Anything else is a
bug: it is logged with its traceback and the caller sees ``Internal`` without details. Only methods of ``scar.v1`` are wrapped,
since health and reflection handlers carry marks of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from scar import errors
from scar_runtime.metrics import RPC_SECONDS

OURS = "/scar.v1."
_log = logging.getLogger(__name__)

Behavior = Callable[[Any, grpc.ServicerContext], Any]
Decode = Callable[[bytes], Any]


class Guard(grpc.ServerInterceptor):  # type: ignore[misc]
    """Wraps handlers of all four kinds. Requests are decoded here, so that a malformed one is the caller's typed error."""

    def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        handler = continuation(details)
        if handler is None or not details.method.startswith(OURS):
            return handler
        wrap = _streamed if handler.response_streaming else _answered
        behavior, make = _parts(handler)
        decode = _decoder(handler.request_deserializer, handler.request_streaming)
        guarded = wrap(behavior, decode, details.method.removeprefix(OURS))
        return make(guarded, request_deserializer=None, response_serializer=handler.response_serializer)


def _parts(handler: grpc.RpcMethodHandler) -> tuple[Behavior, Callable[..., grpc.RpcMethodHandler]]:
    kinds: dict[tuple[bool, bool], tuple[Any, Any]] = {
        (False, False): (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
        (False, True): (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
        (True, False): (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
        (True, True): (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
    }
    return kinds[handler.request_streaming, handler.response_streaming]


def _decoder(deserialize: Decode | None, streaming: bool) -> Callable[[Any], Any]:
    def one(raw: bytes) -> Any:
        if deserialize is None:
            return raw
        try:
            return deserialize(raw)
        except DecodeError:
            raise errors.InvalidRequest("the request is no message of this method") from None

    def many(raws: Iterator[bytes]) -> Iterator[Any]:
        return (one(raw) for raw in raws)

    return many if streaming else one


def _answered(behavior: Behavior, decode: Callable[[Any], Any], method: str) -> Behavior:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        with _guarded(context, method):
            return behavior(decode(request), context)

    return call


def _streamed(behavior: Behavior, decode: Callable[[Any], Any], method: str) -> Behavior:
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        with _guarded(context, method):
            yield from behavior(decode(request), context)

    return call


@contextmanager
def _guarded(context: grpc.ServicerContext, method: str) -> Iterator[None]:
    """Translate what is raised inside and time it. The caller may be gone already: then there is nobody to tell."""
    started, code = time.monotonic(), grpc.StatusCode.OK
    try:
        yield
    except GeneratorExit:
        code = grpc.StatusCode.CANCELLED
        raise
    except Exception as error:
        known = _typed(error) if context.is_active() else errors.Unreachable("the caller has gone")
        if known is None:
            _log.exception("rpc.failed", extra={"method": method})
            known = errors.Internal(f"{method} failed")
        code = known.code
        context.set_trailing_metadata(errors.to_metadata(known))
        context.abort(code, known.message)
    finally:
        RPC_SECONDS.labels(method, code.name).observe(time.monotonic() - started)


def _typed(error: Exception) -> errors.ScarError | None:
    """The error to send; None for a bug. A peer's failure that a handler let through keeps its class."""
    if isinstance(error, errors.ScarError):
        return error
    return errors.from_rpc(error) if isinstance(error, grpc.RpcError) else None
