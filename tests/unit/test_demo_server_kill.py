"""The demo's instruments: the kill comes at the right iteration, the witness sees what goes back, losses
count by block.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

import scar
from scar.errors import ScarError
from scar.v1 import recovery_pb2
from scar_cli.demo import server_kill, tally
from scar_cli.demo.main import KILL_AT
from scar_cli.demo.runs import PLANS, TRAIN_FILE
from scar_cli.demo.server_kill import ServerKiller
from tests.framework.lost import lost


class Survivor:
    """A shard whose clock takes these values, one per question."""

    def __init__(self, clocks: Sequence[int]) -> None:
        self._clocks = iter(clocks)

    def Status(self, request: Any, timeout: float) -> Any:
        clock = next(self._clocks, None)
        if clock is None:
            raise grpc.RpcError
        return SimpleNamespace(clock=clock)


class Cluster:
    def __init__(self) -> None:
        self.killed: list[str] = []

    def kill(self, name: str) -> int:
        self.killed.append(name)
        return 1000 + len(self.killed)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_kill, "FAR_SECONDS", 0.0)
    monkeypatch.setattr(server_kill, "NEAR_SECONDS", 0.0)


def blow_of(clocks: Sequence[int]) -> tuple[ServerKiller, Cluster, list[str]]:
    cluster, told = Cluster(), []
    blow: Any = ServerKiller(cluster, Survivor(clocks), ("ps-1", "ps-3"), 5)  # type: ignore[arg-type]
    blow.kill_at_clock(threading.Event(), told.append)
    return blow.outcome, cluster, told


def test_both_are_killed_when_the_iteration_is_complete() -> None:
    blow, cluster, told = blow_of([0, 3, 4, 4, 5, 5, 5, 6])
    assert cluster.killed == ["ps-1", "ps-3"]
    assert [(kill.shard, kill.pid, kill.iteration) for kill in blow.kills] == [
        ("ps-1", 1001, 5),
        ("ps-3", 1002, 5),
    ]
    assert blow.pause_seconds > 0
    assert told == ["SIGKILL to ps-1 (pid 1001) and ps-3 (pid 1002)"]


def test_a_missed_iteration_is_not_hidden() -> None:
    blow, _, _ = blow_of([4, 7, 8])
    assert {kill.iteration for kill in blow.kills} == {7}


def test_a_run_that_ends_before_is_not_struck() -> None:
    cluster, stop = Cluster(), threading.Event()
    stop.set()
    blow = ServerKiller(cluster, Survivor([1, 2, 3]), ("ps-1",), 5)  # type: ignore[arg-type]
    blow.kill_at_clock(stop, lambda event: None)
    assert cluster.killed == []
    assert not blow.outcome.kills


def test_a_dead_survivor_is_an_error_of_ours() -> None:
    with pytest.raises(ScarError, match="surviving server"):
        blow_of([1])


class Reader:
    """Gives these values one after the other, then stops the witness."""

    def __init__(self, values: Iterator[tuple[np.ndarray, bool]], stop: threading.Event) -> None:
        self._values, self._stop = values, stop

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def pull(self, table: str, ids: np.ndarray | None = None) -> np.ndarray:
        value, last = next(self._values)
        if last:
            self._stop.set()
        return value


def test_the_witness_counts_blocks_that_went_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "LOOK_SECONDS", 0.0)
    seen = [np.array(row, dtype=np.float32) for row in ([0, 0, 0], [1, 1, 1], [2, 0, 1], [3, 3, 0])]
    stop = threading.Event()
    values = iter((value, number == len(seen) - 1) for number, value in enumerate(seen))
    monkeypatch.setattr(scar, "connect", lambda address: Reader(values, stop))
    witness = tally.RegressionWatcher("nowhere", np.arange(3, dtype=np.uint32))
    witness.watch_blocks(stop)
    assert witness.went_back == 2


def test_lost_additions_are_counted_by_block_and_only_of_the_tally() -> None:
    def told(worker: str, *entries: recovery_pb2.LostPushes) -> recovery_pb2.LostReport:
        return recovery_pb2.LostReport(worker=worker, lost=entries)

    first = recovery_pb2.FailureRecord(
        lost=[told("a", lost("tally", [0, 2], 3, 5)), told("b", lost("tally", [2], 4, 5))]
    )
    second = recovery_pb2.FailureRecord(lost=[told("a", lost("w", [1], 0, 9), lost("tally", [3], 8, 9))])
    np.testing.assert_array_equal(tally.lost_additions([first, second], 5), [2, 0, 3, 1, 0])


def test_the_training_file_is_a_plain_one_that_fits_the_checks() -> None:
    source = TRAIN_FILE.read_text()
    job, _ = scar.load_job(str(TRAIN_FILE))
    assert len(source.splitlines()) <= 30
    assert "TALLY = 2.0**-12" in source
    assert tally.UNIT == 2.0**-12
    assert (job.shards, job.workers, job.table(tally.TABLE).rule.kind) == (4, 2, "add")


def test_the_kill_comes_right_before_a_full_checkpoint() -> None:
    full = PLANS[-1].checkpoint
    assert full.selection == "full"
    assert KILL_AT % full.every == full.every - 1
