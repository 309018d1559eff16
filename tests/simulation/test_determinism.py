"""The same seed gives the same run, byte for byte: elsewhere, after other seeds, on another carrier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.simulated import simulate

SCENARIOS = ("lost_shard", "whole_cluster")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of seeds 6 and 7."""
    folder = tmp_path_factory.mktemp("traces")
    simulate(*SCENARIOS, first=6, seeds=2, trace=folder)
    return folder


def test_a_seed_is_a_trace(traces: Path, tmp_path: Path) -> None:
    simulate(*SCENARIOS, first=7, trace=tmp_path)
    for scenario in SCENARIOS:
        trace = (traces / f"{scenario}-7").read_bytes()
        assert len(trace) > 10_000
        assert trace == (tmp_path / f"{scenario}-7").read_bytes()
        assert trace != (traces / f"{scenario}-6").read_bytes()


def test_threads_carry_the_same_run_as_greenlets(traces: Path, tmp_path: Path) -> None:
    pytest.importorskip("greenlet")
    simulate("lost_shard", first=7, trace=tmp_path, carrier="thread")
    assert (tmp_path / "lost_shard-7").read_bytes() == (traces / "lost_shard-7").read_bytes()
