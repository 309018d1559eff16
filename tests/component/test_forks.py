"""Training code that forks, as torch's DataLoader and multiprocessing do, while its process has
connections.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import scar
from scar_local import LocalCluster

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them

POOLS = 10
TRAIN = """
import json
import multiprocessing
import os

import numpy as np
import scar

job = scar.Job("forks", tables=[scar.Table("w", (2000, 200), rule=scar.add())], shards=2, workers=1)
context = multiprocessing.get_context("fork")
worker = None


def batch(seed):
    return float(np.random.default_rng(seed).normal(size=10000).sum())


def misuse(name):
    try:
        worker.pull("w") if name == "pull" else scar.connect(os.environ["SCAR_RECOVERY"])
    except scar.ScarError as error:
        return type(error).__name__, str(error)


def train(joined):
    global worker
    worker, sums = joined, []
    for clock in worker.clocks(limit=POOLS):
        worker.pull("w")
        with context.Pool(2) as pool:
            sums.append(sum(pool.map(batch, range(8))))
            found = pool.map(misuse, ["pull", "connect"]) if not clock else found
        worker.push("w", np.ones((2000, 200), np.float32))
        worker.report(1.0)
    with open(os.environ["TEST_OUT"], "w") as file:
        json.dump({"sums": sums, "found": found, "w": float(worker.pull("w")[0, 0])}, file)
"""
STOPPED = """
import os, signal, threading, time
from scar_runtime.process.signals import on_stop

asked = threading.Event()
# before the child has forgotten anything
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
on_stop(asked.set)
if not (child := os.fork()):
    time.sleep(5)
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), asked.wait(0.3), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


def test_a_training_function_forks_between_pull_and_push(tmp_path: Path) -> None:
    file, out = tmp_path / "forks.py", tmp_path / "out.json"
    file.write_text(TRAIN.replace("POOLS", str(POOLS)))
    with LocalCluster(tmp_path / "cluster", shards=2, environment={"TEST_OUT": str(out)}) as cluster:
        cluster.start_job(scar.load_job(str(file))[0])
        cluster.start_workers(file, 1)
        assert cluster.wait(60) == {"worker-0": 0}
        assert cluster.processes()[-1].restarts == 0
    found = json.loads(out.read_text())
    assert (len(set(found["sums"])), len(found["sums"]), found["w"]) == (1, POOLS, POOLS)
    for kind, message in found["found"]:
        assert kind == "InvalidRequest"
        assert "forked copy" in message
        assert "spawn" in message


@pytest.mark.parametrize(("given", "found"), [({}, "0"), ({"GRPC_ENABLE_FORK_SUPPORT": "1"}, "1")])
def test_grpc_leaves_forks_alone_unless_the_user_wants_it(given: dict[str, str], found: str) -> None:
    """With its own handlers the child of a process that has connections crashes."""
    program = "import os, scar; print(os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), **given}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == f"{found}\n"


def test_a_signal_right_after_a_fork_ends_the_child_and_not_its_parent() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", STOPPED], env=environment, capture_output=True, text=True, timeout=60
    )
    assert run.stdout.split(maxsplit=2) == [str(-signal.SIGTERM), "False", "set()\n"], run.stderr
