"""A leader's story: it can be replayed, and it keeps no arrays."""

from __future__ import annotations

import pytest

from scar.event_log import describe_fields, replay
from scar_recovery.core.planner import Planner
from tests.framework.recovery import World, make_job
from tests.framework.stories import holds_array


def recovered(world: World) -> Planner:
    """A cluster that has lost a shard, got another one and moved blocks to it."""
    for name in ("ps-0", "ps-1", "ps-2"):
        world.start(name)
    leader = world.lead("a")
    world.settle(leader)
    victim = next(shard for shard in world.shards.values() if shard.member.name == "ps-1")
    victim.running = False
    world.fail(leader, victim)
    world.settle(leader)
    leader.state.admit_member(world.start("ps-1").member)
    world.settle(leader)
    world.values()
    return world.planners["a"]


@pytest.mark.parametrize("recovery", ["partial", "sync-chain"])
def test_the_same_events_lead_to_the_same_actions(recovery: str) -> None:
    world = World(make_job(3, recovery=recovery))
    world.whole_stories = True
    story = recovered(world).story.entries()
    assert len(story) > 20
    assert replay(story, Planner("a", world.settings).handle) == []


def test_a_story_says_what_was_done_and_keeps_no_arrays() -> None:
    story = recovered(World(make_job(3))).story.entries()
    done = [action for entry in story for action in entry.actions]
    names = {type(action).__name__ for action in done}
    assert {"CommitEpochSummary", "MoveBlocksSummary"} <= names
    failure = next(action for action in done if getattr(action, "cause", "") == "failure")
    assert ("lost", "20") in describe_fields(failure)
    for entry in story:
        for item in (entry.event, *entry.actions):
            assert not holds_array(item), item
