"""Channels to the processes of a cluster, however they are reached from here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeVar, cast

import grpc

from scar.wire.link_pool import LinkPool
from scar.wire.transport import open_channel

Stub = TypeVar("Stub")


class Dialer(Protocol):
    """How to reach an address of the cluster from here."""

    def target_of(self, address: str) -> str:
        """What to connect to instead."""
        ...

    def keep_only(self, addresses: Collection[str]) -> None:
        """No other address is needed any more."""
        ...


class DirectDialer:
    """:class:`Dialer` for clusters whose addresses can be reached as they are."""

    def target_of(self, address: str) -> str:
        return address

    def keep_only(self, _addresses: Collection[str], /) -> None:
        """Nothing was opened."""


class ChannelCache(LinkPool[grpc.Channel]):
    """One channel to each address. Any thread may use it."""

    def __init__(self, dialer: Dialer | None = None) -> None:
        super().__init__()
        self._dialer = dialer or DirectDialer()
        self._stubs: dict[grpc.Channel, dict[Callable[[grpc.Channel], object], object]] = {}

    def channel_to(self, address: str, service: str = "", role: str = "") -> grpc.Channel:
        """``service``: of a coordinator; then the replica that leads answers. ``role``: who answers there."""
        return self.get(address, lambda: open_channel(self._dialer.target_of(address), service, role))

    def stub_at(
        self, make: Callable[[grpc.Channel], Stub], address: str, service: str = "", role: str = ""
    ) -> Stub:
        """What ``make`` makes of :meth:`channel_to`. It is kept as long as the channel: a stub of a service
        makes all of its methods, and who watches asks each member one of them, again and again.
        """
        channel = self.channel_to(address, service, role)
        stubs = cast("dict[Callable[[grpc.Channel], Stub], Stub]", self._stubs.setdefault(channel, {}))
        if make not in stubs:
            stubs[make] = make(channel)
        return stubs[make]

    def keep_only(self, addresses: Collection[str]) -> None:
        """Close all others: they would try to reach dead processes forever."""
        with self._lock:
            self.retain(addresses)
            self._dialer.keep_only(addresses)
            kept = set(self._open.values())
            self._stubs = {channel: stubs for channel, stubs in self._stubs.items() if channel in kept}

    def close(self) -> None:
        self.keep_only(())
