"""Chains of shards: what goes to the next replica, what waits for it, what a successor goes on with. docs/protocol.md §11."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from scar.codec import decode_chunk
from scar.errors import NotServing, OutOfOrder, StaleEpoch
from scar.placement import BlockGroup, Epoch, Member, Source, chain
from scar.tables import Job, Table, adam, rows
from scar_ps import shipments
from scar_ps.barrier import NotYet
from scar_ps.chain import Cargo
from scar_ps.copies import Copies
from scar_ps.distances import distances
from scar_ps.replicas import Kept
from scar_ps.shard import Shard
from tests.unit.ps_support import ME, OTHER, first_epoch, ids, load_initial, push, sender, values, worker

TABLES = (Table("w", (6, 2)), Table("a", 5, rule=adam(0.1), blocks=rows(2)))
MINE = {"w": ids(0, 2, 4), "a": ids(0)}
THEIRS = {"w": ids(1, 3, 5), "a": ids(1, 2)}


def job(consistency: str = "asp", **options: object) -> Job:
    return Job("test", TABLES, consistency=consistency, **({"recovery": "sync-chain"} | options))  # type: ignore[arg-type]


class Pair:
    """Two shards that are each other's next replica; what one sends arrives when the test says so."""

    def __init__(self, spec: Job, workers: int = 1) -> None:
        self.job, self.epoch = spec, first_epoch(spec, MINE, workers)
        self.shards = {member.key: Shard(member) for member in (ME, OTHER)}
        self.copies = {key: Copies(shard) for key, shard in self.shards.items()}
        for shard in self.shards.values():
            load_initial(shard, spec, shard.adopt(self.epoch, spec))
            for rank in range(workers):
                shard.settle(sender(rank), 1)

    @property
    def me(self) -> Shard:
        return self.shards[ME.key]

    @property
    def other(self) -> Shard:
        return self.shards[OTHER.key]

    def load(self, owner: Member = ME) -> Cargo:
        return self.copies[owner.key].load()

    def bring(self, owner: Member, cargo: Cargo) -> None:
        """Over the wire, and its answer back."""
        for sent in cargo.shipments:
            wire = map(decode_chunk, shipments.encoded(sent))
            self.copies[cargo.target.key].receive(shipments.received(wire, self.job))
            self.copies[owner.key].arrived(cargo, sent)
        for member in cargo.tell:
            self.copies[member.key].release(cargo.epoch, owner.key)
        self.copies[owner.key].complete(cargo, told=True)

    def ship(self, owner: Member = ME) -> Cargo:
        cargo = self.load(owner)
        self.bring(owner, cargo)
        return cargo

    def kept(self, **wanted: list[int]) -> list[Kept]:
        """What the other shard says when it is asked for these blocks of ours, which has died."""
        asked = [(table, ids(*blocks)) for table, blocks in wanted.items()]
        return self.copies[OTHER.key].claim(self.epoch.number, [ME.key], asked)

    def take_over(self, kept: list[Kept]) -> None:
        """The epoch in which the other shard owns what it kept."""
        owners = {name: np.zeros_like(owner) for name, owner in self.epoch.owners.items()}
        groups = [BlockGroup(k.table, k.ids, ME.key, Source.REPLICA, "", k.clock, k.watermark) for k in kept]
        self.epoch = replace(
            self.epoch, number=2, shards=(OTHER,), owners=owners, moved=tuple(groups), fenced=(ME.incarnation,)
        )
        assert self.other.adopt(self.epoch, self.job) == []


def test_the_ring_is_the_same_for_everybody_and_only_neighbours_change() -> None:
    spec = job(shards=6, replicas=2)
    members = tuple(Member(ME.role, f"ps-{number}", f"{number:012x}") for number in range(6))
    epoch = replace(first_epoch(spec), shards=members)
    chains = {member.key: chain(spec, epoch, member.key) for member in members}
    for key, successors in chains.items():
        assert len(successors) == 2
        assert key not in {member.key for member in successors}
        assert chains[successors[0].key][0] == successors[1], "a chain is one way around one ring"
    gone = members[3]
    fewer = replace(epoch, shards=tuple(member for member in members if member != gone))
    for key, successors in chains.items():
        if key != gone.key and gone not in successors:
            assert chain(spec, fewer, key) == successors
    assert chain(spec, replace(epoch, shards=members[:1]), members[0].key) == ()
    assert chain(job(recovery="partial"), epoch, members[0].key) == ()


def test_a_copy_has_values_slots_steps_and_watermark() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, None, [1, 2] * 3)
    push(pair.me, 0, 2, ids(0), [0.5, 0.5], table="a")
    first = pair.ship()
    assert [(piece.table, piece.ids.tolist()) for piece in first.shipments[0].pieces] == [("w", [0, 2, 4]), ("a", [0])]
    push(pair.me, 0, 3, ids(2), [1, 1])
    assert [piece.ids.tolist() for piece in pair.ship().shipments[0].pieces] == [[2]], "only what has changed goes again"
    kept = pair.kept(w=[0, 2, 4], a=[0])
    assert [(k.table, k.ids.tolist(), k.watermark) for k in kept] == [
        ("w", [0, 2, 4], {worker(0).key: 3}),
        ("a", [0], {worker(0).key: 3}),
    ]
    mine = {
        name: (store.values.copy(), store.steps.copy(), dict(store.slots)) for name, store in pair.me.holdings.tables.items()
    }
    pair.take_over(kept)
    for name, (former, steps, slots) in mine.items():
        store = pair.other.holdings.tables[name]
        taken = store.copy(store.find(MINE[name]))
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
        store = pair.other.holdings.tables[name]
        assert not np.isfinite(distances(store)[store.find(blocks)]).any()


def test_an_acknowledgement_waits_for_the_next_replica() -> None:
    pair = Pair(job())
    push(pair.me, 0, 1, None, [1] * 6)
    with pytest.raises(NotYet, match="waits for the next replica"):
        pair.me.await_copy(1)
    cargo = pair.load()
    push(pair.me, 0, 2, None, [1] * 6)
    pair.bring(ME, cargo)
    pair.me.await_copy(1)
    with pytest.raises(NotYet):
        pair.me.await_copy(2)


@pytest.mark.parametrize(("recovery", "period"), [("async-chain", 1), ("partial", 1), ("sync-chain", 3)])
def test_an_acknowledgement_that_need_not_wait(recovery: str, period: int) -> None:
    pair = Pair(job(recovery=recovery, replicas=1, replica_period=period))
    pair.ship()
    push(pair.me, 0, 1, None, [1] * 6)
    pair.me.await_copy(1)
    if period > 1:
        with pytest.raises(NotYet):
            pair.load()
    push(pair.me, 0, 2, None, [1] * 6)
    push(pair.me, 0, 3, None, [1] * 6)
    if period > 1:
        with pytest.raises(NotYet):
            pair.me.await_copy(3)
    assert pair.ship().shipments[0].updates == 3
    pair.me.await_copy(4)


def test_nobody_hears_of_a_clock_that_the_next_replica_lacks() -> None:
    pair = Pair(job("bsp"))
    pair.ship()
    push(pair.me, 0, 1, None, [1] * 6)
    pair.me.mark(sender(0), 1, 1, None)
    assert (pair.me.clock, pair.me.told) == (1, 0)
    with pytest.raises(NotYet, match="next replica"):
        pair.me.pull(sender(0), 1, 1, [("w", None)])
    pair.ship()
    assert pair.me.told == 1
    assert pair.me.pull(sender(0), 1, 1, [("w", None)])
    assert pair.kept(w=[0])[0].clock == 1


def test_a_shard_alone_waits_for_nobody() -> None:
    spec = job("bsp")
    shard, epoch = Shard(ME), replace(first_epoch(spec), shards=(ME,))
    load_initial(shard, spec, shard.adopt(epoch, spec))
    shard.mark(sender(0), 1, 1, None)
    assert shard.told == shard.clock == 1
    with pytest.raises(NotYet):
        Copies(shard).load()


def test_unsettled_blocks_do_not_go() -> None:
    spec = job()
    shard, epoch = Shard(ME), first_epoch(spec, MINE)
    load_initial(shard, spec, shard.adopt(epoch, spec))
    copies = Copies(shard)
    assert copies.load().shipments == []
    shard.settle(sender(0), 1)
    assert copies.load().shipments[0].blocks == 4


def test_what_did_not_arrive_goes_again() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, ids(2), [1, 1])
    lost = pair.load()
    pair.copies[ME.key].failed(lost.shipments[0], gap=False)
    again = pair.ship()
    assert [piece.ids.tolist() for piece in again.shipments[0].pieces] == [[2]]
    assert pair.kept(w=[2])[0].watermark == {worker(0).key: 1}


def test_a_replica_that_lacks_something_gets_everything() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, ids(2), [1, 1])
    unheard = pair.load()
    for shipment in unheard.shipments:
        pair.copies[OTHER.key].receive(shipment)  # its answer is lost
    pair.copies[ME.key].failed(unheard.shipments[0], gap=False)
    with pytest.raises(OutOfOrder):
        pair.ship()
    pair.copies[ME.key].failed(unheard.shipments[0], gap=True)
    assert pair.ship().shipments[0].blocks == 4


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
    assert pair.ship().shipments[0].blocks == 1


def test_other_copies_go_when_the_chain_is_whole() -> None:
    pair = Pair(job())
    pair.ship()
    pair.ship(OTHER)
    kept = pair.copies[OTHER.key].kept
    moved = BlockGroup("w", ids(0), ME.key, Source.INITIAL)
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
    cargo = pair.load(OTHER)
    pair.copies[OTHER.key].complete(cargo, told=False)
    assert pair.load(OTHER).tell == [ME]
    pair.copies[OTHER.key].complete(cargo, told=True)
    with pytest.raises(NotYet):
        pair.load(OTHER)


def test_a_middle_replica_sends_on_what_it_has() -> None:
    spec = job(shards=3, replicas=2)
    third = Member(ME.role, "ps-2", "cccccccccccc", "127.0.0.1:3")
    owners: Mapping[str, np.ndarray] = {"w": np.array([0, 1, 2, 0, 1, 2], np.uint16), "a": np.array([0, 1, 2], np.uint16)}
    epoch = replace(first_epoch(spec), shards=(ME, OTHER, third), owners=owners)
    shards = {member.key: Shard(member) for member in epoch.shards}
    copies = {key: Copies(shard) for key, shard in shards.items()}
    for shard in shards.values():
        load_initial(shard, spec, shard.adopt(epoch, spec))
        shard.settle(sender(0), 1)
    owner = ME.key
    middle, last = (member.key for member in chain(spec, epoch, owner))
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


def deliver(copies: Mapping[str, Copies], sender_key: str, target: str) -> None:
    try:
        cargo = copies[sender_key].load()
    except NotYet:
        return
    assert cargo.target.key == target
    for shipment in cargo.shipments:
        copies[target].receive(shipment)
        copies[sender_key].arrived(cargo, shipment)


def test_the_last_replica_sends_nothing_on_once_it_is_the_last() -> None:
    """Also what it has from a time when it was not: nobody would ever tell the receiver that this copy is of no use."""
    spec = job(shards=4, replicas=2)
    ring = [ME, *(Member(ME.role, f"ps-{n}", f"{n}" * 12, f"127.0.0.1:{n}") for n in (1, 2, 3))]
    owners = {table.name: np.zeros(table.blocks, np.uint16) for table in spec.tables}
    whole = replace(first_epoch(spec), shards=tuple(ring), owners=owners)
    away, last = chain(spec, whole, ME.key)
    without = replace(whole, number=2, moved=(), shards=tuple(one for one in ring if one != away))
    shards = {member.key: Shard(member) for member in without.shards}
    copies = {key: Copies(shard) for key, shard in shards.items()}
    for shard in shards.values():
        load_initial(shard, spec, shard.adopt(whole, spec))
        shard.settle(sender(0), 1)
        shard.adopt(without, spec)
    deliver(copies, ME.key, last.key)
    for shard in shards.values():
        shard.adopt(replace(whole, number=3, moved=()), spec)
    assert not copies[last.key].load().shipments


def test_a_new_neighbour_gets_everything() -> None:
    pair = Pair(job())
    pair.ship()
    newcomer = Member(OTHER.role, OTHER.name, "dddddddddddd", "127.0.0.1:4")
    epoch: Epoch = replace(pair.epoch, number=2, shards=(ME, newcomer), moved=())
    pair.me.adopt(epoch, pair.job)
    cargo = pair.load()
    assert (cargo.target, cargo.shipments[0].since, cargo.shipments[0].blocks) == (newcomer, 0, 4)
