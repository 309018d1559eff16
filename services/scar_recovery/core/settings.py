"""Settings of the planner."""

from __future__ import annotations

from dataclasses import dataclass

from scar.wire.timing import TIMING


@dataclass(frozen=True)
class PlannerSettings:
    """``lease``: seconds that a suspect may still serve. ``rebalance``: level blocks over shards that join.

    ``move_bytes``: of one slice of live moves. ``traffic_seconds``: between looks at the traffic of shards;
    0: never; ``traffic_bytes``: a second, below which nothing changes places. ``flush``: seconds for saving a
    shard that goes, before its blocks move; 0: it is not saved. ``flush_bytes``: of the first part, about.
    ``offers``: seconds to hear from every worker what it holds of lost blocks.
    """

    lease: float = TIMING.lease
    rebalance: bool = True
    move_bytes: int = 64 << 20
    traffic_seconds: float = 0.0
    traffic_bytes: int = 1 << 20
    flush: float = 3.0
    flush_bytes: int = 16 << 20
    offers: float = 2.0
