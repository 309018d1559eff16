"""The simulated S3 in trouble, and what the services' own S3 store makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scar.errors import AlreadyExists, StoreFull, StoreUnavailable
from scar_runtime.store import s3
from scar_runtime.store.s3 import S3Store
from tests.simulation import scheduler
from tests.simulation.bucket import LATE, SHARES, Bucket, S3Client
from tests.simulation.network import Network
from tests.simulation.scheduler import Host, Scheduler

OBJECTS = 40


class BucketPlay:
    """One host with a store."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        scheduler.use(self.scheduler)
        self.host = self.scheduler.host("one")
        self.bucket = Bucket(Network(self.scheduler, seed), seed)
        self.store = S3Store("s3://simulated", S3Client(self.bucket), "bucket")

    def run(self, body: Callable[[], None], host: Host | None = None) -> None:
        assert self.scheduler.run(self.scheduler.spawn(host or self.host, "task", body), 10_000.0)
        assert self.scheduler.failures == []


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketPlay]:
    monkeypatch.setattr(s3, "WAITS", (0.0, 0.0, 0.0))
    yield BucketPlay()
    scheduler.use(scheduler.Nobody())


@pytest.mark.parametrize("trouble", SHARES)
def test_what_the_store_says_is_true(play: BucketPlay, trouble: str) -> None:
    """A create that succeeds is there, nobody else was first, and what is read is what was written."""
    seen: set[str] = set()

    def story() -> None:
        play.bucket.troubles.begin(trouble, 0.5)
        for number in range(OBJECTS):
            key, body = f"epochs/{number}", f"body {number}".encode()
            try:
                play.store.create(key, body)
                assert play.bucket.objects[key] == body
                assert play.store.get(key) == body
                assert key in play.store.list("epochs/")
                seen.add("well")
            except StoreUnavailable:
                seen.add("unavailable")

    play.run(story)
    assert "well" in seen


@pytest.mark.parametrize("trouble", SHARES)
def test_every_trouble_that_hits_every_request_is_noticed(play: BucketPlay, trouble: str) -> None:
    def story() -> None:
        play.store.put("there", b"content")
        play.bucket.troubles.begin(trouble)
        use = play.store.get if trouble in ("cut", "stalled") else lambda key: play.store.create(key, b"")
        with pytest.raises(StoreUnavailable):
            use("there" if trouble in ("cut", "stalled") else "new")
        play.bucket.troubles.end(trouble)
        assert play.store.get("there") == b"content"

    play.run(story)


def test_a_late_put_comes_after_its_client_has_given_up(play: BucketPlay) -> None:
    def story() -> None:
        play.bucket.troubles.begin("late")
        with pytest.raises(StoreUnavailable):
            play.store.put("record", b"old")
        play.bucket.troubles.end("late")
        play.store.delete("record")
        play.scheduler.sleep(20 * LATE)
        assert play.bucket.objects["record"] == b"old"

    play.run(story)


def test_a_put_is_carried_out_although_its_client_is_dead(play: BucketPlay) -> None:
    victim = play.scheduler.host("two")
    victim.trap = "done PutObject last"

    def doomed() -> None:
        play.store.put("last", b"words")
        raise AssertionError("it is dead")

    play.run(doomed, victim)
    assert not victim.alive
    assert play.bucket.objects == {"last": b"words"}


def test_a_full_store_can_be_read(play: BucketPlay) -> None:
    def story() -> None:
        play.store.put("x", b"data")
        play.bucket.troubles.begin("full")
        with pytest.raises(StoreFull):
            play.store.create("y", b"")
        assert (play.store.list(), play.store.get("x")) == (["x"], b"data")
        play.store.delete("x")

    play.run(story)


@pytest.mark.parametrize(("trouble", "hint"), [("denied", "AWS_ACCESS_KEY_ID"), ("skew", "clock")])
def test_a_request_that_is_refused_says_what_to_do(play: BucketPlay, trouble: str, hint: str) -> None:
    def story() -> None:
        play.bucket.troubles.begin(trouble)
        play.host.skew = 3600.0 if trouble == "skew" else 0.0
        with pytest.raises(StoreUnavailable) as caught:
            play.store.get("x")
        assert hint in caught.value.next_step

    play.run(story)


def test_a_slow_store_takes_its_time(play: BucketPlay) -> None:
    def story() -> None:
        play.bucket.troubles.begin("slow", 0.01)
        began = play.scheduler.now
        play.store.put("x", bytes(1000))
        assert play.scheduler.now - began > 10.0
        assert play.store.get("x") == bytes(1000)
        assert play.scheduler.now - began > 20.0

    play.run(story)


def test_nobody_else_is_ever_first(play: BucketPlay) -> None:
    """However the answers are lost, of two who create one object just one believes that it won."""
    won: dict[str, list[str]] = {}

    def racer(name: str) -> Callable[[], None]:
        def race() -> None:
            for number in range(OBJECTS):
                try:
                    play.store.create(f"epochs/{number}", name.encode())
                    won.setdefault(f"epochs/{number}", []).append(name)
                except (AlreadyExists, StoreUnavailable):
                    pass

        return race

    for trouble in ("lost", "late", "busy", "conflict"):
        play.bucket.troubles.begin(trouble, 0.3)
    other = play.scheduler.spawn(play.scheduler.host("two"), "racer", racer("two"))
    play.run(racer("one"))
    play.run(lambda: play.scheduler.sleep(1000.0))
    assert other.ended
    assert len(won) > OBJECTS / 2
    assert {key: names for key, names in won.items() if [play.bucket.objects[key].decode()] != names} == {}
