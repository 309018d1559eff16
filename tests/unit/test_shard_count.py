"""How many shards a cluster on this machine is to have: what is asked for, what is tried, what is told."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scar.errors import ConfigError
from scar_cli.clusters import DirectTarget, ReleaseTarget
from scar_cli.scale import _folder_of
from scar_local.shard_count import MOST_SHARDS, ShardCount, ShardCountFile, ShardScaler

SECONDS = 10.0


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = ShardCountFile(tmp_path)
    assert file.read() is None
    file.write(ShardCount(3))
    file.write(ShardCount(8, "no port is free"))
    assert file.read() == ShardCount(8, "no port is free")
    file.clear()
    file.clear()
    assert file.read() is None


@pytest.mark.parametrize(
    "text",
    ["", "8", "[]", "{}", '{"count": "x", "problem": ""}', '{"count": 1e999, "problem": ""}', "[" * 9999],
)
def test_what_is_none_asks_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "shards.json").write_text(text)
    assert ShardCountFile(tmp_path).read() is None


@pytest.mark.parametrize("count", [-1, 0, MOST_SHARDS + 1])
def test_nor_does_what_no_cluster_can_have(tmp_path: Path, count: int) -> None:
    file = ShardCountFile(tmp_path)
    file.write(ShardCount(count))
    assert file.read() is None


def test_what_fails_is_told_and_tried_again_and_done_once(tmp_path: Path) -> None:
    file = ShardCountFile(tmp_path)
    file.write(ShardCount(7))  # of a former cluster
    tried: list[int] = []
    told: list[ShardCount | None] = []
    over = threading.Event()

    def scale(count: int) -> None:
        told.append(file.read())
        tried.append(count)
        if len(tried) < 3:
            raise ConfigError("ps-3 runs already")
        over.set()

    scaler = ShardScaler(file, scale)
    scaler.start()
    assert file.read() is None
    file.write(ShardCount(4))
    assert over.wait(SECONDS)
    scaler.close()
    assert tried == [4, 4, 4]
    assert told == [ShardCount(4), *[ShardCount(4, "ps-3 runs already")] * 2]
    assert file.read() == ShardCount(4), "nothing is in the way any more"


def test_on_kubernetes_the_chart_says_how_many() -> None:
    release: Any = SimpleNamespace(name="mine", namespace="ml")
    with pytest.raises(ConfigError) as refused:
        _folder_of(ReleaseTarget(release), 3)
    assert (
        "helm upgrade mine CHART --namespace ml --reuse-values --set ps.replicas=3" in refused.value.next_step
    )


def test_shards_of_others_are_not_resized() -> None:
    with pytest.raises(ConfigError, match="only an address is known"):
        _folder_of(DirectTarget("127.0.0.1:1"), 3)
