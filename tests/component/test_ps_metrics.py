"""What a shard tells Prometheus."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from tests.component.ps_scene import Running, declared, first


def test_metrics_have_the_open_clock_and_the_newest_loss(tmp_path: Path) -> None:
    shard = Running(0, f"file://{tmp_path}")
    names = ("scar_ps_clock", "scar_ps_loss", "scar_ps_loss_clock")

    def shown() -> list[float | None]:
        return [REGISTRY.get_sample_value(name) for name in names]

    spec = declared("bsp")
    shard.adopt(first(spec, [shard]), spec)
    assert shown() == [0, pytest.approx(math.nan, nan_ok=True), -1]
    shard.clock(1, loss=0.25)
    assert shown() == [1, 0.25, 0]
    shard.clock(2)
    assert shown() == [2, 0.25, 0]
    shard.stop()
