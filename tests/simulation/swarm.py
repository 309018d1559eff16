"""Plays a plan: a job trains, its faults strike, and after each group the run is judged at rest."""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import scar_chaos.chaos_run
from scar_admin import polling
from scar_chaos.chaos_run import open_run
from tests.simulation.cluster import Cluster
from tests.simulation.faults import KINDS
from tests.simulation.oracles import ORACLES
from tests.simulation.plan import ANYWHERE, EARLY, FaultGroup, Focus, Plan, SimulatedFault, draw_plan
from tests.simulation.target import SimulatedTarget
from tests.simulation.world import World

CALM = 2.0  # seconds between two groups
WATCH = 1.0  # seconds between two looks of the oracles, at least


def plan_of(seed: int, focus: Focus = ANYWHERE) -> Plan:
    """The plan of a seed: what kinds of faults there are is part of what a seed means."""
    known = {name: kind.draw for name, kind in KINDS.items() if not kind.focused or name in focus.kinds}
    return draw_plan(seed, known, focus)


def play(world: World, plan: Plan) -> None:
    """Tells the world what oracles find. Raises what says that the run did not come to its end."""
    with world.keep_on_disk() if plan.shape.disk else nullcontext():
        _play_groups(world, plan)


def _play_groups(world: World, plan: Plan) -> None:
    polling.LOOK_PAUSE = scar_chaos.chaos_run.LOOK_PAUSE = plan.shape.look
    target = SimulatedTarget(world, plan.shape)
    oracles = [make() for make in ORACLES]

    def watch() -> None:
        for oracle in oracles:
            world.tell(oracle.watch(target.cluster))
        world.scheduler.at(world.scheduler.now + max(WATCH, plan.shape.look), watch)

    watch()
    early = _strike_early(target.cluster, plan)
    options = plan.shape.job_options(plan.seed)
    with (
        tempfile.TemporaryDirectory(prefix="scar-simulation-") as folder,
        open_run(target, Path(folder), **options) as run,
    ):
        target.judges = [partial(oracle.judge, run, target.cluster) for oracle in oracles]
        for number, group in enumerate(plan.groups):
            if number:
                world.tell(run.judge_at_rest().violations)
                time.sleep(CALM)
            _strike(target, tuple(fault for fault in group if fault.at != EARLY))
            if world.scheduler.now < early:  # a sleep is a step, which plans without early faults do not have
                world.scheduler.sleep(early - world.scheduler.now)
            run.wait_saved(run.wait_healed())
        time.sleep(max(0.0, plan.shape.seconds - world.scheduler.now))
        world.tell(run.judge_at_rest().violations)
        if plan.shape.traffic:  # a look at the store is a step, which other plans do not have
            causes = [epoch.cause for epoch in target.cluster.epochs(run.job.name)]
            world.tally.update(f"epoch {cause}" for cause in causes)


def _strike_early(cluster: Cluster, plan: Plan) -> float:
    """What is there before the job is started, while processes start. When it has ended."""
    scheduler = cluster.world.scheduler
    early = [fault for fault in plan.faults if fault.at == EARLY]
    for fault in early:
        _begin(cluster, fault, [])
        scheduler.at(scheduler.now + fault.seconds, partial(KINDS[fault.kind].end, cluster, fault))
    return scheduler.now + max((fault.seconds + CALM for fault in early), default=0.0)


def _strike(target: SimulatedTarget, group: FaultGroup) -> None:
    """Returns when the last fault of the group has ended."""
    cluster, scheduler = target.cluster, target.cluster.world.scheduler
    began = scheduler.now
    struck: list[SimulatedFault] = []
    for fault in group:
        scheduler.at(began + fault.at, partial(_begin, cluster, fault, struck))
        scheduler.at(began + fault.end, partial(KINDS[fault.kind].end, cluster, fault))
    scheduler.sleep(max((fault.end for fault in group), default=0.0) + CALM)


def _begin(cluster: Cluster, fault: SimulatedFault, before: list[SimulatedFault]) -> None:
    """Counts it, and each pair with what is still there, or was a moment ago."""
    world = cluster.world
    world.scheduler.record(f"fault {fault}")
    world.tally[f"fault {fault.kind}"] += 1
    for other in before:
        if other.end + CALM >= fault.at:
            world.tally[f"pair {'+'.join(sorted((fault.kind, other.kind)))}"] += 1
    before.append(fault)
    KINDS[fault.kind].begin(cluster, fault)
