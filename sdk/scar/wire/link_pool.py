"""Connections to many processes: one for each, opened at its first use, closed when its process has left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from scar.placement import Member
from scar.wire.shard_link import ShardLink


class Closable(Protocol):
    """A connection: calls in flight fail when it is closed."""

    def close(self) -> None: ...


Connection = TypeVar("Connection", bound=Closable)


class LinkPool(Generic[Connection]):
    """One connection for each key: a member's key, or an address. Any thread may use it.

    Connections are closed outside the lock: that ends their calls, whose callbacks may come back here.
    """

    def __init__(self) -> None:
        self._open: dict[str, Connection] = {}
        self._lock = threading.RLock()

    def get(self, key: str, open_link: Callable[[], Connection]) -> Connection:
        """The connection for this key; ``open_link`` makes one when there is none."""
        with self._lock:
            if key not in self._open:
                self._open[key] = open_link()
            return self._open[key]

    def find(self, key: str) -> Connection | None:
        """The connection for this key, if there is one. Takes no lock."""
        return self._open.get(key)

    def retain(self, keys: Collection[str]) -> None:
        """Close all connections but these."""
        with self._lock:
            others = [self._open.pop(key) for key in list(self._open) if key not in keys]
        for link in others:
            link.close()

    def drop(self, key: str) -> None:
        """Close this connection, if there is one: the next :meth:`get` opens another."""
        with self._lock:
            link = self._open.pop(key, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Close all connections."""
        self.retain(())


class ShardLinks(LinkPool[ShardLink]):
    """Connections of a service to shards, by member key."""

    def connect(self, shard: Member) -> ShardLink:
        """The connection to this life of the shard. Nothing is sent before its first call."""
        return self.get(shard.key, lambda: _open_link(shard))

    @contextmanager
    def borrow(self, member: Member) -> Iterator[ShardLink]:
        """The connection to this life, if there is one; else one for this moment: who is asked whether it
        lives may be dead, and nobody would close the connection.
        """
        kept = self.find(member.key)
        link = kept or _open_link(member)
        try:
            yield link
        finally:
            if kept is None:
                link.close()


def _open_link(member: Member) -> ShardLink:
    """Members of other roles are asked whether they live, too."""
    return ShardLink(member.address, member.key, member.role.label)
