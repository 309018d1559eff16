"""A coordinator's claim to lead. A lease in Redis saves double work; what decides is the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from scar.errors import LivenessUnavailable

PATIENCE = 4.0  # seconds that a standby waits for a Redis that does not answer before it acts without it


class Leases(Protocol):
    """See :class:`scar_runtime.liveness.Beats`."""

    def lead(self, role: str, incarnation: str, ttl: float, /) -> bool: ...


class Candidate:
    """``ttl``: seconds that a lease lasts. ``leads``: the last answer."""

    def __init__(
        self, leases: Leases, role: str, incarnation: str, ttl: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._leases, self._role, self._incarnation, self._ttl, self._now = leases, role, incarnation, ttl, now
        self._patient_until = 0.0
        self.leads = False

    def ask(self) -> bool:
        """Take or renew the lease.

        While Redis cannot be read a leader goes on, and so does everybody who has not heard of a leader for a while: one answer
        that came too late must not make a second one.
        """
        try:
            self.leads = self._leases.lead(self._role, self._incarnation, self._ttl)
        except LivenessUnavailable:
            self.leads = self.leads or self._now() >= self._patient_until
        else:
            if not self.leads:
                self.stand_back()
        return self.leads

    def stand_back(self) -> None:
        """Somebody else leads: let them finish what they began."""
        self.leads, self._patient_until = False, self._now() + PATIENCE
