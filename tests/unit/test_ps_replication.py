"""Chains of shards: what goes to the next replica, what waits for it, what a successor goes on with.
docs/protocol.md §11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from scar.errors import NotServing, OutOfOrder, StaleEpoch
from scar.placement import BlockGroup, BlockSource, Epoch, Member, replica_chain
from scar_ps.core.distances import block_distances
from scar_ps.core.requests import MustWait
from tests.unit.ps_support import (
    ME,
    OTHER,
    DrivenShard,
    first_epoch,
    ids,
    load_initial,
    push,
    sender,
    values,
    worker,
)
from tests.unit.replication_pair import MINE, Pair, deliver, job


def test_the_ring_is_the_same_for_everybody_and_only_neighbours_change() -> None:
    spec = job(shards=6, replicas=2)
    members = tuple(Member(ME.role, f"ps-{number}", f"{number:012x}") for number in range(6))
    epoch = replace(first_epoch(spec), shards=members)
    chains = {member.key: replica_chain(spec, epoch, member.key) for member in members}
    for key, successors in chains.items():
        assert len(successors) == 2
        assert key not in {member.key for member in successors}
        assert chains[successors[0].key][0] == successors[1], "a chain is one way around one ring"
    gone = members[3]
    fewer = replace(epoch, shards=tuple(member for member in members if member != gone))
    for key, successors in chains.items():
        if key != gone.key and gone not in successors:
            assert replica_chain(spec, fewer, key) == successors
    assert replica_chain(spec, replace(epoch, shards=members[:1]), members[0].key) == ()
    assert replica_chain(job(recovery="partial"), epoch, members[0].key) == ()


def test_a_copy_has_values_slots_steps_and_watermark() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, None, [1, 2] * 3)
    push(pair.me, 0, 2, ids(0), [0.5, 0.5], table="a")
    first = pair.ship()
    assert [(copy.state.table, copy.state.ids.tolist()) for copy in first.batches[0].copies] == [
        ("w", [0, 2, 4]),
        ("a", [0]),
    ]
    push(pair.me, 0, 3, ids(2), [1, 1])
    assert [copy.state.ids.tolist() for copy in pair.ship().batches[0].copies] == [[2]], (
        "only what has changed goes again"
    )
    kept = pair.kept(w=[0, 2, 4], a=[0])
    assert [(k.table, k.ids.tolist(), k.watermark) for k in kept] == [
        ("w", [0, 2, 4], {worker(0).key: 3}),
        ("a", [0], {worker(0).key: 3}),
    ]
    mine = {
        name: (store.values.copy(), store.steps.copy(), dict(store.slots))
        for name, store in pair.me.ownership.tables.items()
    }
    pair.take_over(kept)
    for name, (former, steps, slots) in mine.items():
        store = pair.other.ownership.tables[name]
        taken = store.copy_blocks(store.find_blocks(MINE[name]))
        np.testing.assert_array_equal(taken.values, former)
        np.testing.assert_array_equal(taken.steps, steps)
        for slot, array in slots.items():
            np.testing.assert_array_equal(taken.slots[slot], array)
    assert pair.copies[OTHER.key].kept == 0, "its own blocks need no copy here"


def test_what_was_taken_over_counts_as_never_saved() -> None:
    pair = Pair(job())
    pair.ship()
    pair.take_over(pair.kept(w=[0, 2, 4], a=[0]))
    for name, blocks in MINE.items():
        store = pair.other.ownership.tables[name]
        assert not np.isfinite(block_distances(store)[store.find_blocks(blocks)]).any()


def test_an_acknowledgement_waits_for_the_next_replica() -> None:
    pair = Pair(job())
    push(pair.me, 0, 1, None, [1] * 6)
    with pytest.raises(MustWait, match="waits for the next replica"):
        pair.me.await_copy(1)
    outgoing = pair.load()
    push(pair.me, 0, 2, None, [1] * 6)
    pair.bring(ME, outgoing)
    pair.me.await_copy(1)
    with pytest.raises(MustWait):
        pair.me.await_copy(2)


@pytest.mark.parametrize(("recovery", "period"), [("async-chain", 1), ("partial", 1), ("sync-chain", 3)])
def test_an_acknowledgement_that_need_not_wait(recovery: str, period: int) -> None:
    pair = Pair(job(recovery=recovery, replicas=1, replica_period=period))
    pair.ship()
    push(pair.me, 0, 1, None, [1] * 6)
    pair.me.await_copy(1)
    if period > 1:
        with pytest.raises(MustWait):
            pair.load()
    push(pair.me, 0, 2, None, [1] * 6)
    push(pair.me, 0, 3, None, [1] * 6)
    if period > 1:
        with pytest.raises(MustWait):
            pair.me.await_copy(3)
    assert pair.ship().batches[0].updates == 3
    pair.me.await_copy(4)


def test_nobody_hears_of_a_clock_that_the_next_replica_lacks() -> None:
    pair = Pair(job("bsp"))
    pair.ship()
    push(pair.me, 0, 1, None, [1] * 6)
    pair.me.mark(sender(0), 1, 1, None)
    assert (pair.me.clock, pair.me.announced_clock) == (1, 0)
    with pytest.raises(MustWait, match="next replica"):
        pair.me.pull(sender(0), 1, 1, [("w", None)])
    pair.ship()
    assert pair.me.announced_clock == 1
    assert pair.me.pull(sender(0), 1, 1, [("w", None)])
    assert pair.kept(w=[0])[0].clock == 1


def test_a_shard_alone_waits_for_nobody() -> None:
    spec = job("bsp")
    shard, epoch = DrivenShard(ME), replace(first_epoch(spec), shards=(ME,))
    load_initial(shard, spec, shard.adopt(epoch, spec))
    shard.mark(sender(0), 1, 1, None)
    assert shard.announced_clock == shard.clock == 1
    with pytest.raises(MustWait):
        shard.load()


def test_unsettled_blocks_do_not_go() -> None:
    spec = job()
    shard, epoch = DrivenShard(ME), first_epoch(spec, MINE)
    load_initial(shard, spec, shard.adopt(epoch, spec))
    assert shard.load().batches == []
    shard.settle(sender(0), 1)
    assert shard.load().batches[0].block_count == 4


def test_a_block_that_is_loaded_after_it_was_settled_goes_at_once() -> None:
    """Nobody may push for long, and till then its copy is missing, and older copies elsewhere are kept."""
    spec = job(recovery="async-chain")
    shard, epoch = DrivenShard(ME), first_epoch(spec, MINE)
    *early, late = shard.adopt(epoch, spec)
    load_initial(shard, spec, early)
    shard.settle(sender(0), 1)
    first = shard.load()
    for batch in first.batches:
        shard.arrived(first, batch)
    shard.complete(first, released=True)
    with pytest.raises(MustWait):
        shard.load()
    load_initial(shard, spec, [late])
    after = shard.load()
    assert [copy.state.table for copy in after.batches[0].copies] == [late.table]
    assert after.release == [OTHER]


def test_what_did_not_arrive_goes_again() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, ids(2), [1, 1])
    lost = pair.load()
    pair.copies[ME.key].failed(lost.batches[0], gap=False)
    again = pair.ship()
    assert [copy.state.ids.tolist() for copy in again.batches[0].copies] == [[2]]
    assert pair.kept(w=[2])[0].watermark == {worker(0).key: 1}


def test_an_outgoing_batch_that_nobody_speaks_of_any_more_goes_again() -> None:
    """A thread that gave up between copying and sending, or between sending and saying so."""
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, ids(2), [1, 1])
    pair.load()
    with pytest.raises(MustWait, match="next replica"):
        pair.me.await_copy(1)
    again = pair.load()
    assert [copy.state.ids.tolist() for copy in again.batches[0].copies] == [[2]]
    with pytest.raises(MustWait, match="next replica"):
        pair.me.await_copy(1)
    pair.bring(ME, again)
    pair.me.await_copy(1)
    assert pair.kept(w=[2])[0].watermark == {worker(0).key: 1}


def test_an_answer_that_nobody_heard_of_ends_in_everything_once_more() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, ids(2), [1, 1])
    for batch in pair.load().batches:
        pair.copies[OTHER.key].receive(batch)
    again = pair.load()
    with pytest.raises(OutOfOrder):
        pair.bring(ME, again)
    pair.copies[ME.key].failed(again.batches[0], gap=True)
    pair.ship()
    pair.me.await_copy(1)
    with pytest.raises(MustWait):
        pair.load()  # and then there is peace


def test_a_replica_that_lacks_something_gets_everything() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, ids(2), [1, 1])
    unheard = pair.load()
    for batch in unheard.batches:
        pair.copies[OTHER.key].receive(batch)  # its answer is lost
    pair.copies[ME.key].failed(unheard.batches[0], gap=False)
    with pytest.raises(OutOfOrder):
        pair.ship()
    pair.copies[ME.key].failed(unheard.batches[0], gap=True)
    assert pair.ship().batches[0].block_count == 4


def test_after_a_claim_nothing_more_is_taken_from_the_dead() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, None, [1] * 6)
    late = pair.load()
    assert pair.kept(w=[0])[0].watermark == {}
    with pytest.raises(NotServing):
        pair.bring(ME, late)
    pair.take_over(pair.kept(w=[0, 2, 4], a=[0]))
    with pytest.raises(StaleEpoch):
        pair.bring(ME, late)


def test_an_epoch_without_the_death_lets_the_owner_go_on() -> None:
    """The coordinator that asked has died; its successor's epoch fences nobody."""
    pair = Pair(job())
    pair.ship()
    pair.kept(w=[0])
    push(pair.me, 0, 1, ids(2), [1, 1])
    pair.epoch = replace(pair.epoch, number=2, moved=(), cause="leader")
    for shard in pair.shards.values():
        shard.adopt(pair.epoch, pair.job)
    assert pair.ship().batches[0].block_count == 1


def test_other_copies_go_when_the_chain_is_whole() -> None:
    pair = Pair(job())
    pair.ship()
    pair.ship(OTHER)
    kept = pair.copies[OTHER.key].kept
    moved = BlockGroup("w", ids(0), former_owner=ME.key, source=BlockSource.INITIAL)
    owners = {name: owner.copy() for name, owner in pair.epoch.owners.items()}
    third = Member(ME.role, "ps-9", "999999999999")
    owners["w"][0] = 2
    pair.epoch = replace(pair.epoch, number=2, shards=(ME, OTHER, third), owners=owners, moved=(moved,))
    pair.other.adopt(pair.epoch, pair.job)
    assert pair.copies[OTHER.key].kept == kept, "until the new owner's chain is whole its last copy stays"
    pair.copies[OTHER.key].release(2, third.key)
    assert pair.copies[OTHER.key].kept == kept - 1


def test_who_could_not_be_told_is_told_again() -> None:
    pair = Pair(job())
    pair.ship()
    outgoing = pair.load(OTHER)
    pair.copies[OTHER.key].complete(outgoing, released=False)
    again = pair.load(OTHER)
    assert again.release == [ME]
    pair.bring(OTHER, again)
    with pytest.raises(MustWait):
        pair.load(OTHER)


def test_a_middle_replica_sends_on_what_it_has() -> None:
    spec = job(shards=3, replicas=2)
    third = Member(ME.role, "ps-2", "cccccccccccc", "127.0.0.1:3")
    owners: Mapping[str, np.ndarray] = {
        "w": np.array([0, 1, 2, 0, 1, 2], np.uint16),
        "a": np.array([0, 1, 2], np.uint16),
    }
    epoch = replace(first_epoch(spec), shards=(ME, OTHER, third), owners=owners)
    shards = {member.key: DrivenShard(member) for member in epoch.shards}
    copies = shards
    for shard in shards.values():
        load_initial(shard, spec, shard.adopt(epoch, spec))
        shard.settle(sender(0), 1)
    owner = ME.key
    middle, last = (member.key for member in replica_chain(spec, epoch, owner))
    for _ in range(2):
        deliver(copies, owner, middle)
        deliver(copies, middle, last)
    push(shards[owner], 0, 1, ids(3), [5, 5])
    deliver(copies, owner, middle)
    deliver(copies, middle, last)
    kept = copies[last].claim(1, [owner, middle], [("w", ids(0, 3))])
    assert [(k.ids.tolist(), k.watermark) for k in kept] == [([0, 3], {worker(0).key: 1})]
    assert values(shards[owner]) == [0, 0, 5, 5]
    replica = shards[last].replicas.by_owner[owner]
    assert replica.stores["w"].values.tolist() == [0, 0, 5, 5]


def test_what_is_sent_on_and_not_spoken_of_goes_again() -> None:
    spec = job(shards=3, replicas=2)
    third = Member(ME.role, "ps-2", "cccccccccccc", "127.0.0.1:3")
    epoch = replace(first_epoch(spec), shards=(ME, OTHER, third))
    shards = {member.key: DrivenShard(member) for member in epoch.shards}
    copies = shards
    for shard in shards.values():
        load_initial(shard, spec, shard.adopt(epoch, spec))
        shard.settle(sender(0), 1)
    middle, last = (member.key for member in replica_chain(spec, epoch, ME.key))
    deliver(copies, ME.key, middle)
    first = copies[middle].load().batches
    again = copies[middle].load().batches
    assert [one.owner for one in first] == [one.owner for one in again] == [ME.key]
    assert again[0].block_count == first[0].block_count == 9
    deliver(copies, middle, last)
    assert len(shards[last].replicas) == 9


def test_the_last_replica_sends_nothing_on_once_it_is_the_last() -> None:
    """Also what it has from a time when it was not: nobody would ever tell the receiver that this copy is
    of no use.
    """
    spec = job(shards=4, replicas=2)
    ring = [ME, *(Member(ME.role, f"ps-{n}", f"{n}" * 12, f"127.0.0.1:{n}") for n in (1, 2, 3))]
    owners = {table.name: np.zeros(table.blocks, np.uint16) for table in spec.tables}
    whole = replace(first_epoch(spec), shards=tuple(ring), owners=owners)
    away, last = replica_chain(spec, whole, ME.key)
    without = replace(whole, number=2, moved=(), shards=tuple(one for one in ring if one != away))
    shards = {member.key: DrivenShard(member) for member in without.shards}
    copies = shards
    for shard in shards.values():
        load_initial(shard, spec, shard.adopt(whole, spec))
        shard.settle(sender(0), 1)
        shard.adopt(without, spec)
    deliver(copies, ME.key, last.key)
    for shard in shards.values():
        shard.adopt(replace(whole, number=3, moved=()), spec)
    assert not copies[last.key].load().batches


def test_a_new_neighbour_gets_everything() -> None:
    pair = Pair(job())
    pair.ship()
    newcomer = Member(OTHER.role, OTHER.name, "dddddddddddd", "127.0.0.1:4")
    epoch: Epoch = replace(pair.epoch, number=2, shards=(ME, newcomer), moved=())
    pair.me.adopt(epoch, pair.job)
    outgoing = pair.load()
    assert (outgoing.target, outgoing.batches[0].since, outgoing.batches[0].block_count) == (newcomer, 0, 4)
