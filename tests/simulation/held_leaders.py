"""Two leaders of the checkpoint that both stand still before they commit, and wake while Redis is away: each
believes that it leads, and both have given a round the same number.
"""

from __future__ import annotations

import random

from scar_runtime.store.layout import MANIFESTS
from tests.simulation.faults.moments import MOMENTS, SENT
from tests.simulation.plan import Plan, RunShape, SimulatedFault

SHAPE = RunShape(shards=2, workers=2, standby=True, consistency="asp", pace=0.5, seconds=20.0)
BEGIN = 10.0  # seconds within which the traps are set
HELD = 6.0, 14.0  # seconds for which the leader stands still; its successor takes over within 5
LONGER = 2.0, 6.0  # seconds more for which the successor does
AWAY = 1.5, 6.0  # seconds after the traps when Redis goes
REDIS = 25.0  # seconds for which it is away


def draw_held_leaders(seed: int) -> Plan:
    """The successor takes over when the lease of the first has run out, or without Redis, by its patience."""
    draw = random.Random(f"held leaders {seed}")
    at, held = draw.uniform(0.0, BEGIN), draw.uniform(*HELD)
    commit = float(MOMENTS["checkpoint"].index(f"{SENT}{MANIFESTS}/"))
    names = draw.sample(["checkpoint-0", "checkpoint-1"], 2)
    seconds = held, held + draw.uniform(*LONGER)
    traps = [
        SimulatedFault("pause-at-moment", name, at, lasts, commit)
        for name, lasts in zip(names, seconds, strict=True)
    ]
    away = SimulatedFault("redis-away", "redis", at + draw.uniform(*AWAY), REDIS, 1.0)
    return Plan(seed, SHAPE, ((*traps, away),))
