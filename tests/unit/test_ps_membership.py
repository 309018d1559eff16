"""When a shard announces itself and looks at the store: by the time and what it has heard alone."""

from __future__ import annotations

import pytest

from scar.errors import NotServing
from scar_ps.core.actions import CheckStore, EndService, JoinCluster, ShardAction
from scar_ps.core.events import JoinAnswered, ShardTick, StoreChecked
from scar_ps.core.membership import CHECK_SECONDS, JOIN_SECONDS
from tests.unit.ps_support import ME, DrivenShard, job, push, started

ASP = job(consistency="asp")


def ticked(shard: DrivenShard, seconds: float, leased: bool = True) -> list[ShardAction]:
    """What it wants done ``seconds`` later."""
    shard.now += seconds
    shard.handle(ShardTick(leased))
    return shard.actions


def test_a_shard_without_an_epoch_announces_itself_again_and_again() -> None:
    shard = DrivenShard(ME)
    assert ticked(shard, 1.0) == [JoinCluster()]
    assert ticked(shard, 100.0) == [], "one announcement at a time"
    shard.handle(JoinAnswered())
    assert ticked(shard, JOIN_SECONDS - 0.1) == []
    assert ticked(shard, 0.2) == [JoinCluster()]


def test_a_shard_that_was_declared_dead_before_its_first_epoch_ends() -> None:
    """It was paused while it joined; only a new incarnation may come."""
    shard = DrivenShard(ME)
    assert ticked(shard, 1.0) == [JoinCluster()]
    shard.handle(JoinAnswered("it was declared dead", fenced=True))
    assert shard.actions == [EndService("it was declared dead")]
    assert ticked(shard, 100.0) == []


def test_after_a_failure_comes_a_pause_that_grows_until_it_succeeds() -> None:
    shard = DrivenShard(ME)
    pauses = []
    for _ in range(7):
        waited = 0.0
        while ticked(shard, 0.05) != [JoinCluster()]:
            waited += 0.05
        pauses.append(round(waited, 1))
        shard.handle(JoinAnswered("nobody is there"))
    assert pauses == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0], abs=0.11)


def test_a_shard_looks_at_the_store_when_it_has_heard_of_a_newer_epoch() -> None:
    shard, _ = started(ASP)
    assert ticked(shard, 1.0) == []
    with pytest.raises(NotServing):
        push(shard, 0, 1, None, [1] * 12, epoch=2)
    assert ticked(shard, 0.2) == [CheckStore()]
    shard.handle(StoreChecked())
    assert ticked(shard, 0.2) == [], "the store has no newer one: somebody was wrong"


def test_a_shard_looks_at_the_store_without_a_lease_and_now_and_then() -> None:
    shard, _ = started(ASP)
    assert ticked(shard, 1.0, leased=True) == []
    assert ticked(shard, 0.2, leased=False) == [CheckStore()]
    shard.handle(StoreChecked())
    assert ticked(shard, CHECK_SECONDS - 0.1) == []
    assert ticked(shard, 0.2) == [CheckStore()]


def test_a_look_that_failed_is_repeated() -> None:
    shard, _ = started(ASP)
    ticked(shard, 1.0)
    assert ticked(shard, 0.2, leased=False) == [CheckStore()]
    shard.handle(StoreChecked("the store is away"))
    assert ticked(shard, 0.05, leased=False) == []
    assert ticked(shard, 0.2, leased=False) == [CheckStore()]
