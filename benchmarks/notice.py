"""A notice of death: a server gets SIGTERM, and SIGKILL some seconds later. What is lost, and what it costs.

    python -m benchmarks.notice --megabytes 1000 --seconds 0.5 --seconds 2 --seconds 30 --seconds 120
    python -m benchmarks.notice --megabytes 100 --seconds 0.5 --seconds 2

Every block has changed since it was saved, by amounts that lie orders of magnitude apart. What a lost block
costs is what it goes back by, squared: the sum is ||delta||^2. Beside it stands the least that as many lost
blocks could cost. Nobody trains meanwhile: what changes after it was saved comes on top.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

import scar
from benchmarks.training import NEVER, SECONDS
from scar.blocks import Ids
from scar.errors import ConfigError
from scar.wire.epoch_messages import epoch_from_proto
from scar_local import ClusterStatus, LocalCluster

WIDTH = 64
BLOCK_ROWS = 256
BLOCK_BYTES = 4 * WIDTH * BLOCK_ROWS  # 64 KiB
CHUNK = 512  # blocks that are pushed or pulled at once
SPREAD = 1.5  # standard deviation of the changes' logarithm
VICTIM = "ps-1"
ROW = "{:>8} {:>7} {:>10} {:>8} {:>9} {:>12} {:>12}"


@dataclass(frozen=True)
class NoticeCost:
    """``after``: seconds until the server had gone. ``lost``: of its ``blocks``. Shares of what all of them
    would have cost: ``cost`` of those that are lost, ``least`` that as many could.
    """

    after: float
    blocks: int
    lost: int
    cost: float
    least: float


class NoticeCluster:
    """A cluster whose blocks have all changed since x(0), and nothing is saved."""

    def __init__(self, cluster: LocalCluster, worker: scar.Worker) -> None:
        self.cluster = cluster
        self._worker = worker
        self._clocks = iter(worker.clocks())
        next(self._clocks)
        blocks = worker.job.table("w").blocks
        draw = np.random.default_rng(7)
        self._amounts = np.exp(draw.normal(0.0, SPREAD, blocks)).astype(np.float32)

    def change_blocks(self) -> None:
        for ids in self._chunks():
            values = np.repeat(self._amounts[ids], BLOCK_ROWS * WIDTH).reshape(-1, WIDTH)
            self._worker.push("w", values, ids=ids)
            next(self._clocks)  # it is acknowledged

    def owned_blocks(self) -> Ids:
        """Of the victim."""
        message = self.cluster.status().epoch
        assert message is not None
        epoch = epoch_from_proto(message)
        return next(epoch.owned_by(shard.key)["w"] for shard in epoch.shards if shard.name == VICTIM)

    def weigh_losses(self, owned: Ids, after: float) -> NoticeCost:
        """What of these blocks is not as it was, once all are served again."""
        lost = np.zeros(len(self._amounts), np.bool_)
        for ids in self._chunks():
            found = self._worker.pull("w", ids=ids).reshape(len(ids), -1)[:, 0]
            lost[ids] = found != self._amounts[ids]
        assert not np.delete(lost, owned).any(), "blocks of other servers are lost"
        costs = np.square(self._amounts[owned], dtype=np.float64)
        count = int(lost[owned].sum())
        whole = costs.sum()
        least = np.sort(costs)[:count].sum() / whole
        return NoticeCost(after, len(owned), count, costs[lost[owned]].sum() / whole, least)

    def _chunks(self) -> Iterator[Ids]:
        every = np.arange(len(self._amounts), dtype=np.uint32)
        yield from np.array_split(every, max(1, len(every) // CHUNK))


@contextmanager
def start_cluster(megabytes: float, shards: int, environment: Mapping[str, str]) -> Iterator[NoticeCluster]:
    """``megabytes``: of values, on each server."""
    blocks = max(shards, round(shards * megabytes * 1e6 / BLOCK_BYTES))
    table = scar.Table("w", (blocks * BLOCK_ROWS, WIDTH), rule=scar.add(), blocks=scar.rows(BLOCK_ROWS))
    job = scar.Job("notice", [table], shards=shards, workers=1, consistency="asp", checkpoint=NEVER)
    with LocalCluster(shards=shards, environment=environment, respawn=False) as cluster:
        cluster.start_job(job)
        with scar.join(cluster.endpoints.recovery_address, "worker-0") as worker:
            made = NoticeCluster(cluster, worker)
            made.change_blocks()
            cluster.until(_has_leader, SECONDS, "the checkpoint coordinator")
            yield made


def give_notice(run: NoticeCluster, kill_due: Callable[[float], bool]) -> NoticeCost:
    """SIGTERM; SIGKILL once ``kill_due`` says so, which is asked all the time with the seconds since."""
    cluster = run.cluster
    owned = run.owned_blocks()
    began = time.monotonic()
    cluster.kill(VICTIM, signal.SIGTERM, respawn=False)
    while _is_running(cluster):
        if kill_due(time.monotonic() - began):
            with suppress(ConfigError):  # it has just ended by itself
                cluster.kill(VICTIM, respawn=False)
            break
        time.sleep(0.005)
    after = time.monotonic() - began
    cluster.until(_is_over, SECONDS, "the blocks of the server elsewhere")
    return run.weigh_losses(owned, after)


def _has_leader(status: ClusterStatus) -> bool:
    return status.checkpoint is not None and status.checkpoint.leader


def _is_running(cluster: LocalCluster) -> bool:
    return any(one.name == VICTIM and one.state == "running" for one in cluster.processes())


def _is_over(status: ClusterStatus) -> bool:
    epoch = status.epoch
    return epoch is not None and status.loading == 0 and all(one.name != VICTIM for one in epoch.shards)


def measure_notice(seconds: float, megabytes: float, shards: int) -> NoticeCost:
    """The server believes that it has four fifths of the notice, as docs/operations.md advises."""
    environment = {"SCAR_LEAVE_SECONDS": str(0.8 * seconds)}
    with start_cluster(megabytes, shards, environment) as run:
        return give_notice(run, lambda elapsed: elapsed >= seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000.0, help="on each server")
    parser.add_argument("--seconds", type=float, action="append", help="of notice; repeatable")
    parser.add_argument("--shards", type=int, default=3)
    asked = parser.parse_args()
    titles = ("notice", "gone", "blocks", "lost", "lost", "of the cost", "at least")
    sys.stdout.write(ROW.format(*titles) + "\n")
    for seconds in asked.seconds or (0.5, 2.0, 30.0, 120.0):
        found = measure_notice(seconds, asked.megabytes, asked.shards)
        shown = (f"{seconds:g} s", f"{found.after:.2f} s", found.blocks, found.lost)
        shares = (found.lost / found.blocks, found.cost, found.least)
        sys.stdout.write(ROW.format(*shown, *(f"{share:.2%}" for share in shares)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
