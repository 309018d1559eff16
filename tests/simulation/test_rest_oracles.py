"""Oracles of the rest after a run find what grows, what is left behind, and what status shows wrongly."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from scar.placement import Epoch, Member, Role
from scar.tables import Job, Table, add
from scar.v1 import checkpoint_pb2, ps_pb2, recovery_pb2, types_pb2
from scar.wire.epoch_messages import epoch_to_proto
from scar.wire.timing import TIMING
from scar_admin.status import ClusterStatus
from scar_ps.core.block_store import BlockStore
from scar_ps.core.core_state import CoreState
from scar_ps.core.push_sequences import PushSequences
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from tests.simulation.oracles.leftovers import (
    COLLECTED,
    DEAD,
    PROBE,
    USELESS,
    StoredState,
    find_dead_keys,
    find_garbage,
    find_probes,
)
from tests.simulation.oracles.memory import BOUNDED, SLACK, MemoryWatch, collection_sizes
from tests.simulation.oracles.shown import check_shown

LONG = 2 * USELESS

# --- memory


def test_collections_are_found_wherever_a_service_keeps_them() -> None:
    sequences = PushSequences()
    sequences.watermark = {"a": 1, "b": 2}
    queue: deque[Any] = deque([1, 2, 3])
    bound: deque[Any] = deque([1], maxlen=400)
    hidden = [1, 2, 3, 4]

    def closure() -> object:
        return hidden, queue

    sizes = collection_sizes({"here": [sequences, partial(closure)], "old": bound}, sequences.keep_workers)
    assert sizes == {
        "dict": 2,
        "dict[]": 2,
        "dict[][]": 4 + 3,  # what the closure has
        "PushSequences.watermark": 2,
        "PushSequences._last": 0,
    }


def test_what_grows_from_one_rest_to_the_next_is_found() -> None:
    watch = MemoryWatch()
    assert watch.look("ps-0@1", {"A._queue": 3, "Ledger._records": 1}) == []
    assert watch.look("ps-0@1", {"A._queue": 3 + SLACK, "Ledger._records": 99}) == []
    assert watch.look("ps-0@2", {"A._queue": 90}) == []
    assert "grown from 3 to 12 items" in watch.look("ps-0@1", {"A._queue": 4 + SLACK})[0]
    assert "grown from 0 to 101" in watch.look("ps-0@1", {"tasks": BOUNDED["tasks"] + 1})[0]
    assert watch.look("ps-0@1", {"tasks": BOUNDED["tasks"]}) == []
    assert watch.look("recovery-0@1", {"Membership.secret_hashes": 8, "DirectoryStore._durable": 5}) == []
    many = {"Membership.secret_hashes": 17, "DirectoryStore._durable": 20}
    assert watch.look("recovery-0@1", many) == [], "of each life that ever was, and of each failure"
    of_members = {"CoordinatorRegistry._counts": 12}
    assert watch.look("recovery-0@1", of_members, members=12) == [], "it leads now"
    assert "grown from 0 to 12" in watch.look("recovery-0@1", of_members, members=3)[0], "it keeps the dead"


# --- store and Redis


def manifest(number: int, **fields: Any) -> Manifest:
    return Manifest(
        number, number - 1, "job", round=number, objects=(ObjectRef(f"objects/{number}"),), **fields
    )


def stored(ages: dict[str, float], manifests: list[int] = [4, 5], **fields: Any) -> StoredState:  # noqa: B006
    return StoredState(ages, {number: manifest(number) for number in manifests}, 2, quiet=LONG, **fields)


def test_what_belongs_to_the_job_is_no_garbage() -> None:
    ages = {"job": 900.0, "owner-beat": 1.0, "manifests/00000004": LONG, "objects/4": LONG, "objects/6": 1.0}
    assert find_garbage(stored(ages)) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (stored({"notes/1": 1.0}), "nobody knows what notes/1 is"),
        (stored({"manifests/00000004": LONG, "manifests/00000005": LONG}, [3, 4, 5]), "manifest 3 has been"),
        (stored({"objects/2": LONG}), "no manifest has named objects/2"),
        (stored({f"ledger/00000001/0000000{n}-a": 1.0 for n in range(4)}), "4 versions"),
    ],
)
def test_what_should_have_been_collected_is_found(state: StoredState, words: str) -> None:
    assert words in find_garbage(state)[0]


def test_garbage_is_excused_while_it_is_of_use_or_nobody_could_collect_it() -> None:
    ages = {"manifests/00000004": LONG, "manifests/00000005": LONG, "objects/2": LONG}
    assert find_garbage(stored(ages, [3, 4, 5], used={3: 1.0}, damaged={"objects/2"})) == []
    assert "manifest 3" in find_garbage(stored(ages, [3, 4, 5], used={3: LONG}, damaged={"objects/2"}))[0]
    compact = {**ages, "objects/compact-00000004-a": LONG}  # the next manifest may name it
    assert find_garbage(stored(compact, [3, 4, 5], used={3: 1.0}, damaged={"objects/2"})) == []
    many = {f"manifests/{number:08d}": 1.0 for number in range(19, 30)}
    compacted = {"objects/compact-00000004-a": LONG, **many}
    young = {**compacted, "manifests/00000021": COLLECTED}
    assert find_garbage(stored(young, [21, 22])) == [], "the collector has not looked since"
    old = {**compacted, "manifests/00000021": COLLECTED + 1}
    assert "no manifest has named" in find_garbage(stored(old, [21, 22]))[0]
    assert "no manifest has named" in find_garbage(stored(compacted, [28, 29]))[0]
    unquiet = StoredState(ages, {number: manifest(number) for number in (3, 4, 5)}, 2)
    assert find_garbage(unquiet) == []


def test_copies_of_a_state_leave_the_one_before_it_of_use() -> None:
    """Seed 3102: no round for minutes after a recovery's copy, and the state before that one was kept."""
    rounds = [1, 2, 2, 3, 4, 5]
    copied = {number: replace(manifest(number), round=one) for number, one in enumerate(rounds, 1)}
    ages = {f"manifests/{number:08d}": LONG if number < 4 else 1.0 for number in copied}
    assert find_garbage(StoredState(ages, copied, 2, quiet=LONG)) == []
    older = {**ages, "manifests/00000004": LONG, "manifests/00000005": LONG}
    found = find_garbage(StoredState(older, copied, 2, quiet=LONG))
    assert [words.split(" has")[0] for words in found] == ["manifest 1", "manifest 2", "manifest 3"]


def test_scratch_in_the_store_is_found() -> None:
    assert find_probes({"probe/1": PROBE, "job/job": 900.0}, 0) == []
    assert "1 probes" in find_probes({"probe/1": PROBE + 1}, 0)[0]
    assert find_probes({"probe/1": PROBE + 1}, 1) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scar:scar:more": "1"}, "nobody knows"),
        ({"scar:scar:leader:recovery": "1"}, "never expires"),
        ({"scar:scar:doomed:ps-0@1": {"a"}}, "never expires"),
        ({"scar:scar:beats": {"ps-0@1": "{}"}}, "is dead for"),
    ],
)
def test_keys_of_redis_that_nobody_deletes_are_found(values: dict[str, Any], words: str) -> None:
    assert words in find_dead_keys(values, (), {"ps-0@1": DEAD + 1})[0]
    assert find_dead_keys({"scar:scar:epoch": "1", "scar:scar:beats": {"ps-0@1": "{}"}}, (), {}) == []


def test_who_was_declared_dead_and_gave_a_sign_of_life_is_judged_anew() -> None:
    """Its heartbeat is there for as long once more (seed 4270)."""
    values = {"scar:scar:beats": {"worker-1@1": "{}"}}
    longer = TIMING.remember(TIMING.lease)
    assert find_dead_keys(values, (), {"worker-1@1": DEAD + 1}, {"worker-1@1"}) == []
    assert find_dead_keys(values, (), {"worker-1@1": DEAD + longer + 1}, {"worker-1@1"})
    assert find_dead_keys(values, (), {"worker-1@1": DEAD + 1}, {"worker-2@1"})


# --- status

JOB = Job("job", [Table("w", (4, 2), dtype="float64", rule=add())])
SHARD = Member(Role.SHARD, "ps-0", "1")
EPOCH = Epoch(3, "a", "job", (SHARD,), (), {"w": np.zeros(4, np.uint16)})


def shard() -> CoreState:
    state = CoreState(SHARD)
    state.ownership.tables = {"w": BlockStore(JOB.tables[0], np.arange(4, dtype=np.uint32))}
    state.epoch = EPOCH
    return state


def shown(**fields: Any) -> ClusterStatus:
    member = types_pb2.Member(name="ps-0", incarnation="1")
    table = ps_pb2.TableStatus(table="w", blocks=4, loading=0, unsettled=0)
    whole = {
        "recovery": recovery_pb2.RecoveryStatus(epoch=3),
        "epoch": epoch_to_proto(EPOCH),
        "checkpoint": checkpoint_pb2.CheckpointStatus(manifest=5, objects=1),
        "shards": {"ps-0": ps_pb2.ShardStatus(member=member, epoch=3, tables=[table])},
        "failures": (recovery_pb2.FailureRecord(number=1, delta_norm=2.0),),
    }
    return ClusterStatus(**{**whole, **fields})


def test_status_that_shows_something_else_is_found() -> None:
    member = types_pb2.Member(name="ps-0", incarnation="1")
    ledger = [recovery_pb2.FailureRecord(number=1, delta_norm=2.0)]
    check = partial(
        check_shown, epochs={3: EPOCH}, shards=[shard()], manifests={5: manifest(5)}, ledger=ledger
    )
    assert check(shown()) == []
    assert "epochs 3 and 2" in check(shown(recovery=recovery_pb2.RecoveryStatus(epoch=2)))[0]
    assert "does not show ps-0" in check(shown(shards={}))[0]
    wrong = ps_pb2.ShardStatus(member=member, epoch=3, clock=7)
    assert [words.split()[2] for words in check(shown(shards={"ps-0": wrong}))] == ["clock", "blocks"]
    assert (
        "status shows manifest 6"
        in check(shown(checkpoint=checkpoint_pb2.CheckpointStatus(manifest=6, objects=1)))[0]
    )
    assert "shows 0 failures" in check(shown(failures=()))[0]
    other = (recovery_pb2.FailureRecord(number=1, delta_norm=3.0),)
    assert "shows delta_norm 3.0, the store has 2.0" in check(shown(failures=other))[0]


def test_a_duration_may_be_unknown_to_who_shows_it_but_not_another_one() -> None:
    ledger = [recovery_pb2.FailureRecord(number=1, return_seconds=1.5)]
    check = partial(
        check_shown, epochs={3: EPOCH}, shards=[shard()], manifests={5: manifest(5)}, ledger=ledger
    )
    assert check(shown(failures=(recovery_pb2.FailureRecord(number=1, return_seconds=-1.0),))) == []
    for wrong in (0.0, 2.0):
        found = check(shown(failures=(recovery_pb2.FailureRecord(number=1, return_seconds=wrong),)))
        assert f"shows return_seconds {wrong}, the store has 1.5" in found[0]


def test_a_clock_may_be_lower_than_a_former_leader_has_it_and_no_other_one() -> None:
    """It may have stood still with what a shard had told it that has died since (seed 7312)."""
    epochs = {2: replace(EPOCH, number=2, author="b"), 3: EPOCH}
    check = partial(check_shown, epochs=epochs, shards=[shard()], manifests={5: manifest(5)})

    def found(epoch: int, shows: int) -> list[str]:
        stored = recovery_pb2.FailureRecord(number=1, epoch=epoch, clock=4)
        record = recovery_pb2.FailureRecord(number=1, epoch=epoch, clock=shows)
        return check(shown(failures=(record,)), ledger=[stored])

    assert found(2, 0) == found(3, 4) == []
    assert "shows clock 5, the store has 4" in found(2, 5)[0]
    assert "shows clock 0, the store has 4" in found(3, 0)[0]
