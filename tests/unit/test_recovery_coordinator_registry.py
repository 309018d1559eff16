"""Who attends: coordinators whose heartbeats go on, whatever their pods are called."""

from __future__ import annotations

from collections.abc import Mapping

from scar.errors import LivenessUnavailable
from scar.placement import Member, Role
from scar_recovery.coordinator_registry import LOOK_SECONDS, CoordinatorRegistry
from scar_runtime.liveness.heartbeat_store import Heartbeat

OWN = Member(Role.RECOVERY, "recovery-abc", "aaaaaaaaaaaa", "host:1")
OTHERS = [
    Member(Role.CHECKPOINT, "checkpoint-abc", "bbbbbbbbbbbb", "host:2"),
    Member(Role.DETECTOR, "detector-abc", "cccccccccccc", "host:3"),
    Member(Role.SHARD, "ps-0", "dddddddddddd", "host:4"),
]


class Redis:
    """Heartbeats that stay when their member is gone."""

    def __init__(self) -> None:
        self.down = False
        self.counts = dict.fromkeys((OWN, *OTHERS), 1)

    def beat(self, *members: Member) -> None:
        for member in members:
            self.counts[member] = self.counts.get(member, 0) + 1

    def read_heartbeats(self) -> Mapping[str, Heartbeat]:
        if self.down:
            raise LivenessUnavailable("no Redis")
        return {member.key: Heartbeat(member, 0, 0, count) for member, count in self.counts.items()}


def names(found: list[Member] | None) -> list[str]:
    assert found is not None
    return [member.name for member in found]


def test_who_does_not_beat_any_more_is_struck_off_and_who_came_is_added() -> None:
    redis = Redis()
    registry = CoordinatorRegistry(redis, OWN)  # type: ignore[arg-type]
    assert names(registry.live_coordinators(100.0)) == ["recovery-abc", "checkpoint-abc", "detector-abc"]
    assert registry.live_coordinators(100.0 + LOOK_SECONDS / 2) is None, "not yet"
    successor = Member(Role.CHECKPOINT, "checkpoint-xyz", "eeeeeeeeeeee", "host:5")
    redis.beat(OTHERS[1], successor)
    assert names(registry.live_coordinators(100.0 + LOOK_SECONDS)) == [
        "recovery-abc",
        "detector-abc",
        "checkpoint-xyz",
    ]


def test_an_outage_of_redis_strikes_nobody_off() -> None:
    redis = Redis()
    registry = CoordinatorRegistry(redis, OWN)  # type: ignore[arg-type]
    registry.live_coordinators(100.0)
    redis.down = True
    assert registry.live_coordinators(103.0) is None
    redis.down = False
    assert names(registry.live_coordinators(106.0)) == ["recovery-abc", "checkpoint-abc", "detector-abc"], (
        "nobody could beat meanwhile"
    )
