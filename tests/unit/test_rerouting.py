"""Every contribution is contained, retained or reported lost, exactly once, whatever dies and moves in
whatever order.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar._client.core.pushes import ShardPush, TablePush, cut_blocks
from scar._client.core.rerouting import AckedPushes, reroute
from scar.placement import BlockGroup, BlockSource, Epoch
from tests.unit.rerouting_world import BLOCKS, JOBS, WORKER, World, member

COMMON = ["push"] * 5 + ["deliver"] * 9 + ["mark"] * 7 + ["settle"] * 7


EVENTS = [
    *COMMON,
    *["finish_clock", "see"] * 3,
    *["lose_answer", "save", "move"] * 2,
    *["begin_pull", "end_pull"] * 3,
    "lose_request",
    "die",
    "join",
]


EVENT = st.tuples(st.sampled_from(EVENTS), st.integers(0, 1 << 10))


def lived(kind: str, history: list[tuple[str, int]]) -> None:
    world = World(kind)
    for event, choice in history:
        getattr(world, event)(choice)
    world.drain()


@pytest.mark.parametrize("kind", JOBS)
@settings(max_examples=100, derandomize=True)
@given(history=st.lists(EVENT | st.just(("roll_back", 0)), max_size=60))
def test_no_contribution_is_lost_in_silence_or_counted_twice(
    kind: str, history: list[tuple[str, int]]
) -> None:
    lived(kind, history)


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("seed", range(4))
def test_long_histories(kind: str, seed: int) -> None:
    """The same where many epochs pile up, which short histories that can be shrunk hardly reach."""
    draw = random.Random(seed)
    for _ in range(40):
        lived(kind, [(draw.choice(EVENTS), draw.randrange(1 << 10)) for _ in range(150)])


def test_losses_are_reported_once_by_block_and_range() -> None:
    acked, ids = AckedPushes(JOBS["asp"]), np.arange(4, dtype=np.uint32)
    acked.release_blocks("w", ids, 5)
    acked.release_blocks("w", ids[2:], 9)
    first = acked.report_losses("w", ids, 3)
    assert [(one.ids.tolist(), one.after.tolist(), one.upto.tolist()) for one in first] == [
        ([0, 1, 2, 3], [3, 3, 3, 3], [5, 5, 9, 9])
    ]
    assert acked.report_losses("w", ids, 3) == []
    acked.release_blocks("w", ids[:1], 12)
    again = acked.report_losses("w", ids, 3)
    assert [(one.ids.tolist(), one.after.tolist(), one.upto.tolist()) for one in again] == [([0], [5], [12])]


def test_a_part_without_blocks_keeps_its_number() -> None:
    """The shard may have taken it already or not: without it the next number would be a gap or a false
    duplicate.
    """
    job, epoch = (
        JOBS["asp"],
        Epoch(2, "a", "model", (member(0), member(1)), (), {"w": np.ones(BLOCKS, np.uint16)}),
    )
    ids = np.array([0], np.uint32)
    moved = BlockGroup("w", ids, former_owner=member(0).key, source=BlockSource.DONOR, watermark={WORKER: 0})
    epoch = Epoch(2, "a", "model", epoch.shards, (), epoch.owners, (moved,))
    sent = ShardPush(1, 0, {"w": TablePush(ids, np.ones(1, np.float32))}, seq=1)
    unsent = ShardPush(2, 0, {"w": TablePush(ids, np.ones(1, np.float32))})
    outcome = reroute(job, epoch, WORKER, {member(0).key: [sent, unsent]})
    assert [(part.seq, dict(part.tables)) for part in outcome.kept[member(0).key]] == [(1, {})]
    assert [part.push_id for part in outcome.sent[member(1).key]] == [1, 2]
    assert all(part.seq == 0 and part.resent for part in outcome.sent[member(1).key])
    assert outcome.resent == 2


def test_cut_follows_ragged_blocks() -> None:
    job, ids = JOBS["asp"], np.array([1, 2, 4], np.uint32)  # sizes 1, 2, 3
    piece = TablePush(ids, np.arange(6, dtype=np.float32))
    assert cut_blocks(job, "w", piece, np.array([0, 2])).values.tolist() == [0, 3, 4, 5]
    assert cut_blocks(job, "w", piece, np.arange(3)) is piece


def test_what_two_lanes_owe_one_new_owner_goes_in_the_order_of_the_pushes() -> None:
    """One stream applies in order; a later push of one block must not overtake an earlier one of another."""
    job, heir = JOBS["asp"], member(2)
    moved = BlockGroup(
        "w", np.arange(BLOCKS, dtype=np.uint32), former_owner=member(0).key, source=BlockSource.INITIAL
    )
    epoch = Epoch(2, "r", "model", (heir,), (), {"w": np.zeros(BLOCKS, np.uint16)}, (moved,))

    def part(push_id: int, block: int) -> ShardPush:
        ids = np.array([block], np.uint32)
        return ShardPush(
            push_id, 0, {"w": TablePush(ids, np.zeros(int(job.table("w").layout.sizes[block]), np.float32))}
        )

    held = {member(0).key: [part(2, 0), part(5, 1)], member(1).key: [part(1, 2), part(4, 3)]}
    outcome = reroute(job, epoch, WORKER, held)
    assert [one.push_id for one in outcome.sent[heir.key]] == [1, 2, 4, 5]
