"""Streams to members that have answered are kept; the others share a few, and each gets its turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scar.placement import Member, Role
from scar_detector import watch_list
from scar_detector.watch_list import MAX_STRANGERS, STRANGER_SECONDS, WatchList


class FakeWatch:
    """In the place of a stream."""

    def __init__(self, member: Member, on_broken: object, on_answer: Callable[[FakeWatch], None]) -> None:
        self.member = member
        self.closed = False
        self.answer = lambda: on_answer(self)

    def run(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeWatch]:
    """The newest watch of each member, by name."""
    found: dict[str, FakeWatch] = {}

    def make(member: Member, *more: Callable[..., None]) -> FakeWatch:
        found[member.name] = FakeWatch(member, *more)
        return found[member.name]

    monkeypatch.setattr(watch_list, "DeathWatch", make)
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(watch_list.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def watches(made: dict[str, FakeWatch], clock: list[float]) -> WatchList:
    return WatchList(lambda _name, _run: None, lambda _member, _hung_up: None)


def member(number: int, address: str = "10.0.0.1:1") -> Member:
    return Member(Role.WORKER, f"w-{number}", "a" * 12, address)


def add(watches: WatchList, numbers: range) -> None:
    for number in numbers:
        watches.add(member(number))


def test_who_answers_makes_room(watches: WatchList, made: dict[str, FakeWatch]) -> None:
    add(watches, range(MAX_STRANGERS + 2))
    assert len(made) == len(watches) == MAX_STRANGERS
    made["w-0"].answer()
    assert len(watches) == MAX_STRANGERS + 1
    add(watches, range(100, 100 + MAX_STRANGERS))
    for name in list(made):
        made[name].answer()
    for name in list(made):
        made[name].answer()
    assert len(watches) == len(made) == 2 * MAX_STRANGERS + 2
    assert not any(watch.closed for watch in made.values())


def test_strangers_take_turns_when_others_wait(
    watches: WatchList, made: dict[str, FakeWatch], clock: list[float]
) -> None:
    add(watches, range(MAX_STRANGERS))
    made["w-1"].answer()
    clock[0] = 10 * STRANGER_SECONDS
    watches.rotate()
    assert not any(watch.closed for watch in made.values()), "nobody waits"
    add(watches, range(100, 103))
    watches.rotate()
    assert {name for name, watch in made.items() if watch.closed} == {"w-0", "w-2"}
    assert {"w-101", "w-102"} <= set(made)
    assert not made["w-1"].closed
    assert len(watches) == MAX_STRANGERS + 1


def test_an_answer_that_comes_too_late_keeps_nothing(
    watches: WatchList, made: dict[str, FakeWatch], clock: list[float]
) -> None:
    add(watches, range(2 * MAX_STRANGERS))
    late = made["w-0"]
    clock[0] = 2 * STRANGER_SECONDS
    watches.rotate()
    assert late.closed
    late.answer()
    assert len(watches) == MAX_STRANGERS


def test_who_is_removed_makes_room(watches: WatchList, made: dict[str, FakeWatch]) -> None:
    add(watches, range(MAX_STRANGERS + 2))
    watches.remove(member(0).key)
    watches.remove(member(MAX_STRANGERS + 1).key)
    assert made["w-0"].closed
    assert f"w-{MAX_STRANGERS}" in made
    assert f"w-{MAX_STRANGERS + 1}" not in made
    watches.close()
    assert all(watch.closed for watch in made.values())


def test_who_has_no_address_is_not_watched(watches: WatchList, made: dict[str, FakeWatch]) -> None:
    watches.add(member(0, address=""))
    assert not made
