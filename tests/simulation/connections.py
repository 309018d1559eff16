"""What a channel's calls go over: TCP, which sends again, and HTTP/2, whose pings notice who is gone.

A kernel answers for a process that is paused, so a sender's bytes are acknowledged; its pings are not
answered. A host that is cut off acknowledges nothing: its peer's kernel gives up after TCP_USER_TIMEOUT,
which gRPC sets to the channel's keepalive timeout, and to 20 seconds on servers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc

from tests.simulation.calls import Call
from tests.simulation.network import Network
from tests.simulation.rpc_faults import CONNECTION_RESET, DOUBLED, PROXY_REFUSALS, REORDERED, REQUEST_LOST
from tests.simulation.scheduler import Body, Host

AGAIN, LONGEST = 0.2, 120.0  # seconds until bytes without an acknowledgement are sent again; they double
SERVER_PATIENCE = 20.0  # TCP_USER_TIMEOUT of servers
RETIREMENT = 60.0  # for calls on a connection that is not used any more
FOREVER = 900.0  # seconds after which every kernel gives up
TIMED_OUT = "recvmsg:Connection timed out"
NEVER_MS = 2**31 - 1


@dataclass(frozen=True)
class ChannelTiming:
    """Of a channel, in seconds; the defaults are gRPC's."""

    ping_every: float
    ping_patience: float
    tcp_patience: float
    connect: float
    first_backoff: float
    most_backoff: float

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ChannelTiming:
        every = options.get("grpc.keepalive_time_ms", NEVER_MS) / 1000
        patience = options.get("grpc.keepalive_timeout_ms", 20_000) / 1000
        pings = every * 1000 < NEVER_MS
        return cls(
            every if pings else math.inf,
            options.get("grpc.http2.ping_timeout_ms", 60_000) / 1000,
            patience if pings else FOREVER,
            options.get("grpc.min_reconnect_backoff_ms", 20_000) / 1000,
            options.get("grpc.initial_reconnect_backoff_ms", 1000) / 1000,
            options.get("grpc.max_reconnect_backoff_ms", 120_000) / 1000,
        )


class TcpFlow:
    """One direction: bytes in order, sent again until they are acknowledged, or until ``patience`` ends."""

    def __init__(self, network: Network, source: Host, target: Host, patience: float, dead: Body) -> None:
        self.patience = patience
        self._network, self._source, self._target, self._dead = network, source, target, dead
        self._unsent: deque[tuple[Body, int]] = deque()
        self._arrives = 0.0
        self._stalled = False
        self._since = self._again = 0.0

    def send(self, deliver: Body, size: int = 0) -> None:
        network = self._network
        if self._stalled or not self._passed(deliver, size):
            self._unsent.append((deliver, size))
        elif network.reaches(self._target, self._source):
            return
        if not self._stalled:
            self._stalled, self._since, self._again = True, network.scheduler.now, AGAIN
            network.scheduler.at(self._since + AGAIN, self._retransmit)

    def _passed(self, deliver: Body, size: int) -> bool:
        delay = self._network.travel(self._source, self._target, size)
        if delay == math.inf:
            return False
        scheduler = self._network.scheduler
        self._arrives = max(self._arrives, scheduler.now + delay)
        scheduler.at(self._arrives, deliver)
        return True

    def _acknowledged(self) -> bool:
        """Is there a way back?"""
        return self._network.reaches(self._target, self._source)

    def _retransmit(self) -> None:
        scheduler = self._network.scheduler
        while self._unsent and self._passed(*self._unsent[0]):
            self._unsent.popleft()
            self._since, self._again = scheduler.now, AGAIN / 2
        ways = self._network.reaches(self._source, self._target) and self._acknowledged()
        if ways and not self._unsent:
            self._stalled = False
        elif scheduler.now >= self._since + self.patience:
            self._dead()
        else:
            self._again = min(2 * self._again, LONGEST)
            scheduler.at(min(scheduler.now + self._again, self._since + self.patience), self._retransmit)


class ServerEnd(Protocol):
    """A server, as its connections see it."""

    host: Host
    listening: bool
    connections: dict[ServerConnection, None]

    def incoming(self, call: Call) -> None: ...


class ServerConnection:
    """One HTTP/2 connection. ``calls``: whose clients wait; ``served``: that the server knows; ``watched``:
    a call that never ends, a health watch, is always open on it.
    """

    def __init__(
        self,
        network: Network,
        client: Host,
        server: ServerEnd,
        timing: ChannelTiming,
        lost: Callable[[str], None],
        watched: bool,
    ) -> None:
        self.network, self.client, self.server, self.timing = network, client, server, timing
        self.calls: dict[Call, None] = {}
        self.served: dict[Call, None] = {}
        self.open = self.heard_of = True  # at the client, at the server
        self.since = network.scheduler.now
        self._lost, self._watched = lost, watched
        self._pinging = False
        self._pongs = 0
        self._up = TcpFlow(network, client, server.host, timing.tcp_patience, partial(self.fail, TIMED_OUT))
        self._down = TcpFlow(network, server.host, client, SERVER_PATIENCE, self.forget)
        server.connections[self] = None
        if watched:
            self._watch()

    # --- the client's half ---------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        call.connection = self
        self.calls[call] = None
        self._watch()
        faults = self.network.rpc_faults
        if faults.active:
            call.fault = faults.draw(call.method)
        if call.fault:
            self._begin_badly(call)
        else:
            self._up.send(partial(self._arrive, call), call.size)

    def _begin_badly(self, call: Call) -> None:
        faults, scheduler, arrive = (
            self.network.rpc_faults,
            self.network.scheduler,
            partial(self._arrive, call),
        )
        if call.fault in PROXY_REFUSALS:
            scheduler.at(scheduler.now + 0.001, partial(call.close, *PROXY_REFUSALS[call.fault]))
            return
        if call.fault == REORDERED:
            scheduler.at(scheduler.now + faults.seconds(), lambda: self._up.send(arrive, call.size))
        elif call.fault != REQUEST_LOST:
            self._up.send(arrive, call.size)
        if call.fault == DOUBLED:
            again = partial(self._arrive, call.twin())
            scheduler.at(scheduler.now + faults.seconds(), lambda: self._up.send(again, call.size))
        if call.fault == CONNECTION_RESET:
            broken = partial(self.fail, "recvmsg:Connection reset by peer")
            scheduler.at(scheduler.now + faults.moment(), broken)

    def cancel(self, call: Call) -> None:
        """The client does not wait for it any more; the server hears of that later, if at all."""
        if self.calls.pop(call, True) is None and self.open:
            self._up.send(partial(self._cancelled, call))

    def _cancelled(self, call: Call) -> None:
        if self.heard_of and call in self.served:
            call.context.ended(self.server.host)

    def fail(self, details: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        """The client's end is closed: it has waited for too long, or has heard of the server's end."""
        if not self.open:
            return
        self.open = False
        calls, self.calls = self.calls, {}
        for call in calls:
            call.close(code, details)
        self._up.patience = FOREVER
        self._up.send(self.forget)
        self._lost(details)

    def retire(self) -> None:
        """No new calls go over it; those under way have a time for their end."""
        self._lost, self._watched = _nothing, False
        if self.calls:
            self._later(RETIREMENT, partial(self.fail, "GOAWAY received"))
        else:
            self.fail("GOAWAY received")

    def _watch(self) -> None:
        if not self._pinging and self.timing.ping_every < math.inf:
            self._pinging = True
            self._later(self.timing.ping_every, self._ping)

    def _later(self, seconds: float, what: Body) -> None:
        self.network.scheduler.at(self.network.scheduler.now + seconds, what)

    def _ping(self) -> None:
        self._pinging = False
        if not self.open or not self.client.alive or not (self.calls or self._watched):
            return
        self._watch()
        now = self.network.scheduler.now
        if self.client.paused_until > now:
            return
        there, back = self.server.host, self.client
        if there.paused_until > now or not (
            self.network.reaches(there, back) and self.network.reaches(back, there)
        ):
            self._up.send(self._ping_arrives)
            self._later(self.timing.ping_patience, partial(self._judge, self._pongs))

    def _ping_arrives(self) -> None:
        """Answered when the process is not paused any more."""
        host, now = self.server.host, self.network.scheduler.now
        if host.paused_until > now:
            self.network.scheduler.at(host.paused_until, self._ping_arrives)
        elif host.alive:
            self._down.send(self._pong)

    def _pong(self) -> None:
        self._pongs += 1

    def _judge(self, pongs: int) -> None:
        """Has anything come since the ping? A client that is paused looks when it goes on."""
        now = self.network.scheduler.now
        if self.client.paused_until > now:
            self.network.scheduler.at(self.client.paused_until + 0.01, partial(self._judge, pongs))
        elif self._pongs == pongs:
            self.fail("Stream removed (ping timeout)")

    # --- the server's half ---------------------------------------------------------------------------------

    def _arrive(self, call: Call) -> None:
        if not self.heard_of:
            return
        if self.server.listening:
            self.served[call] = None
            self.server.incoming(call)
        else:
            refused = partial(call.close, grpc.StatusCode.UNAVAILABLE, "GOAWAY received")
            self._down.send(refused)

    def answer(self, deliver: Body, size: int = 0) -> None:
        if self.heard_of and self.server.host.alive:
            self._down.send(deliver, size)

    def forget(self) -> None:
        """The server's end is closed: nobody waits for its answers."""
        if self.heard_of:
            self.heard_of = False
            self.server.connections.pop(self, None)
            served, self.served = self.served, {}
            for call in served:
                call.context.ended(self.server.host)

    def hang_up(self, details: str) -> None:
        """The server closes it, or its process has ended: its kernel says so."""
        if self.heard_of:
            self.forget()
            self._down.patience = FOREVER
            self._down.send(partial(self.fail, details))


def _nothing(_details: str) -> None:
    """The end of this connection does not matter to its channel."""
