"""TensorBoard, MLflow and W&B, offline, are told what a training with a killed shard has come to."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from tensorboardX.proto.event_pb2 import Event
from wandb.proto import wandb_internal_pb2

import scar
from scar.callbacks.mlflow import MLflow
from scar.callbacks.tensorboard import TensorBoard
from scar.callbacks.wandb import WandB
from scar_admin.status import ClusterStatus
from tests.component.test_cli import Shell
from tests.framework.cluster import TIMEOUT

LIMIT = 14
HOLD = 6  # the clock that nobody ends before the shard is dead
JOB = scar.Job("callbacks", [scar.Table("w", (12, 2), rule=scar.add())], workers=2)


def event_records(file: Path) -> Iterator[Event]:
    """Records of a TFRecord file: length, its checksum, data, their checksum."""
    raw, at = file.read_bytes(), 0
    while at < len(raw):
        (size,) = struct.unpack_from("<Q", raw, at)
        yield Event.FromString(raw[at + 12 : at + 12 + size])
        at += size + 16


def wandb_records(file: Path) -> Iterator[wandb_internal_pb2.Record]:
    """Records of a log of LevelDB, behind 7 bytes of its own: blocks of 32 KiB with parts of records."""
    raw, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(raw):
        if (left := -at % 32768) and left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", raw, at + 4)
        record += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(record)
            record = b""


def tensorboard_scalars(folder: Path) -> tuple[dict[str, dict[int, float]], list[str]]:
    """By name and clock, and the texts."""
    scalars: dict[str, dict[int, float]] = {}
    texts = []
    for file in folder.iterdir():
        for event in event_records(file):
            for value in event.summary.value:
                if value.HasField("tensor"):
                    texts += [text.decode() for text in value.tensor.string_val]
                else:
                    scalars.setdefault(value.tag, {})[event.step] = value.simple_value
    return scalars, texts


def wandb_history(folder: Path) -> list[dict[str, float]]:
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    return [
        {
            item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        for record in wandb_records(file)
        if record.WhichOneof("record_type") == "history"
    ]


def test_all_are_told_the_loss_metrics_and_failures_of_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    go = tmp_path / "go"
    killed: list[bool] = []
    mlflow = MLflow("callbacks", "run", (tmp_path / "mlflow").as_uri())
    callbacks = [
        TensorBoard(tmp_path / "tensorboard"),
        mlflow,
        WandB("callbacks", mode="offline", dir=str(tmp_path)),
    ]

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=LIMIT):
            worker.push("w", np.ones((12, 2), np.float32))
            worker.report(1 / (1 + clock))
            worker.log({"half": clock / 4})
            while clock == HOLD and not go.exists():
                time.sleep(0.01)

    with scar.LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:

        def watch(status: ClusterStatus) -> None:
            if status.clock == HOLD and not killed:
                cluster.kill("ps-1")
                killed.append(True)
            if status.failures and not go.exists() and status.failures[0].epoch:
                go.touch()

        result = cluster.train(JOB, train, timeout=TIMEOUT, watch=watch, callbacks=callbacks)

    assert sorted(result.history) == list(range(LIMIT))
    (failure,) = result.ledger
    halves = {clock: clock / 2 for clock in range(LIMIT)}

    scalars, texts = tensorboard_scalars(tmp_path / "tensorboard")
    assert scalars["loss"] == pytest.approx(result.history)
    assert scalars["half"] == pytest.approx(halves)
    (text,) = texts
    assert failure.members[0] in text
    assert f"{failure.lost_blocks} blocks" in text

    client = MlflowClient((tmp_path / "mlflow").as_uri())
    run = client.get_run(mlflow.run_id)
    points = {point.step: point.value for point in client.get_metric_history(mlflow.run_id, "loss")}
    assert points == pytest.approx(result.history)
    assert run.data.tags["failure.1"] == text
    assert run.info.status == "FINISHED"

    history = wandb_history(tmp_path)
    assert {int(one["clock"]): one["loss"] for one in history if "loss" in one} == pytest.approx(
        result.history
    )
    assert {int(one["clock"]): one["half"] for one in history if "half" in one} == pytest.approx(halves)
    assert [one["failure/lost_blocks"] for one in history if "failure/number" in one] == [failure.lost_blocks]


FILE = """
import json, time
import numpy as np
import scar

job = scar.Job("told", [scar.Table("w", (12, 2), rule=scar.add())], workers=2)

class Lines:
    def __init__(self):
        self.file = open("told.jsonl", "w")
    def log_metrics(self, clock, metrics):
        print(json.dumps({"clock": clock, **metrics}), file=self.file, flush=True)
    def log_failure(self, failure):
        told = {"failure": failure.members, "lost": failure.lost_blocks}
        print(json.dumps(told), file=self.file, flush=True)
    def close(self):
        print(json.dumps({"closed": True}), file=self.file, flush=True)

def callbacks():
    return [Lines()]

def train(worker):
    for clock in worker.clocks(limit=60):
        worker.pull("w")
        worker.push("w", np.ones((12, 2)))
        worker.report(0.5 / (1 + clock))
        time.sleep(0.1)
"""


def test_scar_train_tells_the_callbacks_of_its_file(tmp_path: Path) -> None:
    """In its own process, once: workers load the file, too."""
    shell = Shell(tmp_path)
    (tmp_path / "told.py").write_text(FILE)
    shell.run("up", "--shards", "3", "--detach")
    try:
        training = shell.start("train", "told.py", "--quiet")
        file = tmp_path / "told.jsonl"
        until(lambda: file.exists() and len(file.read_text().splitlines()) > 5)
        shell.run("kill", "ps-1")
        out, err = training.communicate(timeout=TIMEOUT)
        assert training.returncode == 0, out + err
        [failure] = shell.json("failures")["failures"]
    finally:
        shell.run("down")
    told = [json.loads(line) for line in file.read_text().splitlines()]
    losses = {one["clock"]: one["loss"] for one in told if "clock" in one}
    assert losses == pytest.approx({clock: 1 / (1 + clock) for clock in range(60)})
    assert [one for one in told if "failure" in one] == [
        {"failure": failure["members"], "lost": failure["lost_blocks"]}
    ]
    assert [one for one in told if "closed" in one] == [told[-1]]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
