"""Pushes a second, from what shards have counted."""

from __future__ import annotations

import pytest

from scar.v1 import ps_pb2, types_pb2
from scar_console.push_rates import WINDOW_SECONDS, PushRates


def shard(pushes: int, incarnation: str = "a") -> dict[str, ps_pb2.ShardStatus]:
    return {"ps-0": ps_pb2.ShardStatus(member=types_pb2.Member(incarnation=incarnation), pushes=pushes)}


def test_one_look_has_no_rate() -> None:
    assert PushRates().note(shard(100), 5.0) == {}


def test_it_is_taken_over_the_last_seconds() -> None:
    """10 pushes a second for a minute, then 50."""
    rates = PushRates()
    for half in range(120):
        found = rates.note(shard(5 * half), half / 2)
    assert found == {"ps-0": 10.0}
    for half in range(1, 2 + int(2 * WINDOW_SECONDS)):
        found = rates.note(shard(5 * 119 + 25 * half), (119 + half) / 2)
    assert found == {"ps-0": pytest.approx(50.0)}


def test_looks_that_are_rare_have_a_rate_too() -> None:
    rates = PushRates()
    rates.note(shard(0), 0.0)
    assert rates.note(shard(600), 60.0) == {"ps-0": 10.0}
    assert rates.note(shard(600), 120.0) == {"ps-0": 0.0}


def test_who_was_restarted_begins_anew() -> None:
    rates = PushRates()
    rates.note(shard(1000), 0.0)
    assert rates.note(shard(3, "b"), 1.0) == {}
    assert rates.note(shard(7, "b"), 2.0) == {"ps-0": 4.0}


def test_who_is_gone_is_forgotten() -> None:
    rates = PushRates()
    rates.note(shard(1), 0.0)
    assert rates.note({}, 1.0) == {}
    assert rates.note(shard(9), 2.0) == {}
