"""Schedules of faults: the same for the same seed, only of what the target can do, and all of it sooner or
later.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from scar.strategies import STRATEGIES, VARIANTS
from scar_chaos.core.counting_job import make_job
from scar_chaos.core.faults import DURATIONS, MOMENTS, Fault, fault_groups
from scar_chaos.core.schedule import FaultKinds, FaultSpace, draw_schedule
from scar_chaos.options import ChaosOptions
from scar_chaos.targets import kubernetes, local

TARGETS = {
    "local": local.KINDS,
    "kubernetes": kubernetes.KINDS | {"store": ("delete", "cut", "kill", "freeze")},
}


@pytest.mark.parametrize("kinds", TARGETS.values(), ids=TARGETS)
def test_the_same_seed_is_the_same_schedule(kinds: FaultKinds) -> None:
    schedules = [draw_schedule(seed, FaultSpace(kinds)) for seed in range(50)]
    assert schedules == [draw_schedule(seed, FaultSpace(kinds)) for seed in range(50)]
    assert len({str(schedule) for schedule in schedules}) == 50


@pytest.mark.parametrize("kinds", TARGETS.values(), ids=TARGETS)
def test_only_what_the_target_can_do_is_drawn_and_all_of_it(kinds: FaultKinds) -> None:
    faults = [fault for seed in range(900) for fault in draw_schedule(seed, FaultSpace(kinds)).faults]
    seen = {(fault.target.split("-")[0], fault.kind) for fault in faults}
    assert seen == {(target, kind) for target, known in kinds.items() for kind in known}
    assert {fault.moment for fault in faults} == set(MOMENTS)
    assert {fault.kind for fault in faults} <= set(DURATIONS)


def test_targets_exist_in_the_job() -> None:
    for seed in range(100):
        schedule = draw_schedule(seed, FaultSpace(local.KINDS, groups=5))
        count = {"ps": schedule.options["shards"], "worker": schedule.options["workers"]}
        for fault in schedule.faults:
            name, _, number = fault.target.partition("-")
            assert not number or int(number) < count[name]
        assert len(fault_groups(schedule.faults)) == 5


def test_every_way_of_breaking_is_drawn_about_as_often_as_meant() -> None:
    space = FaultSpace(kubernetes.KINDS, shards=(4,), groups=4)
    schedules = [draw_schedule(seed, space) for seed in range(200)]
    sizes = Counter(len(group) for schedule in schedules for group in fault_groups(schedule.faults))
    at_once = [
        group
        for schedule in schedules
        for group in fault_groups(schedule.faults)
        if len(group) > 1
        and {(fault.kind, fault.target[:3], fault.lag) for fault in group} == {("kill", "ps-", 0.0)}
    ]
    assert {len(group) for group in at_once} >= {2, 4}
    assert sizes[1] > sizes[3] > 0


def test_options_of_the_job_can_be_fixed() -> None:
    schedule = draw_schedule(
        3, FaultSpace(local.KINDS, shards=(5,), workers=(4,)), consistency="bsp", staleness=0
    )
    assert (schedule.options["shards"], schedule.options["workers"], schedule.options["consistency"]) == (
        5,
        4,
        "bsp",
    )


def test_groups_begin_where_clocks_pass() -> None:
    first, second, third = Fault(0, "kill", "ps-0"), Fault(0, "kill", "ps-1"), Fault(3, "freeze", "redis")
    assert fault_groups([first, second, third]) == [[first, second], [third]]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(5, "kill", "ps-0"), "kill ps-0 after 5 clocks"),
        (Fault(0, "cut", "store", 0.3), "cut store together and 0.3 s"),
        (
            Fault(2, "kill", "recovery", moment="round"),
            "kill recovery after 2 clocks while a checkpoint round is under way",
        ),
    ],
)
def test_faults_read_as_what_they_are(fault: Fault, text: str) -> None:
    assert str(fault) == text


@pytest.mark.parametrize("recovery", [*STRATEGIES, *VARIANTS])
def test_a_strategy_brings_what_it_needs(recovery: str) -> None:
    """The same seed is the same faults under every strategy, so that they can be compared."""
    options = ChaosOptions(seed=5, strategy=recovery, shards=3)
    schedule = draw_schedule(options.seed, options.fault_space(local.KINDS))
    for seed in range(9):  # of every consistency
        drawn = draw_schedule(seed, replace(options, seed=seed).fault_space(local.KINDS))
        job = make_job(**drawn.options)
        assert job.recovery == VARIANTS.get(recovery, {"recovery": recovery})["recovery"]
        assert job.strategy.asks_workers == (recovery in VARIANTS)
        assert job.strategy.missing == (recovery == "partial-missing")
        assert job.pull_slots == (recovery == "partial-slots")
    partial = draw_schedule(options.seed, ChaosOptions(seed=5, shards=3).fault_space(local.KINDS))
    assert schedule.faults == partial.faults
    assert f"--strategy {recovery}" in options.replay_command("scar chaos", 5)
