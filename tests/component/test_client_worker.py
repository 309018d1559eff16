"""The worker service against fake shards: as a task in this process, and as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import grpc
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

import scar
from scar import errors
from scar.event_log import name_of
from scar.placement import Member, Role
from scar.v1 import detector_pb2, detector_pb2_grpc, worker_pb2, worker_pb2_grpc
from scar.wire.transport import Link, server_options
from scar_worker.metrics import WorkerTime
from scar_worker.servicer import WorkerServicer
from scar_worker.task import TaskState, TrainingPlan, TrainingTask
from tests.component.fakes.cluster import FakeCluster

ROOT = Path(__file__).resolve().parents[2]
ME = Member(Role.WORKER, "worker-0", "0123456789ab", "127.0.0.1:1")
FILE = """
import time
import numpy as np
import scar

job = scar.Job("service", [scar.Table("w", (6, 2))])

def train(worker):
    for clock in worker.clocks(limit=5):
        worker.push("w", np.ones((6, 2)))

def fail(worker):
    raise ZeroDivisionError("a user's bug")

def endless(worker):
    for clock in worker.clocks():
        worker.push("w", np.ones((6, 2)))
        time.sleep(0.01)
"""


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster(scar.Job("service", [scar.Table("w", (6, 2))], shards=2))
    yield cluster
    cluster.close()


def ones(worker: scar.Worker) -> None:
    for _ in worker.clocks(limit=5):
        worker.push("w", np.ones((6, 2)))


def task(cluster: FakeCluster, train: object) -> TrainingTask:
    return TrainingTask(
        TrainingPlan(
            cluster.address,
            cluster.recovery.job.name,
            train,
            timeout=20,
            start_timeout=20,
            unacked_bytes=1 << 20,
            outage_timeout=60,
        ),
        ME,
    )


def status(task: TrainingTask) -> worker_pb2.WorkerStatus:
    return WorkerServicer(task).Status(worker_pb2.WorkerStatusRequest(), None)


def test_a_task_from_waiting_to_finished(cluster: FakeCluster) -> None:
    seen: list[worker_pb2.WorkerStatus] = []

    def train(worker: scar.Worker) -> None:
        ones(worker)
        seen.append(status(running))

    running = task(cluster, train)
    assert (status(running).state, status(running).epoch, running.epoch) == ("waiting", 0, 0)
    assert running.stories() == []
    running.run(threading.Event())
    (story,) = running.stories()
    assert name_of(story.ring.entries()[0].event) == "EpochFollowed"
    (during,) = seen
    assert (during.state, during.clock, during.rank, during.world) == ("training", 5, 0, 1)
    assert during.seconds_per_clock > 0
    split = during.per_clock
    parts = (split.pull, split.compute, split.push, split.wait)
    assert sum(parts) == pytest.approx(during.seconds_per_clock)
    assert during.member.incarnation == ME.incarnation
    assert status(running).state == "finished"
    assert cluster.recovery.left == [("worker-0", True)]
    np.testing.assert_array_equal(cluster.model()["w"], np.full((6, 2), 5))


def test_prometheus_has_the_sums_of_its_time(cluster: FakeCluster) -> None:
    def train(worker: scar.Worker) -> None:
        ones(worker)
        worker.pull("w")
        worker.clock()

    running = task(cluster, train)
    registry = CollectorRegistry()
    registry.register(WorkerTime(lambda: running.time_spent))
    assert registry.get_sample_value("scar_worker_clocks_total") == 0
    running.run(threading.Event())
    spent, clocks = running.time_spent
    assert registry.get_sample_value("scar_worker_clocks_total") == clocks == 5
    for part, seconds in asdict(spent).items():
        assert registry.get_sample_value("scar_worker_seconds_total", {"part": part}) == seconds > 0, part


def test_an_error_of_the_user(cluster: FakeCluster) -> None:
    running = task(cluster, lambda worker: worker.push("v", 1))
    with pytest.raises(errors.UnknownTable):
        running.run(threading.Event())
    assert running.state is TaskState.FAILED
    assert "'v'" in status(running).error
    assert cluster.recovery.left == [("worker-0", False)]


@pytest.mark.parametrize("code", [1, 3, "no more data"])
def test_sys_exit_is_a_failure(cluster: FakeCluster, code: object) -> None:
    running = task(cluster, lambda _worker: sys.exit(code))  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        running.run(threading.Event())
    assert running.state is TaskState.FAILED
    assert status(running).error == f"the training function called sys.exit({code!r})"
    assert cluster.recovery.left == [("worker-0", False)]


@pytest.mark.parametrize("code", [0, None])
def test_sys_exit_without_an_error_leaves_the_work_to_others(
    cluster: FakeCluster, code: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    running = task(cluster, lambda _worker: sys.exit(code))
    running.run(threading.Event())
    assert status(running).state == "left"
    assert cluster.recovery.left == [("worker-0", False)]
    assert "leaves it unfinished" in capsys.readouterr().err


def test_a_thread_of_the_user_that_dies_is_said(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    running = task(cluster, ones)
    try:
        raise ValueError("no more data")
    except ValueError as error:
        loader = threading.Thread(name="loader")
        running.thread_failed(threading.ExceptHookArgs((ValueError, error, error.__traceback__, loader)))
    assert status(running).error == "its thread 'loader' died: no more data"
    assert "Traceback" in capsys.readouterr().err


def test_how_long_it_has_been_where_it_is(cluster: FakeCluster) -> None:
    seen: list[float] = []

    def train(worker: scar.Worker) -> None:
        for _ in worker.clocks(limit=2):
            worker.push("w", np.ones((6, 2)))
            time.sleep(0.2)
            seen.append(status(running).waited)

    running = task(cluster, train)
    time.sleep(2.0)
    running.run(threading.Event())
    assert all(waited > 0.15 for waited in seen)
    assert min(seen) < 2.0


def test_stopped_in_the_middle(cluster: FakeCluster) -> None:
    """The open clock is finished; the share is given back, since the work is not done."""
    stopping = threading.Event()

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks():
            worker.push("w", np.ones((6, 2)))
            if clock == 3:
                stopping.set()
                while not worker._stopping:
                    time.sleep(0.01)

    running = task(cluster, train)
    threading.Thread(target=running.stop_with, args=(stopping,), daemon=True).start()
    running.run(stopping)
    assert cluster.recovery.left == [("worker-0", False)]
    np.testing.assert_array_equal(cluster.model()["w"], np.full((6, 2), 4))


def test_stopped_before_there_was_a_job() -> None:
    stopping = threading.Event()
    threading.Timer(0.2, stopping.set).start()
    running = TrainingTask(
        TrainingPlan(
            "127.0.0.1:1",
            "service",
            ones,
            timeout=20,
            start_timeout=60,
            unacked_bytes=1 << 20,
            outage_timeout=60,
        ),
        ME,
    )
    started = time.monotonic()
    running.run(stopping)
    assert (running.state, running.worker) == (TaskState.FINISHED, None)
    assert time.monotonic() - started < 10


class FakeDetector(detector_pb2_grpc.DetectorServicer):
    def __init__(self) -> None:
        self.beats: list[detector_pb2.BeatRequest] = []

    def Beat(self, request, context):
        self.beats.append(request)
        return detector_pb2.BeatReply()


def test_a_worker_without_a_chassis_beats_itself(cluster: FakeCluster) -> None:
    detector, server = FakeDetector(), grpc.server(ThreadPoolExecutor(2), options=server_options())
    detector_pb2_grpc.add_DetectorServicer_to_server(detector, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with scar.join(cluster.address, "worker-0", timeout=20, detector=address) as worker:
        while len(detector.beats) < 2 or not detector.beats[-1].progress:
            worker.pull("w")
            time.sleep(0.02)
    server.stop(0).wait()
    assert detector.beats[-1].member.name == "worker-0"
    assert detector.beats[-1].epoch == cluster.epoch.number


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(FILE)
    return path


def launch(cluster: FakeCluster, file: Path, function: str, **more: str) -> subprocess.Popen[str]:
    settings = {
        "NAME": "worker-0",
        "RECOVERY": cluster.address,
        "TRAIN": str(file),
        "FUNCTION": function,
    }
    environment = os.environ | {f"SCAR_{name}": value for name, value in {**settings, **more}.items()}
    environment["PYTHONPATH"] = f"{ROOT / 'sdk'}:{ROOT / 'services'}"
    return subprocess.Popen(
        [sys.executable, "-m", "scar_worker"], env=environment, text=True, stdout=-1, stderr=subprocess.STDOUT
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=90)
    return process.returncode, output


def test_a_process_that_trains(cluster: FakeCluster, file: Path) -> None:
    code, output = ended(launch(cluster, file, "train"))
    assert code == 0, output
    assert cluster.recovery.left == [("worker-0", True)]
    np.testing.assert_array_equal(cluster.model()["w"], np.full((6, 2), 5))


def test_a_process_whose_function_fails(cluster: FakeCluster, file: Path) -> None:
    code, output = ended(launch(cluster, file, "fail"))
    assert code == 1
    assert "ZeroDivisionError" in output
    assert cluster.recovery.left == [("worker-0", False)]


@pytest.mark.parametrize(
    ("change", "named"),
    [({"TRAIN": ""}, "SCAR_TRAIN"), ({"RECOVERY": ""}, "SCAR_RECOVERY"), ({"TRAIN": "no.py"}, "no.py")],
)
def test_a_process_with_wrong_settings(
    cluster: FakeCluster, file: Path, change: dict[str, str], named: str
) -> None:
    code, output = ended(launch(cluster, file, "train", **change))
    (message,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert code == 2
    assert named in message


def test_a_process_that_is_told_to_stop(cluster: FakeCluster, file: Path, tmp_path: Path) -> None:
    process = launch(cluster, file, "endless", ADDRESS_FILE=str(tmp_path / "address"))
    while not any(shard.clock > 2 for shard in cluster.shards.values()):
        assert process.poll() is None, ended(process)[1]
        time.sleep(0.02)
    link = Link((tmp_path / "address").read_text(), "worker-0")
    status = link.call(worker_pb2_grpc.WorkerStub(link.channel).Status, worker_pb2.WorkerStatusRequest(), 10)
    assert (status.state, status.epoch) == ("training", cluster.epoch.number)
    link.close()
    process.send_signal(signal.SIGTERM)
    code, output = ended(process)
    assert code == 0, output
    assert cluster.recovery.left == [("worker-0", False)]
    clocks = {shard.clock for shard in cluster.shards.values()}
    np.testing.assert_array_equal(cluster.model()["w"], np.full((6, 2), clocks.pop()))
