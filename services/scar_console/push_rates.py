"""How many pushes a second each shard applies, from what it has counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from scar.v1.ps_pb2 import ShardStatus

WINDOW_SECONDS = 3.0  # over which a rate is taken: it stays readable, and follows

PushCount = tuple[float, str, int]  # when, whose incarnation, pushes since its start


class PushRates:
    """Counts of each shard at most :data:`WINDOW_SECONDS` old, and the last one before."""

    def __init__(self) -> None:
        self._counts: dict[str, list[PushCount]] = {}

    def note(self, shards: Mapping[str, ShardStatus], now: float) -> dict[str, float]:
        """Pushes a second by name; without those that are known by one look, or began anew since."""
        self._counts = {name: self._followed(name, shard, now) for name, shard in shards.items()}
        return {name: _rate(counts) for name, counts in self._counts.items() if len(counts) > 1}

    def _followed(self, name: str, shard: ShardStatus, now: float) -> list[PushCount]:
        life = shard.member.incarnation
        counts = [*self._counts.get(name, ()), (now, life, int(shard.pushes))]
        counts = [one for one in counts if one[1] == life]
        before = [one for one in counts if one[0] < now - WINDOW_SECONDS]
        return counts[max(0, len(before) - 1) :]


def _rate(counts: list[PushCount]) -> float:
    since, _, first = counts[0]
    until, _, last = counts[-1]
    return (last - first) / (until - since) if until > since else 0.0
