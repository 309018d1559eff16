"""While nothing happens, a job whose workers heal its servers sends no message more than another one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.simulated import simulate

ONCE = 30  # messages of the first epoch, in which chains of replicas become whole
CLOCKS, SHARDS, WORKERS = 20, 3, 3


@pytest.mark.parametrize("seed", [1, 2], ids=["messages", "streams"])
def test_workers_that_keep_what_they_pull_say_nothing_more(seed: int, tmp_path: Path) -> None:
    """Not only as many messages: every step of every process is the same, at the same moment."""
    runs = simulate("quiet", "quiet_workers", first=seed, trace=tmp_path)
    assert [run.wrong for run in runs] == ["", ""]
    assert runs[0].digest == runs[1].digest
    (plain, healing) = (count_calls(tmp_path / f"{run.scenario}-{seed}") for run in runs)
    assert plain == healing
    assert sum(plain[name] for name in plain if "ShardData/Pu" in name) >= 2 * CLOCKS * SHARDS * WORKERS


@pytest.mark.parametrize("seed", [1, 10], ids=["messages", "streams"])
def test_replicas_of_what_workers_lack_say_nothing_more_where_they_lack_nothing(
    seed: int, tmp_path: Path
) -> None:
    runs = simulate("quiet", "quiet_missing", first=seed, trace=tmp_path)
    assert [run.wrong for run in runs] == ["", ""]
    (plain, missing) = (count_calls(tmp_path / f"{run.scenario}-{seed}") for run in runs)
    assert "/scar.v1.ShardData/Ship" not in missing
    more = missing - plain
    assert sum(more.values()) < ONCE
    more.pop("/scar.v1.Detector/Beat", None)  # one more may fall into a run that ends a little later
    assert set(more) <= {"/scar.v1.ShardControl/Release", "/scar.v1.ShardControl/Settle"}


def count_calls(trace: Path) -> Counter[str]:
    """By method, of everybody."""
    words = (line.split() for line in trace.read_text().splitlines())
    return Counter(line[-1] for line in words if line[2:3] == ["call"])
