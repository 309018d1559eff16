"""Real connections: every class of error crosses them, and no ``grpc.RpcError`` comes out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from scar import errors
from scar.v1 import ps_pb2, ps_pb2_grpc
from scar.wire.codec import Chunk
from scar.wire.shard_link import ShardLink
from scar.wire.transport import Backoff, Deadline, open_channel, retry, server_options


class Failing(ps_pb2_grpc.ShardControlServicer):
    """Answers with whatever error it was told."""

    error: Exception = errors.Internal("nothing was told")

    def Status(self, request: ps_pb2.ShardStatusRequest, context: grpc.ServicerContext) -> ps_pb2.ShardStatus:
        if isinstance(self.error, errors.ScarError):
            context.set_trailing_metadata(errors.to_metadata(self.error))
            context.abort(self.error.code, self.error.message)
        raise self.error


@pytest.fixture(scope="module")
def failing() -> Iterator[Failing]:
    servicer = Failing()
    server = grpc.server(ThreadPoolExecutor(4), options=server_options())
    ps_pb2_grpc.add_ShardControlServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(0).wait()


@pytest.fixture
def link(failing: Failing) -> Iterator[ShardLink]:
    link = ShardLink(failing.address, "ps-0")
    yield link
    link.close()


def status(link: ShardLink, timeout: float = 5.0) -> ps_pb2.ShardStatus:
    return link.call(link.control.Status, ps_pb2.ShardStatusRequest(), timeout)


@pytest.mark.parametrize("name", sorted(errors.ERRORS))
def test_every_error_crosses_the_wire(failing: Failing, link: ShardLink, name: str) -> None:
    failing.error = errors.ERRORS[name]("what happened", "what to do")
    with pytest.raises(errors.ERRORS[name]) as caught:
        status(link)
    assert type(caught.value) is errors.ERRORS[name]
    assert (caught.value.message, caught.value.next_step) == ("what happened", "what to do")


def test_stale_epoch_tells_the_epoch(failing: Failing, link: ShardLink) -> None:
    failing.error = errors.StaleEpoch("old", epoch=12)
    with pytest.raises(errors.StaleEpoch) as caught:
        status(link)
    assert caught.value.epoch == 12


def test_a_bug_of_the_server_is_internal(failing: Failing, link: ShardLink) -> None:
    failing.error = RuntimeError("a bug")
    with pytest.raises(errors.Internal):
        status(link)


def pull(link: ShardLink) -> object:
    return list(link.pull(ps_pb2.PullRequest(), 5.0))


def push(link: ShardLink) -> object:
    return link.push([Chunk(ps_pb2.TensorHeader(table="w"))], 5.0)


def pull_small(link: ShardLink) -> object:
    return link.pull(ps_pb2.PullRequest(), 5.0, 0)


def push_small(link: ShardLink) -> object:
    return link.push([Chunk(ps_pb2.TensorHeader(table="w"))], 5.0, 0)


CALLS = [status, pull, push, pull_small, push_small]


@pytest.mark.parametrize("call", CALLS)
def test_nobody_listens(call: Callable[[ShardLink], object]) -> None:
    link = ShardLink("127.0.0.1:1", "ps-7")
    with pytest.raises(errors.Unreachable, match=r"ps-7 at 127\.0\.0\.1:1"):
        call(link)
    link.close()


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_connection(failing: Failing, link: ShardLink, call: Callable[[ShardLink], object]) -> None:
    link.close()
    with pytest.raises(errors.Unreachable, match="closed"):
        call(link)


@pytest.mark.parametrize("call", CALLS[1:])
def test_a_method_that_is_not_there(link: ShardLink, call: Callable[[ShardLink], object]) -> None:
    with pytest.raises(errors.Internal):
        call(link)


def test_a_forked_copy_opens_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    open_channel("127.0.0.1:1").close()
    parent = os.getpid()
    monkeypatch.setattr("scar.wire.transport.os.getpid", lambda: parent + 1)
    with pytest.raises(errors.InvalidRequest, match=f"process {parent}, and this is a forked copy"):
        open_channel("127.0.0.1:1")


@pytest.mark.timed
def test_retry_ends_with_the_deadline_and_says_why() -> None:
    link, started = ShardLink("127.0.0.1:1", "ps-7"), time.monotonic()
    with pytest.raises(errors.DeadlineExceeded, match=r"waited 0\.3 s for a shard; last problem: ps-7"):
        retry(lambda timeout: status(link, timeout), Deadline(0.3), "a shard")
    assert time.monotonic() - started < 20
    link.close()


def test_retry_raises_at_once_what_does_not_pass() -> None:
    def attempt(timeout: float) -> None:
        raise errors.Fenced("dead")

    with pytest.raises(errors.Fenced):
        retry(attempt, Deadline(60), "nothing")


def test_retry_goes_on_after_what_passes() -> None:
    problems: list[Exception] = [
        errors.NotServing("a"),
        errors.Unreachable("b"),
        errors.DeadlineExceeded("c"),
    ]

    def attempt(timeout: float) -> str:
        if problems:
            raise problems.pop()
        return "done"

    assert retry(attempt, Deadline(60), "nothing") == "done"


def test_backoff_grows_with_jitter_to_its_limit() -> None:
    backoff = Backoff(0.1, 0.4)
    for expected in (0.1, 0.2, 0.4, 0.4):
        assert expected / 2 <= backoff.next() <= expected
    backoff.reset()
    assert backoff.next() <= 0.1


def test_time_for_which_an_operation_is_held_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, held = [100.0], [""]
    monkeypatch.setattr("scar.wire.transport.time.monotonic", lambda: now[0])
    deadline = Deadline(10, held=lambda: held[0], patience=30)
    now[0] += 4
    assert deadline.remaining == 6
    held[0] = "the store is away"
    now[0] += 25
    assert deadline.remaining == 6
    now[0] += 8  # beyond the patience
    assert deadline.remaining == 3
    assert "the store is away" in deadline.exceeded("pushes").message
    held[0] = ""
    now[0] += 2
    assert deadline.remaining == 1
