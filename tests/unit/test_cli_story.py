"""`scar doctor --story`: whose story it is, and how it reads."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from scar.errors import ConfigError
from scar.v1 import detector_pb2, member_pb2, recovery_pb2, types_pb2
from scar_admin.status import ClusterStatus
from scar_admin.story import find_member
from scar_cli.story import entry_lines, story_document, story_headline


def member(role: types_pb2.Role.ValueType, name: str, address: str = "10.0.0.1:7070") -> types_pb2.Member:
    return types_pb2.Member(role=role, name=name, incarnation="aaaaaaaaaaaa", address=address)


def item(name: str, **fields: str) -> member_pb2.StoryItem:
    texts = [member_pb2.StoryField(name=field, value=value) for field, value in fields.items()]
    return member_pb2.StoryItem(name=name, fields=texts)


STORY = member_pb2.GetStoryReply(
    member=member(types_pb2.ROLE_DETECTOR, "detector-0"),
    entries=[
        member_pb2.StoryEntry(
            at=1700000000.25,
            core="detector",
            event=item("ProbeAnswered", member="ps-0@bbbbbbbbbbbb", answer="refused"),
            facts=item("", evidence="its port is [closed]").fields,
            actions=[item("AccuseMember", member="ps-0@bbbbbbbbbbbb")],
            skipped={"Tick": 7, "HeartbeatSeen": 30},
        )
    ],
)


def shown(lines: list[str]) -> list[str]:
    screen = Console(file=io.StringIO(), width=200)
    for line in lines:
        screen.print(line, soft_wrap=True)
    return screen.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_story_reads_event_reason_action() -> None:
    skipped, event, reason, action = shown(entry_lines(STORY.entries[0]))
    assert skipped.strip() == "30 HeartbeatSeen, 7 Tick: nothing to do"
    assert event.endswith(".250 detector ProbeAnswered member=ps-0@bbbbbbbbbbbb answer=refused")
    assert reason.strip() == 'because evidence="its port is [closed]"'
    assert action.strip() == "-> AccuseMember member=ps-0@bbbbbbbbbbbb"
    assert shown([story_headline(STORY)]) == ["detector-0@aaaaaaaaaaaa: 1 event, the newest last"]


def test_a_process_without_a_story_says_so() -> None:
    assert "no story" in story_headline(member_pb2.GetStoryReply(member=STORY.member))


def test_a_story_for_programs() -> None:
    data = story_document(STORY)
    assert (data["name"], data["incarnation"]) == ("detector-0", "aaaaaaaaaaaa")
    assert data["entries"] == [
        {
            "at": 1700000000.25,
            "core": "detector",
            "event": {
                "name": "ProbeAnswered",
                "fields": {"member": "ps-0@bbbbbbbbbbbb", "answer": "refused"},
            },
            "facts": {"evidence": "its port is [closed]"},
            "actions": [{"name": "AccuseMember", "fields": {"member": "ps-0@bbbbbbbbbbbb"}}],
            "skipped": {"Tick": 7, "HeartbeatSeen": 30},
        }
    ]


def test_members_are_found_by_name_or_by_kind_and_number() -> None:
    pods = [member(types_pb2.ROLE_RECOVERY, f"scar-recovery-7d9f-{end}") for end in ("x2x", "b9b")]
    status = ClusterStatus(
        recovery=recovery_pb2.RecoveryStatus(members=[*pods, member(types_pb2.ROLE_WORKER, "w", "")]),
        epoch=types_pb2.Epoch(shards=[member(types_pb2.ROLE_SHARD, "scar-ps-0")]),
        members={"d": detector_pb2.MemberView(member=member(types_pb2.ROLE_DETECTOR, "d"))},
    )
    assert find_member(status, "scar-ps-0").name == "scar-ps-0"
    assert find_member(status, "ps-0").name == "scar-ps-0"
    assert find_member(status, "recovery-0").name == "scar-recovery-7d9f-b9b"
    assert find_member(status, "recovery-1").name == "scar-recovery-7d9f-x2x"
    assert find_member(status, "detector-0").name == "d"
    for missing in ("recovery-2", "w", "ps", "redis-0"):
        with pytest.raises(ConfigError, match="no process") as raised:
            find_member(status, missing)
        assert "scar-ps-0" in raised.value.next_step
