"""Timing of liveness: every interval and timeout by which a death is noticed, derived from the heartbeat.

    SCAR_HEARTBEAT_SECONDS=0.5      # of all processes of a cluster: everything takes five times as long

All times are in seconds. What can be set per process (`lease_seconds`, `leader_seconds`, `phi_floor`,
`patience_seconds`) takes its default from here. The order that must hold: heartbeat < suspicion < patience <
lease < hung, and a death that is not proved is repaired one lease after its last heartbeat.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from scar.errors import ConfigError

HEARTBEAT = "SCAR_HEARTBEAT_SECONDS"
LEAST = 0.05
MOST = 2.0
MOST_LEASE = 60.0  # who claims a longer one would keep its blocks from being recovered


@dataclass(frozen=True)
class Timing:
    """``heartbeat``: interval between two heartbeats of a member.

    Lower: deaths are noticed sooner; more load on Redis, and short pauses of a machine look like deaths.
    Higher: the opposite. Everything below grows with it.
    """

    heartbeat: float = 0.1

    @property
    def look_every(self) -> float:
        """How often a loop that has heard no news looks for itself: one heartbeat, or a few of them. Higher:
        an idle cluster takes less of a processor.
        """
        return self.heartbeat

    # --- a member

    @property
    def idle_step(self) -> float:
        """How often a working thread without work shows that it lives: heartbeat / 2.

        Higher than one heartbeat: an idle shard looks as if it were stuck.
        """
        return self.heartbeat / 2

    @property
    def lease(self) -> float:
        """How long a shard may serve after its last accepted heartbeat: 20 · heartbeat.

        Lower: a suspected death is repaired sooner, since recovery waits for the lease; but a Redis or a
        detector that is away for so long stops training. It must be longer than what :attr:`redis_timeout`
        and two times :attr:`beat_timeout` take together, so that three paths can fail one after the other.
        """
        return 20 * self.heartbeat

    @property
    def hung(self) -> float:
        """After how long without progress a shard's working thread counts as stuck: 25 · heartbeat.

        Longer than a lease, so that a thread which copies blocks for a moment is not taken for a dead one.
        Lower: a hung shard is replaced sooner, and a slow one with it.
        """
        return 25 * self.heartbeat

    @property
    def restart_after(self) -> float:
        """After how long without progress a shard's process is restarted by Kubernetes: 300 · heartbeat."""
        return 300 * self.heartbeat

    # --- the paths of a heartbeat

    @property
    def redis_timeout(self) -> float:
        """For one step of a request to Redis: 2 · heartbeat.

        Higher: a Redis that hangs delays the other paths of a heartbeat.
        """
        return 2 * self.heartbeat

    @property
    def redis_pause(self) -> float:
        """For how long Redis is left alone after a failure: 10 · heartbeat. Its timeout slows every beat."""
        return 10 * self.heartbeat

    @property
    def beat_timeout(self) -> float:
        """For a heartbeat to the detector, or a renewal by the recovery coordinator: 3 · heartbeat."""
        return 3 * self.heartbeat

    @property
    def confirm_every(self) -> float:
        """Between questions to the recovery coordinator while the lease is lost: 2.5 · heartbeat."""
        return 2.5 * self.heartbeat

    # --- leaders

    @property
    def leader_lease(self) -> float:
        """How long a coordinator leads after its last renewal, which it tries four times in: 10 · heartbeat.

        Lower: a standby takes over sooner, and a leader that pauses for a moment is replaced.
        """
        return 10 * self.heartbeat

    @property
    def standby_patience(self) -> float:
        """For how long a standby waits for a Redis that is away before it acts without: 4 · leader lease.

        Lower: one late answer of Redis makes a second leader, which the store stops, but not before it has
        done the work twice.
        """
        return 4 * self.leader_lease

    # --- the detector

    @property
    def read_every(self) -> float:
        """Between looks at all heartbeats, and between two decisions: heartbeat / 2. Detection
        waits for it.
        """
        return self.heartbeat / 2

    @property
    def deviation(self) -> float:
        """Least deviation of intervals that φ assumes: heartbeat / 2, so that suspicion (φ = 8) comes after
        heartbeat + 5.6 · deviation = 3.8 heartbeats.

        Higher: machines that stutter are not suspected; deaths are noticed later by 5.6 times as much.
        """
        return self.heartbeat / 2

    @property
    def patience(self) -> float:
        """Silence that is suspicious whatever φ says: 15 · heartbeat. It ends the silence of members whose
        rhythm is not known yet, and must be shorter than the lease.
        """
        return 15 * self.heartbeat

    @property
    def probe_every(self) -> float:
        """Between two probes of one suspect: 3 · heartbeat. One failed probe is enough to accuse."""
        return 3 * self.heartbeat

    @property
    def probe_timeout(self) -> float:
        """For one probe: 4 · heartbeat. A frozen process costs the whole of it; a dead one answers at once.

        Lower: a busy process whose answer is late is accused.
        """
        return 4 * self.heartbeat

    @property
    def own_pause(self) -> float:
        """A longer gap between two decisions of the detector is a pause of its own: 10 · heartbeat. It
        accuses nobody for it, and learns all intervals again. It also bounds an interval that φ learns from.
        """
        return 10 * self.heartbeat

    def remember(self, lease: float) -> float:
        """How long an accused member stays in view: 50 · heartbeat, at least two leases of the cluster."""
        return max(50 * self.heartbeat, 2 * lease)


def heartbeat_seconds(variables: Mapping[str, str]) -> float:
    """Seconds, as :data:`HEARTBEAT` has them. Raises :class:`ConfigError`."""
    given = variables.get(HEARTBEAT) or str(Timing.heartbeat)
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not LEAST <= seconds <= MOST:
        raise ConfigError(
            f"{HEARTBEAT} is {given!r}, and has to be seconds from {LEAST} to {MOST}",
            "Correct it, for all processes of the cluster alike, or leave it out",
        )
    return seconds


def _timing() -> Timing:
    """One that cannot be read counts as the default here: an import is no place to say so."""
    try:
        return Timing(heartbeat_seconds(os.environ))
    except ConfigError:
        return Timing()


TIMING = _timing()  # what all processes of a cluster use
