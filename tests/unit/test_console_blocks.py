"""The block map: each cell and each shard is as old as the oldest copy that a restore would read there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from scar.placement import NOBODY, Epoch, Member, Role
from scar.tables import Job, Table
from scar_console.block_map import MAX_CELLS, NEVER, draw_map, saved_clocks
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from tests.unit.test_running import JOB, ROUNDS, Held, entry, everything

SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}", "") for number in range(3))


def running_after(history: list[Held]) -> RunningCheckpoint:
    running = RunningCheckpoint(JOB, Manifest(number=len(history), job=JOB.name))
    for number, held in enumerate(history, 1):
        running.append(*entry(number, held))
    return running


def epoch_of(job: Job, shards: tuple[Member, ...] = SHARDS, orphans: int = 0) -> Epoch:
    """Blocks are dealt in turn; the first ones of each table belong to nobody."""
    owners = {table.name: np.arange(table.blocks) % len(shards) for table in job.tables}
    for own in owners.values():
        own[:orphans] = NOBODY
    dealt = {table: own.astype(np.uint16) for table, own in owners.items()}
    return Epoch(number=1, author="author", job=job.name, shards=shards, workers=(), owners=dealt)


def told(running: RunningCheckpoint) -> dict[tuple[str, int], int]:
    """Saved clock of each block, as whoever restores it is told."""
    return {block: clock if owner else NEVER for block, (clock, owner) in everything(running).items()}


@given(ROUNDS)
def test_each_block_is_as_old_as_the_copy_that_a_restore_reads(history: list[Held]) -> None:
    running = running_after(history)
    found = {
        (table, block): int(clock)
        for table, clocks in saved_clocks(running).items()
        for block, clock in enumerate(clocks)
    }
    assert found == told(running)


@given(ROUNDS)
def test_a_cell_and_a_shard_are_as_old_as_their_oldest_block(history: list[Held]) -> None:
    running = running_after(history)
    epoch = epoch_of(JOB, orphans=2)
    drawn = draw_map(running, epoch, limit=5)
    known = told(running)
    clocks = [known[table.name, block] for table in JOB.tables for block in range(table.blocks)]
    assert (drawn.manifest, drawn.blocks, drawn.width) == (len(history), 17, 4)
    assert drawn.cells == tuple(min(clocks[at : at + 4]) for at in range(0, 17, 4))
    assert drawn.oldest == {
        member.name: min(
            known[table.name, int(block)] for table in JOB.tables for block in epoch.owned(table.name, index)
        )
        for index, member in enumerate(epoch.shards)
    }


@pytest.mark.parametrize("blocks", [1, MAX_CELLS, MAX_CELLS + 1, 1_000_003])
def test_however_many_blocks_there_are_the_map_is_small(blocks: int) -> None:
    job = Job("large", [Table("w", blocks)])
    drawn = draw_map(RunningCheckpoint(job), epoch_of(job))
    assert (drawn.blocks, set(drawn.cells)) == (blocks, {NEVER})
    assert blocks / drawn.width <= len(drawn.cells) <= MAX_CELLS
    assert drawn.width == 1 or len(drawn.cells) > MAX_CELLS // 2 - 1


def test_an_epoch_of_another_job_says_nothing_of_its_shards() -> None:
    other = Job("other", [Table("w", 4)])
    assert draw_map(RunningCheckpoint(JOB), epoch_of(other)).oldest == {}
