"""Losses of a whole shard over deaths, returns and rollbacks: docs/protocol.md §4."""

from __future__ import annotations

import pytest

from scar.losses import LossPart, LossPoint
from scar_ps.core.barrier import DONE
from scar_ps.core.requests import MustWait
from tests.unit.ps_support import job, next_epoch, sender, started, worker

BSP = job()


def test_a_clock_that_lost_a_worker_has_no_loss_and_the_next_one_has():
    shard, epoch = started(BSP, workers=2)
    shard.mark(sender(0), 1, 1, LossPart(1.0, 0, 2))
    shard.adopt(next_epoch(epoch, workers=(worker(0),)), BSP)
    shard.mark(sender(0), 2, 1, LossPart(1.0, 0, 2))
    assert (shard.clock, shard.barrier.losses) == (1, {})
    shard.mark(sender(0), 2, 2, LossPart(1.5, 0, 1))
    assert shard.barrier.losses == {1: LossPoint(1, 1.5)}


def test_what_the_dead_had_told_counts():
    shard, epoch = started(BSP, workers=2)
    shard.mark(sender(1), 1, 1, LossPart(2.0, 1, 2))
    shard.adopt(next_epoch(epoch, workers=(worker(0),)), BSP)
    shard.mark(sender(0), 2, 1, LossPart(1.0, 0, 2))
    assert shard.barrier.last_loss == LossPoint(0, 3.0)


def test_a_rollback_voids_parts_that_wait():
    shard, epoch = started(BSP, workers=2)
    shard.mark(sender(0), 1, 1, LossPart(1.0, 0, 2))
    shard.adopt(next_epoch(epoch, rollback=True), BSP)
    shard.mark(sender(0), 2, 1)  # what it had computed is void there, too
    shard.mark(sender(1), 2, 1, LossPart(2.0, 1, 2))
    assert (shard.clock, shard.barrier.losses) == (1, {})


def test_a_shard_that_came_later_answers_for_a_loss_when_it_has_heard_everybody():
    shard, _ = started(BSP, workers=2, clock=5)
    assert shard.pull(sender(0), 1, 5, [("w", None)])
    shard.mark(sender(0), 1, 5, LossPart(1.0, 0, 2))
    with pytest.raises(MustWait, match="loss of clock 4 waits for worker-1"):
        shard.pull(sender(0), 1, 5, [("w", None)], 5)
    shard.mark(sender(1), 1, 5, LossPart(2.0, 1, 2))
    assert shard.pull(sender(0), 1, 5, [("w", None)], 5)
    assert shard.barrier.last_loss == LossPoint(4, 3.0)


def test_the_last_mark_tells_for_which_loss_its_worker_has_ended():
    shard, _ = started(BSP, workers=2, clock=5)
    shard.mark(sender(0), 1, DONE, heard=LossPoint(4, 0.25))
    assert shard.barrier.last_loss == LossPoint(4, 0.25)
    assert shard.pull(sender(1), 1, 5, [("w", None)], 5)


def test_parts_of_a_worker_that_is_far_ahead_take_bounded_memory(monkeypatch: pytest.MonkeyPatch):
    """ASP waits for nobody. What had no room has no loss; the slow worker makes room again."""
    monkeypatch.setattr("scar_ps.core.barrier.OPEN_KEPT", 10)
    monkeypatch.setattr("scar_ps.core.barrier.PARTS_KEPT", 0)
    shard, _ = started(job(consistency="asp"), workers=2)
    for clock in range(30):
        shard.mark(sender(0), 1, clock + 1, LossPart(1.0, 0, 2))
    assert len(shard.barrier._parts) == 10
    for clock in range(12):
        shard.mark(sender(1), 1, clock + 1, LossPart(2.0, 1, 2))
    assert shard.barrier.losses == {clock: LossPoint(clock, 3.0) for clock in range(10)}
    shard.mark(sender(0), 1, 31, LossPart(1.0, 0, 2))
    assert 30 in shard.barrier._parts
