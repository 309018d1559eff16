"""Redis in memory, on a host of the simulated network: the commands that heartbeats and leases use, with
the answers of a real one (tests/contract/test_simulated_redis.py), and its troubles.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis

from tests.simulation import scheduler
from tests.simulation.network import Network
from tests.simulation.scheduler import Host, Task
from tests.simulation.troubles import Troubles

NO_KEY, NO_EXPIRY = -2, -1  # answers of PTTL
GROWING = frozenset({"set", "hset", "sadd"})  # commands that a server without memory refuses
WRITING = GROWING | {"delete", "expire", "flushall", "hdel", "pexpire", "srem"}


class RedisCommand(NamedTuple):
    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class RedisServer:
    """``host``: crash it and its clients get no answer; what it held is gone with it.

    ``troubles``: "refused" and "silent", of all connections; "loading", "denied", "readonly", "full" (no
    memory) and "misconf" (no disk), which refuse commands; "late": seconds for which each answer is held
    back; "garbled": the share of answers that are nonsense. ``failovers``: how often it has lost writes.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.troubles = Troubles()
        self.failovers = 0
        self.random = random.Random(f"{host.name} {host.boot}")
        self._values: dict[str, Any] = {}
        self._expires: dict[str, float] = {}  # by the server's own wall clock

    def snapshot(self) -> tuple[dict[str, Any], dict[str, float]]:
        """What a replica has got."""
        return copy.deepcopy(self._values), dict(self._expires)

    def restore(self, taken: tuple[dict[str, Any], dict[str, float]]) -> None:
        """What was written since is lost, as when that replica takes over."""
        self._values, self._expires = copy.deepcopy(taken[0]), dict(taken[1])
        self.failovers += 1

    def do(self, command: str, *arguments: Any, **options: Any) -> Any:
        """Raises :class:`redis.RedisError`."""
        self._check_troubles(command)
        if self._expires:
            now = self._now()
            for key in [key for key, when in self._expires.items() if when <= now]:
                self._delete(key)
        return getattr(self, f"_{command}")(*arguments, **options)

    def do_all(self, commands: list[RedisCommand], transaction: bool) -> list[Any] | redis.RedisError:
        """The answers, or the first error. A transaction does all of its commands or none."""
        found: list[Any] = []
        for command in commands:
            try:
                if transaction:
                    for one in commands:
                        self._check_troubles(one.name)
                found.append(self.do(command.name, *command.arguments, **command.options))
            except redis.RedisError as error:
                found.append(error)
        return next((one for one in found if isinstance(one, redis.RedisError)), found)

    def _check_troubles(self, command: str) -> None:
        troubles = self.troubles
        if not troubles:
            return
        if troubles["loading"]:
            raise redis.BusyLoadingError("Redis is loading the dataset in memory")
        if troubles["denied"]:
            raise redis.AuthenticationError("WRONGPASS invalid username-password pair or user is disabled.")
        if troubles["misconf"] and (command in WRITING or command == "ping"):
            raise redis.ResponseError("MISCONF Redis is configured to save RDB snapshots, but cannot")
        if troubles["readonly"] and command in WRITING:
            raise redis.ReadOnlyError("You can't write against a read only replica.")
        if troubles["full"] and command in GROWING:
            raise redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")

    def _now(self) -> float:
        return self.host.wall(scheduler.active.now)

    # --- commands ------------------------------------------------------------------------------------------

    def _ping(self) -> bool:
        return True

    def _flushall(self) -> bool:
        self._values.clear()
        self._expires.clear()
        return True

    def _delete(self, *keys: str) -> int:
        for key in keys:
            self._expires.pop(key, None)
        return sum(self._values.pop(key, None) is not None for key in keys)

    def _get(self, key: str) -> str | None:
        found: str | None = self._typed(key, str, None)
        return found

    def _set(self, key: str, value: Any, nx: bool = False, px: int | None = None) -> bool | None:
        if nx and key in self._values:
            return None
        self._delete(key)
        self._values[key] = str(value)
        if px is not None:
            self._pexpire(key, px)
        return True

    def _exists(self, key: str) -> int:
        return int(key in self._values)

    def _pexpire(self, key: str, milliseconds: int) -> bool:
        if key not in self._values:
            return False
        if milliseconds <= 0:
            return bool(self._delete(key))
        self._expires[key] = self._now() + milliseconds / 1000
        return True

    def _expire(self, key: str, seconds: int) -> bool:
        return self._pexpire(key, 1000 * seconds)

    def _pttl(self, key: str) -> int:
        if key not in self._values:
            return NO_KEY
        return round(1000 * (self._expires[key] - self._now())) if key in self._expires else NO_EXPIRY

    def _hset(self, key: str, field: str, value: Any) -> int:
        fields = self._typed(key, dict, {})
        new = field not in fields
        fields[field] = str(value)
        self._values[key] = fields
        return int(new)

    def _hget(self, key: str, field: str) -> str | None:
        found: str | None = self._typed(key, dict, {}).get(field)
        return found

    def _hgetall(self, key: str) -> dict[str, str]:
        return dict(self._typed(key, dict, {}))

    def _hdel(self, key: str, field: str) -> int:
        fields = self._typed(key, dict, {})
        removed = fields.pop(field, None) is not None
        return self._drop_empty(key, fields, removed)

    def _sadd(self, key: str, member: str) -> int:
        members = self._typed(key, set, set())
        new = member not in members
        members.add(member)
        self._values[key] = members
        return int(new)

    def _srem(self, key: str, member: str) -> int:
        members = self._typed(key, set, set())
        removed = member in members
        members.discard(member)
        return self._drop_empty(key, members, removed)

    def _drop_empty(self, key: str, content: Any, removed: bool) -> int:
        if not content:
            self._delete(key)
        return int(removed)

    def _typed(self, key: str, kind: type, absent: Any) -> Any:
        found = self._values.get(key, absent)
        if found is not absent and not isinstance(found, kind):
            raise redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return found


class RedisExchange:
    """Commands that are under way: one message there, and one back."""

    def __init__(
        self,
        network: Network,
        server: RedisServer,
        task: Task,
        commands: list[RedisCommand],
        transaction: bool,
    ) -> None:
        self._network, self._server, self._task = network, server, task
        self._commands, self._transaction = commands, transaction
        self._answer: list[Any] | redis.RedisError | None = None
        self._over = False

    def await_answer(self, timeout: float) -> list[Any]:
        """Raises :class:`redis.RedisError`."""
        self._network.send(self._task.host, self._server.host, self._arrive)
        try:
            self._network.scheduler.park(self._network.scheduler.now + timeout)
        finally:
            self._over = True
        if self._answer is None:
            raise redis.TimeoutError("Timeout reading from socket")
        if isinstance(self._answer, redis.RedisError):
            raise self._answer
        return self._answer

    def _arrive(self) -> None:
        server, active = self._server, self._network.scheduler
        troubles = server.troubles
        if not server.host.alive or (troubles and troubles["silent"]):
            return
        if server.host.paused_until > active.now:  # it is read and carried out, for nobody
            active.at(server.host.paused_until, self._arrive)
            return
        answer = server.do_all(self._commands, self._transaction)
        if server.random.random() < troubles["garbled"]:
            answer = redis.InvalidResponse("Protocol Error: b'\\x1f'")
        if late := troubles["late"]:
            active.at(active.now + server.random.uniform(0.5, 1.5) * late, lambda: self._reply(answer))
        else:
            self._reply(answer)

    def _reply(self, answer: list[Any] | redis.RedisError) -> None:
        def deliver() -> None:
            if not self._over:
                self._answer = answer
                self._network.scheduler.unpark(self._task)

        self._network.send(self._server.host, self._task.host, deliver)


class RedisClient:
    """:class:`redis.Redis` as far as it is used."""

    def __init__(self, network: Network, server: RedisServer, timeout: float) -> None:
        self._network, self._server, self._timeout = network, server, timeout

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: self.execute([RedisCommand(name, arguments, options)], False)[0]

    def pipeline(self, transaction: bool = True) -> RedisPipeline:
        return RedisPipeline(self, transaction)

    def close(self) -> None:
        """Nothing is held open."""

    def execute(self, commands: list[RedisCommand], transaction: bool) -> list[Any]:
        """All of them at once. Raises :class:`redis.ConnectionError`, :class:`redis.TimeoutError`."""
        active, server = self._network.scheduler, self._server
        active.switch()
        task = active.current
        assert task is not None
        if not server.host.alive or server.troubles["refused"]:
            active.sleep(0.001)
            raise redis.ConnectionError("Connection refused")
        return RedisExchange(self._network, server, task, commands, transaction).await_answer(self._timeout)


class RedisPipeline:
    """Commands that are sent together."""

    def __init__(self, client: RedisClient, transaction: bool) -> None:
        self._client, self._transaction = client, transaction
        self._commands: list[RedisCommand] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: self._commands.append(RedisCommand(name, arguments, options))

    def execute(self) -> list[Any]:
        return self._client.execute(self._commands, self._transaction)


def install(network: Network, servers: dict[str, RedisServer]) -> None:
    """``servers``: by the host name in their URL."""

    def from_url(url: str, socket_timeout: float = 1.0, **_: Any) -> RedisClient:
        return RedisClient(network, servers[urlsplit(url).hostname or ""], socket_timeout)

    redis.Redis.from_url = from_url  # type: ignore[method-assign,assignment]
