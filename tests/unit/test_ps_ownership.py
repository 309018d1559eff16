"""Blocks that come and go: loads, settling, marks after a gain, moves, rollback. docs/protocol.md §4 to
§7.
"""

from __future__ import annotations

import numpy as np
import pytest

from scar import tables
from scar.errors import Internal, InvalidRequest
from scar.placement import BlockSource
from scar.tables import Table
from scar_ps.core.block_data import BlockContents, IncomingBlocks
from scar_ps.core.events import PushReceived
from scar_ps.core.requests import MustWait, Sender, StagedPush
from tests.unit.ps_support import (
    ME,
    OTHER,
    DrivenShard,
    first_epoch,
    group,
    ids,
    job,
    load_initial,
    next_epoch,
    part,
    push,
    sender,
    started,
    values,
    worker,
)

MINE = {"w": ids(0, 2, 4)}
ASP, BSP = job(consistency="asp"), job()


def gained(epoch, *blocks, source=BlockSource.OBJECT, former=OTHER, **watermark):
    """The epoch after, in which we take over these blocks of table w."""
    return next_epoch(
        epoch, {"w": ids(*blocks)}, moved=[group("w", ids(*blocks), former, source, **watermark)]
    )


def contents(count, value=5.0):
    return BlockContents(np.full(2 * count, value, np.float32))


def owed(shard, seq):
    """Worker 0 sends its push 1, of clock 0, to block 1."""
    parts = {"w": part(shard, "w", ids(1), [1, 1])}
    return shard.handle(PushReceived(StagedPush(sender(0), shard.number, seq, 1, 0, parts))).owed


def unsettled(shard):
    return shard.ownership.tables["w"].unsettled.tolist()


def test_blocks_are_served_once_they_are_loaded():
    shard = DrivenShard(ME)
    loads = shard.adopt(first_epoch(ASP, MINE), ASP)
    assert [(load.table, load.ids.tolist(), load.source) for load in loads] == [
        ("w", [0, 2, 4], BlockSource.INITIAL)
    ]
    assert shard.ownership.loading_blocks == 3
    with pytest.raises(MustWait, match="3 blocks of table w are loading"):
        shard.pull(sender(0), 1, 0, [("w", None)])
    with pytest.raises(MustWait):
        push(shard, 0, 1, None, np.ones(6))
    load_initial(shard, ASP, loads)
    assert shard.ownership.loading_blocks == 0
    assert not push(shard, 0, 1, None, np.ones(6))


def test_survivors_keep_their_values_and_only_the_gained_blocks_wait():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.arange(6))
    loads = shard.adopt(gained(epoch, 1), ASP)
    assert values(shard) == [0, 1, 0, 0, 2, 3, 4, 5]
    assert shard.pull(sender(0), 2, 0, [("w", ids(0, 2, 4))])
    with pytest.raises(MustWait):
        shard.pull(sender(0), 2, 0, [("w", ids(0, 1))])
    shard.install(loads[0], contents(1))
    assert values(shard) == [0, 1, 5, 5, 2, 3, 4, 5]
    assert shard.ownership.tables["w"].saved.tolist() == [0, 0, 5, 5, 0, 0, 0, 0]


def test_a_load_for_an_older_epoch_is_abandoned_when_the_blocks_move_again():
    shard, epoch = started(ASP, MINE)
    second = gained(epoch, 1, 3)
    old = shard.adopt(second, ASP)[0]
    third = next_epoch(second, lost={"w": ids(1, 3)}, moved=[group("w", ids(1, 3), ME)])
    shard.adopt(third, ASP)
    assert not shard.wanted(old)
    new = shard.adopt(gained(third, 3), ASP)[0]
    shard.install(old, contents(2, 9))
    assert shard.ownership.loading_blocks == 1
    assert not any(values(shard))
    shard.install(new, contents(1, 7))
    assert values(shard) == [0, 0, 0, 0, 7, 7, 0, 0]


def test_a_load_goes_on_through_an_epoch_that_does_not_touch_it():
    shard, epoch = started(ASP, MINE)
    second = gained(epoch, 1)
    load = shard.adopt(second, ASP)[0]
    shard.adopt(next_epoch(second, lost={"w": ids(0)}, moved=[group("w", ids(0), ME)]), ASP)
    assert shard.wanted(load)
    shard.install(load, contents(1))
    assert values(shard) == [5, 5, 0, 0, 0, 0]


def test_gained_blocks_settle_when_all_workers_have_settled():
    shard, epoch = started(ASP, MINE, workers=2)
    loads = shard.adopt(gained(epoch, 1), ASP)
    shard.install(loads[0], contents(1))
    assert unsettled(shard) == [False, True, False, False]
    shard.settle(sender(0), 2)
    shard.settle(sender(1), 1)
    assert unsettled(shard)[1]
    shard.settle(sender(1), 2)
    assert not any(unsettled(shard))


def test_blocks_for_which_workers_may_owe_something_are_not_told_as_exact():
    """What was restored is older than the open clock until they have sent again what they keep."""
    shard, epoch = started(BSP, MINE, workers=1)
    (load,) = shard.adopt(gained(epoch, 1), BSP)
    shard.install(load, contents(1))
    with pytest.raises(MustWait, match="1 blocks of table w wait for what workers owe"):
        shard.pull_exact(Sender("", ""), 2, 0, [("w", None)])
    shard.settle(sender(0), 2)
    (part,) = shard.pull_exact(Sender("", ""), 2, 0, [("w", None)])
    assert part.store.values[2:4].tolist() == [5.0, 5.0]


def test_settling_goes_on_over_an_epoch_without_gains_and_starts_anew_after_a_gain():
    shard, epoch = started(ASP, MINE, workers=2)
    second = gained(epoch, 1)
    shard.adopt(second, ASP)
    shard.settle(sender(0), 2)
    third = next_epoch(second, workers=(worker(0), worker(1), worker(2)))
    shard.adopt(third, ASP)
    assert unsettled(shard)[1]
    shard.settle(sender(1), 2)
    assert not any(unsettled(shard)), "worker-2 came later and owes nothing"
    shard.adopt(gained(third, 3), ASP)
    shard.settle(sender(0), 3)
    shard.settle(sender(1), 4)
    shard.settle(sender(2), 4)
    assert unsettled(shard) == [False, False, False, True, False]
    shard.settle(sender(0), 4)
    assert not any(unsettled(shard))


def test_a_new_shard_waits_for_workers_that_were_there_before_it():
    """It hears of them in the epoch that gives it blocks, to which they may owe something."""
    shard = DrivenShard(ME)
    (load,) = shard.adopt(gained(first_epoch(ASP, {"w": ids()}), 1), ASP)
    shard.install(load, contents(1))
    assert unsettled(shard) == [True]
    shard.settle(sender(0), 2)
    assert unsettled(shard) == [False]


def test_a_departed_worker_owes_nothing_any_more():
    shard, epoch = started(ASP, MINE, workers=2)
    second = gained(epoch, 1)
    shard.adopt(second, ASP)
    shard.settle(sender(0), 2)
    shard.adopt(next_epoch(second, workers=(worker(0),)), ASP)
    assert not any(unsettled(shard))


def test_what_is_owed_to_lost_blocks_is_applied_as_they_settle_with_its_own_clock():
    """Clock 0 is closed here. No further clock is needed, which would be one more than workers have done."""
    shard, epoch = started(BSP, MINE, workers=2)
    for rank in (0, 1):
        push(shard, rank, 1, None, np.ones(6), clock=0)
        shard.mark(sender(rank), 1, 1, None)
    (load,) = shard.adopt(gained(epoch, 1, w0=0), BSP)
    shard.install(load, contents(1))
    assert owed(shard, 2)
    assert not shard.settle(sender(0), 2).settled
    with pytest.raises(MustWait, match="wait for what workers owe"):
        shard.pull(sender(0), 2, 1, [("w", None)])
    assert values(shard)[2:4] == [5, 5]
    assert shard.settle(sender(1), 2).settled
    assert not any(unsettled(shard))
    assert (values(shard)[2:4], shard.clock) == ([6, 6], 1)
    assert owed(shard, 2), "its answer was lost"


def test_what_is_owed_and_of_an_open_clock_is_an_ordinary_push():
    shard, epoch = started(BSP, MINE)
    (load,) = shard.adopt(gained(epoch, 1), BSP)
    shard.install(load, contents(1))
    assert not owed(shard, 1)
    shard.settle(sender(0), 2)
    assert values(shard)[2:4] == [5, 5]
    shard.mark(sender(0), 2, 1, None)
    assert values(shard)[2:4] == [6, 6]


def test_nothing_settles_before_what_joins_a_later_clock_is_applied():
    """To a block that was always here; no worker of this version does so."""
    shard, epoch = started(BSP, MINE)
    shard.mark(sender(0), 1, 1, None)
    (load,) = shard.adopt(gained(epoch, 1), BSP)
    shard.install(load, contents(1))
    push(shard, 0, 1, ids(0), [1, 1], clock=0)
    assert not shard.settle(sender(0), 2).settled
    assert unsettled(shard)[1], "the watermark will say 1, but push 1 is not in its block yet"
    shard.mark(sender(0), 2, 2, None)
    assert not any(unsettled(shard))


def test_settled_is_what_the_next_replica_has_too():
    spec = job(consistency="bsp", recovery="sync-chain")
    shard, epoch = started(spec, MINE)
    (load,) = shard.adopt(gained(epoch, 1), spec)
    shard.install(load, contents(1))
    assert not shard.settle(sender(0), 2).settled
    outgoing = shard.load()
    for batch in outgoing.batches:
        shard.arrived(outgoing, batch)
    assert shard.settle(sender(0), 2).settled


def test_after_a_gain_only_marks_of_the_new_epoch_close_clocks():
    shard, epoch = started(BSP, MINE, workers=2)
    shard.mark(sender(0), 1, 1, None)
    shard.adopt(gained(epoch, 1), BSP)
    shard.mark(sender(1), 2, 1, None)
    assert shard.clock == 0, "worker-0 has not sent the lost part again"
    shard.mark(sender(0), 2, 1, None)
    assert shard.clock == 1


def test_without_a_gain_older_marks_go_on_counting():
    shard, epoch = started(BSP, MINE, workers=2)
    shard.mark(sender(0), 1, 1, None)
    shard.adopt(next_epoch(epoch), BSP)
    shard.mark(sender(1), 2, 1, None)
    assert shard.clock == 1


def test_pending_contributions_follow_the_blocks_that_stay():
    shard, epoch = started(BSP, MINE)
    push(shard, 0, 1, None, np.arange(6))
    push(shard, 0, 2, ids(0, 4), [10, 10, 20, 20])
    after = next_epoch(epoch, {"w": ids(1)}, {"w": ids(0)}, [group("w", ids(1)), group("w", ids(0), ME)])
    loads = shard.adopt(after, BSP)
    shard.install(loads[0], contents(1, 0))
    shard.mark(sender(0), 2, 1, None)
    assert values(shard) == [0, 0, 2, 3, 24, 25]


def test_a_rollback_replaces_every_value_and_drops_what_was_pending():
    shard, epoch = started(BSP, MINE)
    push(shard, 0, 1, None, np.ones(6))
    shard.mark(sender(0), 1, 1, None)
    push(shard, 0, 2, None, np.ones(6), clock=1)
    back = next_epoch(epoch, moved=[group("w", ids(0, 2, 4), ME, w0=0)], rollback=True)
    loads = shard.adopt(back, BSP)
    assert shard.bsp_buffer.bytes == 0
    assert shard.sequences.watermark == {}
    assert shard.ownership.loading_blocks == 3
    shard.install(loads[0], contents(3, 2))
    shard.mark(sender(0), 2, 2, None)
    assert values(shard) == [2.0] * 6
    assert shard.clock == 2


def test_an_epoch_that_does_not_say_where_a_block_comes_from_changes_nothing():
    shard, epoch = started(ASP, MINE)
    with pytest.raises(Internal, match="where block 1 of table w comes from"):
        shard.adopt(next_epoch(epoch, {"w": ids(1)}), ASP)
    assert shard.number == 1
    assert shard.ownership.tables["w"].ids.tolist() == [0, 2, 4]


def test_an_epoch_with_the_wrong_number_of_owners_is_refused():
    shard, epoch = started(ASP, MINE)
    with pytest.raises(InvalidRequest):
        shard.adopt(
            next_epoch(epoch).__class__(
                **{**vars(next_epoch(epoch)), "owners": {"w": np.zeros(3, np.uint16)}}
            ),
            ASP,
        )


def test_epochs_are_bridged_only_in_order():
    shard, epoch = started(ASP, MINE)
    second = gained(epoch, 1)
    third = next_epoch(second)
    assert shard.bridged(second, ASP)
    assert not shard.bridged(third, ASP)
    fresh = DrivenShard(ME)
    assert fresh.bridged(first_epoch(ASP, MINE), ASP)
    assert not fresh.bridged(second, ASP), "blocks 0, 2 and 4 came in epoch 1"


# --- live moves
# ------------------------------------------------------------------------------------------------------


def test_frozen_blocks_wait_until_the_next_epoch():
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6), push_id=9)
    assert shard.freeze(1, [("w", ids(2))]) == {worker(0).key: 9}
    assert shard.freeze(1, [("w", ids(2))]) == {worker(0).key: 9}, "freezing again is harmless"
    for blocks in (None, ids(2)):
        with pytest.raises(MustWait):
            shard.pull(sender(0), 1, 0, [("w", blocks)])
    with pytest.raises(MustWait):
        push(shard, 0, 2, ids(0, 2), np.ones(4))
    assert not push(shard, 0, 2, ids(0), np.ones(2))
    shard.adopt(next_epoch(epoch), ASP)
    assert shard.pull(sender(0), 2, 0, [("w", None)])


def test_a_restored_block_that_moves_on_contains_what_it_was_restored_with():
    """Its pushes may be newer than any that this shard has seen of their worker."""
    shard, epoch = started(ASP, MINE)
    push(shard, 0, 1, None, np.ones(6), push_id=9)
    loads = shard.adopt(gained(epoch, 1, w0=12), ASP)
    shard.install(loads[0], contents(1))
    shard.settle(sender(0), 2)
    frozen = shard.freeze_state(2, [("w", ids(1, 2))])
    assert frozen.watermark == {worker(0).key: 9}
    [ahead] = frozen.ahead
    assert (ahead.ids.tolist(), ahead.watermark) == ([1], {worker(0).key: 12})


def test_bsp_clocks_stay_open_while_something_is_frozen():
    shard, epoch = started(BSP, MINE)
    push(shard, 0, 1, None, np.ones(6))
    shard.freeze(1, [("w", ids(2))])
    shard.mark(sender(0), 1, 1, None)
    assert shard.clock == 0
    after = next_epoch(epoch, lost={"w": ids(2)}, moved=[group("w", ids(2), ME, BlockSource.DONOR)])
    shard.adopt(after, BSP)
    assert shard.clock == 1
    assert values(shard) == [1.0] * 4


def test_blocks_that_may_miss_a_push_are_not_frozen():
    shard, epoch = started(ASP, MINE)
    loads = shard.adopt(gained(epoch, 1), ASP)
    with pytest.raises(MustWait):
        shard.freeze(2, [("w", ids(1))])
    shard.install(loads[0], contents(1))
    with pytest.raises(MustWait):
        shard.freeze(2, [("w", ids(1))])
    shard.settle(sender(0), 2)
    shard.freeze(2, [("w", ids(1))])
    assert shard.ownership.any_frozen


def test_only_frozen_blocks_are_handed_out():
    shard, _ = started(ASP, MINE)
    shard.freeze(1, [("w", ids(0, 2))])
    with pytest.raises(InvalidRequest, match="not frozen"):
        shard.frozen(1, [("w", ids(0, 4))])
    assert shard.frozen(1, [("w", ids(0, 2))])[0].ids.tolist() == [0, 2]


def aside(epoch, *blocks, value=3.0, saved=1.0):
    kept = BlockContents(
        np.full(2 * len(blocks), value, np.float32),
        {},
        np.arange(len(blocks)),
        np.full(2 * len(blocks), saved, np.float32),
    )
    return IncomingBlocks(epoch, OTHER.key, "w", ids(*blocks), kept)


def test_received_blocks_become_ours_with_the_next_epoch_at_once():
    shard, epoch = started(ASP, MINE)
    shard.put_aside([aside(1, 1, 3, 5)])
    assert shard.adopt(gained(epoch, 1, 5, source=BlockSource.DONOR, w0=4), ASP) == []
    store = shard.ownership.tables["w"]
    assert store.values.tolist() == [0, 0, 3, 3, 0, 0, 0, 0, 3, 3]
    assert store.saved.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 1, 1]
    assert store.steps.tolist() == [0, 0, 0, 0, 2]
    assert unsettled(shard) == [False, True, False, False, True]
    assert shard.pull(sender(0), 2, 0, [("w", None)])


@pytest.mark.parametrize("kept", [[], [(1, (3,))], [(0, (1,))]])
def test_blocks_that_were_not_received_for_this_epoch_are_a_bug(kept):
    shard, epoch = started(ASP, MINE)
    shard.put_aside([aside(number, *blocks) for number, blocks in kept])
    with pytest.raises(Internal, match="were not received"):
        shard.adopt(gained(epoch, 1, source=BlockSource.DONOR), ASP)
    assert shard.number == 1


def test_what_was_put_aside_is_worthless_after_any_other_epoch():
    shard, epoch = started(ASP, MINE)
    shard.put_aside([aside(1, 1)])
    second = next_epoch(epoch)
    shard.adopt(second, ASP)
    with pytest.raises(Internal):
        shard.adopt(gained(second, 1, source=BlockSource.DONOR), ASP)


def test_optimizer_state_moves_with_its_block():
    spec = job(Table("w", (6, 2), rule=tables.momentum(1.0, 0.5)), consistency="asp")
    shard, epoch = started(spec, MINE)
    push(shard, 0, 1, ids(0), [1, 1])
    after = next_epoch(epoch, lost={"w": ids(2)}, moved=[group("w", ids(2), ME, BlockSource.DONOR)])
    shard.adopt(after, spec)
    push(shard, 0, 2, ids(0), [1, 1])
    assert values(shard)[:2] == [-2.5, -2.5]


def test_a_base_watermark_stays_until_the_pushes_of_every_worker_have_overtaken_it():
    """Forgotten for one worker too early, the block would claim less of the other one's pushes than it
    contains.
    """
    shard, epoch = started(ASP, MINE, workers=2)
    loads = shard.adopt(gained(epoch, 1, w0=3, w1=7), ASP)
    shard.install(loads[0], contents(1))
    ownership, keys = shard.ownership, [worker(0).key, worker(1).key]
    origin = int(ownership.tables["w"].origin[ownership.tables["w"].find_blocks(ids(1))[0]])
    own = {keys[0]: 5, keys[1]: 2}
    ownership.forget_overtaken(own, keys)
    assert ownership.watermark_of(origin, own) == {keys[0]: 5, keys[1]: 7}
    ownership.forget_overtaken({keys[0]: 5, keys[1]: 7}, keys)
    assert not ownership.tables["w"].origin.any()
    assert ownership._base_watermarks == [{}], "nor does their memory stay (simulated seed 415)"
