"""How long it takes to be well again, once nothing hinders it any more; and nobody may stand still meanwhile.

Time counts only while nothing is in trouble that a repair needs: the network, the store, Redis, clocks, and
whoever coordinates. What is left are the services' own limits, and these bound it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from scar.placement import Epoch, Role
from scar.wire.timing import TIMING
from scar.wire.transport import ATTEMPT_SECONDS
from tests.simulation.cluster import COORDINATORS, RESTART, Cluster
from tests.simulation.network import Network
from tests.simulation.oracles.lives import election_of, living, living_shards
from tests.simulation.scheduler import Host

# a new leader, a suspicion that has to be confirmed, the rest of a lease, and each of them tried once more
DETECTED = 2 * (TIMING.standby_patience + TIMING.patience + 4 * TIMING.probe_timeout + TIMING.lease)
REPAIRED = DETECTED + RESTART + 4 * ATTEMPT_SECONDS  # an epoch, its loads, what is sent again, one more epoch
STALLED = 30.0  # seconds more for a clock, which takes four, and workers may rest because they are judged
SLOWNESS = attrgetter("slow")  # of a task


def is_hindered(cluster: Cluster) -> bool:
    """Whether something is in trouble that a repair needs, beside its members."""
    world, now = cluster.world, cluster.world.scheduler.now
    redis = world.redis[cluster.redis]
    hosts = [world.bucket.host, redis.host, *(host for host in cluster.hosts.values() if host.alive)]
    return bool(
        world.bucket.troubles
        or world.bucket.unread
        or world.bucket.damaged
        or redis.troubles
        or world.network.rpc_faults.active
        or _is_bad(world.network, now)
        or any(_is_unwell(host, now) for host in hosts)
        or any(member.partition("-")[0] in COORDINATORS for member in cluster._held)
    )


def _is_bad(network: Network, now: float) -> bool:
    misnamed = any(until > now for _, until in network._records.values())
    return bool(network._cut or network._bad) or misnamed or network.weather is not network.calm


def _is_unwell(host: Host, now: float) -> bool:
    late = host.paused_until > now or host.slow > 0 or any(map(SLOWNESS, host.tasks.values()))
    return late or host.rate != 1.0 or host.skew != 0.0


@dataclass
class RepairWatch:
    """``calm_since``: when something was last in trouble; ``longest``: what was seen, in seconds."""

    cluster: Cluster
    calm_since: float = 0.0
    longest: Counter[str] = field(default_factory=Counter)
    _whole_since: float = 0.0  # from when on everybody has been there
    _well: float = 0.0  # when all was well last
    _moved: float = 0.0
    _clock: int = -1

    def look(self, newest: Epoch | None, died: Mapping[str, float]) -> list[str]:
        """``died``: when members did, by key."""
        now = self.cluster.world.scheduler.now
        if newest is None or is_hindered(self.cluster) or not self._is_led():
            self.calm_since = now
        gone = {name.partition("-")[0] for name, host in self.cluster.hosts.items() if not host.alive}
        if gone & set(COORDINATORS):
            self.calm_since = now
        if gone & {"ps", "worker"}:
            self._whole_since = now
        return [
            *self._look_dead(newest, died, now),
            *self._look_healed(newest, now),
            *self._look_clock(now),
        ]

    def _is_led(self) -> bool:
        """By a recovery coordinator, with a detector beside it."""
        lives = living(self.cluster)
        elections = [election_of(life) for life in lives if life.app.member.role is Role.RECOVERY]
        detects = any(life.app.member.role is Role.DETECTOR for life in lives)
        return detects and any(one is not None and one.session for one in elections)

    def _look_dead(self, newest: Epoch | None, died: Mapping[str, float], now: float) -> list[str]:
        """Nobody stays in the newest epoch who is dead."""
        members = (*newest.shards, *newest.workers) if newest is not None else ()
        dead = [member.key for member in members if member.key in died]
        lasts = {key: now - max(died[key], self.calm_since) for key in dead}
        self._note("dead", max(lasts.values(), default=0.0))
        return [f"{key} is dead, and in the newest epoch" for key in dead if lasts[key] > DETECTED]

    def _look_healed(self, newest: Epoch | None, now: float) -> list[str]:
        """Everybody is back, follows the newest epoch, and has all blocks."""
        if newest is None or self._is_well(newest):
            self._well = now
        lasts = now - max(self.calm_since, self._whole_since, self._well)
        self._note("unwell", lasts)
        return ["the cluster is not well again, and nothing hinders it"] if lasts > REPAIRED else []

    def _is_well(self, newest: Epoch) -> bool:
        members = {member.key for member in (*newest.shards, *newest.workers)}
        present = {
            life.app.member.key
            for life in living(self.cluster)
            if life.app.member.role in (Role.SHARD, Role.WORKER)
        }
        stores = [
            store for _, state in living_shards(self.cluster) for store in state.ownership.tables.values()
        ]
        whole = not any(store.unsettled.any() or store.loading.any() for store in stores)
        follows = all(state.number == newest.number for _, state in living_shards(self.cluster))
        return members == present and whole and follows

    def _look_clock(self, now: float) -> list[str]:
        """Training goes on."""
        clock = min((state.clock for _, state in living_shards(self.cluster)), default=0)
        if clock != self._clock:
            self._clock = clock
            self._moved = now
        lasts = now - max(self.calm_since, self._whole_since, self._moved)
        self._note("still", lasts)
        return ["training stands still, and nothing hinders it"] if lasts > REPAIRED + STALLED else []

    def _note(self, what: str, seconds: float) -> None:
        self.longest[what] = max(self.longest.get(what, 0.0), seconds)
