"""A PyTorch model on a real cluster, with a shard killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

FILE = Path(__file__).resolve().parents[1] / "framework" / "mlp.py"
TOLERANCE = 0.15  # of the loss; a shard that begins again at x(0) before the hold costs at most half of it


@pytest.mark.timeout(600)  # two workers import torch, on whatever else this machine does
def test_an_mlp_ends_where_one_process_ends_though_a_shard_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch import nn

    import scar.torch
    from tests.framework import mlp

    go = tmp_path / "go"
    monkeypatch.setenv("SCAR_TEST_GO", str(go))
    with LocalCluster(tmp_path / "home", shards=2, respawn_delay=0.1) as cluster:
        cluster.start_job(mlp.job)
        cluster.start_workers(FILE, 2)
        cluster.until(lambda status: status.clock >= 5, 3 * TIMEOUT, "training")
        cluster.kill("ps-1")
        go.touch()
        assert set(cluster.wait(3 * TIMEOUT).values()) == {0}
        model = mlp.build()
        with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
            scar.torch.load(model, reader)
        assert cluster.status().failures
    alone = mlp.build()
    mlp.train_alone(alone)
    x, y = mlp.examples()
    expected = nn.functional.cross_entropy(alone(x), y).item()
    assert nn.functional.cross_entropy(model(x), y).item() == pytest.approx(expected, rel=TOLERANCE)
