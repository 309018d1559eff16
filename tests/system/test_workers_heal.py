"""Shards die by SIGKILL at random moments; their blocks come back from workers: not one bit is different."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from scar_local import LocalCluster
from tests.framework import healing
from tests.framework.cluster import TIMEOUT
from tests.framework.kill_series import (
    Kills,
    find_miscounts,
    kill_all,
    kill_between,
    kill_half,
    kill_one,
    trained,
    undisturbed,
    wait_clock,
)

FAILING = Path(healing.__file__).with_name("failing_source.py")
FAILED = "source-failed"  # the file that says so


@pytest.mark.parametrize(
    ("kills", "seed"),
    [(kill_one, 1), (kill_between, 2), (kill_half, 1), (kill_half, 2), (kill_all, 1)],
)
def test_not_one_bit_is_different(tmp_path: Path, kills: Kills, seed: int) -> None:
    found, ledger = trained(tmp_path, kills, seed)
    assert ledger
    for record in ledger:
        assert set(record.sources) == {"worker"}, record
        assert record.lost_pushes == 0
        assert record.delta_norm in (0.0, -1.0)  # -1: the blocks had died again before they were compared
    assert found == undisturbed()


@pytest.mark.parametrize(
    ("consistency", "kills", "seed"),
    [("ssp", kill_one, 1), ("ssp", kill_half, 2), ("asp", kill_one, 2), ("asp", kill_half, 1)],
)
def test_no_push_is_lost_where_nobody_waits_for_a_clock(
    tmp_path: Path, consistency: str, kills: Kills, seed: int
) -> None:
    """Acknowledged, applied, and not pulled by anybody when the shard dies: its worker sends it again.

    A round may have saved a block later than any worker has pulled it: it comes from the store, as exactly.
    """
    found, ledger = trained(tmp_path, kills, seed, kinds=["count"], consistency=consistency, staleness=1)
    assert ledger
    assert any("worker" in record.sources for record in ledger)
    for record in ledger:
        assert set(record.sources) <= {"worker", "object"}, record
        assert record.lost_pushes == 0
        if set(record.sources) == {"worker"}:
            assert record.delta_norm in (0.0, -1.0)
    assert find_miscounts(found, ["count"]) == []


@pytest.mark.parametrize(("consistency", "seed"), [("ssp", 1), ("asp", 2)])
def test_nor_is_one_to_slots_and_parts_where_replicas_have_what_workers_lack(
    tmp_path: Path, consistency: str, seed: int
) -> None:
    options = {"kinds": healing.COUNTED, "consistency": consistency, "staleness": 1}
    found, ledger = trained(tmp_path, kill_one, seed, copies="missing", **options)
    assert ledger
    assert any("replica" in record.sources for record in ledger), "of slots"
    for record in ledger:
        assert record.lost_pushes == 0
    assert find_miscounts(found, healing.COUNTED) == []


@pytest.mark.parametrize(("copies", "sources"), [("missing", {"replica", "worker"}), ("chain", {"replica"})])
@pytest.mark.parametrize("seed", [1, 2])
def test_slots_and_partial_pulls_come_back_exactly(
    tmp_path: Path, seed: int, copies: str, sources: set[str]
) -> None:
    found, ledger = trained(tmp_path, kill_one, seed, copies=copies)
    assert ledger
    for record in ledger:
        assert set(record.sources) == sources, record
        assert record.lost_pushes == 0
        assert record.delta_norm in (0.0, -1.0)
    assert found == undisturbed(copies=copies)


@pytest.mark.parametrize(("kills", "seed"), [(kill_one, 1), (kill_half, 2), (kill_all, 1)])
def test_slots_that_a_worker_pulls_along_come_back_exactly(tmp_path: Path, kills: Kills, seed: int) -> None:
    found, ledger = trained(tmp_path, kills, seed, copies="slots")
    assert ledger
    for record in ledger:
        assert set(record.sources) == {"worker"}, record
        assert record.lost_pushes == 0
        assert record.delta_norm in (0.0, -1.0)
    assert found == undisturbed(copies="slots")


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
