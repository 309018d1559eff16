"""A shard counts the bytes that workers pull and push: the sum to the byte, of each block about."""

from __future__ import annotations

import numpy as np
import pytest

import scar
from scar.blocks import Ids
from scar.errors import InvalidRequest
from scar.tables import Table
from scar.v1 import ps_pb2
from scar_ps.core.events import StatusRequested
from scar_ps.core.requests import WantedRows
from scar_ps.core.traffic import HALVED_AFTER, TrafficSummary
from scar_ps.wire.status_encoder import encode_status
from scar_recovery.shard_client import SHORTEST_SECONDS, traffic_from_proto
from tests.unit.ps_support import ME, DrivenShard, ids, job, load_initial, next_epoch, push, sender, started

ROW_BYTES = 16  # of four float32
SPEC = job(
    Table("w", (40, 4), rule=scar.add()),
    Table("r", (60, 4), rule=scar.add(), blocks=scar.rows(6)),
    Table("k", keys="int64", dim=4, capacity=1000, rule=scar.add()),
    consistency="asp",
)


def traffic(shard: DrivenShard, busiest: int = 100) -> TrafficSummary:
    found = shard.handle(StatusRequested(busiest=busiest)).traffic
    assert isinstance(found, TrafficSummary)
    return found


def pull(shard: DrivenShard, table: str, blocks: Ids | None) -> None:
    shard.pull(sender(0), shard.number, 0, [(table, blocks)])


def test_the_sum_is_exact() -> None:
    shard, _ = started(SPEC)
    push(shard, 0, 1, ids(1, 5), np.ones((2, 4)))
    pull(shard, "w", None)
    pull(shard, "w", ids(7))
    shard.pull(sender(0), 1, 0, [("r", WantedRows(ids(3, 4, 59)))])  # type: ignore[list-item]
    keys = np.arange(5, dtype=np.uint64)
    shard.pull(sender(0), 1, 0, [("k", WantedRows(keys))])  # type: ignore[list-item]
    shard.now = 2.0
    found = traffic(shard, 0)
    assert (found.bytes, found.seconds) == ((2 + 40 + 1 + 3 + 5) * ROW_BYTES, 2.0)
    assert found.blocks == {}


def test_a_push_that_was_there_already_and_a_refused_pull_do_not_count() -> None:
    shard, _ = started(SPEC)
    push(shard, 0, 1, ids(1), np.ones((1, 4)))
    push(shard, 0, 1, ids(1), np.ones((1, 4)))
    with pytest.raises(scar.ScarError):
        pull(shard, "w", ids(99))
    assert traffic(shard).bytes == ROW_BYTES


def test_blocks_have_their_share_of_it() -> None:
    """Of 4,000 messages 500 are looked at: shares are right within four deviations."""
    shard, _ = started(SPEC)
    for number in range(4000):
        shard.pull(sender(0), 1, 0, [("r", WantedRows(ids(0, 1, 2, 7)))])  # type: ignore[list-item]
        if number % 2:
            pull(shard, "w", ids(3))
    found = traffic(shard)
    blocks, amounts = found.blocks["r"]
    assert blocks.tolist() == list(range(10))
    assert amounts[0] == pytest.approx(4000 * 3 * ROW_BYTES, rel=0.2)
    assert amounts[1] == pytest.approx(4000 * ROW_BYTES, rel=0.2)
    assert not amounts[2:].any()
    assert found.blocks["w"][1][3] == pytest.approx(2000 * ROW_BYTES, rel=0.25)
    assert sum(float(one.sum()) for _, one in found.blocks.values()) == pytest.approx(found.bytes)


def test_what_is_pulled_whole_counts_for_each_block() -> None:
    shard, _ = started(SPEC)
    for _ in range(200):
        pull(shard, "r", None)
    blocks, amounts = traffic(shard).blocks["r"]
    assert amounts == pytest.approx(np.full(len(blocks), 200 * 6 * ROW_BYTES))


def test_only_the_busiest_and_the_quietest_are_told() -> None:
    shard, _ = started(SPEC)
    for _ in range(100):
        pull(shard, "w", ids(3, 30))
    blocks, amounts = traffic(shard, 2).blocks["w"]
    assert len(blocks) == 4
    assert dict(zip(blocks.tolist(), amounts > 0, strict=True)) | {3: True, 30: True} == dict(
        zip(blocks.tolist(), amounts > 0, strict=True)
    )


def test_it_begins_anew_with_an_epoch() -> None:
    shard, epoch = started(SPEC)
    for _ in range(20):
        pull(shard, "w", ids(3))
    shard.now = 5.0
    load_initial(shard, SPEC, shard.adopt(next_epoch(epoch, lost={"w": ids(0)}), SPEC))
    assert traffic(shard).bytes == 0
    for _ in range(50):
        pull(shard, "w", ids(39))
    shard.now = 7.0
    found = traffic(shard)
    assert (found.bytes, found.seconds) == (50 * ROW_BYTES, 2.0)
    assert found.blocks["w"][0].tolist() == list(range(1, 40))
    assert found.blocks["w"][1][-1] == 50 * ROW_BYTES


def test_the_past_counts_less_and_less() -> None:
    shard, _ = started(SPEC)
    for _ in range(160):
        pull(shard, "w", None)
    shard.now = HALVED_AFTER + 10
    first = traffic(shard)
    assert (first.bytes, first.seconds) == (160 * 40 * ROW_BYTES, HALVED_AFTER + 10)
    second = traffic(shard)
    assert (second.bytes, second.seconds) == (first.bytes / 2, first.seconds / 2)
    assert second.blocks["w"][1] == pytest.approx(first.blocks["w"][1] / 2)


def test_a_coordinator_reads_what_a_shard_says() -> None:
    shard, _ = started(SPEC)
    for _ in range(200):
        pull(shard, "w", ids(3))
    shard.now = 4.0
    message = encode_status(shard.handle(StatusRequested(busiest=100)), True, "")
    found = traffic_from_proto(ME.key, ps_pb2.ShardStatus.FromString(message.SerializeToString()).traffic)
    assert (found.shard, found.rate) == (ME.key, 200 * ROW_BYTES / 4)
    assert found.blocks["w"].rates[3] == pytest.approx(200 * ROW_BYTES / 4)
    assert set(found.blocks) == {"w", "r", "k"}


@pytest.mark.parametrize(
    "wrong",
    [
        ps_pb2.Traffic(seconds=float("nan")),
        ps_pb2.Traffic(seconds=-1),
        ps_pb2.Traffic(seconds=float("inf")),
        ps_pb2.Traffic(seconds=1, blocks=[ps_pb2.BlockTraffic(table="w", block_ids=bytes(4))]),
        ps_pb2.Traffic(seconds=1, blocks=[ps_pb2.BlockTraffic(block_ids=bytes(4), traffic=b"\xff" * 8)]),
        ps_pb2.Traffic(
            seconds=1,
            blocks=[ps_pb2.BlockTraffic(block_ids=bytes(4), traffic=np.array([-1.0], "<f8").tobytes())],
        ),
    ],
    ids=["nan", "negative", "endless", "short", "no number", "below 0"],
)
def test_impossible_traffic_is_refused(wrong: ps_pb2.Traffic) -> None:
    with pytest.raises(InvalidRequest):
        traffic_from_proto("ps-0", wrong)


def test_a_moment_is_no_endless_rate() -> None:
    assert traffic_from_proto("ps-0", ps_pb2.Traffic(bytes=100)).rate == pytest.approx(100 / SHORTEST_SECONDS)
