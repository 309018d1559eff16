"""The story of a core: its last events, the actions they led to, and the facts that decided. Pure.

A core that is fed by ``handle(event, now) -> actions`` keeps an :class:`EventRing`:

    def handle(self, event: Event, now: float) -> list[Action]:
        actions = self._dispatch(event, now)  # calls self.story.note(phi=9.1) where something is decided
        self.story.record(now, event, actions)
        return actions

Recording holds references only; text is made when somebody asks (``scar doctor --story ps-0``). Events and
actions are frozen, so what is shown later is what was handled.

A story can be replayed in a test, when it was kept whole:

    core = Detector(policy, EventRing(complete=True))
    ...  # whatever the test does
    assert replay(core.story.entries(), Detector(policy).handle) == []
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from scar.placement import Epoch, Member

CAPACITY = 400  # entries that a ring keeps
LONGEST_TEXT = 200  # characters of one value
LONGEST_LIST = 8  # items of a sequence or mapping that are spelled out
DEEPEST = 2  # dataclasses inside dataclasses that are spelled out

Handle = Callable[[Any, float], Sequence[object]]


@dataclass(frozen=True, slots=True)
class HandledEvent:
    """One entry. ``time``: seconds of the core's clock; ``skipped``: events since the entry before that led
    to nothing, or to the same as that one, by the name of their type.
    """

    time: float
    event: object
    actions: tuple[object, ...]
    facts: Mapping[str, object]
    skipped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EventSummary:
    """What the story keeps of an event or action that is too large to be kept."""

    name: str
    fields: Mapping[str, object]


class EventRing:
    """The last events of one core. Written by whoever calls the core; any thread may read.

    Events that led to no action and about which nothing was noted are counted, not kept: a heartbeat every
    100 ms would push out everything else. So are those that repeat the entry before: a shard without work
    looks at the store every few seconds, for hours. ``complete``: keep every event, without a bound and as
    it is, so that the story can be replayed.

    An event or action that carries arrays defines ``for_story()``: what it returns is kept instead, mostly an
    :class:`EventSummary`.
    """

    def __init__(self, capacity: int = CAPACITY, *, complete: bool = False) -> None:
        self._complete = complete
        self._entries: deque[HandledEvent] = deque(maxlen=None if complete else capacity)
        self._facts: dict[str, object] = {}
        self._skipped: dict[str, int] = {}

    def note(self, **facts: object) -> None:
        """Facts that decide about the event being handled. They also make it worth an entry."""
        self._facts.update(facts)

    def record(self, now: float, event: object, actions: Sequence[object] = ()) -> None:
        """The core has handled ``event``; takes what was noted since the last call."""
        if not self._complete:
            if not actions and not self._facts:
                return self._skip(event)
            kept = _summarised(event)
            actions = [_summarised(action) for action in actions]
            if self._entries and _repeats(self._entries[-1], kept, actions, self._facts):
                self._facts = {}
                return self._skip(event)
            event = kept
        self._entries.append(HandledEvent(now, event, tuple(actions), self._facts, self._skipped))
        self._facts = {}
        self._skipped = {}
        return None

    def _skip(self, event: object) -> None:
        name = type(event).__name__
        self._skipped[name] = self._skipped.get(name, 0) + 1

    def entries(self) -> tuple[HandledEvent, ...]:
        """Oldest first."""
        return tuple(self._entries.copy())  # one step of the interpreter: safe beside a writer


@dataclass(frozen=True)
class StorySource:
    """The story of one core of a process, as it is asked for. ``clock``: the one that the core's times are
    of.
    """

    core: str
    ring: EventRing
    clock: Callable[[], float]


@dataclass(frozen=True)
class ReplayDifference:
    """An event that led to other actions this time. ``index``: of its entry."""

    index: int
    event: object
    recorded: tuple[object, ...]
    replayed: tuple[object, ...]


def replay(entries: Iterable[HandledEvent], handle: Handle) -> list[ReplayDifference]:
    """Feed the events of a complete story to a fresh core; returns where it acts differently."""
    differences = []
    for index, entry in enumerate(entries):
        actions = tuple(handle(entry.event, entry.time))
        if not _is_same(actions, entry.actions):
            differences.append(ReplayDifference(index, entry.event, entry.actions, actions))
    return differences


def name_of(item: object) -> str:
    """The type of an event or action, also of one that is summarised."""
    return item.name if isinstance(item, EventSummary) else type(item).__name__


def describe_fields(item: object) -> list[tuple[str, str]]:
    """What an event or action says: names and texts of its fields."""
    if isinstance(item, EventSummary):
        return [(name, describe_value(value)) for name, value in item.fields.items()]
    if not is_dataclass(item):
        return [("value", describe_value(item))]
    return [(field.name, describe_value(getattr(item, field.name))) for field in fields(item)]


def describe_value(value: object, depth: int = 0) -> str:
    """One line of text for people; what is large is summarised by its shape or count."""
    text = _describe(value, depth)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 3]}..."


def _describe(value: object, depth: int) -> str:
    if isinstance(value, Member):
        return value.key
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None or isinstance(value, str | int):
        return str(value)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if isinstance(value, Mapping | Sequence | set | frozenset):
        return _describe_many(value, depth)
    if is_dataclass(value) and depth < DEEPEST:
        return _describe_dataclass(value, depth)
    return type(value).__name__


def _describe_dataclass(value: Any, depth: int) -> str:
    inner = []
    for field in fields(value):
        inner.append(f"{field.name}={describe_value(getattr(value, field.name), depth + 1)}")
    return f"{type(value).__name__}({', '.join(inner)})"


def _describe_many(value: Any, depth: int) -> str:
    if len(value) > LONGEST_LIST:
        return f"{len(value)} items"
    if isinstance(value, Mapping):
        pairs = (f"{describe_value(key)}: {describe_value(item, depth + 1)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    items = [describe_value(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        items.sort()
    return f"[{', '.join(items)}]"


def describe_epoch(epoch: Epoch) -> dict[str, object]:
    """What a story keeps of an epoch: its owners are an entry for each block."""
    return {
        "epoch": epoch.number,
        "cause": epoch.cause,
        "rollback": epoch.rollback,
        "shards": [member.name for member in epoch.shards],
        "workers": [member.name for member in epoch.workers],
        "moved": sum(len(group.ids) for group in epoch.moved),
    }


def _repeats(
    entry: HandledEvent, event: object, actions: Sequence[object], facts: Mapping[str, object]
) -> bool:
    return _is_same((entry.event, entry.actions, entry.facts), (event, tuple(actions), facts))


def _summarised(item: object) -> object:
    summarise = getattr(item, "for_story", None)
    return item if summarise is None else summarise()


def _is_same(one: object, other: object) -> bool:
    """Equal in type and content, whatever the types' own ``==`` is."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)  # type: ignore[arg-type]
    if isinstance(one, list | tuple):
        assert isinstance(other, list | tuple)
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, Mapping):
        assert isinstance(other, Mapping)
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if is_dataclass(one):
        return all(_is_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if one == other or (one != one and other != other):  # NaN
        return True
    return hasattr(one, "__dict__") and _is_same(vars(one), vars(other))
