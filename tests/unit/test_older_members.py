"""A coordinator that no longer serves what living members speak does not lead them."""

from __future__ import annotations

import pytest

from scar.errors import LivenessUnavailable
from scar.placement import Member, Role
from scar_recovery.older_members import OlderMembers
from scar_runtime.liveness.heartbeat_store import Heartbeat

SHARD = Member(Role.SHARD, "ps-0", "a" * 12, "host:1")
OLDEST = 7


class Beats:
    """``protocol`` is what the shard speaks; each look finds its next heartbeat while it ``lives``."""

    def __init__(self, protocol: int) -> None:
        self.protocol, self.lives, self.down, self._count = protocol, True, False, 0

    def read_heartbeats(self) -> dict[str, Heartbeat]:
        if self.down:
            raise LivenessUnavailable("no Redis")
        self._count += self.lives
        return {SHARD.key: Heartbeat(SHARD, 1, 1, self._count, self.protocol)}


def older(beats: Beats) -> OlderMembers:
    return OlderMembers(beats, OLDEST)  # type: ignore[arg-type]


def test_living_members_of_an_older_protocol_are_named_as_long_as_they_live() -> None:
    beats = Beats(OLDEST - 1)
    found = older(beats)
    for _ in range(3):
        obstacle = found.find_obstacle()
        assert f"ps-0 speaks protocol {OLDEST - 1}, and this version serves {OLDEST} and newer" in obstacle
        assert "helm rollback" in obstacle
    beats.lives = False
    assert found.find_obstacle() == ""


@pytest.mark.parametrize("protocol", [OLDEST, OLDEST + 1])
def test_nobody_waits_for_members_that_are_served(protocol: int) -> None:
    assert older(Beats(protocol)).find_obstacle() == ""


def test_a_heartbeat_that_a_detector_has_handed_on_says_nothing_of_its_member() -> None:
    assert older(Beats(0)).find_obstacle() == ""


def test_what_the_dead_have_left_is_seen_at_the_second_look() -> None:
    beats = Beats(OLDEST - 1)
    beats.lives = False
    found = older(beats)
    assert found.find_obstacle() != ""
    assert found.find_obstacle() == ""


def test_without_redis_nobody_can_know() -> None:
    beats = Beats(OLDEST - 1)
    beats.down = True
    assert older(beats).find_obstacle() == ""
