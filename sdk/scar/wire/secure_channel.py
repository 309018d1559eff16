"""A channel whose certificate may change: new calls go over a connection made with the newest one, and calls
in flight end where they began.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

from scar.wire.certificates import Certificate, CertificateSource
from scar.wire.credentials import answering_role, channel_credentials
from scar.wire.interception import intercepted

Option = tuple[str, int | str]


class SecureChannel(grpc.Channel):  # type: ignore[misc]  # grpc has no types
    """``role``: who answers, for services that everybody has."""

    def __init__(
        self, source: CertificateSource, address: str, options: list[Option], role: str = ""
    ) -> None:
        self._source = source
        self._address = address
        self._options = options
        self._role = role
        self._open: dict[str, _Connection] = {}  # role of who answers -> newest
        self._retired: set[_Connection] = set()  # that still have calls
        self._closed = False
        self._lock = threading.Lock()

    def lend(self, method: str) -> _Connection:
        """The connection for one more call; :meth:`take_back` when it is over. ValueError: it is closed."""
        role = answering_role(method, self._role)
        certificate = self._source.current()
        with self._lock:
            if self._closed:
                raise ValueError("Cannot invoke RPC on closed channel!")
            known = self._open.get(role)
            if known is None or known.certificate is not certificate:
                self._open[role] = self._connect(role, certificate)
                self._retired |= {known} if known is not None else set()
            lent = self._open[role]
            lent.calls += 1
            unused = {one for one in self._retired if not one.calls}
            self._retired -= unused
        for one in unused:
            one.channel.close()
        return lent

    def take_back(self, lent: _Connection) -> None:
        """A call is over. Closes nothing: gRPC's own thread may tell us, which a channel's end waits for."""
        with self._lock:
            lent.calls -= 1

    def close(self) -> None:
        """Ends calls in flight, too."""
        with self._lock:
            self._closed = True
            connections = [*self._open.values(), *self._retired]
            self._open.clear()
            self._retired.clear()
        for one in connections:
            one.channel.close()

    def _connect(self, role: str, certificate: Certificate) -> _Connection:
        name = certificate.identity.peer_name(role)
        options = [*self._options, ("grpc.ssl_target_name_override", name)]
        channel = grpc.secure_channel(self._address, channel_credentials(certificate), options)
        return _Connection(certificate, intercepted(channel))

    def unary_unary(self, method: str, *how: Any, **more: Any) -> Any:
        return _Method(self, "unary_unary", (method, *how), more)

    def unary_stream(self, method: str, *how: Any, **more: Any) -> Any:
        return _Method(self, "unary_stream", (method, *how), more)

    def stream_unary(self, method: str, *how: Any, **more: Any) -> Any:
        return _Method(self, "stream_unary", (method, *how), more)

    def stream_stream(self, method: str, *how: Any, **more: Any) -> Any:
        return _Method(self, "stream_stream", (method, *how), more)

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        raise NotImplementedError("there may be several connections, each in a state of its own")

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        """Nobody could subscribe."""

    def __enter__(self) -> SecureChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Connection:
    """A channel made with one certificate. ``calls``: in flight."""

    def __init__(self, certificate: Certificate, channel: grpc.Channel) -> None:
        self.certificate = certificate
        self.channel = channel
        self.calls = 0


class _Method:
    """One method of a service, on whichever connection is the newest when it is called."""

    def __init__(self, channel: SecureChannel, kind: str, how: tuple[Any, ...], more: dict[str, Any]) -> None:
        self._channel = channel
        self._kind = kind
        self._how = how
        self._more = more
        self._made: tuple[_Connection, Any] | None = None  # of the connection that was used last

    def __call__(self, *request: Any, **options: Any) -> Any:
        if self._kind.endswith("stream"):
            return self._begin(lambda method: method(*request, **options))
        lent = self._channel.lend(self._how[0])
        try:
            return self._on(lent)(*request, **options)
        finally:
            self._channel.take_back(lent)

    def future(self, *request: Any, **options: Any) -> Any:
        return self._begin(lambda method: method.future(*request, **options))

    def _begin(self, start: Callable[[Any], Any]) -> Any:
        """A call that goes on after this."""
        lent = self._channel.lend(self._how[0])
        try:
            call = start(self._on(lent))
        except BaseException:
            self._channel.take_back(lent)
            raise
        if not call.add_callback(lambda: self._channel.take_back(lent)):
            self._channel.take_back(lent)
        return call

    def _on(self, lent: _Connection) -> Any:
        made = self._made
        if made is None or made[0] is not lent:
            made = self._made = (lent, getattr(lent.channel, self._kind)(*self._how, **self._more))
        return made[1]
