"""Which blocks a round saves, once its shards have measured: at once, or after a search for the threshold."""

from __future__ import annotations

from scar.tables import Job
from scar_checkpoint.core.events import CopyBlocks, CountKeys
from scar_checkpoint.core.rounds import ActiveRound, RoundStage
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.selection import BY_DISTANCE, RoundSelection, above, blocks_per_round, decide
from scar_runtime.checkpoint.top_keys import KeyRange, ThresholdSearch


def choose_blocks(current: ActiveRound, job: Job, number: int) -> RoundSelection | KeyRange | None:
    """For manifest ``number``. A range: keys have to be counted there first; None: nothing has changed."""
    if current.selection not in BY_DISTANCE:
        return decide(current.selection, current.fraction, number, job)
    counts, current.counts = current.counts, None
    if counts is None or (current.search is None and not counts.any()):
        return None
    search = current.search or ThresholdSearch(blocks_per_round(current.fraction, job))
    found = search.advance(counts)
    if not isinstance(found, ThresholdSearch):
        return above(found)
    current.search = found
    return found.within


def ask_shards(
    current: ActiveRound,
    chosen: RoundSelection | KeyRange,
    running: RunningCheckpoint,
    epoch: int,
    now: float,
    timeout: float,
) -> list[CopyBlocks | CountKeys]:
    """Of those that take part still. ``running``: what the round continues."""
    number = current.number
    if isinstance(chosen, KeyRange):
        asked = current.start_stage(RoundStage.SEARCHING, now, timeout)
        return [CountKeys(shard, epoch, number, chosen, timeout) for shard in asked]
    current.decided_at = now
    asked = current.start_stage(RoundStage.SAVING, now, timeout)
    return [
        CopyBlocks(shard, epoch, number, chosen, timeout, _find_baselines(chosen, running, shard.key))
        for shard in asked
    ]


def _find_baselines(chosen: RoundSelection, running: RunningCheckpoint, shard: str) -> tuple[str, ...] | None:
    """Where a shard may save what has changed alone: in rounds that look at what has changed."""
    if chosen.selection not in BY_DISTANCE:
        return None
    return tuple(ref.key for ref in running.objects if ref.owner == shard)
