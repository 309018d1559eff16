"""A seed keeps its meaning: schedules as they were drawn when these were written down.

The kinds are written here, so that a new kind of fault changes nothing of this.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

import pytest

from scar_chaos.core.schedule import FaultKinds, Schedule, draw_schedule
from scar_chaos.options import ChaosOptions

_HERE = ("kill", "kill", "freeze", "blink", "slow", "outage")
_POD = ("kill", "kill", "crash", "delete", "freeze", "slow", "cut")
TARGETS: dict[str, FaultKinds] = {
    "local": {
        "ps": (*_HERE, "leave"),
        "worker": _HERE,
        "detector": _HERE,
        "recovery": (*_HERE, "depose"),
        "checkpoint": (*_HERE, "depose"),
        "redis": ("kill", "outage", "freeze", "late", "garble"),
        "store": ("outage", "full", "corrupt", "truncate", "garble"),
        "job": ("rival",),
    },
    "kubernetes": {
        "ps": (*_POD, "blink", "leave"),
        "worker": (*_POD, "blink", "leave"),
        "recovery": _POD,
        "checkpoint": _POD,
        "detector": _POD,
        "redis": ("delete", "cut", "kill", "freeze"),
        "store": ("delete", "cut", "kill", "freeze"),
    },
}


def schedule(target: str, seed: int, profile: str = "default", strategy: str = "") -> Schedule:
    options = ChaosOptions(seed, profile=profile, strategy=strategy)
    return draw_schedule(seed, options.fault_space(TARGETS[target]))


@pytest.mark.parametrize(
    ("target", "seed", "profile", "text"),
    [
        (
            "local", 3, "default",
            "shards 2, workers 1, seed 3, consistency ssp, staleness 1, standby coordinators: truncate "
            "store after 9 clocks; kill ps-1 together and 1 s; rival job after 5 clocks; slow worker-0 "
            "together and 0.05 s; rival job after 9 clocks",
        ),
        (
            "local", 41, "default",
            "shards 3, workers 2, seed 41, consistency bsp, standby coordinators: corrupt store after 2"
            " clocks; kill ps-2 together; garble store after 2 clocks; kill ps-2 together and 1 s; "
            "corrupt store after 2 clocks; kill ps-0 together and 0.05 s",
        ),
        (
            "local", 1, "outage",
            "shards 2, workers 1, seed 1, consistency ssp, staleness 1, standby coordinators: outage "
            "redis for 40 s after 9 clocks; kill ps-1 together and 3 s; outage store for 120 s after 9 "
            "clocks; kill ps-0 together and 3 s; outage store for 75 s after 9 clocks",
        ),
        (
            "kubernetes", 12, "default",
            "shards 3, workers 2, seed 12, consistency asp, standby coordinators: kill redis after 9 "
            "clocks; crash ps-1 after 9 clocks; blink ps-2 together and 1 s; freeze store after 2 "
            "clocks; kill checkpoint together and 1 s while a checkpoint round is under way",
        ),
    ],
)  # fmt: skip
def test_a_seed_is_the_schedule_that_it_always_was(target: str, seed: int, profile: str, text: str) -> None:
    assert str(schedule(target, seed, profile)) == f"seed {seed}: {text}"


@pytest.mark.parametrize(
    ("target", "profile", "strategy", "digest"),
    [
        ("local", "default", "", "f84e16dc2c234a6f"),
        ("local", "default", "sync-chain", "a9700ea651f56250"),
        ("local", "slow", "", "c0b85ba3f8c6fd8b"),
        ("local", "outage", "", "e2c8653ce3756cfd"),
        ("kubernetes", "default", "", "3bb261de71d7e9b4"),
        ("kubernetes", "slow", "", "abb68ae4e49cf56f"),
        ("kubernetes", "outage", "full", "7610d276177c672d"),
    ],
)
def test_hundred_seeds_are_the_schedules_that_they_always_were(
    target: str, profile: str, strategy: str, digest: str
) -> None:
    drawn_now = [schedule(target, seed, profile, strategy) for seed in range(100)]
    text = json.dumps(
        [[one.options, one.standby, [asdict(fault) for fault in one.faults]] for one in drawn_now]
    )
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
