"""Kinds of faults, by what they are done to."""

from __future__ import annotations

from tests.simulation.faults import clocks, hosts, moments, network, redis, rpc, store, waits
from tests.simulation.faults.kind import FaultKind

MODULES = (hosts, network, rpc, store, redis, clocks, waits, moments)
KINDS: dict[str, FaultKind] = {kind.name: kind for module in MODULES for kind in module.KINDS}
