"""Hot blocks change places while workers train, and servers or the coordinator die meanwhile: no push is
lost, and none counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import scar
from scar.placement import Epoch
from scar.tables import Job
from scar.wire.epoch_messages import epoch_from_proto
from tests.simulation.cluster import Cluster
from tests.simulation.lasting_workers import BOTH, Values, make_training, require_nothing_lost
from tests.simulation.network import Weather
from tests.simulation.world import World

CLOCKS = 60
LOOK = 1.0  # seconds between looks at the traffic
SHARDS = ("ps-0", "ps-1", "ps-2")
RECOVERIES = ("recovery-0", "recovery-1")
RESTED = 10.0  # seconds in which workers go on after the last death
HEALED = 90.0  # seconds within which the training ends then
COLD_EVERY = 5  # clocks, in one of which all blocks are pushed to
HEAT = 4  # pushes to hot blocks in each of the others


def play_hot_blocks(world: World, job: Job) -> None:
    """``job``: what is lost comes back from its workers."""
    looks = {"traffic_seconds": LOOK, "traffic_bytes": 1}
    members = (*RECOVERIES, "checkpoint-0", "detector-0", *SHARDS)
    cluster = Cluster(world, "one", *members, settings=dict.fromkeys(RECOVERIES, looks))
    for member in (*RECOVERIES, *SHARDS):
        cluster.supervise(member)
    cluster.start_job(job)
    first = _first_epoch(cluster, job)
    hot = {table: ids[::2] for table, ids in first.owned_by(first.shards[0].key).items() if len(ids)}
    names = [table.name for table in job.tables]
    ends: list[Values] = []
    over: list[bool] = []

    def push(worker: scar.Worker, clock: int, values: Values, amount: float) -> None:
        if clock % COLD_EVERY:
            asked = {name: np.full_like(values[name][ids], amount) for name, ids in hot.items()}
            for _ in range(HEAT):
                worker.push(asked, ids=hot)
        else:
            worker.push({name: np.full_like(one, amount) for name, one in values.items()})

    world.network.weather = Weather(delayed=0.5, late=0.02)
    for number in range(2):
        cluster.work(f"worker-{number}", make_training(names, CLOCKS, over, ends, push))
    for _ in range(2):
        world.scheduler.sleep(world.random.uniform(1.0, 5.0))
        cluster.crash(world.random.choice([*SHARDS, *SHARDS, *RECOVERIES]))
    world.scheduler.sleep(RESTED)
    over.append(True)
    cluster.wait_for(lambda: len(ends) == 2, HEALED, "the end of the training")
    causes = [epoch.cause for epoch in cluster.epochs(job.name)]
    world.tally.update(f"epoch {cause}" for cause in causes)
    require_nothing_lost(cluster)
    _judge_sums(job, hot, ends)


def _first_epoch(cluster: Cluster, job: Job) -> Epoch:
    found = cluster.wait_for(lambda: cluster.epochs(job.name)[:1], HEALED, "the first epoch")
    return epoch_from_proto(found[0])


def _judge_sums(job: Job, hot: Values, ends: Sequence[Values]) -> None:
    """Who has pulled last has everything."""
    for table in job.tables:
        cold = CLOCKS // COLD_EVERY
        pushes = np.full(table.shape[0], cold)
        pushes[hot.get(table.name, [])] += HEAT * (CLOCKS - cold)
        expected = pushes[:, None] * BOTH
        wrong = min(np.abs(expected - end[table.name]).max() for end in ends)
        assert not wrong, f"missing of what was pushed to {table.name}, or twice: {wrong}"
