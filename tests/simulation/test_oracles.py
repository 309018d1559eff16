"""Each oracle of the simulation finds the wrong world that it is there for, and nothing in a right one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.checkpoints import Checkpoint
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Job, Table, add
from scar.v1.recovery_pb2 import FailureRecord
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import manifest_to_proto
from scar_runtime.checkpoint.objects import ObjectHeader, ObjectSection
from scar_runtime.store.records import encode_record
from tests.simulation.oracles.epoch_chain import EpochChain
from tests.simulation.oracles.lives import HeldBlocks, HeldTable
from tests.simulation.oracles.manifest_chain import ManifestHistory
from tests.simulation.oracles.quiet import STALL, QuietWatch
from tests.simulation.oracles.restores import check_restorable
from tests.simulation.oracles.saved_values import SavedValues
from tests.simulation.oracles.serving import ServingShard, ShardWatch, check_takeover, taken_over
from tests.simulation.oracles.store_view import DirectStore, WatchedObjects
from tests.simulation.oracles.true_costs import TrueCost, check_costs, check_partial, measure_cost

JOB = Job("job", [Table("w", (4, 2), dtype="float64", rule=add())], shards=2)
SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in range(2))
IDS = np.arange(4, dtype=np.uint32)
LOST = BlockGroup(
    "w", IDS[2:], 3, former_owner=SHARDS[1].key, source=BlockSource.OBJECT, object_key="objects/one"
)


def epoch(number: int, **fields: Any) -> Epoch:
    whole = Epoch(number, "a", "job", SHARDS, (), {"w": np.array([0, 0, 1, 1], np.uint16)})
    return replace(whole, **fields)


REPAIR = epoch(
    2,
    shards=SHARDS[:1],
    owners={"w": np.zeros(4, np.uint16)},
    moved=(LOST,),
    fenced=(SHARDS[1].incarnation,),
    failure=1,
    manifest=1,
)


# --- epochs


def test_epochs_that_follow_each_other_are_right() -> None:
    chain = EpochChain(JOB)
    assert [*chain.add(epoch(1), 0), *chain.add(REPAIR, 0), *chain.add(replace(REPAIR, number=3), 1)] == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (replace(REPAIR, number=4), "comes after"),
        (replace(REPAIR, number=3, fenced=()), "forgotten fences"),
        (replace(REPAIR, number=3, shards=SHARDS), "fenced member"),
        (replace(REPAIR, number=3, owners={}), "does not place"),
    ],
)
def test_an_epoch_that_is_wrong_is_found(wrong: Epoch, words: str) -> None:
    chain = EpochChain(JOB)
    assert [*chain.add(epoch(1), 0), *chain.add(REPAIR, 0)] == []
    assert words in "; ".join(chain.add(wrong, 0))


def test_a_leader_that_was_replaced_and_writes_on_is_found() -> None:
    chain = EpochChain(JOB)
    for number, leadership in ((1, 0), (2, 1)):
        assert chain.add(epoch(number), leadership) == []
    assert "was replaced" in chain.add(epoch(3), 0)[0]
    again = EpochChain(JOB)
    for number, leadership in ((1, 0), (2, 1), (3, 2)):  # the same process may lead again
        assert again.add(epoch(number), leadership) == []


def test_an_epoch_that_is_needed_and_deleted_is_found() -> None:
    chain = EpochChain(JOB)
    for number in range(1, 40):
        chain.add(epoch(number), 0)
    assert chain.remove(1) == []
    assert "needed" in chain.remove(38)[0]


# --- manifests


def manifest(number: int, **fields: Any) -> Manifest:
    ref = ObjectRef(f"objects/{number}", bytes=10)
    whole = Manifest(number, number - 1, "job", "a", epoch=1, round=number, objects=(ref,))
    return replace(whole, **fields)


def made(last: int) -> ManifestHistory:
    history = ManifestHistory(keep=2)
    assert [words for number in range(1, last + 1) for words in history.add(manifest(number), 1)] == []
    return history


def test_a_number_that_was_collected_is_free_again_and_means_nothing() -> None:
    history = made(last=4)
    assert "comes after" in history.add(manifest(1), 1)[0], "it was not collected"
    history = made(last=5)
    assert history.remove(2) == []
    assert history.add(manifest(2), 1) == []
    assert "used twice" in history.add(manifest(6, parent=2, passed_over=(3, 4, 5)), 1)[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (manifest(3), "comes after"),
        (manifest(4, parent=2), "continues 2, and not [3]"),
        (manifest(4, parent=4), "continues 4"),
        (manifest(4, epoch=2), "of epoch 2"),
        (manifest(4, round=2), "of round 2"),
    ],
)
def test_a_manifest_that_breaks_the_chain_is_found(wrong: Manifest, words: str) -> None:
    assert words in made(3).add(wrong, 1)[0]


def test_a_manifest_may_pass_over_damage() -> None:
    assert made(3).add(manifest(4, parent=2, passed_over=(3,)), 1) == []
    assert made(3).add(manifest(4, parent=2), 1, {"manifests/00000003"}) == []


def test_what_the_last_manifests_name_has_to_be_there() -> None:
    history = made(3)
    assert history.missing({"objects/2": 10, "objects/3": 10}) == []
    assert "no bytes" in history.missing({"objects/3": 10})[0]
    assert "9 bytes" in history.missing({"objects/2": 9, "objects/3": 10})[0]
    assert history.missing({"objects/3": 10}, {"objects/2"}) == []
    history.damaged.add(2)
    assert history.missing({"objects/3": 10}) == [], "nobody can read what names it"
    assert history.remove(1) == []
    assert "one of the last" in history.remove(3)[0]


def test_a_checkpoint_that_cannot_be_restored_is_found() -> None:
    objects: dict[str, bytes] = {}
    store = DirectStore(objects).under("job")
    assert check_restorable(store, JOB) == []
    objects["store/job/manifests/00000001"] = encode_record(manifest_to_proto(manifest(1)))
    assert "cannot be restored" in check_restorable(store, JOB)[0]
    assert check_restorable(store, JOB, {"objects/1"}) == []


def test_every_change_of_the_store_is_told() -> None:
    told: list[tuple[str, bytes | None]] = []
    objects = WatchedObjects({"a": b"1", "b": b"2"}, lambda key, body: told.append((key, body)))
    objects["c"] = b"3"
    del objects["a"]
    assert objects.pop("b") == b"2"
    assert objects.pop("b", None) is None
    objects.clear()
    assert told == [("c", b"3"), ("a", None), ("b", None), ("c", None)]


# --- what is saved


def rounds(*saved: int) -> tuple[ObjectRef, ...]:
    """Of epoch 1, by the second shard."""
    return tuple(
        ObjectRef(f"objects/e00000001-{SHARDS[1].key}-r{one:08d}", epoch=1, round=one) for one in saved
    )


def lineage(last: Manifest) -> list[str]:
    """What is wrong with this one after round 1 was put back, and round 5 has covered it since."""
    saved = SavedValues(DirectStore({}), JOB)
    section = ObjectSection(BlockState("w", IDS[2:]), table=JOB.table("w"))
    saved._headers = {ref.key: ObjectHeader((section,)) for ref in rounds(1, 4)}
    kept = manifest(2, objects=rounds(1))
    covered = manifest(3, objects=(ObjectRef("objects/covers-all", epoch=2, round=5),))
    assert saved.epoch_created(replace(REPAIR, manifest=2, rollback=True), {2: kept}) == []
    assert saved.manifest_created(covered, kept) == []
    return saved.manifest_created(last, covered)


def test_a_rollback_may_go_twice_to_what_was_put_back_and_to_nothing_from_before_it() -> None:
    assert lineage(manifest(4, objects=rounds(1))) == []
    assert "brings back" in lineage(manifest(4, objects=rounds(4)))[0]


# --- who serves


def serving(key: str = SHARDS[0].key, **fields: Any) -> ServingShard:
    whole = ServingShard(key, leased=True, epoch=1, clock=5, blocks={"w": IDS[:2]})
    return replace(whole, **fields)


def test_a_shard_whose_lease_outlives_its_blocks_is_found() -> None:
    victim = serving(SHARDS[1].key, blocks={"w": IDS[2:]})
    assert "its lease is not over" in check_takeover(REPAIR, [serving(), victim])[0]
    assert check_takeover(REPAIR, [serving(), replace(victim, leased=False)]) == []
    given = replace(REPAIR, moved=(replace(LOST, source=BlockSource.DONOR),))
    assert check_takeover(given, [victim]) == []  # it has frozen them before
    watch = ShardWatch()
    watch.gone |= taken_over(REPAIR)
    assert "has a lease again" in watch.look([victim], {1: epoch(1), 2: REPAIR})[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (serving(clock=4), "went back"),
        (serving(epoch=2, blocks={"w": IDS[:2]}), "has not the blocks"),
        (serving(epoch=2, blocks={"w": IDS, "v": IDS}), "has not the blocks"),
        (serving(epoch=3), "does not exist"),
    ],
)
def test_a_shard_that_serves_what_is_not_its_own_is_found(wrong: ServingShard, words: str) -> None:
    watch = ShardWatch()
    epochs = {1: epoch(1), 2: REPAIR}
    assert watch.look([serving()], epochs) == []
    assert words in "; ".join(watch.look([wrong], epochs))


# --- what failures cost


def holders(lost: float, clock: int = 5) -> Mapping[str, HeldBlocks]:
    """The survivor's values are 3, those of the dead ``lost``."""
    tables = [
        {"w": HeldTable(ids, np.full(4, value), np.array([0, 2, 4]), np.ones(2, bool))}
        for ids, value in ((IDS[:2], 3.0), (IDS[2:], lost))
    ]
    return {
        SHARDS[0].key: HeldBlocks(1, clock, False, tables[0]),
        SHARDS[1].key: HeldBlocks(1, clock, True, tables[1]),
    }


def cost(lost: float = 4.0, restored: float = 2.0, saved: float = 2.0, clock: int = 5) -> TrueCost:
    checkpoint = {"w": np.full(8, saved)}
    return measure_cost(JOB, REPAIR, holders(lost, clock), lambda _: np.full(4, restored), checkpoint)


def ledger(**fields: Any) -> list[FailureRecord]:
    return [FailureRecord(**{"number": 1, "epoch": 2, "sources": {"object": 2}, "delta_norm": 4.0, **fields})]


def test_the_truth_is_what_died_and_what_came_back() -> None:
    found = cost()
    assert (found.delta, found.full, found.clock, found.restored, found.sure) == (16.0, 20.0, 5, 3, True)
    nobody = measure_cost(JOB, REPAIR, {}, lambda _: np.zeros(4), {"w": np.zeros(8)})
    assert (nobody.delta, nobody.sure) == (-1.0, False)
    replica = measure_cost(JOB, REPAIR, holders(4.0), lambda _: None, {"w": np.zeros(8)})
    assert replica.delta == -1.0


def test_a_ledger_that_says_something_else_is_found() -> None:
    job = replace(JOB, consistency="bsp")
    right = {2: cost()}
    assert check_costs(job, right, ledger(delta_exact=True)) == []
    assert check_costs(job, right, ledger(delta_norm=3.0)) == []  # it does not call that exact
    assert "the memory of the dead" in check_costs(job, right, ledger(delta_norm=3.0, delta_exact=True))[0]
    assert "which is of 1" in check_costs(job, right, ledger(number=7))[0]
    assert "put clock 3 back" in check_costs(job, {2: cost(clock=2)}, ledger())[0]


def test_partial_recovery_that_costs_more_than_a_full_one_is_found() -> None:
    assert check_partial(cost()) == []
    assert "partial recovery cost" in check_partial(cost(restored=0.0, saved=4.0))[0]


# --- trouble that stops nothing

SAVED_AT_ONCE = replace(
    JOB, recovery="stateless", consistency="asp", checkpoint=Checkpoint(fraction=1.0, period=1)
)


@pytest.mark.parametrize("alone", ["store-busy", "redis-silent"])
def test_trouble_of_the_store_or_of_redis_that_costs_anything_is_found(alone: str) -> None:
    watch = QuietWatch()
    assert watch.look(JOB, [alone], clock=3, failures=0, now=0.0) == []
    assert watch.look(JOB, [alone], clock=3, failures=0, now=STALL) == []
    assert "stands still" in watch.look(JOB, [alone], clock=3, failures=0, now=STALL + 1)[0]
    assert "1 recoveries" in watch.look(JOB, [alone], clock=4, failures=1, now=STALL + 1)[0]


@pytest.mark.parametrize(
    ("kinds", "job"),
    [
        ([], JOB),
        (["store-busy", "redis-silent"], JOB),  # both together stop the shards
        (["store-busy", "kill"], JOB),
        (["store-busy"], SAVED_AT_ONCE),
    ],
)
def test_other_trouble_may_cost_something(kinds: list[str], job: Job) -> None:
    watch = QuietWatch()
    for now in (0.0, STALL + 1):
        assert watch.look(job, kinds, clock=3, failures=int("kill" in kinds), now=now) == []
