"""What blocks that moved tell a shard of clocks that workers have finished: docs/protocol.md §4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.unit.ps_support import group, ids, job, next_epoch, push, sender, started, worker

BSP = job()


def test_blocks_that_moved_tell_of_a_clock_of_which_only_a_dead_shard_had_the_mark():
    """Else the successor would do the clock again, and it would count twice in the blocks that contain it."""
    shard, epoch = started(BSP, {"w": ids(0, 1, 2)}, workers=2)
    push(shard, 0, 1, None, np.full(6, 1), clock=0)
    shard.mark(sender(1), 1, 1, None)
    moved = replace(group("w", ids(3, 4, 5), w0=1), clock=1)
    lives = (worker(0, life=1), worker(1))
    shard.adopt(next_epoch(epoch, {"w": ids(3, 4, 5)}, moved=[moved], workers=lives), BSP)
    assert shard.settle(sender(0, life=1), 2).finished == 1


def test_after_a_rollback_blocks_prove_no_clock():
    shard, epoch = started(BSP, {"w": ids(0, 1, 2)}, workers=2)
    moved = replace(group("w", ids(3, 4, 5)), clock=9)
    epoch = next_epoch(epoch, {"w": ids(3, 4, 5)}, moved=[moved])
    shard.adopt(epoch, BSP)
    assert shard.settle(sender(0), 2).finished == 9
    back = [replace(group("w", ids(0, 1, 2, 3, 4, 5)), clock=5)]
    shard.adopt(next_epoch(epoch, moved=back, rollback=True, restart=9), BSP)
    assert shard.settle(sender(0), 3).finished == 0
