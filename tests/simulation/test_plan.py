"""Plans: pure data from a seed, and every one of them can be played."""

from __future__ import annotations

import pytest

from scar_chaos.core.counting_job import make_job
from tests.simulation.faults import KINDS
from tests.simulation.faults.hosts import CRASH_MOMENTS, START_MOMENTS
from tests.simulation.focus import FOCUSES
from tests.simulation.heartbeats import (
    BLOCK,
    CHEAP_EVERY,
    CHEAP_FROM,
    CHEAPEST_EVERY,
    CHEAPEST_FROM,
    DEFAULT,
    EVERY,
    SLOW,
    SLOWER,
    heartbeat_of,
)
from tests.simulation.plan import EARLY, LONG, LONG_EVERY, Focus, Plan, draw_plan
from tests.simulation.simulate import CHUNK, chunks_of
from tests.simulation.swarm import plan_of

SEEDS = range(1, 301)


def test_a_seed_is_a_plan_and_survives_json() -> None:
    assert plan_of(7) == plan_of(7)
    assert plan_of(7) != plan_of(8)
    assert all(Plan.from_json(plan_of(seed).to_json()) == plan_of(seed) for seed in SEEDS)


def test_every_shape_is_a_job() -> None:
    """:class:`scar.Job` refuses what does not go together."""
    jobs = [make_job(**plan_of(seed).shape.job_options(seed)) for seed in SEEDS]
    assert {job.recovery for job in jobs} >= {"partial", "full", "sync-chain", "async-chain", "stateless"}
    assert {job.worker_recovery for job in jobs} == {"ignr", "ps", "ckpt"}
    assert {job.sources for job in jobs} == {"checkpoint", "workers"}


def test_faults_strike_members_that_there_are() -> None:
    kinds = {name: lambda draw, shape: (draw.choice(shape.members), 1.0, 0.0) for name in ("a", "b", "c")}
    plans = [draw_plan(seed, kinds) for seed in SEEDS]
    assert all(fault.target in plan.shape.members for plan in plans for fault in plan.faults)
    assert sum(plan.shape.seconds == LONG for plan in plans) == len(SEEDS) // LONG_EVERY
    assert {len({fault.kind for fault in plan.faults}) for plan in plans} == {1, 2, 3}


def test_a_focus_fixes_what_it_names() -> None:
    plan = plan_of(3, Focus({"recovery": "sync-chain", "shards": 3}, ("kill",)))
    assert (plan.shape.recovery, plan.shape.shards) == ("sync-chain", 3)
    assert {fault.kind for fault in plan.faults} == {"kill"}


@pytest.mark.parametrize("text", ["{}", "[]", '{"seed": 1, "shape": {"shard": 2}, "groups": []}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises((KeyError, TypeError)):
        Plan.from_json(text)


def test_cheap_seeds_have_as_many_faults_and_last_as_long_as_others() -> None:
    others = [plan_of(seed) for seed in range(CHEAP_FROM - 300, CHEAP_FROM)]
    cheap = [plan_of(seed) for seed in range(CHEAP_FROM, CHEAP_FROM + 300)]
    cheapest = [plan_of(seed) for seed in range(CHEAPEST_FROM, CHEAPEST_FROM + 800)]
    for plans, share in ((others, EVERY), (cheap, CHEAP_EVERY), (cheapest, CHEAPEST_EVERY)):
        assert sum(plan.shape.seconds == LONG for plan in plans) == len(plans) // LONG_EVERY
        beats = [plan.shape.heartbeat for plan in plans]
        assert abs(beats.count(DEFAULT) - len(plans) / share) <= BLOCK
        assert len([fault for plan in plans for fault in plan.faults]) >= 10 * len(plans)
    assert {plan.shape.heartbeat for plan in cheap} == {DEFAULT, SLOW, SLOWER}
    assert {plan.shape.pace for plan in others} == {0.5, 1.0, 2.0, 4.0}
    assert {plan.shape.pace for plan in cheap if plan.shape.seconds == LONG} == {4.0, 8.0}
    assert {plan.shape.heartbeat for plan in cheapest} == {DEFAULT, SLOW, SLOWER}
    assert {len(plan.groups) for plan in cheapest if plan.shape.seconds == LONG} == {2}
    assert {plan.shape.shards for plan in cheapest} == {2, 3, 4}
    assert {plan.shape.workers for plan in cheapest} == {1, 2, 3}


@pytest.mark.parametrize(("first", "seeds"), [(1, 1), (1, 200), (5, 5), (7, 12), (10, 10), (13, 1)])
def test_a_chunk_has_one_heartbeat_and_every_seed_is_in_one(first: int, seeds: int) -> None:
    chunks = chunks_of(first, seeds)
    assert [seed for chunk in chunks for seed in chunk] == list(range(first, first + seeds))
    assert all(len({heartbeat_of(seed) for seed in chunk}) == 1 for chunk in chunks)
    assert len(chunks) <= seeds // CHUNK + 2


def test_a_focused_kind_changes_nothing_of_what_seeds_of_the_swarm_mean() -> None:
    """All is drawn from one row of random numbers: a kind more would change everything behind it."""
    others = {name: kind.draw for name, kind in KINDS.items() if not kind.focused}
    assert set(KINDS) - set(others) == {"scale-out", "scale-in", "manifest-flipped"}
    assert [plan_of(seed) for seed in SEEDS[:20]] == [draw_plan(seed, others) for seed in SEEDS[:20]]
    scaled = [fault.kind for seed in SEEDS[:20] for fault in plan_of(seed, FOCUSES["scaling"]).faults]
    assert {"scale-out", "scale-in", "kill"} <= set(scaled)


def test_moments_are_drawn_for_members_that_may_come_to_them() -> None:
    plans = [plan_of(seed, FOCUSES["moments"]) for seed in SEEDS]
    drawn = {
        (CRASH_MOMENTS[int(one.amount)], one.target)
        for plan in plans
        for one in plan.faults
        if one.kind == "crash-at-moment"
    }
    assert {moment for moment, _ in drawn} == set(CRASH_MOMENTS)
    assert {target for moment, target in drawn if moment == "epoch.created"} == {"recovery-0", "recovery-1"}
    assert {target[:3] for moment, target in drawn if moment == "done GetObject store/counting/objects/"} == {
        "ps-"
    }
    assert len({target for moment, target in drawn if moment == "service.started"}) > 5
    assert {target[:6] for moment, target in drawn if moment == "ShardControl/Clock"} == {"worker"}


def test_reports_are_tried_at_moments_of_detectors() -> None:
    plans = [plan_of(seed, FOCUSES["reports"]) for seed in SEEDS[:20]]
    crashes = [one for plan in plans for one in plan.faults if one.kind == "crash-at-moment"]
    assert {one.target for one in crashes} == {"detector-0", "detector-1"}
    assert {CRASH_MOMENTS[int(one.amount)] for one in crashes} >= {"report.taken", "member.accused"}


def test_a_moment_before_the_job_trains_is_met_before_it() -> None:
    plans = [plan_of(seed, FOCUSES["moments"]) for seed in SEEDS]
    early = [fault for plan in plans for fault in plan.faults if fault.at == EARLY]
    assert {fault for plan in plans for fault in plan.groups[0][:1]} == set(early), "one of each plan, first"
    assert {CRASH_MOMENTS[int(fault.amount)] for fault in early} == set(START_MOMENTS)
    assert not [fault for fault in early if fault.target.startswith("worker")], "they come with the job"
    assert not [fault for seed in SEEDS for fault in plan_of(seed).faults if fault.at < 0]
