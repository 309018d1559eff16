"""Heartbeats and leases on a real server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from scar.errors import ConfigError, LivenessUnavailable
from scar.placement import Member, Role
from scar_runtime.liveness.heartbeat_store import LEASE_BLOCK_SECONDS, HeartbeatStore, MemberStanding
from tests.component.processes import running_redis

MEMBER = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa", "127.0.0.1:7000")
DAY = 24 * 3600  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_redis(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.fixture
def heartbeats(url: str, request: pytest.FixtureRequest) -> Iterator[HeartbeatStore]:
    """A client for a cluster of the test's own."""
    client = HeartbeatStore(url, f"c{abs(hash(request.node.nodeid))}", timeout=20.0)
    end = time.monotonic() + 10
    while True:
        try:
            client.ping()
            break
        except LivenessUnavailable:
            assert time.monotonic() < end
            time.sleep(0.02)
    yield client
    client.close()


def _forged(progress: str, lease: str = "0") -> str:
    """A heartbeat of the member "evil@x" with these texts where numbers belong."""
    rest = '"role": 1, "name": "evil", "incarnation": "x", "address": "", "epoch": 0, "count": 1'
    return f'{{{rest}, "progress": {progress}, "lease_seconds": {lease}}}'


def raw(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)


def test_nobody_has_beaten(heartbeats: HeartbeatStore) -> None:
    assert heartbeats.read_heartbeats() == {}


def test_a_beat_is_read_as_written(heartbeats: HeartbeatStore) -> None:
    member = replace(MEMBER, secret_hash=b"h" * 32, lease_seconds=3.5)
    heartbeats.record_heartbeat(member, progress=7, epoch=2)
    (first,) = heartbeats.read_heartbeats().values()
    heartbeats.record_heartbeat(member, progress=9, epoch=3, protocol=5)
    (beat,) = heartbeats.read_heartbeats().values()
    assert (beat.member, beat.member.address) == (member, member.address)
    assert beat.member.secret_hash == member.secret_hash
    assert beat.member.lease_seconds == member.lease_seconds
    assert (beat.progress, beat.epoch, beat.count) == (9, 3, first.count + 1)
    assert (first.protocol, beat.protocol) == (0, 5)


def test_a_forgotten_member_is_gone_and_may_come_again(heartbeats: HeartbeatStore) -> None:
    heartbeats.record_heartbeat(MEMBER, 1, 0)
    heartbeats.block_lease(MEMBER.key, "a")
    heartbeats.forget_member(MEMBER.key)
    assert heartbeats.read_heartbeats() == {}
    assert heartbeats.record_heartbeat(MEMBER, 1, 0) == MemberStanding(0, False)
    assert set(heartbeats.read_heartbeats()) == {MEMBER.key}


def test_a_beat_tells_the_published_epoch(heartbeats: HeartbeatStore) -> None:
    assert heartbeats.record_heartbeat(MEMBER, 1, 0).epoch == 0
    heartbeats.publish_epoch(12)
    assert heartbeats.record_heartbeat(MEMBER, 1, 0).epoch == 12


def test_a_beat_tells_that_one_is_doomed(heartbeats: HeartbeatStore) -> None:
    heartbeats.block_lease(MEMBER.key, "a")
    heartbeats.block_lease(MEMBER.key, "b")
    assert heartbeats.record_heartbeat(MEMBER, 1, 0).lease_blocked
    heartbeats.unblock_lease(MEMBER.key, "a")
    assert heartbeats.record_heartbeat(MEMBER, 1, 0).lease_blocked, (
        "one detector takes nothing back for another"
    )
    heartbeats.unblock_lease(MEMBER.key, "b")
    assert not heartbeats.record_heartbeat(MEMBER, 1, 0).lease_blocked


def test_clusters_do_not_see_each_other(url: str, heartbeats: HeartbeatStore) -> None:
    other = HeartbeatStore(url, "another", timeout=20.0)
    other.record_heartbeat(MEMBER, 1, 0)
    other.publish_epoch(5)
    assert heartbeats.read_heartbeats() == {}
    assert heartbeats.record_heartbeat(MEMBER, 1, 0).epoch == 0
    other.close()


def test_one_leads_until_its_lease_ends(heartbeats: HeartbeatStore) -> None:
    assert heartbeats.acquire_leader_lease("recovery", "one", ttl=30)
    assert heartbeats.acquire_leader_lease("recovery", "one", ttl=0.2)
    assert not heartbeats.acquire_leader_lease("recovery", "two", ttl=30)
    assert heartbeats.acquire_leader_lease("checkpoint", "two", ttl=30), "leases of two roles are two leases"
    end = time.monotonic() + 60
    while not heartbeats.acquire_leader_lease("recovery", "two", ttl=30):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not heartbeats.acquire_leader_lease("recovery", "one", ttl=30)


def test_one_of_many_leads(url: str, request: pytest.FixtureRequest, heartbeats: HeartbeatStore) -> None:
    won: list[str] = []
    gate = threading.Barrier(8)

    def run(name: str) -> None:
        gate.wait()
        if heartbeats.acquire_leader_lease("recovery", name, ttl=30):
            won.append(name)

    threads = [threading.Thread(target=run, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "{",
            "[]",
            "7",
            "null",
            '{"role": 1}',
            '{"role": 99, "name": "x", "incarnation": "y"}',
            "x" * 100_000,
        ),
        *(_forged(value) for value in ("Infinity", "NaN", "-1", "9" * 30, "9" * 3000, "1" + "0" * 5000)),
        *(_forged("1", lease) for lease in ("Infinity", "NaN", "-1", "60.1", "1" + "0" * 400, "[]")),
        "[" * 4000,
    ],
)
def test_what_is_malformed_is_left_out(url: str, text: str) -> None:
    heartbeats = HeartbeatStore(url, "malformed", timeout=20.0)
    heartbeats.record_heartbeat(MEMBER, 1, 0)
    with raw(url) as client:
        client.hset("scar:malformed:beats", "evil@x", text)
        client.hset(
            "scar:malformed:beats", "other@key", client.hget("scar:malformed:beats", MEMBER.key) or b""
        )
    assert set(heartbeats.read_heartbeats()) == {MEMBER.key}
    heartbeats.close()


@pytest.mark.parametrize("text", ["soon", "9" * 30, "9" * 5000, "-3"])
def test_a_published_epoch_that_is_no_number_means_none(url: str, text: str) -> None:
    heartbeats = HeartbeatStore(url, "nonsense", timeout=20.0)
    with raw(url) as client:
        client.set("scar:nonsense:epoch", text)
    assert heartbeats.record_heartbeat(MEMBER, 1, 0).epoch == 0
    heartbeats.close()


@pytest.mark.timed
def test_nobody_listens_is_a_typed_error_at_once() -> None:
    heartbeats = HeartbeatStore(f"redis://:secret@127.0.0.1:{free_port()}/0", "scar", timeout=60)
    calls = [
        heartbeats.ping,
        heartbeats.read_heartbeats,
        lambda: heartbeats.record_heartbeat(MEMBER, 1, 0),
        lambda: heartbeats.acquire_leader_lease("x", "y", 1),
        lambda: heartbeats.publish_epoch(1),
    ]
    for call in calls:
        started = time.monotonic()
        with pytest.raises(LivenessUnavailable) as caught:
            call()
        assert time.monotonic() - started < 20
        assert "secret" not in str(caught.value)


@pytest.mark.timed
def test_a_server_that_never_answers_costs_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        heartbeats = HeartbeatStore(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", "scar", timeout=0.2)
        started = time.monotonic()
        with pytest.raises(LivenessUnavailable):
            heartbeats.read_heartbeats()
        assert time.monotonic() - started < 20


def test_a_url_that_is_none_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="SCAR_REDIS"):
        HeartbeatStore("http://127.0.0.1:1", "scar")


@pytest.mark.parametrize("expiry", [None, DAY], ids=["no expiry", "Redis' clock went back"])
def test_a_lease_that_nobody_renews_ends_whatever_its_expiry(url: str, expiry: int | None) -> None:
    heartbeats = HeartbeatStore(url, "forever", timeout=20.0)
    with raw(url) as client:
        client.set("scar:forever:leader:recovery", "nobody", ex=expiry)
        assert not heartbeats.acquire_leader_lease("recovery", "me", 30.0)
        assert 0 < client.pttl("scar:forever:leader:recovery") <= 30_000
        client.pexpire("scar:forever:leader:recovery", 1)
        time.sleep(0.02)
    assert heartbeats.acquire_leader_lease("recovery", "me", 30.0)
    heartbeats.close()


def test_a_lease_block_of_a_dead_detector_ends_when_the_clock_of_redis_went_back(url: str) -> None:
    heartbeats = HeartbeatStore(url, "blocked", timeout=20.0)
    heartbeats.block_lease(MEMBER.key, "dead")
    with raw(url) as client:
        (key,) = client.keys("scar:blocked:*")
        client.expire(key, DAY)
        assert heartbeats.record_heartbeat(MEMBER, 1, 0).lease_blocked
        assert 0 < client.pttl(key) <= 1000 * LEASE_BLOCK_SECONDS
    heartbeats.close()


def test_a_url_that_is_none_keeps_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        HeartbeatStore("http://:secret@127.0.0.1:1", "scar")
    assert "secret" not in str(caught.value)
