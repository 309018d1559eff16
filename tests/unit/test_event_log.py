"""The story of a core: what a ring keeps, how it reads, and that it can be replayed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from scar.event_log import (
    EventRing,
    StorySource,
    describe_fields,
    describe_value,
    replay,
)
from scar.placement import Member, Role
from scar_runtime.process.story_codec import story_to_proto

SHARD = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa")


class Mood(Enum):
    GOOD = "all is well"


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Added:
    number: int


@dataclass(frozen=True, eq=False)
class Measured:
    member: Member
    distances: NDArray[np.float32]

    def for_story(self) -> Measured:
        return Measured(self.member, self.distances[:0])


@dataclass(frozen=True, eq=False)
class Announce:
    total: float
    numbers: NDArray[np.int64]


class Sum:
    """A core that announces its total at every third number."""

    def __init__(self, story: EventRing | None = None, step: int = 3) -> None:
        self.story = story or EventRing()
        self._numbers: list[int] = []
        self._step = step

    def handle(self, event: Tick | Added, now: float) -> list[Announce]:
        actions: list[Announce] = []
        if isinstance(event, Added):
            self._numbers.append(event.number)
            if len(self._numbers) % self._step == 0:
                self.story.note(count=len(self._numbers))
                actions.append(Announce(math.nan, np.array(self._numbers)))
        self.story.record(now, event, actions)
        return actions


def test_it_keeps_what_led_to_something_and_counts_the_rest() -> None:
    core = Sum()
    for number in range(1, 7):
        core.handle(Tick(), number)
        core.handle(Added(number), number + 0.5)
    first, second = core.story.entries()
    assert (first.time, first.event, first.facts) == (3.5, Added(3), {"count": 3})
    assert first.skipped == {"Tick": 3, "Added": 2}
    assert (second.event, second.skipped) == (Added(6), {"Tick": 3, "Added": 2})


def test_a_fact_makes_an_event_worth_an_entry() -> None:
    ring = EventRing()
    ring.note(redis="away")
    ring.record(1.0, Tick())
    ring.record(2.0, Tick())
    assert [entry.facts for entry in ring.entries()] == [{"redis": "away"}]


def test_it_is_bounded() -> None:
    ring = EventRing(capacity=3)
    for number in range(10):
        ring.record(number, Added(number), [Tick()])
    assert [entry.event for entry in ring.entries()] == [Added(7), Added(8), Added(9)]


def test_large_arrays_are_not_kept_alive_unless_the_story_is_to_be_complete() -> None:
    for complete, kept in ((False, 0), (True, 1000)):
        ring = EventRing(complete=complete)
        measured = Measured(SHARD, np.zeros(1000, np.float32))
        ring.record(1.0, measured, [measured])
        (entry,) = ring.entries()
        assert [len(one.distances) for one in (entry.event, *entry.actions)] == [kept, kept]


def test_a_complete_story_replays_and_shows_where_another_core_differs() -> None:
    core = Sum(EventRing(complete=True))
    for number in range(7):
        core.handle(Added(number), number)
        core.handle(Tick(), number)
    assert replay(core.story.entries(), Sum().handle) == []
    differences = replay(core.story.entries(), Sum(step=4).handle)
    assert [difference.event for difference in differences] == [Added(2), Added(3), Added(5)]
    assert differences[0].recorded
    assert differences[0].replayed == ()


def test_values_read_as_short_text() -> None:
    assert describe_value(SHARD) == "ps-0@aaaaaaaaaaaa"
    assert describe_value(Mood.GOOD) == "good"
    assert describe_value(0.30000001) == "0.3"
    assert describe_value(np.zeros((1000, 16), np.float32)) == "float32[1000, 16]"
    assert describe_value(b"12345") == "5 bytes"
    assert describe_value(range(100)) == "100 items"
    assert describe_value({"b", "a"}) == "[a, b]"
    assert describe_value({"ps-0": 3}) == "{ps-0: 3}"
    assert describe_value(Added(3)) == "Added(number=3)"
    assert describe_value(ValueError("no")) == "ValueError: no"
    assert describe_value(object()) == "object"
    assert len(describe_value("x" * 1000)) == 200
    assert describe_fields(Measured(SHARD, np.zeros(2, np.float32))) == [
        ("member", "ps-0@aaaaaaaaaaaa"),
        ("distances", "float32[2]"),
    ]


def test_stories_of_several_cores_are_told_in_the_order_of_time() -> None:
    shard, client = EventRing(), EventRing()
    shard.record(100.0, Added(1), [Tick()])
    client.record(5.0, Added(2), [Tick()] * 20)
    shard.record(101.0, Added(3), [Tick()])
    sources = [StorySource("shard", shard, lambda: 102.0), StorySource("client", client, lambda: 5.5)]
    story = story_to_proto(sources)
    assert [entry.core for entry in story] == ["shard", "shard", "client"]
    assert [entry.event.fields[0].value for entry in story] == ["1", "3", "2"]
    assert abs(story[0].at - (time.time() - 2)) < 1
    assert story[2].actions[-1].name == "and 4 more"
    assert [entry.core for entry in story_to_proto(sources, last=2)] == ["shard", "client"]


def test_recording_is_cheap() -> None:
    ring = EventRing()
    event = Tick()
    started = time.thread_time()  # what else runs on the machine does not count
    for number in range(100_000):
        ring.record(number, event)
    assert time.thread_time() - started < 2.0, "20 µs an event would be felt"
