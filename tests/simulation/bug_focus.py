"""Parts of all runs in which old bugs and fresh edits are looked for: see :mod:`tests.simulation.bugs`."""

from __future__ import annotations

import random

from tests.simulation.faults.kind import any_shard, any_worker, lasting, sudden
from tests.simulation.faults.network import data_path
from tests.simulation.faults.rpc import calls_of
from tests.simulation.plan import Focus, RunShape

SMALL = {
    "shards": 2,
    "workers": 1,
    "standby": False,
    "recovery": "partial",
    "replicas": 0,
    "disk": False,
    "seconds": 20.0,
}
BSP = {**SMALL, "consistency": "bsp"}
CHAIN = {**SMALL, "recovery": "sync-chain", "consistency": "asp", "pace": 1.0}
STORED = {**SMALL, "recovery": "stateless", "consistency": "asp", "pace": 1.0}
TWO = {**BSP, "workers": 2, "worker_recovery": "ignr", "pace": 1.0}
TWICE = {**SMALL, "standby": True, "pace": 1.0}
_STOPS = ("kill", "pause-at-moment")
_PUSHES = calls_of("Push", "PushSmall", "Settle", "Clock")
_LONG_ABSENCES = lasting(any_shard, 40.0, 60.0)
# survivors take blocks over, as the dead stay away, and do not hear what workers owe to them
_TAKEN_OVER = ("hold-down", "partition")
_LATE_DEBTS = {"hold-down": lasting(any_shard, 8.0, 20.0), "partition": lasting(data_path, 2.0, 12.0)}
_CUTS = ("isolation", "partition", "one-way-partition")


def _first_shard(draw: random.Random, shape: RunShape) -> str:
    return shape.shard_names[0]


def _any_but_first(draw: random.Random, shape: RunShape) -> str:
    """A shard that does not wait for its loads: each death of another takes numbers of manifests."""
    return draw.choice(shape.shard_names[1:])


BUG_FOCUSES: dict[str, Focus] = {
    "lone_worker": Focus(BSP, ("pause",), ("worker",)),
    "chain": Focus(CHAIN, ("kill", "slow-copies"), ("ps",), (6, 12)),
    "copies": Focus({**CHAIN, "workers": 3, "pace": 0.5}, ("slow-copies",), faults=(1, 3)),
    "crowd": Focus({**CHAIN, "pace": 0.5}, ("crowd",), faults=(1, 2)),
    "loads": Focus(
        {
            **STORED,
            "shards": 6,
        },  # each death of one that has blocks takes a manifest, and nobody gets any back
        ("kill",),
        faults=(6, 10),
        draws={"kill": sudden(_any_but_first)},
        early={"loads-refused": lasting(_first_shard, 180.0, 200.0)},
    ),
    "recovery": Focus(SMALL, _STOPS, ("ps", "recovery"), (4, 8)),
    "two_recoveries": Focus(TWICE, _STOPS, ("ps", "recovery"), (5, 10)),
    "lone_checkpoint": Focus({**SMALL, "pace": 0.5}, _STOPS, ("ps", "checkpoint"), (8, 14)),
    "debts": Focus({**STORED, "shards": 3, "workers": 2}, _TAKEN_OVER, faults=(5, 9), draws=_LATE_DEBTS),
    "deaths": Focus(
        {**BSP, "shards": 3, "workers": 2, "pace": 1.0}, _TAKEN_OVER, faults=(5, 9), draws=_LATE_DEBTS
    ),
    # one waits for a clock that the other cannot finish, and dies: its pushes of that clock still count
    "successors": Focus(
        TWO,
        ("kill", "partition"),
        faults=(6, 12),
        draws={"kill": sudden(any_worker), "partition": lasting(data_path, 1.0, 10.0)},
    ),
    "answers": Focus({**SMALL, "pace": 1.0}, ("answer-lost", "kill"), draws={"answer-lost": _PUSHES}),
    "absences": Focus(
        {**SMALL, "pace": 2.0},
        ("hold-down", "refused"),
        faults=(4, 8),
        draws={"hold-down": _LONG_ABSENCES, "refused": calls_of("ReportFailure")},
    ),
    "leases": Focus({**SMALL, "pace": 1.0}, _CUTS, faults=(3, 6)),
    # as while a cluster gets another lease; also under a leader that has read of it
    "longer_leases": Focus({**TWICE, "shard_lease": 6.0}, (*_CUTS, "depose"), faults=(3, 6)),
}
