"""Heartbeats and leases: one suite for the real redis-server and for fakeredis' TCP server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fakeredis
import pytest
import redis

from scar.errors import ConfigError, LivenessUnavailable
from scar.placement import Member, Role
from scar_runtime.liveness import Beats, Standing

MEMBER = Member(Role.SHARD, "ps-0", "aaaaaaaaaaaa", "127.0.0.1:7000")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def real(directory: Path) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("REDIS-SERVER IS NOT ON PATH: the real half of the liveness contract is not tested")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


def fake() -> Iterator[str]:
    server = fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module", params=["redis-server", "fakeredis"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from real(tmp_path_factory.mktemp("redis")) if request.param == "redis-server" else fake()


@pytest.fixture
def beats(url: str, request: pytest.FixtureRequest) -> Iterator[Beats]:
    """A client for a cluster of the test's own."""
    client = Beats(url, f"c{abs(hash(request.node.nodeid))}", timeout=2.0)
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


def raw(url: str) -> redis.Redis:
    return redis.Redis.from_url(url)


def test_nobody_has_beaten(beats: Beats) -> None:
    assert beats.read() == {}


def test_a_beat_is_read_as_written(beats: Beats) -> None:
    beats.beat(MEMBER, progress=7, epoch=2)
    (first,) = beats.read().values()
    beats.beat(MEMBER, progress=9, epoch=3)
    (beat,) = beats.read().values()
    assert (beat.member, beat.member.address) == (MEMBER, MEMBER.address)
    assert (beat.progress, beat.epoch, beat.count) == (9, 3, first.count + 1)


def test_a_forgotten_member_is_gone_and_may_come_again(beats: Beats) -> None:
    beats.beat(MEMBER, 1, 0)
    beats.doom(MEMBER.key, "a")
    beats.forget(MEMBER.key)
    assert beats.read() == {}
    assert beats.beat(MEMBER, 1, 0) == Standing(0, False)
    assert set(beats.read()) == {MEMBER.key}


def test_a_beat_tells_the_published_epoch(beats: Beats) -> None:
    assert beats.beat(MEMBER, 1, 0).epoch == 0
    beats.publish_epoch(12)
    assert beats.beat(MEMBER, 1, 0).epoch == 12


def test_a_beat_tells_that_one_is_doomed(beats: Beats) -> None:
    beats.doom(MEMBER.key, "a")
    beats.doom(MEMBER.key, "b")
    assert beats.beat(MEMBER, 1, 0).doomed
    beats.spare(MEMBER.key, "a")
    assert beats.beat(MEMBER, 1, 0).doomed, "one detector takes nothing back for another"
    beats.spare(MEMBER.key, "b")
    assert not beats.beat(MEMBER, 1, 0).doomed


def test_clusters_do_not_see_each_other(url: str, beats: Beats) -> None:
    other = Beats(url, "another", timeout=2.0)
    other.beat(MEMBER, 1, 0)
    other.publish_epoch(5)
    assert beats.read() == {}
    assert beats.beat(MEMBER, 1, 0).epoch == 0
    other.close()


def test_one_leads_until_its_lease_ends(beats: Beats) -> None:
    assert beats.lead("recovery", "one", ttl=30)
    assert beats.lead("recovery", "one", ttl=0.2)
    assert not beats.lead("recovery", "two", ttl=30)
    assert beats.lead("checkpoint", "two", ttl=30), "leases of two roles are two leases"
    end = time.monotonic() + 5
    while not beats.lead("recovery", "two", ttl=30):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not beats.lead("recovery", "one", ttl=30)


def test_one_of_many_leads(url: str, request: pytest.FixtureRequest, beats: Beats) -> None:
    won: list[str] = []
    gate = threading.Barrier(8)

    def run(name: str) -> None:
        gate.wait()
        if beats.lead("recovery", name, ttl=30):
            won.append(name)

    threads = [threading.Thread(target=run, args=(f"r{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", "null", '{"role": 1}', '{"role": 99, "name": "x", "incarnation": "y"}', "x" * 100_000],
)
def test_what_is_malformed_is_left_out(url: str, text: str) -> None:
    beats = Beats(url, "malformed", timeout=2.0)
    beats.beat(MEMBER, 1, 0)
    with raw(url) as client:
        client.hset("scar:malformed:beats", "evil", text)
        client.hset("scar:malformed:beats", "other@key", client.hget("scar:malformed:beats", MEMBER.key) or b"")
    assert set(beats.read()) == {MEMBER.key}
    beats.close()


def test_a_published_epoch_that_is_no_number_means_none(url: str) -> None:
    beats = Beats(url, "nonsense", timeout=2.0)
    with raw(url) as client:
        client.set("scar:nonsense:epoch", "soon")
    assert beats.beat(MEMBER, 1, 0).epoch == 0
    beats.close()


def test_nobody_listens_is_a_typed_error_at_once() -> None:
    beats = Beats(f"redis://:secret@127.0.0.1:{free_port()}/0", "scar")
    calls = [
        beats.ping,
        beats.read,
        lambda: beats.beat(MEMBER, 1, 0),
        lambda: beats.lead("x", "y", 1),
        lambda: beats.publish_epoch(1),
    ]
    for call in calls:
        started = time.monotonic()
        with pytest.raises(LivenessUnavailable) as caught:
            call()
        assert time.monotonic() - started < 1.0
        assert "secret" not in str(caught.value)


def test_a_server_that_never_answers_costs_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        beats = Beats(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", "scar", timeout=0.2)
        started = time.monotonic()
        with pytest.raises(LivenessUnavailable):
            beats.read()
        assert time.monotonic() - started < 1.0


def test_a_url_that_is_none_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="SCAR_REDIS"):
        Beats("http://127.0.0.1:1", "scar")
