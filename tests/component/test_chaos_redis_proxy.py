"""The port in front of Redis: heartbeats pass, come too late, or are nonsense; and what the services make
of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from scar.errors import LivenessUnavailable
from scar.placement import Member, Role
from scar_chaos.targets.redis_proxy import AnswerMode, RedisProxy
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from tests.component.processes import running_redis

MEMBER = Member(Role.SHARD, "ps-0", "0123456789ab", "127.0.0.1:1")


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def proxy(redis_url: str) -> Iterator[RedisProxy]:
    parts = urlsplit(redis_url)
    made = RedisProxy(lambda: (str(parts.hostname), int(parts.port or 0)))
    yield made
    made.close()


@pytest.fixture
def heartbeats(proxy: RedisProxy) -> Iterator[HeartbeatStore]:
    made = HeartbeatStore(f"redis://{proxy.address}/0", f"proxied-{time.monotonic_ns()}")
    yield made
    made.close()


def test_answers_pass(heartbeats: HeartbeatStore) -> None:
    heartbeats.record_heartbeat(MEMBER, 1, 0)
    assert heartbeats.read_heartbeats()[MEMBER.key].progress == 1


@pytest.mark.parametrize("answers", [AnswerMode.LATE, AnswerMode.GARBLED])
def test_a_spoiled_answer_is_a_typed_error_and_passes(
    proxy: RedisProxy, heartbeats: HeartbeatStore, answers: AnswerMode
) -> None:
    heartbeats.record_heartbeat(MEMBER, 1, 0)
    proxy.spoil_answers(answers)
    for call in (
        heartbeats.ping,
        heartbeats.read_heartbeats,
        lambda: heartbeats.record_heartbeat(MEMBER, 2, 0),
        lambda: heartbeats.acquire_leader_lease("recovery", "a", 1.0),
    ):
        with pytest.raises(LivenessUnavailable):
            call()
    proxy.pass_answers()
    heartbeats.record_heartbeat(MEMBER, 3, 0)
    assert heartbeats.read_heartbeats()[MEMBER.key].progress == 3


def test_nobody_behind_it(proxy: RedisProxy) -> None:
    alone = RedisProxy(lambda: ("127.0.0.1", 1))
    with pytest.raises(LivenessUnavailable):
        HeartbeatStore(f"redis://{alone.address}/0", "nobody").ping()
    alone.close()
