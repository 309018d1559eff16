"""How far a worker is, where a predecessor of its name has been before."""

from __future__ import annotations

from scar._client.core.clocks import ShardRecord, WorkerClocks
from scar.losses import LossPart
from tests.unit.checkpoint_play import epoch_of


def test_a_clock_that_is_done_again_has_no_second_part_in_its_loss() -> None:
    """Where a mark proves nothing for other shards, a successor does again what one of them knows."""
    clocks, epoch = WorkerClocks(), epoch_of(1)
    told = [ShardRecord(clock=2, finished=2), ShardRecord(clock=2, finished=3)]
    assert clocks.resume_at(epoch, told, queues=True) == [2, 3]
    for loss in (3.0, 4.0):
        clocks.finish_clock(epoch, LossPart(loss, rank=0, world=1))
    assert list(clocks.parts) == [4]
