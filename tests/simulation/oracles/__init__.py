"""Oracles of simulated runs, beside those of scar_chaos."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.oracles.cluster_oracle import ClusterOracle
from tests.simulation.oracles.oracle import Oracle
from tests.simulation.oracles.uninvited_ends import UninvitedEnds

ORACLES: tuple[Callable[[], Oracle], ...] = (ClusterOracle, UninvitedEnds)  # one of each is made for a run
