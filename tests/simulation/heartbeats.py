"""How often the members of a swarm's cluster beat.

All timing of the services follows from the heartbeat (:mod:`scar.wire.timing`), and they take their constants
from it when they are imported: so it is known before that, and seeds in blocks have the same one. Most have
one that suits a larger cluster or slower network, whose idle seconds are cheap; the default has its share.
"""

from __future__ import annotations

import json
from pathlib import Path

DEFAULT = 0.0  # as the sources say
SLOW, SLOWER = 0.5, 1.0  # seconds
CHEAP_FROM = 3200  # seeds before this one mean what they always did
CHEAPEST_FROM = 40_000  # seeds that are played 200 in three minutes
BLOCK = 10  # seeds
EVERY, CHEAP_EVERY, CHEAPEST_EVERY = 4, 20, 40  # blocks, of which one has the default


def is_cheap(seed: int) -> bool:
    """Whether its plan is one of many that are played in an hour: fewer clocks and heartbeats, as many
    faults.
    """
    return seed >= CHEAP_FROM


def is_cheapest(seed: int) -> bool:
    """Whether it has fewer clocks and looks still, and fewer groups of faults if it is long."""
    return seed >= CHEAPEST_FROM


def heartbeat_of(seed: int) -> float:
    block = seed // BLOCK
    every = CHEAPEST_EVERY if is_cheapest(seed) else CHEAP_EVERY if is_cheap(seed) else EVERY
    if not block % every:
        return DEFAULT
    slow = block % 4 == 1 if is_cheapest(seed) else block % 2 == 0
    return SLOWER if is_cheap(seed) and not slow else SLOW


def heartbeat_of_plan(file: str) -> float:
    """Of a plan that was written down."""
    return float(json.loads(Path(file).read_text())["shape"].get("heartbeat", DEFAULT))
