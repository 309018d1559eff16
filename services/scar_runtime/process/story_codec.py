"""Stories as messages: what the cores of a process have handled, as text, by the time of day."""

from __future__ import annotations

import time
from collections.abc import Sequence

from scar.event_log import HandledEvent, StorySource, describe_fields, describe_value, name_of
from scar.v1 import member_pb2

MOST_ACTIONS = 16  # of one event that are spelled out


def story_to_proto(sources: Sequence[StorySource], last: int = 0) -> list[member_pb2.StoryEntry]:
    """Entries of all cores in the order of their times; ``last``: at most so many, the newest; 0: all."""
    found = []
    for source in sources:
        offset = time.time() - source.clock()
        found += [(entry.time + offset, source.core, entry) for entry in source.ring.entries()]
    found.sort(key=lambda one: one[0])
    return [_entry_to_proto(*one) for one in found[-last:]]


def _entry_to_proto(at: float, core: str, entry: HandledEvent) -> member_pb2.StoryEntry:
    actions = [_item_to_proto(action) for action in entry.actions[:MOST_ACTIONS]]
    if len(entry.actions) > MOST_ACTIONS:
        actions.append(member_pb2.StoryItem(name=f"and {len(entry.actions) - MOST_ACTIONS} more"))
    facts = [_field_to_proto(name, describe_value(value)) for name, value in entry.facts.items()]
    return member_pb2.StoryEntry(
        at=at,
        core=core,
        event=_item_to_proto(entry.event),
        actions=actions,
        facts=facts,
        skipped=entry.skipped,
    )


def _item_to_proto(item: object) -> member_pb2.StoryItem:
    described = [_field_to_proto(name, text) for name, text in describe_fields(item)]
    return member_pb2.StoryItem(name=name_of(item), fields=described)


def _field_to_proto(name: str, text: str) -> member_pb2.StoryField:
    return member_pb2.StoryField(name=name, value=text)
