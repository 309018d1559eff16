"""Heartbeats and leader leases in Redis. Soft state: losing it loses no training state and starts no
recovery.

heartbeats = HeartbeatStore("redis://127.0.0.1:6379/0", "scar")
heartbeats.record_heartbeat(member, progress=12, epoch=3)
heartbeats.read_heartbeats()["ps-0@0123456789ab"].count
"""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from scar.errors import ConfigError, LivenessUnavailable
from scar.placement import Member, Role
from scar.wire.timing import MOST_LEASE, TIMING
from scar_runtime.process.addresses import is_address
from scar_runtime.process.config import variable, without_password

MAX_BEAT_BYTES = 4096
DECODED = 1024  # heartbeats that are kept, in case they are read again
MAX_NUMBER = (1 << 63) - 1  # what the wire and numpy can hold
NO_KEY = -2  # Redis' answer to PTTL
NO_EXPIRY = -1  # the same, for a key that never expires
# longer than an accusation is open; what a detector that died has said does not stand for ever
LEASE_BLOCK_SECONDS = 60


@dataclass(frozen=True)
class Heartbeat:
    """The newest heartbeat of a member. ``count``: another one every beat; ``progress`` grows when its
    working thread moves. ``protocol``: that it speaks; 0: a detector has handed the heartbeat on.
    """

    member: Member
    progress: int
    epoch: int
    count: int
    protocol: int = 0


@dataclass(frozen=True)
class MemberStanding:
    """What a member learns with its heartbeat.

    ``epoch``: the newest published; 0: none. ``lease_blocked``: no heartbeat renews its lease, because a
    detector is about to accuse it.
    """

    epoch: int
    lease_blocked: bool


class HeartbeatStore:
    """One client for one cluster. Every method raises :class:`LivenessUnavailable` after at most
    ``timeout`` seconds a step.
    """

    def __init__(self, url: str, cluster: str, timeout: float = TIMING.redis_timeout) -> None:
        self._prefix = f"scar:{cluster}"
        self._typed_errors = _TypedErrors(url)
        self._count = secrets.randbelow(1 << 32)  # a detector's beat on a member's behalf must look new, too
        try:
            self._redis = redis.Redis.from_url(
                url,
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                retry=Retry(NoBackoff(), 0),
                decode_responses=True,
            )
        except ValueError:  # its text may have a part of the password
            raise ConfigError(
                f"{variable('redis')} is {without_password(url)!r}, which is no URL of a Redis",
                "Use redis://host:port/database; a password may need its characters as %XX",
            ) from None

    def ping(self) -> None:
        with self._typed_errors:
            self._redis.ping()

    def record_heartbeat(
        self, member: Member, progress: int, epoch: int, protocol: int = 0
    ) -> MemberStanding:
        """Write this member's heartbeat, see :class:`Heartbeat`. The answer says whether it may renew the
        lease.
        """
        self._count += 1
        fields = {
            "role": int(member.role),
            "name": member.name,
            "incarnation": member.incarnation,
            "address": member.address,
            "secret_hash": member.secret_hash.hex(),
            "lease_seconds": member.lease_seconds,
            "progress": progress,
            "epoch": epoch,
            "count": self._count,
            "protocol": protocol,
        }
        with self._typed_errors:
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.hset(f"{self._prefix}:beats", member.key, json.dumps(fields))
            pipeline.get(f"{self._prefix}:epoch")
            pipeline.pttl(self._lease_block_key(member.key))
            _, published, left = pipeline.execute()
            if _stands_too_long(left, 1000 * LEASE_BLOCK_SECONDS):
                self._redis.expire(self._lease_block_key(member.key), LEASE_BLOCK_SECONDS)
        return MemberStanding(_parse_epoch(str(published or "")), left != NO_KEY)

    def read_heartbeats(self) -> dict[str, Heartbeat]:
        """Member key -> newest heartbeat of everybody who ever beat and was not forgotten. What is
        malformed is left out.
        """
        with self._typed_errors:
            answer = self._redis.hgetall(f"{self._prefix}:beats")
        found = {str(key): str(text) for key, text in answer.items()}
        heartbeats = {key: _decode_heartbeat(key, text) for key, text in found.items()}
        return {key: beat for key, beat in heartbeats.items() if beat is not None}

    def read_heartbeat(self, key: str) -> Heartbeat | None:
        """The newest of this member; None: it never beat, or was forgotten, or its heartbeat is malformed."""
        with self._typed_errors:
            found = self._redis.hget(f"{self._prefix}:beats", key)
        return None if found is None else _decode_heartbeat(key, str(found))

    def forget_member(self, key: str) -> None:
        with self._typed_errors:
            self._redis.hdel(f"{self._prefix}:beats", key)
            self._redis.delete(self._lease_block_key(key))

    def block_lease(self, key: str, by: str) -> None:
        """From now on no heartbeat renews this member's lease: ``by``, a detector or a new leader, is about
        to accuse it of silence.
        """
        with self._typed_errors:
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.sadd(self._lease_block_key(key), by)
            pipeline.expire(self._lease_block_key(key), LEASE_BLOCK_SECONDS)
            pipeline.execute()

    def unblock_lease(self, key: str, by: str) -> None:
        """Take :meth:`block_lease` back; what others said stands."""
        with self._typed_errors:
            self._redis.srem(self._lease_block_key(key), by)

    def publish_epoch(self, number: int) -> None:
        """Tell every beating member the newest epoch, so that one left behind does not renew its lease."""
        with self._typed_errors:
            self._redis.set(f"{self._prefix}:epoch", number)

    def acquire_leader_lease(self, role: str, incarnation: str, ttl: float) -> bool:
        """Take or renew the lease of this role for ``ttl`` seconds. It saves double work; what decides is
        the store.
        """
        key = f"{self._prefix}:leader:{role}"
        milliseconds = math.ceil(ttl * 1000)
        with self._typed_errors:
            pipeline = self._redis.pipeline(transaction=True)  # a standby asks ten times a second
            pipeline.set(key, incarnation, nx=True, px=milliseconds)
            pipeline.get(key)
            pipeline.pttl(key)
            taken, holder, left = pipeline.execute()
            if taken:
                return True
            if holder != incarnation:
                if _stands_too_long(left, milliseconds):
                    self._redis.pexpire(key, milliseconds)
                return False
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.pexpire(key, milliseconds)
            pipeline.get(key)  # whose lease that was, should ours have run out in between
            return bool(pipeline.execute()[1] == incarnation)

    def close(self) -> None:
        self._redis.close()

    def _lease_block_key(self, key: str) -> str:
        """Set of those who are about to accuse this member."""
        return f"{self._prefix}:doomed:{key}"


class _TypedErrors:
    """Raises :class:`LivenessUnavailable` for what Redis or the way to it raises inside. It has no state of
    a call: one serves all of them, each of which would else make a new one, ten times in a second.
    """

    def __init__(self, url: str) -> None:
        self._url = without_password(url)

    def __enter__(self) -> None:
        """Nothing has happened yet."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, (redis.RedisError, OSError)):
            raise LivenessUnavailable(f"Redis at {self._url} does not answer: {error}") from error


def _stands_too_long(left: int, milliseconds: int) -> bool:
    """Whether nobody can have meant a key to stay so long: it came without an expiry, or Redis' clock went
    back since.
    """
    return left == NO_EXPIRY or left > milliseconds


@lru_cache(DECODED)  # heartbeats of a member differ in their numbers alone
def _member_of(
    role: int, name: str, incarnation: str, address: str, secret_hash: str, lease: float
) -> Member | None:
    """None for an address that is none, or a lease that nobody can have. Raises ValueError for no role."""
    member = Member(Role(role), name, incarnation, address, bytes.fromhex(secret_hash), lease)
    return member if (not address or is_address(address)) and 0 <= lease <= MOST_LEASE else None


@lru_cache(DECODED)  # a detector reads each twice
def _decode_heartbeat(key: str, text: str) -> Heartbeat | None:
    """None for what is malformed, or under the key of another member."""
    if len(text) > MAX_BEAT_BYTES:
        return None
    try:
        fields = json.loads(text)
        texts = [str(fields[name]) for name in ("name", "incarnation", "address")]
        secret_hash = str(fields.get("secret_hash", ""))
        lease = float(fields.get("lease_seconds", 0))
        member = _member_of(fields["role"], *texts, secret_hash, lease)
        numbers = [int(fields[name]) for name in ("progress", "epoch", "count")]
        numbers.append(int(fields.get("protocol", 0)))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if member is None or member.key != key or min(numbers) < 0 or max(numbers) > MAX_NUMBER:
        return None
    return Heartbeat(member, *numbers)


def _parse_epoch(text: str) -> int:
    """A published epoch; 0 for what is none."""
    number = int(text) if text.isdecimal() and len(text) <= len(str(MAX_NUMBER)) else 0
    return number if number <= MAX_NUMBER else 0
