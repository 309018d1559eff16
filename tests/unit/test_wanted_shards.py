"""How many shards a cluster on this machine is to have: what is asked for, what is tried, what is told."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scar.errors import ConfigError
from scar.placement import NOBODY, Epoch, Member, Role
from scar.tables import Job, Table
from scar.wire import codec
from scar_admin.status import ClusterStatus
from scar_cli.clusters import DirectTarget, ReleaseTarget
from scar_cli.scale import _check_replicas, _count_moved, _folder_of
from scar_local.wanted_shards import MOST_SHARDS, ShardScaler, WantedShards, WantedShardsFile

SECONDS = 10.0


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = WantedShardsFile(tmp_path)
    assert file.read() is None
    file.write(WantedShards(3))
    file.write(WantedShards(8, "1"))
    file.tell_problem("no port is free")
    assert (file.read(), file.problem) == (WantedShards(8, "1"), "no port is free")
    file.clear()
    assert file.problem == ""
    file.clear()
    assert file.read() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "[]",
        "{}",
        '{"count": "x", "request": ""}',
        '{"count": 1e999, "request": ""}',
        "[" * 9999,
    ],
)
def test_what_is_none_asks_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "shards.json").write_text(text)
    assert WantedShardsFile(tmp_path).read() is None


@pytest.mark.parametrize("count", [-1, 0, MOST_SHARDS + 1])
def test_nor_does_what_no_cluster_can_have(tmp_path: Path, count: int) -> None:
    file = WantedShardsFile(tmp_path)
    file.write(WantedShards(count))
    assert file.read() is None


def test_what_fails_is_told_and_tried_again_and_done_once(tmp_path: Path) -> None:
    file = WantedShardsFile(tmp_path)
    file.write(WantedShards(7))  # of a former cluster
    tried: list[int] = []
    told: list[str] = []
    over = threading.Event()

    def scale(count: int) -> None:
        told.append(file.problem)
        tried.append(count)
        if len(tried) < 3:
            raise ConfigError("ps-3 runs already")
        over.set()

    scaler = ShardScaler(file, scale)
    scaler.start()
    assert file.read() is None
    file.write(WantedShards(4))
    assert over.wait(SECONDS)
    over.clear()
    file.write(WantedShards(4))
    assert over.wait(SECONDS), "who asks again is heard again"
    scaler.close()
    assert tried == [4, 4, 4, 4]
    why = "ps-3 runs already"
    assert [text.partition(".")[0] for text in told] == ["", why, why, ""]
    assert file.problem == "", "nothing is in the way any more"


def test_on_kubernetes_the_chart_says_how_many() -> None:
    release: Any = SimpleNamespace(name="mine", namespace="ml")
    with pytest.raises(ConfigError) as refused:
        _folder_of(ReleaseTarget(release), 3)
    assert (
        "helm upgrade mine CHART --namespace ml --reuse-values --set ps.replicas=3" in refused.value.next_step
    )


def test_there_are_more_shards_than_a_block_has_copies() -> None:
    status = ClusterStatus(job=codec.job_to_proto(Job("test", [Table("w", (4, 2))], replicas=1)))
    _check_replicas(status, 2)
    with pytest.raises(ConfigError, match="1 shard cannot keep 1 copy of each block"):
        _check_replicas(status, 1)
    _check_replicas(ClusterStatus(), 1)


def test_blocks_have_moved_that_another_life_owns() -> None:
    one, two, again = (
        Member(Role.SHARD, name, life * 12) for name, life in (("a", "1"), ("b", "2"), ("a", "3"))
    )
    first = Epoch(1, "x", "test", (one, two), (), {"w": np.array([0, 0, 1, NOBODY], np.uint16)}, ())
    newest = Epoch(2, "x", "test", (two, again), (), {"w": np.array([1, 0, 0, NOBODY], np.uint16)}, ())
    assert _count_moved(first, newest) == 2
    assert _count_moved(first, first) == _count_moved(None, first) == 0


def test_shards_of_others_are_not_resized() -> None:
    with pytest.raises(ConfigError, match="only an address is known"):
        _folder_of(DirectTarget("127.0.0.1:1"), 3)
