"""Heartbeats and leader leases in Redis. Soft state: losing it loses no training state and starts no recovery.

beats = Beats("redis://127.0.0.1:6379/0", "scar")
beats.beat(member, progress=12, epoch=3)
beats.read()["ps-0@0123456789ab"].count
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from scar.errors import ConfigError, LivenessUnavailable
from scar.placement import Member, Role
from scar_runtime.config import variable

MAX_BEAT_BYTES = 4096
DOOM_SECONDS = 60  # longer than an accusation is open; what a detector that died has said does not stand for ever


@dataclass(frozen=True)
class Beat:
    """The newest heartbeat of a member. ``count``: another one every beat; ``progress`` grows when its working thread moves."""

    member: Member
    progress: int
    epoch: int
    count: int


@dataclass(frozen=True)
class Standing:
    """What a member learns with its heartbeat. ``epoch``: the newest published; 0: none. ``doomed``: about to be accused."""

    epoch: int
    doomed: bool


class Beats:
    """One client for one cluster. Every method raises :class:`LivenessUnavailable` after at most ``timeout`` seconds a step."""

    def __init__(self, url: str, cluster: str, timeout: float = 0.2) -> None:
        self._prefix = f"scar:{cluster}"
        self._url = url
        self._count = secrets.randbelow(1 << 32)  # a detector's beat on a member's behalf must look new, too
        try:
            self._redis = redis.Redis.from_url(
                url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=Retry(NoBackoff(), 0), decode_responses=True
            )
        except ValueError as error:
            raise ConfigError(f"{variable('redis')} is {url!r}: {error}", "Use redis://host:port/database") from None

    def ping(self) -> None:
        with self._typed():
            self._redis.ping()

    def beat(self, member: Member, progress: int, epoch: int) -> Standing:
        """Write this member's heartbeat. The answer says whether it may renew the lease."""
        self._count += 1
        fields = {
            "role": int(member.role),
            "name": member.name,
            "incarnation": member.incarnation,
            "address": member.address,
            "progress": progress,
            "epoch": epoch,
            "count": self._count,
        }
        with self._typed():
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.hset(f"{self._prefix}:beats", member.key, json.dumps(fields))
            pipeline.get(f"{self._prefix}:epoch")
            pipeline.exists(self._doomed(member.key))
            _, published, doomed = pipeline.execute()
        return Standing(int(published) if str(published or "").isdecimal() else 0, bool(doomed))

    def read(self) -> dict[str, Beat]:
        """Member key -> newest heartbeat of everybody who ever beat and was not forgotten. What is malformed is left out."""
        with self._typed():
            found = self._redis.hgetall(f"{self._prefix}:beats")
        beats = ((str(key), _decode(str(text))) for key, text in found.items())
        return {key: beat for key, beat in beats if beat is not None and beat.member.key == key}

    def forget(self, key: str) -> None:
        with self._typed():
            self._redis.hdel(f"{self._prefix}:beats", key)
            self._redis.delete(self._doomed(key))

    def doom(self, key: str, by: str) -> None:
        """From now on no heartbeat renews this member's lease: detector ``by`` is about to accuse it of silence."""
        with self._typed():
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.sadd(self._doomed(key), by)
            pipeline.expire(self._doomed(key), DOOM_SECONDS)
            pipeline.execute()

    def spare(self, key: str, by: str) -> None:
        """Take :meth:`doom` back; what another detector said stands."""
        with self._typed():
            self._redis.srem(self._doomed(key), by)

    def publish_epoch(self, number: int) -> None:
        """Tell every beating member the newest epoch, so that one left behind does not renew its lease."""
        with self._typed():
            self._redis.set(f"{self._prefix}:epoch", number)

    def lead(self, role: str, incarnation: str, ttl: float) -> bool:
        """Take or renew the lease of this role for ``ttl`` seconds. It saves double work; what decides is the store."""
        key, milliseconds = f"{self._prefix}:leader:{role}", math.ceil(ttl * 1000)
        with self._typed():
            if self._redis.set(key, incarnation, nx=True, px=milliseconds):
                return True
            if self._redis.get(key) != incarnation:
                return False
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.pexpire(key, milliseconds)
            pipeline.get(key)  # whose lease that was, should ours have run out in between
            return bool(pipeline.execute()[1] == incarnation)

    def close(self) -> None:
        self._redis.close()

    def _doomed(self, key: str) -> str:
        """Set of the detectors that are about to accuse this member."""
        return f"{self._prefix}:doomed:{key}"

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise LivenessUnavailable(f"Redis at {_public(self._url)} does not answer: {error}") from error


def _public(url: str) -> str:
    """The URL without its password."""
    return url.split("://", 1)[0] + "://" + url.rsplit("@", 1)[-1].removeprefix(url.split("://", 1)[0] + "://")


def _decode(text: str) -> Beat | None:
    if len(text) > MAX_BEAT_BYTES:
        return None
    try:
        fields = json.loads(text)
        member = Member(Role(fields["role"]), str(fields["name"]), str(fields["incarnation"]), str(fields["address"]))
        return Beat(member, int(fields["progress"]), int(fields["epoch"]), int(fields["count"]))
    except (ValueError, KeyError, TypeError):
        return None
