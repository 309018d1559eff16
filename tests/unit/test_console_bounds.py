"""However large a system is and however long it runs, what a viewer is sent stays small."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from scar.tables import Job, Table
from scar.v1 import checkpoint_pb2, ps_pb2, recovery_pb2, types_pb2, worker_pb2
from scar.wire.codec import job_to_proto
from scar_admin.log_text import LogText
from scar_admin.status import ClusterStatus
from scar_console.block_map import MAX_CELLS, BlockMap
from scar_console.page_model import MAX_FAILURES, MAX_ROWS
from scar_console.run_view import STEP_LINES
from tests.unit.test_console_page import Looks, shard

CLOCKS = 1_000_000
SPLIT = worker_pb2.TimeSplit(pull=1 / 3, compute=1 / 7, push=1 / 9, wait=1 / 11)
WHOLE_BYTES = 500_000  # for who has seen nothing
STEP_BYTES = 80_000  # for everybody else, look by look


def member(name: str) -> types_pb2.Member:
    return types_pb2.Member(name=name, incarnation="a" * 12, address="10.0.0.1:7070")


def large_status(shards: int, losses: dict[int, float]) -> ClusterStatus:
    """With as many workers and twice as many failures, the newest of which took all; all have problems."""
    names = [f"ps-{number}" for number in range(shards)]
    workers = [f"worker-{number}" for number in range(shards)]
    keys = [f"{name}@{'a' * 12}" for name in names]
    record = recovery_pb2.FailureRecord(
        members=keys,
        evidence=[f"{name} does not answer" for name in names],
        waiting=keys,
        damage=keys,
        delta_norm=0.123456789,
        clock=CLOCKS - 1,
    )
    failures = [recovery_pb2.FailureRecord(number=number) for number in range(1, 2 * shards + 1)]
    for one in failures[-MAX_FAILURES:]:
        one.MergeFrom(record)
    report = checkpoint_pb2.RoundReport(round=7, missed=names)
    return ClusterStatus(
        recovery=recovery_pb2.RecoveryStatus(leader=True, epoch=3),
        job=job_to_proto(Job("large", tables=[Table("w", 10)])),
        epoch=types_pb2.Epoch(number=3, shards=map(member, names), workers=map(member, workers)),
        checkpoint=checkpoint_pb2.CheckpointStatus(leader=True, manifest=12, recent=[report] * 100),
        shards={name: _busy_shard(name) for name in names},
        workers={
            name: worker_pb2.WorkerStatus(state="training", clock=CLOCKS, seconds_per_clock=0.0123456789)
            for name in workers
        },
        failures=tuple(failures),
        losses=losses,
        metrics={
            clock: {f"metric-{number}": 1 / (1 + clock + number) for number in range(20)}
            for clock in range(0, len(losses), 500)
        },
        problems=tuple(f"{name}: waits for a store that does not answer" for name in names),
    )


def _busy_shard(name: str) -> ps_pb2.ShardStatus:
    made = shard(name, clock=CLOCKS)
    made.pushes = 123_456_789
    made.traffic.CopyFrom(ps_pb2.Traffic(seconds=12.3, bytes=123_456_789_012))
    return made


class ChattyCluster(Looks):
    """All of its members write more than anybody reads."""

    def logs(self) -> ChattyLogs:  # type: ignore[override]
        return ChattyLogs()


class ChattyLogs:
    def read(self) -> list[LogText]:
        return [LogText(f"ps-{number % 1000}", '"\\\u20ac\ud800\x00' * 300) for number in range(20_000)]


@pytest.mark.parametrize("shards", [1000, 2000])
def test_a_thousand_shards_and_a_million_clocks_fit_into_half_a_megabyte(shards: int) -> None:
    run = large_status(shards, {clock: 1 / (1 + clock) for clock in range(CLOCKS)})
    working = worker_pb2.WorkerStatus(
        state="training", clock=CLOCKS, seconds_per_clock=0.0123456789, waited=0.00123456789, per_clock=SPLIT
    )
    next_clock = replace(run, losses={CLOCKS: 0.0123456789}, workers=dict.fromkeys(run.workers, working))
    written = ChattyCluster(run, run, next_clock)
    view = written.view()
    view.read_logs()
    first = view.look()
    assert len(first.whole) < WHOLE_BYTES
    view.read_logs()
    step = view.look().step
    assert len(json.loads(step)["logs"]) == STEP_LINES
    assert len(step) < STEP_BYTES
    page = json.loads(first.whole)
    assert (page["state"]["shards"]["total"], len(page["state"]["shards"]["rows"])) == (shards, MAX_ROWS)
    assert (page["state"]["failure_count"], len(page["state"]["failures"])) == (2 * shards, MAX_FAILURES)
    assert page["state"]["failures"][0]["member_count"] == shards
    assert page["curve"]["clocks"][0] == 0
    assert page["curve"]["clocks"][-1] == CLOCKS - 1
    assert "failures" not in json.loads(step)["state"], "they have not changed"


def test_a_map_of_any_number_of_blocks_fits_into_a_few_packets() -> None:
    drawn = BlockMap("large", 123_456, 10**9, 1 << 19, (CLOCKS,) * MAX_CELLS)
    assert len(json.dumps(drawn.cells, separators=(",", ":"))) < 20_000
