"""A failing run is cut down to what makes it fail."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.plan import LONG, Plan, RunShape, SimulatedFault
from tests.simulation.shrink import shrink, without

FAULTS = tuple(SimulatedFault(f"kind {number}", "ps-0", float(number)) for number in range(12))
PLAN = Plan(1, RunShape(shards=4, workers=3, standby=True, seconds=LONG), (FAULTS[:7], FAULTS[7:]))


def test_only_the_faults_that_matter_stay() -> None:
    needed = {"kind 2", "kind 9"}
    tried: list[Plan] = []

    def fails(plan: Plan) -> bool:
        tried.append(plan)
        return needed <= {fault.kind for fault in plan.faults}

    found = shrink(PLAN, fails)
    assert {fault.kind for fault in found.faults} == needed
    assert len(found.groups) == 2
    assert len(tried) < 60


def test_the_cluster_shrinks_as_far_as_its_faults_allow() -> None:
    last = replace(FAULTS[0], target="ps-2>worker-0")
    found = shrink(replace(PLAN, groups=((last,),)), lambda plan: True)
    assert (found.shape.shards, found.shape.workers, found.shape.standby) == (3, 1, False)
    assert found.shape.seconds < LONG


def test_what_does_not_fail_stays_as_it_is() -> None:
    assert shrink(PLAN, lambda plan: False) == PLAN


def test_equal_faults_are_left_out_one_by_one() -> None:
    twice = replace(PLAN, groups=((FAULTS[0], replace(FAULTS[0])),))
    assert len(without(twice, twice.faults[:1]).faults) == 1
