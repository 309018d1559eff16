"""`scar doctor --story NAME`: why a process did what it did, event by event."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape

from scar.v1 import member_pb2
from scar_admin.story import read_story
from scar_cli import output
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import find_cluster
from scar_cli.output import OutputFormat, format_count

INDENT = " " * 13  # under the time of day


def show_story(ref: ClusterRef, name: str, last: int, form: OutputFormat) -> None:
    """Raises :class:`ConfigError` for a name that is not there, and what the process answers."""
    with find_cluster(ref).observer() as observer:
        story = read_story(observer, name, last)

    def text(screen: Console) -> None:
        screen.print(story_headline(story), soft_wrap=True)
        for entry in story.entries:
            for line in entry_lines(entry):
                screen.print(line, soft_wrap=True)

    output.print_result(form, story_document(story), text)


def story_headline(story: member_pb2.GetStoryReply) -> str:
    key = f"[bold]{escape(story.member.name)}[/]@{story.member.incarnation}"
    if not story.entries:
        return f"{key} has no story: nothing has happened yet, or it is on standby"
    return f"{key}: {format_count(len(story.entries), 'event')}, the newest last"


def entry_lines(entry: member_pb2.StoryEntry) -> list[str]:
    """The event, what decided, what was done, with markup."""
    clock = time.strftime("%H:%M:%S", time.localtime(entry.at))
    lines = []
    if sum(entry.skipped.values()) > 1:  # one tick between two events says nothing
        skipped = ", ".join(f"{count} {name}" for name, count in sorted(entry.skipped.items()))
        lines.append(f"{INDENT}[dim]{skipped}: nothing to do[/]")
    lines.append(
        f"{clock}.{int(entry.at * 1000) % 1000:03} [dim]{entry.core}[/] {_item(entry.event, 'bold')}"
    )
    if entry.facts:
        lines.append(f"{INDENT}because {_fields(entry.facts)}")
    lines += [f"{INDENT}-> {_item(action, 'cyan')}" for action in entry.actions]
    return lines


def story_document(story: member_pb2.GetStoryReply) -> dict[str, Any]:
    """For ``-o json``."""
    return {
        "name": story.member.name,
        "incarnation": story.member.incarnation,
        "entries": [_entry_data(entry) for entry in story.entries],
    }


def _entry_data(entry: member_pb2.StoryEntry) -> dict[str, Any]:
    return {
        "at": entry.at,
        "core": entry.core,
        "event": _item_data(entry.event),
        "facts": {fact.name: fact.value for fact in entry.facts},
        "actions": [_item_data(action) for action in entry.actions],
        "skipped": dict(entry.skipped),
    }


def _item_data(item: member_pb2.StoryItem) -> dict[str, Any]:
    return {"name": item.name, "fields": {field.name: field.value for field in item.fields}}


def _item(item: member_pb2.StoryItem, style: str) -> str:
    return f"[{style}]{escape(item.name)}[/] {_fields(item.fields)}".rstrip()


def _fields(fields: Iterable[member_pb2.StoryField]) -> str:
    return " ".join(f"[dim]{field.name}=[/]{escape(_quoted(field.value))}" for field in fields)


def _quoted(text: str) -> str:
    """Quoted where it would not be clear where it ends."""
    return f'"{text}"' if (" " in text and text[:1] not in "[{") or not text else text
