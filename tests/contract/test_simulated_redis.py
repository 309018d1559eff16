"""The Redis of simulations answers as a real one does, to all commands that the services send."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.component.processes import running_redis
from tests.simulation import scheduler
from tests.simulation.redis_server import RedisCommand, RedisServer
from tests.simulation.scheduler import Host, Nobody

KEYS = ("beats", "epoch", "leader", "doomed")
SEQUENCES, COMMANDS = 40, 40

DRAWS: dict[str, Callable[[random.Random], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "ping": lambda draw: ((), {}),
    "get": lambda draw: ((draw.choice(KEYS),), {}),
    "set": lambda draw: (
        (draw.choice(KEYS), draw.randint(0, 9)),
        {"nx": draw.random() < 0.5, "px": draw.choice([None, 60_000])},
    ),
    "exists": lambda draw: ((draw.choice(KEYS),), {}),
    "pexpire": lambda draw: ((draw.choice(KEYS), draw.choice([60_000, 0, -1])), {}),
    "expire": lambda draw: ((draw.choice(KEYS), 60), {}),
    "pttl": lambda draw: ((draw.choice(KEYS),), {}),
    "delete": lambda draw: ((draw.choice(KEYS),), {}),
    "hset": lambda draw: ((draw.choice(KEYS), draw.choice("ab"), draw.choice("xy")), {}),
    "hget": lambda draw: ((draw.choice(KEYS), draw.choice("ab")), {}),
    "hgetall": lambda draw: ((draw.choice(KEYS),), {}),
    "hdel": lambda draw: ((draw.choice(KEYS), draw.choice("ab")), {}),
    "sadd": lambda draw: ((draw.choice(KEYS), draw.choice("ab")), {}),
    "srem": lambda draw: ((draw.choice(KEYS), draw.choice("ab")), {}),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        client = redis.Redis.from_url(url, decode_responses=True)
        yield client
        client.close()


@pytest.fixture
def clock() -> Iterator[Nobody]:
    """The simulated time; it stands still unless a test moves it."""
    used = Nobody()
    scheduler.use(used)
    yield used
    scheduler.use(Nobody())


@pytest.fixture
def simulated(real: redis.Redis, clock: Nobody) -> RedisServer:
    real.flushall()
    return RedisServer(Host("redis", "10.0.0.1"))


def outcome(call: Callable[[], Any], exact: bool = True) -> Any:
    """What was answered, or the error's type and its first word. A time that is left is rounded."""
    try:
        found = call()
    except redis.RedisError as error:
        return type(error), str(error).split(" ")[0]
    return round(found / 1000) if isinstance(found, int) and found > 1000 else found


def both(real: redis.Redis, simulated: RedisServer, name: str, *arguments: Any, **options: Any) -> Any:
    """The answer of both. AssertionError when they differ."""
    expected = outcome(lambda: getattr(real, name)(*arguments, **options))
    found = outcome(lambda: simulated.do(name, *arguments, **options))
    assert found == expected, f"{name} {arguments} {options}"
    assert type(found) is type(expected), f"{name} {arguments} {options}"
    return found


def test_random_commands_have_the_answers_of_a_real_server(real: redis.Redis, simulated: RedisServer) -> None:
    draw = random.Random(3)
    seen: set[str] = set()
    for _ in range(SEQUENCES):
        both(real, simulated, "flushall")
        for _ in range(COMMANDS):
            name = draw.choice(sorted(DRAWS))
            arguments, options = DRAWS[name](draw)
            found = both(real, simulated, name, *arguments, **options)
            seen.add(f"{name} {found if not isinstance(found, dict) else bool(found)}"[:40])
    assert len(seen) > 40, "both sides of every answer are drawn"


def test_keys_expire_alike(real: redis.Redis, simulated: RedisServer, clock: Nobody) -> None:
    both(real, simulated, "set", "leader", "me", nx=True, px=40)
    both(real, simulated, "sadd", "doomed", "a")
    both(real, simulated, "pexpire", "doomed", 40)
    both(real, simulated, "set", "epoch", 7)
    time.sleep(0.06)
    clock.now += 0.06
    for name, key in (("get", "leader"), ("pttl", "leader"), ("exists", "doomed"), ("get", "epoch")):
        both(real, simulated, name, key)
    assert both(real, simulated, "set", "leader", "you", nx=True, px=40) is True


def test_a_new_value_has_no_old_expiry(real: redis.Redis, simulated: RedisServer) -> None:
    both(real, simulated, "set", "leader", "me", px=60_000)
    both(real, simulated, "set", "leader", "me")
    assert both(real, simulated, "pttl", "leader") == -1


TROUBLES = {  # how a real server gets into it and out of it
    "full": (("config_set", "maxmemory", 1), ("config_set", "maxmemory", 0)),
    "readonly": (("replicaof", "127.0.0.1", 1), ("replicaof", "NO", "ONE")),
}


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("transaction", [False, True])
def test_troubles_refuse_the_same_commands(
    real: redis.Redis, simulated: RedisServer, trouble: str, transaction: bool
) -> None:
    for name, key, *rest in (("hset", "beats", "a", "x"), ("set", "epoch", 3), ("sadd", "doomed", "a")):
        both(real, simulated, name, key, *rest)
    (begin, *how), (end, *back) = TROUBLES[trouble]
    getattr(real, begin)(*how)
    simulated.troubles.begin(trouble)
    try:
        for name in sorted(set(DRAWS) - {"delete"}):
            arguments, options = DRAWS[name](random.Random(4))
            both(real, simulated, name, *arguments, **options)
        batch = [("hset", "beats", "a", "new"), ("get", "epoch"), ("hdel", "beats", "b")]
        pipeline = real.pipeline(transaction=transaction)
        for name, *rest in batch:
            getattr(pipeline, name)(*rest)
        commands = [RedisCommand(name, tuple(rest), {}) for name, *rest in batch]
        answer = simulated.do_all(commands, transaction)
        assert isinstance(answer, redis.RedisError)
        assert outcome(pipeline.execute)[0] is type(answer)
    finally:
        getattr(real, end)(*back)
        simulated.troubles.end(trouble)
    both(real, simulated, "hgetall", "beats")


def test_what_was_written_after_a_snapshot_is_lost_with_its_server(simulated: RedisServer) -> None:
    simulated.do("hset", "beats", "a", "x")
    taken = simulated.snapshot()
    simulated.do("hset", "beats", "a", "y")
    simulated.do("set", "epoch", 4)
    simulated.restore(taken)
    assert (simulated.do("hgetall", "beats"), simulated.do("get", "epoch")) == ({"a": "x"}, None)
