"""Every example is worked on once in an epoch: counted in the model, under kills and over a resumption."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scar
from scar_local import LocalCluster
from tests.framework import counted
from tests.framework.cluster import TIMEOUT


class Order:
    """The batches as the sampler has them, without a worker."""

    def data_slice(self, n: int) -> slice:
        return slice(n)


def count(folder: Path, kills: int, limits: list[int], **options: Any) -> tuple[np.ndarray, dict[int, float]]:
    """How often each example of each clock was counted (whole batches are 1), and the losses by clock."""
    seen: np.ndarray
    losses: dict[int, float] = {}
    for number, limit in enumerate(limits):
        over = folder / "over"
        environment = {
            "SCAR_TEST_JOB": json.dumps(options),
            "SCAR_TEST_LIMIT": str(limit),
            "SCAR_TEST_OVER": str(over),
        }
        with LocalCluster(folder, shards=2, environment=environment, respawn_delay=0.1) as cluster:
            cluster.start_job(counted.make_job(**options), resume=number > 0)
            cluster.start_workers(counted.__file__, 3)
            for kill in range(kills):
                cluster.until(lambda status: status.clock >= 8 + 14 * kill, TIMEOUT, "training")  # noqa: B023
                cluster.kill(f"worker-{kill + 1}")
            over.touch()
            assert set(cluster.wait(TIMEOUT).values()) == {0}
            losses |= cluster.status().losses
            with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
                seen = reader.pull("seen")
    return seen, losses


def batches_that_differ(seen: np.ndarray) -> set[int]:
    order = scar.BatchSampler(Order(), counted.EXAMPLES, counted.BATCH)  # type: ignore[arg-type]
    return {
        clock for clock in range(counted.CLOCKS) if (seen[order.epoch(clock), order.batch(clock)] != 1).any()
    }


def test_a_job_that_is_resumed_in_the_middle_of_an_epoch_repeats_and_leaves_out_nothing(
    tmp_path: Path,
) -> None:
    seen, _ = count(tmp_path, 0, [counted.CLOCKS // 2 + 2, counted.CLOCKS])
    assert batches_that_differ(seen) == set()


def test_where_clocks_wait_for_a_dead_worker_every_example_counts_once(tmp_path: Path) -> None:
    seen, _ = count(tmp_path, 2, [counted.CLOCKS], worker_recovery="ps")
    assert batches_that_differ(seen) == set()


@pytest.mark.parametrize("share", ["takeover"])
def test_where_nobody_waits_only_clocks_without_a_loss_may_differ(tmp_path: Path, share: str) -> None:
    seen, losses = count(tmp_path, 2, [counted.CLOCKS], worker_recovery="ignr", share=share)
    differing = batches_that_differ(seen)
    assert not differing & losses.keys()
    assert len(differing) <= 8  # two around each of four changes
    assert len(losses) >= counted.CLOCKS - 8
