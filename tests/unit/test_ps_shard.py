"""Who may speak, what is applied once, when clocks close: docs/protocol.md §2 to §4."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar import tables
from scar.errors import (
    BlockOutOfRange,
    ClockPassed,
    Fenced,
    InvalidRequest,
    NotServing,
    OutOfOrder,
    StaleEpoch,
    UnknownTable,
    WrongJob,
)
from scar.losses import LossPart, LossPoint
from scar.tables import Table
from scar_ps.core.barrier import DONE
from scar_ps.core.block_store import StoreSlice
from scar_ps.core.events import StatusRequested
from scar_ps.core.requests import MustWait, Sender, StagedPush
from tests.unit.ps_support import (
    ME,
    DrivenShard,
    first_epoch,
    group,
    ids,
    job,
    next_epoch,
    push,
    sender,
    started,
    values,
    worker,
)

ASP = job(consistency="asp")
BSP = job()


def test_without_an_epoch_nothing_is_served():
    with pytest.raises(NotServing):
        DrivenShard(ME).pull(sender(0), 1, 0, [("w", None)])


def test_an_older_epoch_is_stale_and_a_newer_one_is_not_known_yet():
    shard, epoch = started(ASP)
    shard.adopt(next_epoch(epoch), ASP)
    with pytest.raises(StaleEpoch) as stale:
        push(shard, 0, 1, None, np.ones(12), epoch=1)
    assert stale.value.epoch == 2
    with pytest.raises(NotServing):
        push(shard, 0, 1, None, np.ones(12), epoch=3)
    assert shard.heard_epoch == 3
    assert shard.counts.stale == 1
    assert not any(values(shard))


def test_only_workers_of_the_epoch_may_speak():
    shard, epoch = started(ASP)
    with pytest.raises(Fenced):
        push(shard, 1, 1, None, np.ones(12))
    with pytest.raises(Fenced):
        push(shard, 0, 1, None, np.ones(12), life=1)
    shard.adopt(next_epoch(epoch, fenced=(worker(0).incarnation,)), ASP)
    with pytest.raises(Fenced):
        shard.mark(sender(0), 2, 1, None)
    assert shard.pull(Sender("", ""), 2, 0, [("w", None)])


def test_unknown_tables_and_blocks_of_others_are_refused():
    shard, _ = started(ASP, {"w": ids(0, 2)})
    with pytest.raises(UnknownTable):
        shard.pull(sender(0), 1, 0, [("v", None)])
    with pytest.raises(BlockOutOfRange, match="block 1 of table w is not on this shard"):
        shard.pull(sender(0), 1, 0, [("w", ids(0, 1))])
    with pytest.raises(BlockOutOfRange, match="block 6 is out of range"):
        shard.pull(sender(0), 1, 0, [("w", ids(0, 6))])


def test_a_push_is_applied_on_arrival_and_seen_by_pulls():
    shard, _ = started(ASP)
    push(shard, 0, 1, ids(1, 4), [1, 2, 3, 4])
    push(shard, 0, 2, None, np.ones(12), push_id=7)
    assert values(shard) == [1, 1, 2, 3, 1, 1, 1, 1, 4, 5, 1, 1]
    assert shard.sequences.watermark == {worker(0).key: 7}
    found = shard.pull(sender(0), 1, 0, [("w", ids(4))])
    assert found[0].positions is not None
    assert found[0].positions.tolist() == [4]


@settings(max_examples=60)
@given(
    consistency=st.sampled_from(["asp", "ssp", "bsp"]),
    repeats=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=30),
    seed=st.integers(0, 1000),
)
def test_duplicates_in_any_interleaving_are_applied_once(consistency, repeats, seed):
    spec = job(consistency=consistency)
    shard, _ = started(spec, workers=3)
    draw = np.random.default_rng(seed)
    pushed = draw.integers(-9, 9, size=(3, 5, 12)).astype(np.float32)
    last = [0, 0, 0]
    for rank, ahead in [*repeats, *[(rank, 0) for rank in range(3) for _ in range(5)]]:
        seq = min(last[rank] + 1, 5)
        if ahead and last[rank]:  # something old comes again
            seq = 1 + ahead % last[rank]
        duplicate = push(shard, rank, seq, None, pushed[rank, seq - 1])
        assert duplicate == (seq <= last[rank])
        last[rank] = max(last[rank], seq)
    for rank in range(3):
        while last[rank] < 5:
            last[rank] += 1
            push(shard, rank, last[rank], None, pushed[rank, last[rank] - 1])
        shard.mark(sender(rank), 1, 1, None)
    assert values(shard) == pushed.sum(axis=(0, 1)).tolist()
    assert shard.counts.pushes == 15


def test_a_gap_is_out_of_order_and_changes_nothing():
    shard, _ = started(ASP)
    push(shard, 0, 1, None, np.ones(12))
    with pytest.raises(OutOfOrder):
        push(shard, 0, 3, None, np.ones(12))
    assert values(shard) == [1.0] * 12


def test_bsp_keeps_pushes_until_everybody_has_finished_the_clock():
    shard, _ = started(BSP, workers=2)
    push(shard, 0, 1, None, np.ones(12))
    shard.mark(sender(0), 1, 1, None)
    push(shard, 1, 1, ids(0), [5, 5])
    assert not any(values(shard))
    assert shard.sequences.watermark == {}
    with pytest.raises(MustWait, match="waits for worker-1"):
        shard.pull(sender(0), 1, 1, [("w", None)])
    shard.mark(sender(1), 1, 1, None)
    assert shard.clock == 1
    assert values(shard)[:3] == [6, 6, 1]
    assert shard.sequences.watermark == {worker(0).key: 1, worker(1).key: 1}
    assert shard.bsp_buffer.bytes == 0


READER = Sender("", "")


def test_a_pull_of_exactly_one_clock_gets_a_copy_of_it_or_nothing():
    shard, _ = started(BSP, workers=1)
    push(shard, 0, 1, None, np.ones(12))
    with pytest.raises(MustWait, match="1"):
        shard.pull_exact(READER, 1, 1, [("w", None)])
    shard.mark(sender(0), 1, 1, None)
    (part,) = shard.pull_exact(READER, 1, 1, [("w", None)])
    push(shard, 0, 2, None, np.ones(12), clock=1)
    shard.mark(sender(0), 1, 2, None)
    assert values(shard) == [2.0] * 12
    assert part.store.values.tolist() == [1.0] * 12  # what is on its way out stays as it was
    with pytest.raises(ClockPassed, match="clock 1 is closed, the open one is 2"):
        shard.pull_exact(READER, 1, 1, [("w", None)])


def test_a_clock_that_lacks_a_late_push_is_not_told_as_exact():
    shard, _ = started(BSP, workers=1)
    shard.mark(sender(0), 1, 1, None)
    push(shard, 0, 1, None, np.ones(12), clock=0)  # as after a recovery: it joins clock 1
    with pytest.raises(MustWait, match="exactly clock 1"):
        shard.pull_exact(READER, 1, 1, [("w", None)])
    shard.mark(sender(0), 1, 2, None)
    (part,) = shard.pull_exact(READER, 1, 2, [("w", None)])
    assert part.store.values.tolist() == [1.0] * 12


def test_without_bsp_nothing_is_of_exactly_one_clock():
    shard, _ = started(ASP)
    with pytest.raises(InvalidRequest, match="without BSP"):
        shard.pull_exact(READER, 1, 0, [("w", None)])


@settings(max_examples=40)
@given(
    rule=st.sampled_from([tables.add(), tables.sgd(0.1), tables.adam(0.1), tables.assign()]),
    shapes=st.lists(
        st.lists(st.none() | st.sets(st.integers(0, 5), min_size=1), max_size=3), min_size=3, max_size=3
    ),
    seed=st.integers(0, 1000),
)
def test_bsp_sums_do_not_depend_on_the_order_of_arrival(rule, shapes, seed):
    spec = job(Table("w", (6, 2), rule=rule))
    draw = np.random.default_rng(seed)
    lanes = []
    for wanted in shapes:
        blocks = [None if one is None else ids(*sorted(one)) for one in wanted]
        lanes.append(
            [
                (one, draw.normal(size=12 if one is None else 2 * len(one)).astype(np.float32))
                for one in blocks
            ]
        )
    found = []
    for order in permutations(range(3)):
        shard, _ = started(spec, workers=3)
        for rank in order:
            for seq, (blocks, pushed) in enumerate(lanes[rank], 1):
                push(shard, rank, seq, blocks, pushed)
        for rank in reversed(order):
            shard.mark(sender(rank), 1, 1, None)
        found.append(shard.ownership.tables["w"].values.tobytes())
    assert len(set(found)) == 1


def test_assign_takes_the_last_in_rank_order():
    shard, _ = started(job(Table("w", (6, 2), rule=tables.assign())), workers=2)
    push(shard, 1, 1, ids(0, 1), [2, 2, 2, 2])
    push(shard, 0, 1, ids(1, 2), [1, 1, 1, 1])
    for rank in (0, 1):
        shard.mark(sender(rank), 1, 1, None)
    assert values(shard)[:6] == [2, 2, 2, 2, 1, 1]


def test_a_single_dense_contribution_is_applied_from_where_it_lies():
    shard, _ = started(job(Table("w", (6, 2), rule=tables.sgd(0.5))))
    pushed = np.ones(12, np.float32)
    pushed.setflags(write=False)  # it may lie in a message
    store = shard.ownership.tables["w"]
    shard.push(StagedPush(sender(0), 1, 1, 1, 0, {"w": StoreSlice(store, None, pushed)}))
    shard.mark(sender(0), 1, 1, None)
    assert values(shard) == [-0.5] * 12


def test_the_open_clock_never_falls_and_a_late_contribution_joins_it():
    shard, _ = started(BSP)
    shard.mark(sender(0), 1, 3, None)
    shard.mark(sender(0), 1, 2, None)
    assert shard.clock == 3
    push(shard, 0, 1, None, np.ones(12), clock=1)
    assert not any(values(shard))
    shard.mark(sender(0), 1, 4, None)
    assert values(shard) == [1.0] * 12


def test_contributions_of_later_clocks_wait_for_their_own():
    shard, _ = started(BSP, workers=2)
    push(shard, 0, 1, None, np.full(12, 1), clock=0)
    push(shard, 0, 2, None, np.full(12, 10), clock=1)
    shard.mark(sender(0), 1, 2, None)
    shard.mark(sender(1), 1, 1, None)
    assert values(shard) == [1.0] * 12
    shard.mark(sender(1), 1, 2, None)
    assert values(shard) == [11.0] * 12


def test_losses_are_summed_in_rank_order_and_known_for_closed_clocks_only():
    shard, _ = started(BSP, workers=3)
    parts = [1e16, 1.0, -1e16]
    for rank in (2, 0, 1):
        assert shard.barrier.last_loss is None
        shard.mark(sender(rank), 1, 1, LossPart(parts[rank], rank, 3))
    assert shard.barrier.losses == {0: LossPoint(0, sum(parts))}
    assert shard.barrier.last_loss == LossPoint(0, sum(parts))


def test_workers_that_are_done_hold_nobody_up():
    shard, _ = started(BSP, workers=2)
    shard.mark(sender(0), 1, 1, None)
    shard.mark(sender(0), 1, DONE, None)
    shard.mark(sender(1), 1, 3, None)
    assert shard.clock == 3
    shard.mark(sender(1), 1, DONE, None)
    assert shard.clock == 3
    assert shard.barrier.finished_clocks("worker-1") == DONE


def test_a_worker_that_left_and_came_back_is_waited_for_again():
    """Its predecessor said that nothing more would come; that holds for the predecessor alone."""
    shard, epoch = started(BSP, workers=2)
    for rank in (0, 1):
        shard.mark(sender(rank), 1, 3, None)
    shard.mark(sender(0), 1, DONE, None)
    without = next_epoch(epoch, workers=(worker(1),))
    shard.adopt(without, BSP)
    shard.mark(sender(1), 2, 5, None)
    assert shard.clock == 5
    shard.adopt(next_epoch(without, workers=(worker(0, life=1), worker(1))), BSP)
    shard.settle(sender(0, life=1), 3)
    assert shard.barrier.finished_clocks("worker-0") == 3
    shard.mark(sender(1), 3, 6, None)
    assert shard.clock == 5, "it is waited for"
    shard.mark(sender(0, life=1), 3, 6, None)
    assert shard.clock == 6


def test_marks_of_departed_workers_do_not_count():
    shard, epoch = started(BSP, workers=2)
    push(shard, 1, 1, None, np.ones(12))
    shard.mark(sender(0), 1, 1, None)
    assert shard.clock == 0
    shard.adopt(next_epoch(epoch, workers=(worker(0),)), BSP)
    assert shard.clock == 1
    assert values(shard) == [1.0] * 12, "what was acknowledged is applied although its sender has gone"


def test_a_new_incarnation_inherits_the_mark_and_drops_what_was_not_sealed():
    shard, epoch = started(BSP, workers=2)
    push(shard, 0, 1, None, np.full(12, 1), clock=0)
    shard.mark(sender(0), 1, 1, None)
    push(shard, 0, 2, None, np.full(12, 100), clock=1)
    after = next_epoch(epoch, workers=(worker(0, life=1), worker(1)))
    shard.adopt(after, BSP)
    shard.settle(sender(0, life=1), 2)
    assert shard.barrier.finished_clocks("worker-0") == 1
    shard.mark(sender(0, life=1), 2, 1, None)
    push(shard, 0, 1, None, np.full(12, 10), clock=1, life=1)
    shard.mark(sender(0, life=1), 2, 2, None)
    shard.mark(sender(1), 2, 2, None)
    assert values(shard) == [11.0] * 12
    with pytest.raises(Fenced):
        push(shard, 0, 3, None, np.full(12, 100), clock=2)


def test_a_clock_of_which_only_another_shard_had_the_mark_keeps_what_was_pushed_for_it():
    """The predecessor died between two of its marks; its successor begins with the clock after."""
    shard, epoch = started(BSP, workers=2)
    push(shard, 0, 1, None, np.full(12, 1), clock=0)
    push(shard, 0, 2, None, np.full(12, 100), clock=1)
    shard.mark(sender(1), 1, 1, None)
    shard.adopt(next_epoch(epoch, workers=(worker(0, life=1), worker(1))), BSP)
    shard.settle(sender(0, life=1), 2)
    shard.mark(sender(1), 2, 1, None)
    assert shard.clock == 0, "nobody has said yet whether clock 0 is finished"
    shard.mark(sender(0, life=1), 2, 1, None, first=1)
    assert (shard.clock, values(shard)) == (1, [1.0] * 12)
    push(shard, 0, 1, None, np.full(12, 10), clock=1, life=1)
    for rank, life in ((0, 1), (1, 0)):
        shard.mark(sender(rank, life), 2, 2, None, first=1)
    assert values(shard) == [11.0] * 12


def test_a_shard_that_hears_late_of_a_new_incarnation_drops_what_that_one_has_done_itself():
    """Its first mark here is not its first: blocks moved here meanwhile, with pushes of its predecessor."""
    shard, epoch = started(BSP, workers=2)
    push(shard, 0, 1, None, np.full(12, 100), clock=0)
    shard.adopt(next_epoch(epoch, workers=(worker(0, life=1), worker(1))), BSP)
    push(shard, 0, 1, None, np.full(12, 10), clock=0, life=1)
    shard.mark(sender(1), 2, 1, None)
    shard.mark(sender(0, life=1), 2, 1, None, first=0)
    assert values(shard) == [10.0] * 12


def test_ssp_pulls_wait_for_the_slowest_beyond_the_slack():
    shard, _ = started(job(consistency="ssp", staleness=2), workers=2)
    shard.mark(sender(0), 1, 3, None)
    with pytest.raises(MustWait):
        shard.pull(sender(0), 1, 1, [("w", None)])
    shard.mark(sender(1), 1, 1, None)
    assert shard.pull(sender(0), 1, 1, [("w", None)])


def test_a_shard_starts_at_the_clock_of_its_first_epoch():
    shard, _ = started(BSP, clock=41)
    assert shard.clock == 41
    shard.mark(sender(0), 1, 42, None)
    assert shard.clock == 42


def test_a_shard_says_later_which_clock_was_open_when_an_epoch_came():
    shard, epoch = started(BSP, clock=41)
    shard.mark(sender(0), 1, 42, None)
    for number in range(2, 20):
        epoch = next_epoch(epoch)
        shard.adopt(epoch, BSP)
        shard.mark(sender(0), number, 41 + number, None)
    told = shard.handle(StatusRequested()).adopted
    assert told == {number: 40 + number for number in range(4, 20)}, "the newest 16"


def test_an_empty_shard_takes_over_the_clock_of_the_epoch_that_gives_it_blocks():
    shard = DrivenShard(ME)
    epoch = first_epoch(BSP, {"w": ids()})
    shard.adopt(epoch, BSP)
    assert shard.clock == 0
    second = next_epoch(epoch, {"w": ids(1)}, moved=[group("w", ids(1))], clock=41, workers=())
    shard.adopt(second, BSP)
    assert shard.clock == 41
    shard.adopt(next_epoch(second, {"w": ids(2)}, moved=[group("w", ids(2))], clock=50), BSP)
    assert shard.clock == 41  # what it holds now waits for the marks of its own clocks


def test_adopting_is_idempotent_and_never_goes_back():
    shard, epoch = started(BSP)
    second = next_epoch(epoch)
    assert shard.adopt(epoch, BSP) == []
    shard.adopt(second, BSP)
    assert shard.adopt(epoch, BSP) == []
    assert shard.number == 2


def test_another_job_is_refused():
    shard, epoch = started(BSP)
    with pytest.raises(WrongJob):
        shard.adopt(next_epoch(epoch, job="other"), BSP)


def test_a_shard_that_is_left_out_or_fenced_serves_nothing_any_more():
    for change in ({"shards": first_epoch(BSP).shards[1:]}, {"fenced": (ME.incarnation,)}):
        shard, epoch = started(BSP)
        shard.adopt(next_epoch(epoch, **change), BSP)
        assert shard.dismissed
        assert shard.view.tables == {}
        with pytest.raises(NotServing):  # Fenced would tell a healthy sender to stop
            shard.pull(Sender("", ""), 2, 0, [("w", None)])
        with pytest.raises(NotServing):
            shard.mark(sender(0), 1, 1, None)


def test_a_new_shard_ignores_epochs_that_do_not_know_it():
    shard = DrivenShard(ME)
    assert shard.adopt(first_epoch(BSP).__class__(**{**vars(first_epoch(BSP)), "shards": ()}), BSP) == []
    assert not shard.dismissed
    assert shard.number == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"owners": {}},
        {"owners": {"w": np.zeros(5, np.uint16)}},
        {"owners": {"w": np.zeros(6, np.uint16), "x": np.zeros(1, np.uint16)}},
        {"owners": {"w": np.full(6, 7, np.uint16)}},
        {"moved": (group("nothing", ids(0)),)},
        {"moved": (group("w", ids(6)),)},
        {"number": 1 << 63},
    ],
)
def test_an_epoch_that_does_not_fit_the_job_is_refused_and_changes_nothing(wrong: dict[str, object]) -> None:
    epoch = first_epoch(BSP)
    shard = DrivenShard(ME)
    shard.adopt(epoch, BSP)
    with pytest.raises(InvalidRequest):
        shard.adopt(replace(next_epoch(epoch), **wrong), BSP)
    assert shard.number == 1
    shard.adopt(next_epoch(epoch), BSP)
    assert shard.number == 2
