"""Parts of all runs: where to look when there is no time for everything."""

from __future__ import annotations

from typing import Any

from tests.simulation.bug_focus import BUG_FOCUSES
from tests.simulation.faults import clocks, hosts, network, redis, rpc, scaling, store
from tests.simulation.faults.kind import FaultKind
from tests.simulation.plan import ANYWHERE, Focus

_DEATHS = ("kill", "pause")
_MOMENTS = ("crash-at-moment", "pause-at-moment", "kill")


def _names(*modules: tuple[FaultKind, ...]) -> tuple[str, ...]:
    return tuple(kind.name for kinds in modules for kind in kinds)


def _healing(**shape: Any) -> Focus:
    """Workers are sources of lost blocks."""
    always = {"seconds": 60.0, "recovery": "partial", "worker_recovery": "ignr", "sources": "workers"}
    bsp = {"consistency": "bsp", "staleness": 0, "replicas": 0}
    kinds = (*_DEATHS, "power-loss", "partition", "delay", "request-lost", "answer-lost")
    return Focus(always | bsp | shape, kinds)


FOCUSES: dict[str, Focus] = {
    "swarm": ANYWHERE,
    "network": Focus({"seconds": 60.0}, (*_names(network.KINDS), *_DEATHS)),
    "rpc": Focus({"seconds": 60.0}, (*_names(rpc.KINDS), *_DEATHS)),
    "hosts": Focus({"seconds": 60.0}, _names(hosts.KINDS)),
    "clocks": Focus({"seconds": 60.0}, _names(clocks.KINDS)),
    "redis": Focus({"seconds": 60.0}, _names(redis.KINDS)),
    "store": Focus({"seconds": 60.0, "disk": False}, _names(store.KINDS)),
    "disk": Focus({"seconds": 60.0, "disk": True}, _names(store.KINDS, hosts.KINDS)),
    "healing": _healing(),
    "healing-slots": _healing(pull_slots=1),
    "healing-ssp": _healing(consistency="ssp", staleness=1),
    "healing-asp": _healing(consistency="asp"),
    "missing": _healing(replicas=1, replicate="missing"),
    "missing-ssp": _healing(replicas=1, replicate="missing", consistency="ssp", staleness=1),
    "missing-asp": _healing(replicas=1, replicate="missing", consistency="asp"),
    "damage": Focus(
        {"seconds": 60.0, "disk": False},
        ("manifest-flipped", "store-flipped", "store-removed", *_DEATHS, "kill-all-shards", "depose"),
    ),
    "edge": Focus({}, _names(hosts.KINDS, clocks.KINDS, redis.KINDS, store.KINDS)),
    "scaling": Focus({"seconds": 60.0}, (*_names(scaling.KINDS), *_DEATHS, "store-busy", "delay")),
    "hot-blocks": Focus(
        {"seconds": 60.0, "traffic": 2.0},
        (*_DEATHS, "kill-all-shards", "power-loss", "partition", "delay", "request-lost", "answer-lost"),
    ),
    "moments": Focus(
        {"seconds": 20.0, "standby": True},
        _MOMENTS,
        faults=(10, 16),
        draws={"crash-at-moment": hosts.apt_moment},
        early={"crash-at-moment": hosts.start_moment},
    ),
    "reports": Focus(  # who stays away long enough is reported; else its next life proves its death first
        {"seconds": 20.0, "standby": True},
        ("crash-at-moment", "hold-down", "pause"),
        faults=(6, 10),
        draws={"crash-at-moment": hosts.report_moment},
    ),
    **BUG_FOCUSES,
}
