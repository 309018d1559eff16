"""What a chaos run concludes from a look at a busy cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scar.v1 import ps_pb2, types_pb2
from scar_admin.status import ClusterStatus
from scar_chaos.chaos_run import AHEAD, ChaosRun
from scar_chaos.core.counting_job import make_job

EPOCH = types_pb2.Epoch(
    number=1,
    workers=[types_pb2.Member(name="worker-0", incarnation="aaaa"), types_pb2.Member(name="worker-1")],
)


def shard(**finished: int) -> ps_pb2.ShardStatus:
    return ps_pb2.ShardStatus(finished={name.replace("_", "-"): clocks for name, clocks in finished.items()})


def run_with(tmp_path: Path, *looks: ClusterStatus) -> ChaosRun:
    """Of two shards and two workers, which is seen so, one after the other."""
    seen = iter(looks)
    target: Any = SimpleNamespace(member=str, status=lambda: next(seen))
    recorder: Any = SimpleNamespace(folder=tmp_path)
    return ChaosRun(target, make_job(shards=2, workers=2), recorder)


def test_no_clock_to_rest_at_follows_from_a_look_that_misses_a_shard(tmp_path: Path) -> None:
    """Workers would be beyond it already, and would never rest."""
    late, early = shard(worker_0=20, worker_1=21), shard(worker_0=3)
    looks = [
        ClusterStatus(),
        ClusterStatus(shards={"ps-0": early}),
        ClusterStatus(shards={"ps-0": shard(), "ps-1": shard()}),
        ClusterStatus(shards={"ps-0": early, "ps-1": late}),
    ]
    assert run_with(tmp_path, *looks).future_clock() == 21 + AHEAD


def test_who_is_there_is_said_by_an_epoch(tmp_path: Path) -> None:
    """Else whoever was killed would seem to be back before anybody had heard of its death."""
    run = run_with(tmp_path, ClusterStatus(), ClusterStatus(epoch=EPOCH))
    assert run.incarnations()["worker-0"] == "aaaa"
