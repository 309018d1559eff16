"""Hot blocks of one shard change places with cold ones of others while training goes on, and nothing of what
was pushed is lost or counted twice.
"""

from __future__ import annotations

import time

import numpy as np

import scar
from benchmarks.training import BenchTraining, start_training
from scar.placement import Epoch
from scar.wire.epoch_messages import epoch_from_proto
from tests.framework.cluster import TIMEOUT

BLOCKS, WIDTH = 60, 4096  # 16 KiB each
EVERY = 7  # steps, in one of which all blocks are pushed


def newest_epoch(run: BenchTraining) -> Epoch:
    status = run.cluster.status()
    assert status.epoch is not None
    return epoch_from_proto(status.epoch)


def share_of_busiest(epoch: Epoch, hot: np.ndarray) -> float:
    return float(np.bincount(epoch.owners["w"][hot], minlength=3).max() / len(hot))


def test_hot_blocks_change_places_and_every_push_counts_once() -> None:
    table = scar.Table("w", (BLOCKS, WIDTH), rule=scar.sgd(1.0))
    with start_training([table], shards=3, settings={"SCAR_TRAFFIC_SECONDS": "0.5"}) as run:
        first = newest_epoch(run)
        hot = first.owned("w", 0)[:12]
        pushed = np.zeros(BLOCKS, np.int64)
        end = time.monotonic() + TIMEOUT
        causes = {first.cause}
        while share_of_busiest(newest_epoch(run), hot) > 0.5:
            for step in range(EVERY):
                asked = hot if step else np.arange(BLOCKS)
                run.worker.pull("w", ids=asked)
                gradient = np.full((len(asked), WIDTH), -1, np.float32)
                run.step(lambda: run.worker.push("w", gradient, ids=asked))  # noqa: B023
                pushed[asked] += 1
            causes.add(newest_epoch(run).cause)
            assert time.monotonic() < end, causes
        last = newest_epoch(run)
        assert "traffic" in causes
        assert (np.bincount(last.owners["w"]) == np.bincount(first.owners["w"])).all()
        np.testing.assert_array_equal(run.worker.pull("w"), np.repeat(pushed[:, None], WIDTH, axis=1))
        assert not run.cluster.status().failures
