"""What the failure detector is told: how long it waits, and how sure it must be."""

from __future__ import annotations

from dataclasses import dataclass

from scar.wire.timing import TIMING


@dataclass(frozen=True)
class DetectorPolicy:
    """Times in seconds; what each does, and its formula, is said in :mod:`scar.wire.timing`. Suspicion after
    heartbeat + 5.6 · floor, accusation one probe later.
    """

    window: int = 100  # intervals that are remembered
    floor: float = TIMING.deviation
    threshold: float = 8.0  # φ of suspicion
    samples: int = 10  # intervals before φ means anything
    patience: float = TIMING.patience
    period: float = TIMING.read_every  # expected time between ticks
    pause: float = TIMING.own_pause
    probe_every: float = TIMING.probe_every
    careful_misses: int = 3  # probes in a row that must fail while learning, or when most are silent; else 1
    crowd: int = 3  # members below which "most are silent" means nothing
    remember: float = TIMING.remember(TIMING.lease)
    max_members: int = 4096  # others are not watched
