"""A job that begins with a safetensors file, whose values come back to whoever takes blocks over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import scar
from scar.job_start import start_job
from scar.v1.recovery_pb2 import UploadInitialReply, UploadInitialRequest
from scar_cli.checkpoints import open_job
from scar_cli.cluster_ref import ClusterRef
from scar_cli.export import export_tables
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT


def test_a_killed_shards_blocks_come_back_as_the_file_has_them(tmp_path: Path) -> None:
    pretrained = np.random.default_rng(3).normal(size=(64, 3)).astype(np.float32)
    save_file({"w": pretrained}, tmp_path / "model.safetensors")
    declared = scar.Job("pretrained", [scar.Table("w", (64, 3), init=scar.normal())])
    with LocalCluster(tmp_path / "home", shards=2, respawn_delay=0.1) as cluster:
        cluster.start_job(scar.init_from(declared, tmp_path / "model.safetensors"))
        with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
            np.testing.assert_array_equal(reader.pull("w"), pretrained)
            cluster.kill("ps-1")
            cluster.until(lambda status: len(status.failures) == 1, TIMEOUT, "the failure")
            np.testing.assert_array_equal(reader.pull("w"), pretrained)


class DyingCoordinator:
    """The stub of a cluster whose recovery coordinator is killed before the third part that it takes."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._stub = cluster.endpoints.recovery
        self.parts = 0
        self.StartJob = self._stub.StartJob

    def UploadInitial(self, request: UploadInitialRequest, **options: Any) -> UploadInitialReply:
        self.parts += 1
        if self.parts == 3:
            self._cluster.kill("recovery-0")
        return self._stub.UploadInitial(request, **options)


def test_a_model_of_more_than_a_message_begins_as_it_was_given_whoever_dies(tmp_path: Path) -> None:
    """The coordinator while 80 MiB are uploaded, and a shard before anything is saved."""
    given = np.random.default_rng(4).normal(size=(20 << 10, 1 << 10)).astype(np.float32)
    job = scar.Job("large", [scar.Table("w", given.shape, init=scar.given(given), blocks=scar.rows(16))])
    said: list[str] = []
    with LocalCluster(tmp_path / "home", shards=2, respawn_delay=0.1) as cluster:
        coordinator = DyingCoordinator(cluster)
        start_job(coordinator, job, resume=False, timeout=TIMEOUT, waits=said.append)  # type: ignore[arg-type]
        assert coordinator.parts > 5
        assert said[0] == "80 MiB of initial values go into the store first"
        assert len(list((tmp_path / "home" / "store" / "large" / "init").iterdir())) == 5
        with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
            np.testing.assert_array_equal(reader.pull("w"), given)
            cluster.kill("ps-1")
            cluster.until(lambda status: len(status.failures) == 1, TIMEOUT, "the failure")
            np.testing.assert_array_equal(reader.pull("w"), given)


def test_a_killed_shards_rows_of_keys_come_back_and_are_trained(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    keys = np.sort(draw.integers(-(2**63), 2**63 - 1, 300))
    values = draw.normal(size=(300, 4)).astype(np.float32)
    save_file({"k.keys": keys, "k.values": values}, tmp_path / "model.safetensors")
    table = scar.Table("k", keys="int64", dim=4, capacity=1000, rule=scar.sgd(lr=1.0), init=scar.constant(2))
    declared = scar.Job("keyed", [table], checkpoint=scar.Checkpoint(fraction=1.0, period=1000))

    def train(worker: scar.Worker) -> None:
        for _ in worker.clocks(limit=1):
            worker.push("k", np.ones((2, 4)), rows=[keys[0], 1])

    with LocalCluster(tmp_path / "home", shards=2, respawn_delay=0.1) as cluster:
        cluster.start_job(scar.init_from(declared, tmp_path / "model.safetensors"))
        with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
            for killed in (0, 1):
                found = reader.pull("k")
                np.testing.assert_array_equal(found.keys, keys)
                np.testing.assert_array_equal(found.values, values)
                cluster.kill(f"ps-{killed}")
                cluster.until(lambda seen: len(seen.failures) == killed + 1, TIMEOUT, "the failure")  # noqa: B023
        result = cluster.train(declared, train, timeout=TIMEOUT, resume=True)
        saved = open_job(ClusterRef(), "keyed", cluster.store_url)
        export_tables(saved, 0, tmp_path / "trained.safetensors")
    exported = load_file(tmp_path / "trained.safetensors")  # of most blocks nothing was ever saved
    np.testing.assert_array_equal(exported["k.keys"], result.model["k"].keys)
    np.testing.assert_array_equal(exported["k.values"], result.model["k"].values)
    rows = dict(zip(result.model["k"].keys.tolist(), result.model["k"].values, strict=True))
    np.testing.assert_array_equal(rows.pop(1), np.ones(4))
    np.testing.assert_array_equal(rows.pop(int(keys[0])), values[0] - np.float32(1))
    np.testing.assert_array_equal(np.stack([rows[key] for key in keys[1:].tolist()]), values[1:])
