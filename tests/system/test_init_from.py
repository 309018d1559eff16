"""A job that begins with a safetensors file, whose values come back to whoever takes blocks over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import scar
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
