"""Shards die by SIGKILL at random moments; their blocks come back from workers: not one bit is different."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType

import numpy as np
import pytest

from scar_local import LocalCluster
from scar_runtime.failure_records import FailureRecord
from scar_runtime.store.failure_codec import failure_from_proto
from tests.framework import healing
from tests.framework.cluster import TIMEOUT

SHARDS = 4
FAILING = Path(healing.__file__).with_name("failing_source.py")
FAILED = "source-failed"  # the file that says so
Kills = Callable[[LocalCluster, random.Random], None]


def trained(
    folder: Path,
    kills: Kills,
    seed: int = 0,
    training: str = healing.__file__,
    more: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, bytes], Sequence[FailureRecord]]:
    """Everything that each of two workers ended with, and the ledger."""
    options = {"seed": 3, "shards": SHARDS, "workers": 2, "sources": "workers"}
    folder.mkdir(exist_ok=True)
    environment = {"SCAR_TEST_JOB": json.dumps(options), "SCAR_TEST_HISTORY": str(folder), **more}
    environment["SCAR_OFFER_SECONDS"] = "30"  # a worker on a busy machine is a source, too
    with LocalCluster(folder / "cluster", shards=SHARDS, environment=environment) as cluster:
        cluster.start_job(healing.make_job(**options))
        cluster.start_workers(training, 2)
        kills(cluster, random.Random(seed))
        (folder / "over").touch()
        assert cluster.wait(TIMEOUT) == {"worker-0": 0, "worker-1": 0}
        ledger = [failure_from_proto(failure) for failure in cluster.status().failures]
    found = {}
    for path in sorted(folder.glob("rank-*.npz")):
        with np.load(path) as arrays:
            found |= {f"{path.stem}/{name}": arrays[name].tobytes() for name in arrays.files}
    return found, ledger


@cache
def undisturbed() -> dict[str, bytes]:
    found, ledger = trained(Path(mkdtemp()), lambda _cluster, _draw: None)
    assert len(found) == 6
    assert not ledger
    return found


def wait_clock(cluster: LocalCluster, clock: int) -> None:
    end = time.monotonic() + TIMEOUT
    while cluster.status().clock < clock:
        assert time.monotonic() < end, f"clock {clock} was not reached"
        time.sleep(0.005)


def kill_one(cluster: LocalCluster, draw: random.Random) -> None:
    """Twice, at any moment of a clock."""
    for clock in (8, 30):
        wait_clock(cluster, clock)
        time.sleep(draw.uniform(0.0, 0.1))
        cluster.kill(f"ps-{draw.randrange(SHARDS)}")


def kill_half(cluster: LocalCluster, draw: random.Random) -> None:
    """Two at once, or one just after the other: the second may have gained blocks of the first."""
    wait_clock(cluster, 10)
    time.sleep(draw.uniform(0.0, 0.1))
    first, second = draw.sample(range(SHARDS), 2)
    cluster.kill(f"ps-{first}")
    time.sleep(draw.choice([0.0, 0.0, 0.1, 0.3]))
    cluster.kill(f"ps-{second}")


def kill_all(cluster: LocalCluster, draw: random.Random) -> None:
    wait_clock(cluster, 10 + draw.randrange(5))
    for number in range(SHARDS):
        cluster.kill(f"ps-{number}")


@pytest.mark.parametrize(
    ("kills", "seed"), [(kill_one, 1), (kill_one, 2), (kill_half, 1), (kill_half, 2), (kill_all, 1)]
)
def test_not_one_bit_is_different(tmp_path: Path, kills: Kills, seed: int) -> None:
    found, ledger = trained(tmp_path, kills, seed)
    assert ledger
    for record in ledger:
        assert set(record.sources) == {"worker"}, record
        assert record.lost_pushes == 0
        assert record.delta_norm in (0.0, -1.0)  # -1: the blocks had died again before they were compared
    assert found == undisturbed()


@pytest.mark.parametrize("how", ["silent", "killed"])
def test_another_worker_is_asked_when_a_source_fails(tmp_path: Path, how: str) -> None:
    """It has offered, and is to send: nothing comes from the checkpoint all the same."""
    options = {"SCAR_TEST_SOURCE": how}
    found, ledger = trained(tmp_path, kill_first, training=str(FAILING), more=options)
    assert (tmp_path / FAILED).exists(), "the source has failed"
    assert len(ledger) > 1
    assert {source for record in ledger for source, blocks in record.sources.items() if blocks} == {"worker"}
    if how == "silent":
        assert found == undisturbed()


def kill_first(cluster: LocalCluster, _draw: random.Random) -> None:
    wait_clock(cluster, 8)
    cluster.kill("ps-0")
    cluster.until(lambda status: len(status.failures) > 1, TIMEOUT, "the source that fails")
