"""A channel's way to one address: it connects, backs off, and knows what the other side's health was."""

from __future__ import annotations

from functools import partial

import grpc

from tests.simulation.connections import ChannelTiming, ServerConnection
from tests.simulation.network import Network
from tests.simulation.rpc import Server
from tests.simulation.scheduler import Body, Host

SYN_AGAIN = 1.0  # seconds until a kernel asks again for a connection
BACKOFF_GROWTH, BACKOFF_JITTER = 1.6, 0.2
RENEWED = 0.1  # jitter of the age at which a server renews a connection


class Subchannel:
    """To one address. ``error``: of the last attempt, until one succeeds. ``service``: whose
    health is watched. ``changed`` is called when calls that wait may go on or fail.
    """

    def __init__(
        self, network: Network, host: Host, address: str, timing: ChannelTiming, changed: Body, service: str
    ) -> None:
        self.address, self.error = address, ""
        self.connection: ServerConnection | None = None
        self.connecting = self.closed = False
        self._network, self._timing, self._changed, self._service = network, timing, changed, service
        self._host = host
        self._started = self._next = self._renewed = 0.0
        self._backoff = timing.first_backoff
        self._believed = False

    def connect(self) -> None:
        if self.connecting or self.closed or self.connection is not None or not self._host.alive:
            return
        now = self._network.scheduler.now
        if now < self._next:  # it backs off; it tries again by itself
            return
        if self._host.paused_until > now:
            self._network.scheduler.at(self._host.paused_until, self.connect)
            return
        spread = self._network.random.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER)
        self.connecting, self._started, self._next = True, now, now + self._backoff * spread
        self._backoff = min(BACKOFF_GROWTH * self._backoff, self._timing.most_backoff)
        self._knock(SYN_AGAIN)

    def _knock(self, again: float) -> None:
        network = self._network
        if network.passes_to(self._host, self.address):
            delay = network.travel(self._host, self._host) + network.travel(self._host, self._host)
            if delay < again:
                network.scheduler.at(network.scheduler.now + delay, self._greeted)
                return
        self._later(again, partial(self._knock, 2 * again))

    def _later(self, seconds: float, attempt: Body) -> None:
        """Try again, within the time for a connection."""
        now, end = self._network.scheduler.now, self._started + self._timing.connect
        if now < end:
            self._network.scheduler.at(min(now + seconds, end), attempt)
        else:
            self._failed("connection attempt timed out before receiving SETTINGS frame")

    def _greeted(self) -> None:
        """The kernel of the other side has answered; its process has when it is not paused."""
        server, now = self._network.at(self.address), self._network.scheduler.now
        if server is not None and server.host.paused_until > now:
            self._later(server.host.paused_until - now, self._greeted)
        elif not isinstance(server, Server):
            self._failed("Failed to connect to remote host: Connection refused")
        elif not self.closed:
            self._connected(server)

    def _connected(self, server: Server) -> None:
        self.connecting, self.error = False, ""
        self._backoff, self._next = self._timing.first_backoff, 0.0
        self.connection = ServerConnection(
            self._network, self._host, server, self._timing, self._lost, watched=bool(self._service)
        )
        age = server.connection_age * self._network.random.uniform(1 - RENEWED, 1 + RENEWED)
        self._renewed, self._believed = self._network.scheduler.now + age, False
        self._changed()

    def _failed(self, details: str) -> None:
        self.connecting = False
        self.error = (
            f"failed to connect to all addresses; last error: UNKNOWN: ipv4:{self.address}: {details}"
        )
        self._network.scheduler.at(max(self._network.scheduler.now, self._next), self.connect)
        self._changed()

    def _lost(self, details: str) -> None:
        self.connection = None
        self._changed()

    def renew(self) -> None:
        """A connection that is old enough is left for a new one; calls on it go on."""
        connection, network = self.connection, self._network
        if connection is None or network.scheduler.now < self._renewed:
            return
        if self._hears(connection):
            self.connection = None
            connection.retire()

    def leave(self) -> None:
        """Its name does not mean this address any more."""
        self.closed = True
        if self.connection is not None:
            self.connection.retire()

    def serves(self) -> bool:
        """What is known of the other side's health."""
        connection = self.connection
        if connection is not None and self._hears(connection):
            assert isinstance(connection.server, Server)
            self._believed = connection.server.serves(self._service)
        return connection is not None and self._believed

    def _hears(self, connection: ServerConnection) -> bool:
        far = connection.server.host
        paused = far.paused_until > self._network.scheduler.now or not far.alive
        return (
            not paused and self._network.reaches(far, self._host) and self._network.reaches(self._host, far)
        )

    def close(self, details: str = "Channel closed!") -> None:
        self.closed = True
        if self.connection is not None:
            self.connection.fail(details, grpc.StatusCode.CANCELLED)
