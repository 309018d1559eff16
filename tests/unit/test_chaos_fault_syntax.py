"""Groups of faults as people write them."""

from __future__ import annotations

import pytest

from scar.errors import ConfigError
from scar_chaos.core.fault_syntax import parse_faults
from scar_chaos.core.faults import Fault
from scar_chaos.core.schedule import PROFILES, FaultSpace, draw_schedule
from scar_chaos.targets import local


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("kill:ps-0", [Fault(5, "kill", "ps-0")]),
        ("kill:ps-0+ps-1", [Fault(5, "kill", "ps-0"), Fault(0, "kill", "ps-1")]),
        ("corrupt:store+kill:ps-0~0.5", [Fault(5, "corrupt", "store"), Fault(0, "kill", "ps-0", 0.5)]),
        (
            "kill:ps-0+kill:recovery@recovery",
            [Fault(5, "kill", "ps-0"), Fault(0, "kill", "recovery", moment="recovery")],
        ),
        ("outage:store/90", [Fault(5, "outage", "store", lasts=90.0)]),
        ("kill:worker-1@round~1", [Fault(5, "kill", "worker-1", 1.0, "round")]),
    ],
)
def test_what_is_written_is_what_happens(text: str, faults: list[Fault]) -> None:
    assert parse_faults(text, local.KINDS) == faults


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kill", "no fault"),
        ("ps-0", "no fault"),
        ("kill:mars", "no target: 'mars'"),
        ("cut:ps-0", "cannot be done to ps-0 here"),
        ("kill:ps-0@noon", "no moment: 'noon'"),
        ("kill:ps-0+", "no fault"),
    ],
)
def test_what_cannot_be_is_refused_with_what_could(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_faults(text, local.KINDS)
    assert caught.value.next_step


def test_a_fault_lasts_as_long_as_it_was_told_to() -> None:
    assert parse_faults("outage:store/90", local.KINDS)[0].duration == 90.0
    assert parse_faults("outage:store", local.KINDS)[0].duration == 2.0


def test_profiles() -> None:
    slow = draw_schedule(3, FaultSpace(local.KINDS, profile=PROFILES["slow"]))
    assert slow.options["pace"] > 1.0
    longest = [
        fault.duration
        for seed in range(20)
        for fault in draw_schedule(seed, FaultSpace(local.KINDS, profile=PROFILES["outage"])).faults
    ]
    assert max(longest) > 100
    assert "pace" not in draw_schedule(3, FaultSpace(local.KINDS)).options


def test_a_leader_can_be_deposed_only_where_another_one_stands_by() -> None:
    schedules = [draw_schedule(seed, FaultSpace(local.KINDS)) for seed in range(200)]
    assert all(one.standby for one in schedules if any(fault.kind == "depose" for fault in one.faults))
    assert not all(one.standby for one in schedules)


def test_a_seed_turns_on_a_part_of_the_kinds() -> None:
    """Swarm testing: with many groups a seed still does without some kinds."""
    lacking = 0
    for seed in range(20):
        used = {
            fault.kind
            for fault in draw_schedule(seed, FaultSpace(local.KINDS, groups=60)).faults
            if fault.target == "store"
        }
        lacking += not used >= set(local.KINDS["store"])
    assert lacking > 10
