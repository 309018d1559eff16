"""SimGrid's fluid network model LV08: how flows share links.

A flow that is under way moves at one rate, and the rates are max-min fair, weighted by round trips: the flow
with less latency gets more. Constants: SimGrid's configuration of LV08 (Velho, Legrand: Accuracy study and
improvement of network simulation in the SimGrid framework, 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

BANDWIDTH_FACTOR = 0.97  # share of a link that payload gets
LATENCY_FACTOR = 13.01  # a transfer begins after so many latencies of its path
CROSS_TRAFFIC = 0.05  # acknowledgements: what a flow takes from the way back
PENALTY_BYTES = 20537.0  # what a link adds to the round trip, as bytes at its bandwidth (weight-S)
WINDOW_BYTES = 4194304.0  # the largest TCP window (TCP-gamma)
CLOSE = 1e-9  # relative; levels that differ by less are reached together


@dataclass(frozen=True)
class NetworkPath:
    """The links between two nodes: bandwidths in bytes a second, latencies in seconds."""

    bandwidths: tuple[float, ...]
    latencies: tuple[float, ...]

    @property
    def delay(self) -> float:
        """Seconds before the first byte moves."""
        return LATENCY_FACTOR * sum(self.latencies)

    @property
    def penalty(self) -> float:
        """Seconds; among flows that share a link, rates are in inverse proportion to it."""
        return sum(self.latencies) + sum(PENALTY_BYTES / bandwidth for bandwidth in self.bandwidths)

    @property
    def bound(self) -> float:
        """Bytes a second that one flow has at most: the narrowest link, or a full window each round trip."""
        trip = 2 * sum(self.latencies)
        return BANDWIDTH_FACTOR * min(*self.bandwidths, WINDOW_BYTES / trip if trip else np.inf)


def flow_rates(loads: FloatArray, rooms: FloatArray, paths: Sequence[NetworkPath]) -> FloatArray:
    """Bytes a second of a flow of each kind.

    ``loads``: links x kinds, by how many bytes all flows of a kind together burden a link when each of them
    moves one; ``rooms``: bytes a second that each link carries.
    """
    penalties = np.array([path.penalty for path in paths])
    limits = np.array([path.bound for path in paths]) * penalties
    found = np.zeros(len(paths))
    waiting = np.ones(len(paths), dtype=bool)
    left = rooms.astype(np.float64)
    while waiting.any():
        # Raise the level of all that wait until a link is full or a flow is at its bound; those keep what
        # they have.
        demand = loads[:, waiting] @ (1 / penalties[waiting])
        levels = np.divide(left, demand, out=np.full(len(left), np.inf), where=demand > 0)
        level = min(levels.min(initial=np.inf), limits[waiting].min())
        full = levels <= level * (1 + CLOSE)
        fixed = waiting & ((limits <= level * (1 + CLOSE)) | (loads[full] > 0).any(axis=0))
        found[fixed] = level / penalties[fixed]
        left = np.maximum(left - loads[:, fixed] @ found[fixed], 0.0)
        waiting &= ~fixed
    return found
