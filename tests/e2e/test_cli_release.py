"""The command line against a release on a real cluster: train a file, look, break, come back, and read the bucket.

Needs ``KUBECONFIG`` (or a current context), ``helm``, and the image ``SCAR_E2E_IMAGE`` (default ``scar:dev``) on all nodes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = os.environ.get("SCAR_E2E_CLI_NAMESPACE", "scar-cli-e2e")
REPOSITORY, _, TAG = os.environ.get("SCAR_E2E_IMAGE", "scar:dev").rpartition(":")
INSTALL_SECONDS, SECONDS = 240, 180.0

TRAIN = """
import time
import numpy as np
import scar

job = scar.Job("{name}", [scar.Table("w", (60, 8), rule=scar.add())], workers=2, checkpoint=scar.Checkpoint("priority", 0.5, 4))

def train(worker):
    for clock in worker.clocks(limit={clocks}):
        worker.pull("w")
        worker.push("w", np.ones((60, 8)))
        if {fails} and clock == 3:
            raise ValueError("a user's mistake")
        time.sleep({pause})
"""

pytestmark = pytest.mark.timeout(600)


def run(*command: str, check: bool = True, timeout: float = SECONDS) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment())
    if check:
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'sdk'}{os.pathsep}{ROOT / 'services'}"}


def scar(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "scar_cli", *arguments, "--namespace", NAMESPACE, check=check)


def seen(*arguments: str) -> Any:
    """What a command says as JSON; None when the cluster does not answer for a moment."""
    done = scar(*arguments, "-o", "json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def until(condition: Callable[[Any], object], *arguments: str, what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while not ((found := seen(*arguments)) and condition(found)):
        assert time.monotonic() < deadline, f"waited in vain for {what}; last: {found}"
        time.sleep(0.5)
    return found


def write(folder: Path, name: str, clocks: int, fails: bool = False, pause: float = 0.05) -> str:
    path = folder / f"{name}.py"
    path.write_text(TRAIN.format(name=name, clocks=clocks, fails=fails, pause=pause))
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def release() -> Iterator[None]:
    """A small release in a namespace of its own; nothing of it is left."""
    for tool in ("kubectl", "helm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on PATH: `make tools` installs it")
    if run("kubectl", "version", "--request-timeout=5s", check=False).returncode:
        pytest.skip("no Kubernetes cluster answers: set KUBECONFIG, or run `make kind`")
    run("kubectl", "create", "namespace", NAMESPACE, check=False)
    chart = ["helm", "install", "scar", str(ROOT / "deploy/helm/scar"), "-n", NAMESPACE, "--wait"]
    values = {"image.repository": REPOSITORY, "image.tag": TAG, "ps.replicas": "2"}
    values["bundled.minio.persistence.enabled"] = "false"
    settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    run(*chart, "--timeout", f"{INSTALL_SECONDS}s", *settings, timeout=INSTALL_SECONDS + 30)
    yield
    run("helm", "uninstall", "scar", "-n", NAMESPACE, check=False)
    run("kubectl", "delete", "namespace", NAMESPACE, "--wait=false", check=False)


def workers() -> str:
    """Names of all that a training has made on the cluster."""
    return run("kubectl", "get", "statefulset,configmap", "-n", NAMESPACE, "-o", "name").stdout


def test_a_file_is_trained_and_nothing_is_left_of_its_workers(tmp_path: Path) -> None:
    done = scar("train", write(tmp_path, "first", 8))
    assert "finished job first: 8 clocks" in done.stdout
    assert "scar-worker-file" not in workers()
    assert "statefulset.apps/scar-worker" not in workers()
    (found,) = {one["job"] for one in [seen("status")]}
    assert found == "first"
    listed = seen("checkpoints", "ls", "--job", "first")
    assert listed["manifests"]
    assert scar("checkpoints", "verify", "--job", "first").stdout.startswith("all good")


def test_a_training_outlives_whoever_watches_it_and_is_found_again(tmp_path: Path) -> None:
    file = write(tmp_path, "long", 40, pause=0.3)
    command = [sys.executable, "-m", "scar_cli", "train", file, "--namespace", NAMESPACE]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    until(lambda status: status["job"] == "long" and status["clock"] >= 2, "status", what="the first clocks")
    watching.send_signal(signal.SIGINT)
    text, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "the training goes on" in text
    other = scar("train", write(tmp_path, "other", 1), check=False)
    assert other.returncode == 1
    assert "job 'long' is being trained" in other.stderr
    before = seen("status")["clock"]
    again = scar("train", file)
    assert "runs already, and is followed" in again.stdout
    assert "finished job long: 40 clocks" in again.stdout
    assert before > 1


def test_a_killed_shard_heals_and_a_finished_job_is_not_started_again(tmp_path: Path) -> None:
    file = write(tmp_path, "healed", 60, pause=0.3)
    command = [sys.executable, "-m", "scar_cli", "train", file, "--namespace", NAMESPACE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as training:
        until(lambda status: status["job"] == "healed" and status["clock"] >= 2, "status", what="the first clocks")
        assert "killed ps-1" in scar("kill", "ps-1").stdout
        ledger = until(lambda found: any(one["epoch"] for one in found["failures"]), "failures", what="the recovery")
        assert any("scar-ps-1@" in member for one in ledger["failures"] for member in one["members"])
        text, _ = training.communicate(timeout=SECONDS)
        assert training.returncode == 0, text
    assert "finished job healed: 60 clocks" in text
    refused = scar("train", file, check=False)
    assert refused.returncode == 1
    assert "--resume" in refused.stderr
    assert "statefulset.apps/scar-worker" not in workers(), "a job that is refused leaves nothing behind"


def test_a_mistake_in_the_file_is_shown_as_it_happened(tmp_path: Path) -> None:
    done = scar("train", write(tmp_path, "wrong", 50, fails=True), check=False)
    assert done.returncode == 1
    assert "ValueError: a user's mistake" in done.stderr
    assert "statefulset.apps/scar-worker" not in workers()


def test_the_doctor_finds_nothing_to_mend() -> None:
    checks = until(lambda found: found["ok"], "doctor", what="a healthy release")["checks"]
    names = {check["name"] for check in checks}
    assert {"release", "rights", "pods", "store", "redis"} <= names


def test_a_release_that_is_not_there() -> None:
    done = scar("status", "--release", "nobody", check=False)
    assert done.returncode == 1
    assert "no release 'nobody'" in done.stderr
    assert "--release: scar" in done.stderr
