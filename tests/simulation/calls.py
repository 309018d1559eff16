"""A call of gRPC on the simulated network: its client's half, its server's half, what goes between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import grpc

from tests.simulation.network import Network
from tests.simulation.primitives import serial
from tests.simulation.rpc_faults import (
    ANSWER_CUT,
    ANSWER_LATE,
    ANSWER_LOST,
    GARBAGE,
    GARBLED,
    REQUEST_CUT,
)
from tests.simulation.scheduler import Body, Host, Scheduler, Task

Metadata = tuple[tuple[str, str], ...]
RESET = grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2"


class Flag:
    """:class:`threading.Event`, for tasks only."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._set = scheduler, False
        self._waiters: list[Task] = []

    def set(self) -> None:
        self._set = True
        for task in self._waiters:
            self._scheduler.unpark(task)

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else self._scheduler.now + timeout
        task = self._scheduler.current
        assert task is not None
        self._waiters.append(task)
        try:
            while not self._set and self._scheduler.park(until):
                pass
        finally:
            self._waiters.remove(task)
        return self._set


class SimulatedError(grpc.RpcError, grpc.Call):  # type: ignore[misc]  # gRPC has no types
    """How a call ended, as gRPC raises it."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code, self._details, self._trailing = code, details, trailing

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    def initial_metadata(self) -> Metadata:
        return ()

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> float | None:
        return None

    def cancel(self) -> bool:
        return False

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return False


class Context:
    """What a handler is given: :class:`grpc.ServicerContext`."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._callbacks: list[Callable[[], None]] = []
        self.trailing: Metadata = ()
        self.open = True

    @property
    def active(self) -> bool:
        """Servers know the deadline, too."""
        return self.open and (self._call.until is None or self._call.network.scheduler.now < self._call.until)

    def time_remaining(self) -> float | None:
        until = self._call.until
        return None if until is None else max(0.0, until - self._call.network.scheduler.now)

    def is_active(self) -> bool:
        return self.active

    def add_callback(self, callback: Callable[[], None]) -> bool:
        call = self._call
        if self.active:
            if not self._callbacks and call.until is not None and call.server is not None:
                call.network.scheduler.at(call.until, partial(self.ended, call.server))
            self._callbacks.append(callback)
        return self.active

    def set_trailing_metadata(self, trailing: Metadata) -> None:
        self.trailing = tuple(trailing)

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise SimulatedError(code, details, self.trailing)

    def peer(self) -> str:
        return f"ipv4:{self._call.client.address}:0"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}  # nobody has a certificate

    def ended(self, host: Host) -> None:
        """The call is over, or its client has gone. Callbacks run in a thread of the server, as gRPC's."""
        if self.open:
            self.open = False
            for callback in self._callbacks:
                self._call.network.scheduler.spawn(host, "callback", callback)


class CallConnection(Protocol):
    """What a call needs of the connection that it goes over."""

    calls: dict[Call, None]
    served: dict[Call, None]

    def answer(self, deliver: Body, size: int = 0) -> None: ...

    def cancel(self, call: Call) -> None: ...


class Call:
    """``items``: replies that have arrived. ``until``: the deadline, in the scheduler's time; None: none.

    ``end``: the error with which it is over. ``waits``: for a connection, whatever has become of the last
    ones. ``fault``: what happens to it; see :mod:`tests.simulation.rpc_faults`.
    """

    def __init__(
        self, network: Network, client: Host, method: str, requests: list[bytes], until: float | None
    ) -> None:
        self.network, self.client, self.method, self.requests, self.until = (
            network,
            client,
            method,
            requests,
            until,
        )
        self.context = Context(self)
        self.connection: CallConnection | None = None
        self.server: Host | None = None
        self.end: SimulatedError | None = None
        self.over = self.waits = False
        self.fault = ""
        self.items: deque[bytes] = deque()
        self._waiters: list[Task] = []
        self._held = 0.0  # answers do not leave before

    @property
    def size(self) -> int:
        return sum(map(len, self.requests))

    def twin(self) -> Call:
        """The same request once more, whose answer reaches nobody."""
        twin = Call(self.network, self.client, self.method, self.requests, self.until)
        twin.connection, twin.fault = self.connection, ANSWER_LOST
        return twin

    # --- the server's half ---------------------------------------------------------------------------------

    def arriving(self) -> Iterator[bytes]:
        """The requests. A stream may be cut in its middle: gRPC shows that as an error or, where what comes
        first is that no message follows, as the end of the stream.
        """
        faults = self.network.rpc_faults
        cut = faults.part(len(self.requests)) if self.fault == REQUEST_CUT else -1
        for number, message in enumerate(self.requests):
            if number == cut:
                self._send(partial(self.close, *RESET))
                assert self.server is not None
                self.context.ended(self.server)
                if faults.part(2):
                    return
            if not self.context.active:
                raise SimulatedError(grpc.StatusCode.CANCELLED, "the stream of requests has ended")
            yield message

    def reply(self, message: bytes) -> None:
        faults = self.network.rpc_faults
        if self.fault == ANSWER_CUT and not faults.part(2):
            self._send(partial(self.close, *RESET))
            self.fault = ANSWER_LOST  # nothing after that arrives
        arrives = GARBAGE if self.fault == GARBLED else message
        self._send(partial(self._arrived, arrives), len(message))

    def finish(self, code: grpc.StatusCode, details: str = "", trailing: Metadata = ()) -> None:
        if self.fault == ANSWER_CUT:
            code, details = RESET
        self._send(partial(self.close, code, details, trailing))
        if self.connection is not None:
            self.connection.served.pop(self, None)
        if self.server is not None:
            self.context.ended(self.server)

    def _send(self, deliver: Callable[[], None], size: int = 0) -> None:
        if self.connection is None or self.fault == ANSWER_LOST:
            return
        answer = partial(self.connection.answer, deliver, size)
        if self.fault == ANSWER_LATE:
            self.fault, late = "", self.network.rpc_faults.seconds()
            self._held = self.network.scheduler.now + late
        if self._held > self.network.scheduler.now:
            self.network.scheduler.at(self._held, answer)
        else:
            answer()

    # --- the client's half ---------------------------------------------------------------------------------

    def _arrived(self, message: bytes) -> None:
        if not self.over:
            self.items.append(message)
            self._wake()

    def close(self, code: grpc.StatusCode, details: str = "", trailing: Metadata = ()) -> None:
        """The client knows how the call ended. The first word counts."""
        if not self.over:
            self.over = True
            self.end = None if code is grpc.StatusCode.OK else SimulatedError(code, details, trailing)
            if self.connection is not None:
                self.connection.calls.pop(self, None)
            self._wake()

    def _wake(self) -> None:
        for task in self._waiters:
            self.network.scheduler.unpark(task)

    def await_item(self) -> bool:
        """Wait for the next reply; False: the call has ended well without another.

        Raises :class:`SimulatedError`.
        """
        scheduler = self.network.scheduler
        while not self.items and not self.over:
            task = scheduler.current
            assert task is not None
            self._waiters.append(task)
            try:
                if not scheduler.park(self.until) and not self.items and not self.over:
                    self.cancel(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
            finally:
                self._waiters.remove(task)
        if self.items:
            return True
        if self.end is not None:
            raise self.end
        return False

    def cancel(
        self, code: grpc.StatusCode = grpc.StatusCode.CANCELLED, details: str = "Locally cancelled"
    ) -> None:
        """The client ends it; the server hears of that later, if at all."""
        if not self.over:
            if self.connection is not None:
                self.connection.cancel(self)
            self.close(code, details)


class Stream:
    """Replies of a call, decoded as they are taken."""

    def __init__(self, call: Call, decode: Callable[[bytes], Any]) -> None:
        self._call, self._decode = call, decode

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._call.await_item():
            raise StopIteration
        return self._decode(self._call.items.popleft())

    def cancel(self) -> None:
        self._call.cancel()


class CallFuture:
    """:class:`grpc.Future`. ``answer`` waits, in a task of its own, which runs the callbacks as well."""

    def __init__(self, call: Call, answer: Callable[[], Any]) -> None:
        self._call, self._answer = call, answer
        self._done = Flag(call.network.scheduler)
        self._callbacks: list[Callable[[CallFuture], None]] = []
        self._result: Any = None
        self._error: SimulatedError | None = None
        self._cancelled = False
        call.network.scheduler.spawn(call.client, "future", self._wait)

    __hash__ = serial  # futures are kept in sets

    def _wait(self) -> None:
        try:
            self._result = self._answer()
        except SimulatedError as error:
            self._error = error
        self._done.set()
        for callback in self._callbacks:
            callback(self)

    def cancel(self) -> bool:
        self._cancelled = self._cancelled or not self._call.over
        self._call.cancel()
        return self._cancelled

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._done.is_set()

    def add_done_callback(self, callback: Callable[[CallFuture], None]) -> None:
        if self._done.is_set():
            callback(self)
        else:
            self._callbacks.append(callback)

    def result(self, timeout: float | None = None) -> Any:
        if not self._done.wait(timeout):
            raise grpc.FutureTimeoutError
        if self._cancelled:
            raise grpc.FutureCancelledError
        if self._error is not None:
            raise self._error
        return self._result
