"""A coordinator's claim to lead. A lease in Redis saves double work; what decides is the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from scar.errors import LivenessUnavailable
from scar.wire.timing import TIMING

PATIENCE = TIMING.standby_patience


class LeaseStore(Protocol):
    """See :class:`scar_runtime.liveness.heartbeat_store.HeartbeatStore`."""

    def acquire_leader_lease(self, role: str, incarnation: str, ttl: float, /) -> bool: ...


class LeaderLease:
    """``ttl``: seconds that a lease lasts. ``is_held``: the last answer."""

    def __init__(
        self,
        leases: LeaseStore,
        role: str,
        incarnation: str,
        ttl: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases = leases
        self._role = role
        self._incarnation = incarnation
        self._ttl = ttl
        self._now = now
        self._patient_until = 0.0
        self.is_held = False

    def try_acquire(self) -> bool:
        """Take or renew the lease.

        While Redis cannot be read a leader goes on, and so does everybody who has not heard of a leader for a
        while: one answer that came too late must not make a second one.
        """
        try:
            self.is_held = self._leases.acquire_leader_lease(self._role, self._incarnation, self._ttl)
        except LivenessUnavailable:
            self.is_held = self.is_held or self._now() >= self._patient_until
        else:
            if not self.is_held:
                self.step_back()
        return self.is_held

    def step_back(self) -> None:
        """Somebody else leads: let them finish what they began."""
        self.is_held = False
        self._patient_until = self._now() + PATIENCE
