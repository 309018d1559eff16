"""Checkpoint rounds at one shard: what may be saved, under which watermark, and what comes back.
docs/protocol.md §10.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.errors import Busy, InvalidRequest, StaleEpoch
from scar.placement import BlockSource
from scar.tables import Checkpoint
from scar_ps.core.actions import ReportAbandonedRound
from scar_ps.core.block_data import BlockContents
from scar_ps.core.checkpoint_round import committed_values
from scar_ps.core.distances import block_distances
from scar_ps.core.events import ShardTick
from scar_ps.core.requests import MustWait
from scar_ps.core.rounds import HOLD_SECONDS
from tests.unit.ps_support import ME, group, ids, job, next_epoch, push, sender, started, values, worker

ASP, BSP = job(consistency="asp"), job()
MINE = {"w": ids(0, 2, 4)}


def measure(shard, number, epoch=0):
    candidates = shard.begin_round(epoch or shard.number, number, 0)
    for one in candidates:
        one.distances = block_distances(one.store)[one.positions]
    shard.measured(epoch or shard.number, candidates)
    return candidates


def copy(shard, number, *blocks):
    found = shard.candidates(shard.number, number)
    chosen = [(one.store, one.positions[np.isin(one.ids, blocks)]) for one in found]
    return shard.copy_round(shard.number, number, chosen)


def measured(shard):
    return block_distances(shard.ownership.tables["w"]).tolist()


@pytest.mark.parametrize("blocks", [(2,), (0, 2, 4)])
def test_a_committed_round_brings_the_distances_to_zero(blocks):
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, [3, 4] * 3)
    measure(shard, 1)
    copied = copy(shard, 1, *blocks)
    assert [(one.state.table, one.state.ids.tolist(), one.state.watermark) for one in copied] == [
        ("w", list(blocks), {worker(0).key: 1})
    ]
    assert copied[0].contents.values.tolist() == [3, 4] * len(blocks)
    shard.uploaded(1, copied)
    assert shard.finish_round(1, True)
    assert measured(shard) == [0 if block in blocks else 5 for block in (0, 2, 4)]


@settings(max_examples=50)
@given(
    blocks=st.sets(st.sampled_from([0, 2, 4])),
    end=st.sampled_from(["failed upload", "not committed", "next round", "committed before the upload"]),
    between=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_failed_round_gives_the_distances_back(blocks, end, between, seed):
    shard, _ = started(ASP, MINE)
    draw = np.random.default_rng(seed)
    push(shard, 0, 1, None, draw.normal(size=6))
    saved = shard.ownership.tables["w"].saved.copy()
    measure(shard, 1)
    copied = copy(shard, 1, *blocks)
    if between:
        push(shard, 0, 2, ids(2), draw.normal(size=2))
    if end == "not committed":
        shard.uploaded(1, copied)
    if end == "next round":
        shard.begin_round(1, 2, 0)
    elif end == "failed upload":
        shard.miss_round(copied)
    else:
        assert not shard.finish_round(1, end == "committed before the upload")
    assert (shard.ownership.tables["w"].saved == saved).all()


def test_copies_do_not_change_with_training():
    shard, _ = started(ASP, MINE)
    measure(shard, 1)
    copied = copy(shard, 1, 0, 2, 4)
    push(shard, 0, 1, None, np.ones(6))
    assert copied[0].contents.values.tolist() == [0.0] * 6


def test_one_round_at_a_time():
    shard, _ = started(ASP, MINE)
    with pytest.raises(InvalidRequest):
        copy(shard, 1, 0)
    measure(shard, 1)
    copied = copy(shard, 1, 0)
    with pytest.raises(Busy):
        copy(shard, 1, 0)
    shard.uploaded(1, copied)
    with pytest.raises(InvalidRequest):
        copy(shard, 1, 0)
    assert not shard.finish_round(7, True), "another round's end says nothing about this one"
    assert shard.finish_round(1, True)
    assert not shard.finish_round(1, True)


def test_an_upload_that_comes_too_late_does_not_count_for_the_round_that_was_started_again():
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6))
    measure(shard, 1)
    late = copy(shard, 1, 0)
    measure(shard, 1)
    copied = copy(shard, 1, 0)
    with pytest.raises(InvalidRequest):
        shard.uploaded(1, late)
    shard.miss_round(late)
    shard.uploaded(1, copied)
    assert shard.finish_round(1, True)


def test_a_round_waits_for_its_clock():
    shard, _ = started(BSP, MINE)
    with pytest.raises(MustWait):
        shard.begin_round(1, 1, 1)
    shard.mark(sender(0), 1, 1, None)
    assert shard.begin_round(1, 1, 1)
    assert shard.round.number == 1


def test_only_settled_blocks_take_part():
    shard, epoch = started(ASP, MINE)
    after = next_epoch(epoch, {"w": ids(1, 3)}, moved=[group("w", ids(1)), group("w", ids(3))])
    loads = shard.adopt(after, ASP)
    shard.install(loads[0], BlockContents(np.ones(2, np.float32)))
    assert measure(shard, 1)[0].ids.tolist() == [0, 2, 4]
    shard.settle(sender(0), 2)
    assert measure(shard, 2)[0].ids.tolist() == [0, 1, 2, 4], "block 3 is settled, but still loading"


def test_frozen_blocks_are_not_saved():
    shard, _ = started(ASP, MINE)
    measure(shard, 1)
    shard.freeze(1, [("w", ids(2))])
    assert copy(shard, 1, 0, 2, 4)[0].state.ids.tolist() == [0, 4]


def test_restored_blocks_are_saved_under_a_watermark_of_their_own_until_the_shards_overtakes_it():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6), push_id=4)
    after = next_epoch(epoch, {"w": ids(1)}, moved=[group("w", ids(1), w0=6)])
    shard.install(shard.adopt(after, ASP)[0], BlockContents(np.ones(2, np.float32)))
    shard.settle(sender(0), 2)
    key = worker(0).key
    measure(shard, 1)
    assert [(one.state.ids.tolist(), one.state.watermark) for one in copy(shard, 1, 0, 1)] == [
        ([0], {key: 4}),
        ([1], {key: 6}),
    ]
    push(shard, 0, 2, ids(0), [1, 1], push_id=7)
    measure(shard, 2)
    assert [(one.state.ids.tolist(), one.state.watermark) for one in copy(shard, 2, 0, 1)] == [
        ([0, 1], {key: 7})
    ]


def test_a_new_epoch_makes_the_shard_miss_the_round_and_the_blocks_that_stay_come_back():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6))
    measure(shard, 1)
    copied = copy(shard, 1, 0, 2, 4)
    after = next_epoch(
        epoch,
        {"w": ids(1)},
        {"w": ids(0)},
        [group("w", ids(1), source=BlockSource.INITIAL), group("w", ids(0), ME)],
    )
    shard.install(shard.adopt(after, ASP)[0], BlockContents(np.full(2, 9, np.float32)))
    with pytest.raises(StaleEpoch):
        shard.uploaded(1, copied)
    shard.miss_round(copied)
    assert shard.ownership.tables["w"].ids.tolist() == [1, 2, 4]
    assert shard.ownership.tables["w"].saved.tolist() == [9, 9, 0, 0, 0, 0]


def test_distances_of_an_old_epoch_are_worthless():
    shard, epoch = started(ASP, MINE)
    candidates = shard.begin_round(1, 1, 0)
    shard.adopt(next_epoch(epoch), ASP)
    with pytest.raises(StaleEpoch):
        shard.measured(1, candidates)
    measure(shard, 2)
    shard.adopt(next_epoch(next_epoch(epoch)), ASP)
    with pytest.raises(InvalidRequest):
        copy(shard, 2, 0)


@pytest.mark.parametrize("blocks", [(2,), (0, 2, 4)])
def test_a_donor_tells_what_the_last_manifest_holds_also_in_the_middle_of_a_round(blocks):
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, np.arange(6))
    measure(shard, 1)
    copied = copy(shard, 1, *blocks)
    store = shard.ownership.tables["w"]
    assert committed_values(store, np.array([1, 2]), shard.round.committed).tolist() == [0.0] * 4
    shard.uploaded(1, copied)
    shard.finish_round(1, True)
    expected = [2, 3, 0, 0] if blocks == (2,) else [2, 3, 4, 5]
    assert committed_values(store, np.array([1, 2]), shard.round.committed).tolist() == expected


STALLING = job(consistency="asp", recovery="sync-checkpoint", checkpoint=Checkpoint("full", period=2))


@pytest.mark.parametrize("end", ["committed", "failed", "abandoned"])
def test_training_waits_for_a_checkpoint_where_the_strategy_says_so(end):
    shard, _ = started(STALLING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    with pytest.raises(MustWait, match="durable"):
        push(shard, 0, 2, None, [1] * 6)
    assert push(shard, 0, 1, None, [1] * 6), "a duplicate is acknowledged all the same"
    copied = copy(shard, 1, 0, 2, 4)
    with pytest.raises(MustWait, match="durable"):
        push(shard, 0, 2, None, [1] * 6)
    if end == "failed":
        shard.miss_round(copied)
    else:
        shard.uploaded(1, copied)
        shard.finish_round(1, end == "committed")
    assert not push(shard, 0, 2, None, [1] * 6)


def test_a_clock_that_all_have_finished_closes_after_the_checkpoint():
    shard, _ = started(replace(STALLING, consistency="bsp"), MINE, workers=1)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    shard.mark(sender(0), 1, 1, None)
    assert (shard.clock, values(shard)) == (0, [0.0] * 6)
    shard.finish_round(1, False)
    assert (shard.clock, values(shard)) == (1, [1.0] * 6)


def test_an_epoch_ends_a_checkpoint_that_nothing_was_copied_for():
    shard, epoch = started(STALLING, MINE)
    measure(shard, 1)
    shard.adopt(next_epoch(epoch), STALLING)
    assert not push(shard, 0, 1, None, [1] * 6)


STORING = job(consistency="asp", recovery="stateless", checkpoint=Checkpoint(fraction=1.0, period=1))


def test_an_acknowledgement_waits_for_the_store_where_the_strategy_says_so():
    shard, _ = started(STORING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    push(shard, 0, 2, None, [1] * 6)
    copied = copy(shard, 1, 0, 2, 4)
    shard.uploaded(1, copied)
    with pytest.raises(MustWait, match="update 1 waits for the store"):
        shard.await_copy(1)
    shard.finish_round(1, True)
    shard.await_copy(1)
    with pytest.raises(MustWait):
        shard.await_copy(2)  # it came after the distances were asked for


def test_a_round_that_was_not_committed_stores_nothing():
    shard, _ = started(STORING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    shard.uploaded(1, copy(shard, 1, 0, 2, 4))
    shard.finish_round(1, False)
    with pytest.raises(MustWait):
        shard.await_copy(1)


def test_a_push_that_changes_nothing_need_not_be_stored():
    shard, _ = started(STORING, MINE)
    push(shard, 0, 1, None, [0] * 6)
    measure(shard, 1)
    shard.await_copy(1)


PAUSED, LEADER = "a" * 12, "b" * 12  # a checkpoint leader that was paused, and its successor


def uploaded(shard, number, author, key):
    """A round of everything up to the durable object."""
    candidates = shard.begin_round(1, number, 0, author)
    for one in candidates:
        one.distances = block_distances(one.store)[one.positions]
    shard.measured(1, candidates)
    shard.uploaded(1, copy(shard, number, 0, 2, 4), key)


def test_the_end_of_another_leaders_round_says_nothing_about_one_of_the_same_number():
    """Both led from the same manifest, so both call their round 6; the manifest of the paused one won."""
    shard, _ = started(STORING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    uploaded(shard, 6, PAUSED, "objects/first")
    push(shard, 0, 2, None, [1] * 6)
    uploaded(shard, 6, LEADER, "objects/second")
    assert not shard.finish_round(6, True, PAUSED, "objects/first")
    assert not shard.finish_round(6, False, PAUSED)
    with pytest.raises(MustWait, match="update 2 waits for the store"):
        shard.await_copy(2)
    assert shard.finish_round(6, True, LEADER, "objects/second")
    shard.await_copy(2)


def test_a_manifest_that_names_another_object_saved_nothing():
    """An answer was lost, the round begun again: what the manifest names is what the shard copied first."""
    shard, _ = started(STORING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    uploaded(shard, 6, LEADER, "objects/first")
    push(shard, 0, 2, None, [1] * 6)
    uploaded(shard, 6, LEADER, "objects/second")
    assert not shard.finish_round(6, True, LEADER, "objects/first")
    with pytest.raises(MustWait, match="update 2 waits for the store"):
        shard.await_copy(2)


def test_distances_that_were_measured_for_a_former_round_do_not_count():
    shard, _ = started(STORING, MINE)
    late = shard.begin_round(1, 6, 0, PAUSED)
    push(shard, 0, 1, None, [1] * 6)
    shard.begin_round(1, 6, 0, LEADER)
    for one in late:
        one.distances = np.zeros(len(one.positions), np.float32)  # nothing had changed then
    shard.measured(1, late)
    with pytest.raises(MustWait, match="update 1 waits for the store"):
        shard.await_copy(1)
    with pytest.raises(InvalidRequest):
        shard.candidates(1, 6)


def test_training_does_not_wait_for_ever_for_a_checkpoint():
    """Its coordinator may be dead, the store away."""
    shard, _ = started(STALLING, MINE)
    shard.now = 7.0
    shard.begin_round(1, 1, 0)
    shard.now = 7.0 + HOLD_SECONDS
    shard.handle(ShardTick(leased=True))
    assert shard.is_stalled
    assert shard.actions == []
    shard.now += 0.1
    shard.handle(ShardTick(leased=True))
    assert not shard.is_stalled
    assert shard.actions == [ReportAbandonedRound(1, HOLD_SECONDS)]
    assert not push(shard, 0, 1, None, [1] * 6)


def test_what_a_damaged_manifest_held_is_saved_again():
    """Without it the store has less than was acknowledged, so nothing more is until everything is there."""
    shard, epoch = started(STORING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    shard.uploaded(1, copy(shard, 1, 0, 2, 4))
    shard.finish_round(1, True)
    after = replace(next_epoch(epoch), resave=True)
    shard.adopt(after, STORING)
    candidates = shard.begin_round(after.number, 2, 0)
    assert all((block_distances(one.store)[one.positions] != 0).all() for one in candidates)


def test_a_round_that_is_under_way_is_missed_when_everything_is_to_be_saved_again():
    shard, epoch = started(STORING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    shard.uploaded(1, copy(shard, 1, 0, 2, 4))
    shard.adopt(replace(next_epoch(epoch), resave=True), STORING)
    assert not shard.finish_round(1, True)
    with pytest.raises(MustWait, match="update 1 waits for the store"):
        shard.await_copy(1)
