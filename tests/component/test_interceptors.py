"""Errors on the wire, for handlers of all four kinds, over real gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from scar import errors
from scar_runtime.process.metrics import RPC_SECONDS
from scar_runtime.process.server import bind_port, make_server

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Handlers:
    """Each method does what ``act`` does, with its request as argument; a request is text, and ``bad``
    cannot be decoded.
    """

    def __init__(self) -> None:
        self.act: Callable[[str], None] = lambda text: None

    def unary_unary(self, request: str, _context: grpc.ServicerContext) -> bytes:
        self.act(request)
        return b"done"

    def unary_stream(self, request: str, _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield b"first"
        self.act(request)
        yield b"last"

    def stream_unary(self, requests: Iterator[str], _context: grpc.ServicerContext) -> bytes:
        for request in requests:
            self.act(request)
        return b"done"

    def stream_stream(self, requests: Iterator[str], _context: grpc.ServicerContext) -> Iterator[bytes]:
        for request in requests:
            yield b"next"
            self.act(request)


def decode(raw: bytes) -> str:
    if raw == b"bad":
        raise DecodeError("bad")
    if raw == b"malformed":
        raise errors.TooLarge("too much of it")
    return raw.decode()


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Handlers, grpc.Channel]]:
    handlers, server = Handlers(), make_server(workers=4)
    methods = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(
            getattr(handlers, kind), request_deserializer=decode
        )
        for kind in KINDS
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("scar.v1.Test", methods),))
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(address) as channel:
        yield handlers, channel
    server.stop(0).wait(5)


def call(channel: grpc.Channel, kind: str, text: bytes = b"x") -> list[bytes]:
    method: Any = getattr(channel, kind)(f"/scar.v1.Test/{kind}")
    request = iter([text]) if kind.startswith("stream") else text
    reply = method(request, timeout=5)
    return list(reply) if kind.endswith("stream") else [reply]


def failing(error: Exception) -> Callable[[str], None]:
    def act(_text: str) -> None:
        raise error

    return act


def caught(channel: grpc.Channel, kind: str, text: bytes = b"x") -> errors.ScarError:
    with pytest.raises(grpc.RpcError) as failure:
        call(channel, kind, text)
    return errors.from_rpc(failure.value)


@pytest.mark.parametrize("kind", KINDS)
def test_what_works_is_left_alone(service: tuple[Handlers, grpc.Channel], kind: str) -> None:
    handlers, channel = service
    handlers.act = lambda text: None
    assert call(channel, kind)[-1] in (b"done", b"last", b"next")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "error", [errors.StaleEpoch("moved on", epoch=7), errors.Busy("full"), errors.Fenced("out – für immer")]
)
def test_typed_errors_arrive_as_they_were_raised(
    service: tuple[Handlers, grpc.Channel], kind: str, error: errors.ScarError
) -> None:
    handlers, channel = service
    handlers.act = failing(error)
    received = caught(channel, kind)
    assert type(received) is type(error)
    assert (received.message, received.next_step) == (error.message, error.next_step)
    assert getattr(received, "epoch", 0) == getattr(error, "epoch", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bug_is_logged_and_tells_nothing(
    service: tuple[Handlers, grpc.Channel], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, channel = service
    handlers.act = failing(KeyError("a secret"))
    received = caught(channel, kind)
    assert type(received) is errors.Internal
    assert "secret" not in str(received)
    assert "a secret" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "expected"), [(b"bad", errors.InvalidRequest), (b"malformed", errors.TooLarge)]
)
def test_what_cannot_be_decoded_is_the_callers_error(
    service: tuple[Handlers, grpc.Channel], kind: str, text: bytes, expected: type[errors.ScarError]
) -> None:
    handlers, channel = service
    handlers.act = lambda text: pytest.fail("it must not be called")
    assert type(caught(channel, kind, text)) is expected


def test_calls_are_counted_by_method_and_code(service: tuple[Handlers, grpc.Channel]) -> None:
    handlers, channel = service
    handlers.act = failing(errors.UnknownTable("w"))
    counted = RPC_SECONDS.labels("Test/unary_unary", "NOT_FOUND")
    before = sum(bucket.get() for bucket in counted._buckets)
    caught(channel, "unary_unary")
    assert sum(bucket.get() for bucket in counted._buckets) == before + 1


def test_an_unknown_method_is_not_our_business(service: tuple[Handlers, grpc.Channel]) -> None:
    _, channel = service
    with pytest.raises(grpc.RpcError) as failure:
        channel.unary_unary("/scar.v1.Test/nothing")(b"", timeout=5)
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
