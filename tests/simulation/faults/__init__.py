"""Kinds of faults, by what they are done to."""

from __future__ import annotations

from tests.simulation.faults import clocks, hosts, moments, network, redis, rpc, scaling, store, waits
from tests.simulation.faults.kind import FaultKind

MODULES = (hosts, network, rpc, store, redis, clocks, waits, moments, scaling)
FAILPOINTS: dict[str, tuple[str, ...]] = {  # what happens to a host -> at which events
    "crash": tuple(dict.fromkeys(hosts.CRASH_MOMENTS)),
    "pause": tuple(dict.fromkeys(name for names in moments.MOMENTS.values() for name in names)),
}
KINDS: dict[str, FaultKind] = {kind.name: kind for module in MODULES for kind in module.KINDS}
