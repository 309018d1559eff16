"""What a user sees when a call is wrong: a typed error that says what to do, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

import scar
from scar import errors
from scar_local import LocalCluster

JOB = scar.Job(
    "errors",
    tables=[scar.Table("w", (8, 4), rule=scar.sgd(0.1)), scar.Table("n", (5,), dtype="int64")],
    shards=2,
    workers=1,
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("errors"), shards=2) as cluster:
        cluster.start_job(JOB)
        yield cluster


@pytest.fixture(scope="module")
def worker(cluster: LocalCluster) -> Iterator[scar.Worker]:
    with scar.join(cluster.endpoints.recovery_address, "worker-0") as worker:
        yield worker


WRONG = {
    "unknown table": (lambda worker: worker.push("v", np.zeros((8, 4), np.float32)), errors.UnknownTable),
    "unknown table pulled": (lambda worker: worker.pull("v"), errors.UnknownTable),
    "shape": (lambda worker: worker.push("w", np.zeros((8, 5), np.float32)), errors.ShapeMismatch),
    "dtype": (lambda worker: worker.push("n", np.zeros(5, np.float64)), errors.ShapeMismatch),
    "block": (lambda worker: worker.push("n", np.zeros(1, np.int64), ids=[5]), errors.BlockOutOfRange),
    "block pulled": (lambda worker: worker.pull("n", ids=[7]), errors.BlockOutOfRange),
    "nan": (lambda worker: worker.push("w", np.full((8, 4), np.nan, np.float32)), errors.NonFinite),
    "infinity": (lambda worker: worker.push("w", np.full((8, 4), np.inf, np.float32)), errors.NonFinite),
}


def finished(call: Callable[[scar.Worker], object], worker: scar.Worker) -> None:
    """The call, and the clock that waits for its acknowledgement."""
    call(worker)
    worker.clock()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_call_changes_nothing(worker: scar.Worker, name: str) -> None:
    call, kind = WRONG[name]
    before = worker.pull("w").tobytes(), worker.pull("n").tobytes()
    with pytest.raises(kind) as caught:
        finished(call, worker)
    assert not isinstance(caught.value, grpc.RpcError)
    assert caught.value.next_step in str(caught.value)
    assert (worker.pull("w").tobytes(), worker.pull("n").tobytes()) == before


def test_a_good_call_still_works_after_wrong_ones(worker: scar.Worker) -> None:
    before = worker.pull("n")
    worker.push("n", np.arange(5))
    worker.clock()
    np.testing.assert_array_equal(worker.pull("n"), before + np.arange(5))


@pytest.mark.usefixtures("worker")  # of the first
def test_second_job_of_the_same_name_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(errors.JobExists) as caught:
        cluster.start_job(JOB)
    assert "--resume" in str(caught.value)


def test_nobody_listens() -> None:
    """The SDK gives up with a hint instead of retrying forever."""
    with pytest.raises((errors.Unreachable, errors.DeadlineExceeded)) as caught:
        scar.connect("127.0.0.1:1", timeout=1.0)
    assert "127.0.0.1:1" in str(caught.value)


def test_bad_setting_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="SCAR_LEASE_SECONDS"):
        LocalCluster(tmp_path, shards=1, environment={"SCAR_LEASE_SECONDS": "soon"}).start()
