"""A snapshot holds the values of exactly one clock, bit for bit, while workers train and shards die."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import scar
from scar import errors
from scar_cli.clusters import DirectTarget
from scar_cli.export import export_running
from scar_local import LocalCluster
from tests.framework import exact
from tests.framework.cluster import TIMEOUT

LIMIT = 400
MINIMUM = 5  # snapshots that have to be compared, before the kill and after it


def recorded(folder: Path) -> dict[tuple[int, int], set[str]]:
    """(clock, epoch) -> digests of what the workers pulled then."""
    found: dict[tuple[int, int], set[str]] = {}
    for path in folder.glob("*.txt"):
        for line in path.read_text().splitlines():
            clock, epoch, *digests = line.split()
            if clock.isdecimal():
                found.setdefault((int(clock), int(epoch)), set()).update(digests)
    return found


def compare(snapshots: list[scar.Snapshot], truth: dict[tuple[int, int], set[str]]) -> int:
    """How many had a counterpart; each of them is equal to it."""
    compared = 0
    for snapshot in snapshots:
        pulled = truth.get((snapshot.clock, snapshot.epoch))
        if pulled is not None:
            assert pulled == {exact.digest(snapshot.tables)}, f"clock {snapshot.clock} is another one"
            compared += 1
    return compared


def test_a_snapshot_is_of_one_clock_while_a_shard_dies(tmp_path: Path) -> None:
    environment = {"SCAR_TEST_HISTORY": str(tmp_path), "SCAR_TEST_LIMIT": str(LIMIT)}
    with LocalCluster(tmp_path / "cluster", shards=3, environment=environment) as cluster:
        cluster.start_job(exact.make_job(shards=3))
        with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
            cluster.start_workers(exact.__file__, 2)  # not before: a slow reader would find the clock closed
            before = [reader.snapshot(clock=5)]  # the workers are there
            before += [reader.snapshot() for _ in range(4 * MINIMUM)]
            first = before[-1].epoch
            cluster.kill("ps-1")
            after = []
            deadline = time.monotonic() + TIMEOUT
            # in the clock of the epoch's change the workers have pulled before: many clocks, not many looks
            while len({one.clock for one in after if one.epoch > first}) < 2 * MINIMUM:
                assert time.monotonic() < deadline, f"no snapshots of a later epoch than {first}"
                after.append(reader.snapshot())
            assert cluster.wait(TIMEOUT) == {"worker-0": 0, "worker-1": 0}
            rest = reader.snapshot()
            pulled = reader.pull([table.name for table in reader.job.tables])
            target = DirectTarget(cluster.endpoints.recovery_address)
            export_running(target, str(LIMIT), tmp_path / "model.safetensors")
            with pytest.raises(errors.ClockPassed, match="clock 1 is closed"):
                reader.snapshot(clock=1)
    truth = recorded(tmp_path)
    assert all(len(digests) == 1 for digests in truth.values())
    assert before[0].clock == 5
    assert compare(before, truth) >= MINIMUM
    assert compare([one for one in after if one.epoch > first], truth) >= MINIMUM
    assert (rest.clock, exact.digest(rest.tables)) == (LIMIT, exact.digest(pulled))
    assert exact.digest(load_file(tmp_path / "model.safetensors")) == exact.digest(pulled)
    rest.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as saved:
        assert int(saved["scar.clock"]) == LIMIT
        assert exact.digest({name: saved[name] for name in pulled}) == exact.digest(pulled)
