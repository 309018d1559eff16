"""What an operator does, what goes wrong meanwhile, drawn by the seed, and what must be true at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import scar
from scar.errors import JobExists
from scar.tables import Job, Table, add
from scar.v1 import types_pb2
from scar.wire import codec
from tests.simulation.cluster import Cluster
from tests.simulation.focus import FOCUSES
from tests.simulation.held_leaders import draw_held_leaders
from tests.simulation.hot_blocks import play_hot_blocks
from tests.simulation.lasting_workers import BOTH, Values, make_training, require_nothing_lost
from tests.simulation.network import Weather
from tests.simulation.oracles.lives import living_shards
from tests.simulation.plan import ANYWHERE, Focus
from tests.simulation.swarm import plan_of, play
from tests.simulation.world import World

JOB = "job"
TABLES = 12
CLOCKS, CLOCK_SECONDS = 20, 0.5  # of a training, and of the computation in each clock
DEATH_CLOCKS = 40  # of a training in which servers die
LAST_CLOCKS = 8  # of one at whose end a server dies
RESTED = 10.0  # seconds in which workers go on after the last death
HEALED = 90.0  # seconds within which a recovery ends once the faults have


def lost_shard(world: World) -> None:
    """A shard dies, and the machine of the other one has trouble while it takes over."""
    cluster = _training(world, "one")
    victim, survivor = world.random.sample(["ps-0", "ps-1"], 2)
    before = cluster.epochs(JOB)[-1].number
    gone = cluster.members[victim]
    world.scheduler.crash(cluster.hosts[victim])
    _trouble(world, cluster, survivor)
    cluster.report_death(gone)

    def recovered() -> bool:
        newest = cluster.epochs(JOB)[-1]
        return newest.number > before and cluster.serves(newest)

    cluster.wait_for(recovered, HEALED, "the recovery")


def _trouble(world: World, cluster: Cluster, name: str) -> None:
    """Nothing, or a process that is paused or slow, one slow thread of it (it copies gigabytes, or swaps), a
    bad network, a busy store.
    """
    scheduler, draw = world.scheduler, world.random
    host, seconds = cluster.hosts[name], draw.uniform(1.0, 20.0)
    kind = draw.choice(["none", "pause", "slow process", "slow thread", "network", "store"])
    scheduler.record(f"trouble {kind} {seconds:.3f}")
    if kind == "pause":
        scheduler.at(scheduler.now + draw.uniform(0.0, 0.5), lambda: scheduler.pause(host, seconds))
    elif kind == "slow process":
        host.slow = 10 ** draw.uniform(-3.0, -0.5)
        scheduler.at(scheduler.now + seconds, lambda: setattr(host, "slow", 0.0))
    elif kind == "slow thread":
        task = cluster.task(name, "apply")
        task.slow = draw.uniform(0.2, 1.5)
        scheduler.at(scheduler.now + seconds, lambda: setattr(task, "slow", 0.0))
    elif kind == "network":
        world.network.weather = Weather(lost=draw.uniform(0.0, 0.1), delayed=draw.uniform(0.0, 0.3))
        scheduler.at(scheduler.now + seconds, lambda: setattr(world.network, "weather", Weather()))
    elif kind == "store":
        share = draw.uniform(0.05, 0.5)
        world.bucket.troubles.begin("busy", share)
        scheduler.at(scheduler.now + seconds, lambda: world.bucket.troubles.end("busy", share))


def two_clusters(world: World) -> None:
    """A job is trained, and another cluster on the same store, by mistake, has its name or its label."""
    one = _training(world, "one")
    world.scheduler.sleep(world.random.uniform(0.0, 5.0))
    before = one.epochs(JOB)
    same_label = world.random.random() < 0.5
    if world.random.random() < 0.5:  # as in another namespace, whose network policy lets nobody through
        for name in ("ps-0", "ps-1", "recovery-0"):
            world.network.cut("two/recovery-0", f"one/{name}", 1e6)
    two = Cluster(world, "two", "recovery-0", "ps-0", "ps-1", label="scar" if same_label else "other")
    if not same_label:
        try:
            two.start_job(small_job(2), resume=True)
            raise AssertionError("a second cluster may go on with a job that is trained")
        except JobExists:
            pass
    world.scheduler.sleep(20.0)
    authors = {epoch.author for epoch in one.epochs(JOB)}
    assert authors == {before[-1].author}, f"{len(authors)} clusters write epochs of one job"
    assert one.serves(before[-1]), "the first cluster does not serve any more"


def _training(world: World, name: str) -> Cluster:
    """A cluster whose two shards serve a job."""
    cluster = Cluster(world, name, "recovery-0", "ps-0", "ps-1")
    cluster.start_job(small_job(2))

    def served() -> types_pb2.Epoch | None:
        epochs = cluster.epochs(JOB)
        return epochs[-1] if epochs and len(epochs[-1].shards) == 2 and cluster.serves(epochs[-1]) else None

    epoch = cluster.wait_for(served, HEALED, "the first epoch")
    assert {codec.member_from_proto(member).name for member in epoch.shards} == {"ps-0", "ps-1"}
    return cluster


def whole_cluster(world: World) -> None:
    """Every service, coordinators twice; workers train, and a shard dies, found by the detectors alone."""
    shards = [f"ps-{number}" for number in range(4)]
    pairs = [f"{kind}-{number}" for kind in ("recovery", "checkpoint", "detector") for number in range(2)]
    cluster = Cluster(world, "one", *pairs, *shards)
    for member in (*pairs, *shards):
        cluster.supervise(member)
    cluster.start_job(small_job(4, workers=3, consistency="bsp"))
    done: list[str] = []

    def train(worker: scar.Worker) -> None:
        for _ in worker.clocks(limit=CLOCKS):
            values = worker.pull("t0")
            time.sleep(CLOCK_SECONDS)  # it computes
            worker.push("t0", np.ones_like(values))
        done.append(worker.member.name)

    for number in range(3):
        cluster.work(f"worker-{number}", train)
    world.scheduler.sleep(world.random.uniform(2.0, 0.5 * CLOCKS * CLOCK_SECONDS))
    world.scheduler.crash(cluster.hosts[world.random.choice(shards)])
    cluster.wait_for(lambda: len(done) == 3, 3 * CLOCKS * CLOCK_SECONDS + HEALED, "the end of the training")


def quiet(world: World, **options: Any) -> None:
    """Nothing happens: every service, and workers that train to the end. ``options``: of the job."""
    shards = [f"ps-{number}" for number in range(3)]
    cluster = Cluster(world, "one", "recovery-0", "checkpoint-0", "detector-0", *shards)
    cluster.start_job(small_job(3, workers=3, consistency="bsp", **options))
    done: list[str] = []

    def train(worker: scar.Worker) -> None:
        names = [table.name for table in worker.job.tables]
        for _ in worker.clocks(limit=CLOCKS):
            values = worker.pull(names)
            time.sleep(CLOCK_SECONDS)  # it computes
            worker.push({name: np.ones_like(one) for name, one in values.items()})
        done.append(worker.member.name)

    for number in range(3):
        cluster.work(f"worker-{number}", train)
    cluster.wait_for(lambda: len(done) == 3, 3 * CLOCKS * CLOCK_SECONDS + HEALED, "the end of the training")


def server_deaths(world: World, **options: Any) -> None:
    """Nothing but servers dies, often one just after the other, and what died comes back from workers: no
    push is lost, none counts twice, and the ledger says so. ``options``: of the job.
    """
    shards = [f"ps-{number}" for number in range(4)]
    cluster = Cluster(world, "one", "recovery-0", "checkpoint-0", "detector-0", *shards)
    for shard in shards:
        cluster.supervise(shard)
    cluster.start_job(small_job(4, workers=2, sources="workers", **options))
    names = [f"t{number}" for number in range(TABLES)]
    ends: list[Values] = []
    over: list[bool] = []

    def push(worker: scar.Worker, _clock: int, values: Values, amount: float) -> None:
        worker.push({name: np.full_like(one, amount) for name, one in values.items()})

    train = make_training(names, DEATH_CLOCKS, over, ends, push)
    world.network.weather = Weather(delayed=0.5, late=0.02)
    for number in range(2):
        cluster.work(f"worker-{number}", train)
    first, second = world.random.sample(shards, 2)
    world.scheduler.sleep(world.random.uniform(0.0, 2.0))
    before = len(cluster.epochs(JOB))
    cluster.crash(first)
    while len(cluster.epochs(JOB)) == before:  # the next one gives its blocks to the others
        world.scheduler.sleep(0.05)
    world.scheduler.sleep(world.random.choice([0.0, world.random.uniform(0.0, 0.5)]))
    cluster.crash(second)
    world.scheduler.sleep(RESTED)
    over.append(True)
    cluster.wait_for(lambda: len(ends) == 2, HEALED, "the end of the training")
    require_nothing_lost(cluster)
    total = DEATH_CLOCKS * BOTH
    # who has pulled last has everything
    least = {name: min(np.abs(total - end[name]).max() for end in ends) for name in names}
    assert not any(least.values()), f"missing of what was pushed, or twice: {least}"


def last_clocks(world: World, recovery: str) -> None:
    """A shard dies as the training ends: its clocks are those that workers did, and nothing more."""
    shards = [f"ps-{number}" for number in range(3)]
    cluster = Cluster(world, "one", "recovery-0", "checkpoint-0", "detector-0", *shards)
    for shard in shards:
        cluster.supervise(shard)
    policy = scar.Checkpoint(fraction=1.0, period=2)
    cluster.start_job(small_job(3, workers=3, consistency="bsp", recovery=recovery, checkpoint=policy))
    names = [f"t{number}" for number in range(TABLES)]
    done: list[str] = []

    def train(worker: scar.Worker) -> None:
        for _ in worker.clocks(limit=LAST_CLOCKS):
            values = worker.pull(names)
            time.sleep(0.1)  # it computes
            worker.push({name: np.ones_like(one) for name, one in values.items()})
        worker.leave()
        done.append(worker.member.name)

    world.network.weather = Weather(delayed=0.5, late=0.02)
    for number in range(3):
        cluster.work(f"worker-{number}", train)
    behind = shards
    while len(behind) == 3:  # some shards have closed the last clock
        world.scheduler.sleep(0.001)
        clocks = {state.member.name: state.clock for _, state in living_shards(cluster)}
        behind = [shard for shard in shards if clocks.get(shard, 0) < LAST_CLOCKS]
    cluster.crash(world.random.choice(behind or shards))
    cluster.wait_for(lambda: len(done) == 3, HEALED, "the end of the training")
    world.scheduler.sleep(RESTED)
    reached = max(state.clock for _, state in living_shards(cluster))
    assert reached == LAST_CLOCKS, f"{reached} clocks of {LAST_CLOCKS}"


def poisoned_batch(world: World) -> None:
    """The loss of a clock is no number, once; what was saved before comes back, and a shard may die then."""
    shards = [f"ps-{number}" for number in range(3)]
    cluster = Cluster(world, "one", "recovery-0", "recovery-1", "checkpoint-0", "detector-0", *shards)
    for member in ("recovery-0", "recovery-1", "checkpoint-0", "detector-0", *shards):
        cluster.supervise(member)
    policy = scar.Checkpoint(fraction=0.25, period=4, keep=8)
    cluster.start_job(small_job(3, workers=3, consistency="bsp", checkpoint=policy))
    bad = world.random.randint(4, CLOCKS - 4)
    done: list[str] = []
    told: list[int] = []

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=CLOCKS, on_nan="restore"):
            worker.data_slice(3)
            values = worker.pull("t0")
            time.sleep(CLOCK_SECONDS)  # it computes
            worker.push("t0", np.ones_like(values))
            poisoned = clock == bad and worker.member.name == "worker-1"
            told.extend([clock] * poisoned)
            worker.report(np.nan if poisoned else 1.0)
        done.append(worker.member.name)

    for number in range(3):
        cluster.work(f"worker-{number}", train)
    cluster.wait_for(lambda: bool(told), CLOCKS * CLOCK_SECONDS + HEALED, "the poisoned batch")
    if world.random.random() < 0.7:
        world.scheduler.sleep(world.random.uniform(0.0, 4 * CLOCK_SECONDS))
        world.scheduler.crash(cluster.hosts[world.random.choice([*shards, "recovery-0"])])
    cluster.wait_for(lambda: len(done) == 3, 3 * CLOCKS * CLOCK_SECONDS + HEALED, "the end of the training")
    back = [epoch for epoch in cluster.epochs(JOB) if epoch.rollback]
    asked = len({epoch.restart for epoch in back})
    assert asked <= 1, f"{asked} rollbacks because of one clock"
    # without a loss in the clock of a death nobody hears of it
    assert back or len(cluster.epochs(JOB)) > 2, "nothing went back"


def small_job(shards: int, **options: Any) -> Job:
    """Many tables in several blocks each: following an epoch is more than one step."""
    tables = [Table(f"t{number}", (8 + number, 2), rule=add()) for number in range(TABLES)]
    return Job(JOB, tables, **{"consistency": "asp", "shards": shards, "seed": 7, **options})


def hot_blocks(world: World) -> None:
    """Hot blocks change places, and servers die: see :mod:`tests.simulation.hot_blocks`."""
    play_hot_blocks(world, small_job(3, workers=2, consistency="bsp", sources="workers"))


def swarm(world: World, focus: Focus = ANYWHERE) -> None:
    """Everything at once: see :mod:`tests.simulation.swarm`."""
    play(world, world.plan or plan_of(world.seed, focus))


def two_checkpoints(world: World) -> None:
    """Two coordinators of the checkpoint lead, each with a round of the same number."""
    play(world, world.plan or draw_held_leaders(world.seed))


SCENARIOS: dict[str, Callable[[World], None]] = {
    **{name: partial(swarm, focus=focus) for name, focus in FOCUSES.items()},
    "two_checkpoints": two_checkpoints,
    "lost_shard": lost_shard,
    "two_clusters": two_clusters,
    "whole_cluster": whole_cluster,
    "poisoned_batch": poisoned_batch,
    "last_clocks": partial(last_clocks, recovery="partial"),
    "last_clocks_chain": partial(last_clocks, recovery="sync-chain"),
    "server_deaths": partial(server_deaths, consistency="bsp"),
    "server_deaths_ssp": partial(server_deaths, consistency="ssp", staleness=1),
    "server_deaths_asp": partial(server_deaths, consistency="asp"),
    "hot_blocks": hot_blocks,
    "quiet": quiet,
    "quiet_workers": partial(quiet, sources="workers"),
    "quiet_missing": partial(quiet, sources="workers", replicas=1, replicate="missing"),
}
SECONDS = 2000.0  # of simulated time, for a whole story
