"""One run: a scenario, a seed, and what came of them."""

from __future__ import annotations

import gc
import json
import resource
import sys
from contextlib import nullcontext
from pathlib import Path

from tests.simulation.carriers import BEST
from tests.simulation.plan import Plan
from tests.simulation.scenarios import SCENARIOS, SECONDS
from tests.simulation.world import World

CPU_SECONDS = 300  # for one run: what loops for ever is ended by the system
MEMORY = 4 << 30  # bytes of address space for one run


def run(scenario: str, seed: int, carrier: str, folder: str, plan: Plan | None = None) -> bool:
    """Simulate it and write one JSON object. Whether it has failed."""
    gc.disable()  # its moments depend on what the process has done before
    used = resource.getrusage(resource.RUSAGE_SELF)
    before = used.ru_utime + used.ru_stime
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (int(before) + CPU_SECONDS, resource.RLIM_INFINITY))
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with Path(folder, f"{scenario}-{seed}").open("w") if folder else nullcontext() as trace:
        world = World(seed, carrier=carrier or BEST, trace=trace, plan=plan)
        wrong = ""
        try:
            world.run(lambda: SCENARIOS[scenario](world), SECONDS)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        for (method, kind), count in world.network.rpc_faults.struck.items():
            world.tally[f"rpc {kind} {method}"] = count
        for moment, count in world.scheduler.sprung.items():
            world.tally[f"failpoint {moment}"] = count
        used = resource.getrusage(resource.RUSAGE_SELF)
        result = {
            "scenario": scenario,
            "seed": seed,
            "wrong": "; ".join([*filter(None, [wrong]), *world.wrong, *world.scheduler.failures]),
            "digest": world.scheduler.digest,
            "seconds": round(world.scheduler.now, 3),
            "steps": world.scheduler.steps,
            "cpu": round(used.ru_utime + used.ru_stime - before, 3),
            "tally": dict(sorted(world.tally.items())),
        }
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
    return bool(result["wrong"])
