"""Checkpoint rounds at one shard: what may be saved, under which watermark, and what comes back. docs/protocol.md §10."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar.errors import Busy, InvalidRequest, StaleEpoch
from scar.placement import Source
from scar.tables import Checkpoint
from scar.v1.ps_pb2 import DistancesRequest
from scar_ps import saver
from scar_ps.barrier import NotYet
from scar_ps.blockstore import Contents
from scar_ps.distances import distances
from scar_ps.rounds import committed_values
from scar_ps.saver import Saver
from tests.unit.ps_support import ME, group, ids, job, next_epoch, push, sender, started, values, worker

ASP, BSP = job(consistency="asp"), job()
MINE = {"w": ids(0, 2, 4)}


def measure(shard, number, epoch=0):
    candidates = shard.begin_round(epoch or shard.number, number, 0)
    for one in candidates:
        one.distances = distances(one.store)[one.positions]
    shard.measured(epoch or shard.number, number, candidates)
    return candidates


def copy(shard, number, *blocks):
    found = shard.candidates(shard.number, number)
    chosen = [(one.store, one.positions[np.isin(one.ids, blocks)]) for one in found]
    return shard.copy_round(shard.number, number, chosen)


def measured(shard):
    return distances(shard.holdings.tables["w"]).tolist()


@pytest.mark.parametrize("blocks", [(2,), (0, 2, 4)])
def test_a_committed_round_brings_the_distances_to_zero(blocks):
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, [3, 4] * 3)
    measure(shard, 1)
    copied = copy(shard, 1, *blocks)
    assert [(one.table, one.ids.tolist(), one.watermark) for one in copied] == [("w", list(blocks), {worker(0).key: 1})]
    assert copied[0].contents.values.tolist() == [3, 4] * len(blocks)
    shard.uploaded(1, copied)
    assert shard.rounds.finish(1, True)
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
    saved = shard.holdings.tables["w"].saved.copy()
    measure(shard, 1)
    copied = copy(shard, 1, *blocks)
    if between:
        push(shard, 0, 2, ids(2), draw.normal(size=2))
    if end == "not committed":
        shard.uploaded(1, copied)
    if end == "next round":
        shard.begin_round(1, 2, 0)
    elif end == "failed upload":
        shard.rounds.failed(copied)
    else:
        assert not shard.rounds.finish(1, end == "committed before the upload")
    assert (shard.holdings.tables["w"].saved == saved).all()


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
    assert not shard.rounds.finish(7, True), "another round's end says nothing about this one"
    assert shard.rounds.finish(1, True)
    assert not shard.rounds.finish(1, True)


def test_an_upload_that_comes_too_late_does_not_count_for_the_round_that_was_started_anew():
    shard, _ = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6))
    measure(shard, 1)
    late = copy(shard, 1, 0)
    measure(shard, 1)
    copied = copy(shard, 1, 0)
    with pytest.raises(InvalidRequest):
        shard.uploaded(1, late)
    shard.rounds.failed(late)
    shard.uploaded(1, copied)
    assert shard.rounds.finish(1, True)


def test_a_round_waits_for_its_clock():
    shard, _ = started(BSP, MINE)
    with pytest.raises(NotYet):
        shard.begin_round(1, 1, 1)
    shard.mark(sender(0), 1, 1, None)
    assert shard.begin_round(1, 1, 1)
    assert shard.rounds.number == 1


def test_only_settled_blocks_take_part():
    shard, epoch = started(ASP, MINE)
    after = next_epoch(epoch, {"w": ids(1, 3)}, moved=[group("w", ids(1)), group("w", ids(3))])
    loads = shard.adopt(after, ASP)
    shard.install(loads[0], Contents(np.ones(2, np.float32)))
    assert measure(shard, 1)[0].ids.tolist() == [0, 2, 4]
    shard.settle(sender(0), 2)
    assert measure(shard, 2)[0].ids.tolist() == [0, 1, 2, 4], "block 3 is settled, but still loading"


def test_frozen_blocks_are_not_saved():
    shard, _ = started(ASP, MINE)
    measure(shard, 1)
    shard.freeze(1, [("w", ids(2))])
    assert copy(shard, 1, 0, 2, 4)[0].ids.tolist() == [0, 4]


def test_restored_blocks_are_saved_under_a_watermark_of_their_own_until_the_shards_overtakes_it():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6), push_id=4)
    after = next_epoch(epoch, {"w": ids(1)}, moved=[group("w", ids(1), w0=6)])
    shard.install(shard.adopt(after, ASP)[0], Contents(np.ones(2, np.float32)))
    shard.settle(sender(0), 2)
    key = worker(0).key
    measure(shard, 1)
    assert [(one.ids.tolist(), one.watermark) for one in copy(shard, 1, 0, 1)] == [([0], {key: 4}), ([1], {key: 6})]
    push(shard, 0, 2, ids(0), [1, 1], push_id=7)
    measure(shard, 2)
    assert [(one.ids.tolist(), one.watermark) for one in copy(shard, 2, 0, 1)] == [([0, 1], {key: 7})]


def test_a_new_epoch_makes_the_shard_miss_the_round_and_the_blocks_that_stay_come_back():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6))
    measure(shard, 1)
    copied = copy(shard, 1, 0, 2, 4)
    after = next_epoch(epoch, {"w": ids(1)}, {"w": ids(0)}, [group("w", ids(1), source=Source.INITIAL), group("w", ids(0), ME)])
    shard.install(shard.adopt(after, ASP)[0], Contents(np.full(2, 9, np.float32)))
    with pytest.raises(StaleEpoch):
        shard.uploaded(1, copied)
    shard.rounds.failed(copied)
    assert shard.holdings.tables["w"].ids.tolist() == [1, 2, 4]
    assert shard.holdings.tables["w"].saved.tolist() == [9, 9, 0, 0, 0, 0]


def test_distances_of_an_old_epoch_are_worthless():
    shard, epoch = started(ASP, MINE)
    candidates = shard.begin_round(1, 1, 0)
    shard.adopt(next_epoch(epoch), ASP)
    with pytest.raises(StaleEpoch):
        shard.measured(1, 1, candidates)
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
    store = shard.holdings.tables["w"]
    assert committed_values(store, np.array([1, 2]), shard.rounds.pending).tolist() == [0.0] * 4
    shard.uploaded(1, copied)
    shard.rounds.finish(1, True)
    expected = [2, 3, 0, 0] if blocks == (2,) else [2, 3, 4, 5]
    assert committed_values(store, np.array([1, 2]), shard.rounds.pending).tolist() == expected


STALLING = job(consistency="asp", recovery="sync-checkpoint", checkpoint=Checkpoint("full", period=2))


@pytest.mark.parametrize("end", ["committed", "failed", "abandoned"])
def test_training_waits_for_a_checkpoint_where_the_strategy_says_so(end):
    shard, _ = started(STALLING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    with pytest.raises(NotYet, match="durable"):
        push(shard, 0, 2, None, [1] * 6)
    assert push(shard, 0, 1, None, [1] * 6), "a duplicate is acknowledged all the same"
    copied = copy(shard, 1, 0, 2, 4)
    with pytest.raises(NotYet, match="durable"):
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
    with pytest.raises(NotYet, match="update 1 waits for the store"):
        shard.await_copy(1)
    shard.finish_round(1, True)
    shard.await_copy(1)
    with pytest.raises(NotYet):
        shard.await_copy(2)  # it came after the distances were asked for


def test_a_round_that_was_not_committed_stores_nothing():
    shard, _ = started(STORING, MINE)
    push(shard, 0, 1, None, [1] * 6)
    measure(shard, 1)
    shard.uploaded(1, copy(shard, 1, 0, 2, 4))
    shard.finish_round(1, False)
    with pytest.raises(NotYet):
        shard.await_copy(1)


def test_a_push_that_changes_nothing_need_not_be_stored():
    shard, _ = started(STORING, MINE)
    push(shard, 0, 1, None, [0] * 6)
    measure(shard, 1)
    shard.await_copy(1)


class Direct:
    """An engine that does everything at once."""

    def call(self, work, _timeout, **_options):
        return work()


def test_training_does_not_wait_for_ever_for_a_checkpoint(monkeypatch):
    """Its coordinator may be dead, the store away."""
    shard, _ = started(STALLING, MINE)
    store = Saver(shard, Direct(), None)
    store.measure(DistancesRequest(epoch=1, round=1, skip=True), 1.0)
    store.let_go()
    assert shard.held
    monkeypatch.setattr(saver, "HOLD_SECONDS", 0.0)
    store.let_go()
    assert not shard.held
    assert not push(shard, 0, 1, None, [1] * 6)
