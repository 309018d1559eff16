"""LinkPool: one connection for each key, closed when nobody needs it any more."""

from __future__ import annotations

from functools import partial

from scar.wire.link_pool import LinkPool


class Link:
    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False

    def close(self) -> None:
        self.closed = True


def opened(pool: LinkPool[Link], *names: str) -> list[Link]:
    return [pool.get(name, partial(Link, name)) for name in names]


def test_a_connection_is_opened_once_and_found_again() -> None:
    pool: LinkPool[Link] = LinkPool()
    assert pool.find("a") is None
    first, second = opened(pool, "a", "b")
    assert opened(pool, "a", "b") == [first, second]
    assert pool.find("a") is first


def test_all_but_the_retained_are_closed() -> None:
    pool: LinkPool[Link] = LinkPool()
    first, second, third = opened(pool, "a", "b", "c")
    pool.retain({"b", "unknown"})
    assert [first.closed, second.closed, third.closed] == [True, False, True]
    assert pool.find("a") is None
    assert pool.find("b") is second


def test_a_dropped_connection_is_opened_again() -> None:
    pool: LinkPool[Link] = LinkPool()
    (first,) = opened(pool, "a")
    pool.drop("a")
    pool.drop("unknown")
    (second,) = opened(pool, "a")
    assert first.closed
    assert not second.closed
    assert first is not second


def test_closing_the_pool_closes_everything() -> None:
    pool: LinkPool[Link] = LinkPool()
    links = opened(pool, "a", "b")
    pool.close()
    assert all(link.closed for link in links)
    assert pool.find("a") is None
