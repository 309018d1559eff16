"""The scheduler and what stands in for threads, locks and the network, without any service."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from queue import Empty
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulation import scheduler
from tests.simulation.network import Network
from tests.simulation.primitives import Lock, RLock, SimpleQueue, boottime, monotonic, sleep, wall
from tests.simulation.scheduler import Host, Scheduler, Stuck, Task
from tests.simulation.world import TraceHandler

SECONDS = 1000.0


class Play:
    """One host, and what its tasks have written down, with the time."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.host = self.scheduler.host("one")
        self.notes: list[tuple[float, str]] = []
        scheduler.use(self.scheduler)

    def spawn(self, body: Callable[[], None], host: Host | None = None) -> Task:
        return self.scheduler.spawn(host or self.host, "task", body)

    def note(self, what: str) -> None:
        self.notes.append((round(self.scheduler.now, 1), what))

    def run(self, body: Callable[[], None]) -> bool:
        done = self.scheduler.run(self.spawn(body), SECONDS)
        assert self.scheduler.failures == []
        return done


@pytest.fixture
def play() -> Iterator[Play]:
    yield Play()
    scheduler.use(scheduler.Nobody())


def test_time_jumps_to_who_wakes_first(play: Play) -> None:
    def sleeper(seconds: float) -> Callable[[], None]:
        return lambda: (sleep(seconds), play.note(f"{seconds:g}"))[1]

    for seconds in (300.0, 20.0):
        play.spawn(sleeper(seconds))
    assert play.run(sleeper(400.0))
    assert play.notes == [(20.0, "20"), (300.0, "300"), (400.0, "400")]


def test_a_lock_is_waited_for_in_simulated_time(play: Play) -> None:
    lock = Lock()

    def holder() -> None:
        with lock:
            sleep(10.0)

    def waiter() -> None:
        sleep(1.0)
        assert not lock.acquire(timeout=2.0)
        play.note("gave up")
        with lock:
            play.note("got it")

    play.spawn(holder)
    assert play.run(waiter)
    assert play.notes == [(3.0, "gave up"), (10.0, "got it")]


def test_a_reentrant_lock_belongs_to_its_task(play: Play) -> None:
    lock = RLock()

    def story() -> None:
        with lock, lock:
            play.spawn(lambda: play.note(f"{lock.acquire(blocking=False)}"))
            sleep(1.0)

    assert play.run(story)
    assert [what for _, what in play.notes] == ["False"]


def test_a_queue_gives_up_in_time(play: Play) -> None:
    queue = SimpleQueue()

    def story() -> None:
        with pytest.raises(Empty):
            queue.get(timeout=5.0)
        play.spawn(lambda: (sleep(1.0), queue.put("x"))[1])
        play.note(queue.get(timeout=5.0))

    assert play.run(story)
    assert play.notes == [(6.0, "x")]


def test_who_waits_for_ever_is_noticed(play: Play) -> None:
    with pytest.raises(Stuck):
        play.run(lambda: (play.scheduler.park(), None)[1])


def test_a_crash_unwinds_its_tasks_and_lets_go_of_their_locks(play: Play) -> None:
    victim, lock = play.scheduler.host("two"), Lock()

    def doomed() -> None:
        with lock:
            try:
                sleep(100.0)
            finally:
                play.note("unwound")
                sleep(1.0)  # what a dead process does reaches nobody
                play.note("never")

    def story() -> None:
        play.spawn(doomed, victim)
        sleep(5.0)
        play.scheduler.crash(victim)
        with lock:
            play.note("free")

    assert play.run(story)
    assert play.notes == [(5.0, "unwound"), (5.0, "free")]


def test_a_stack_is_used_again_and_nothing_of_its_former_body_stays(play: Play) -> None:
    def holding(held: object, end: Callable[[], None]) -> Callable[[], None]:
        return lambda: (held, end())[1]

    other = play.scheduler.host("other")
    ended: list[weakref.ref[object]] = []
    for host, end in ((play.host, lambda: None), (other, lambda: sleep(SECONDS))):
        held = Play()
        ended.append(weakref.ref(held))
        play.spawn(holding(held, end), host)
        del held, end
    scheduler.use(play.scheduler)
    play.scheduler.at(1.0, lambda: play.scheduler.crash(other))
    assert play.run(lambda: sleep(2.0))
    for seconds in range(3):
        assert play.run(lambda seconds=seconds: play.note(f"{seconds}"))  # type: ignore[misc]
    assert [one() for one in ended] == [None, None]
    assert [what for _, what in play.notes] == ["0", "1", "2"]


def test_a_paused_host_does_nothing_until_it_goes_on(play: Play) -> None:
    frozen = play.scheduler.host("two")
    play.spawn(lambda: (sleep(1.0), play.note("late"))[1], frozen)

    def story() -> None:
        play.scheduler.pause(frozen, 60.0)
        sleep(100.0)

    assert play.run(story)
    assert play.notes == [(60.0, "late")]


def test_monotonic_clocks_of_two_hosts_have_nothing_in_common(play: Play) -> None:
    seen: list[float] = []
    other = play.scheduler.host("two")
    play.spawn(lambda: seen.append(monotonic()), other)
    assert play.run(lambda: (seen.append(monotonic()), sleep(1.0))[1])
    assert abs(seen[0] - seen[1]) > 1.0


def test_while_a_machine_is_suspended_only_one_of_its_clocks_goes_on(play: Play) -> None:
    """A wait of 10 s, in the midst of which the lid is closed for a minute."""
    looks: list[tuple[float, float, float]] = []
    laptop = play.scheduler.host("two")

    def user() -> None:
        for _ in range(2):
            looks.append((monotonic(), boottime(), wall()))
            sleep(10.0)
        play.note("awake")

    play.spawn(user, laptop)
    play.scheduler.at(4.0, lambda: play.scheduler.suspend(laptop, 60.0))
    assert play.run(lambda: sleep(100.0))
    assert [round(second - first) for first, second in zip(*looks, strict=True)] == [10, 70, 70]
    assert play.notes == [(80.0, "awake")]


def test_what_is_paused_already_is_suspended_for_the_rest_only(play: Play) -> None:
    laptop = play.scheduler.host("two")
    before = laptop.monotonic(0.0)
    play.scheduler.pause(laptop, 30.0)
    play.scheduler.suspend(laptop, 50.0)
    play.scheduler.suspend(laptop, 40.0)
    assert round(laptop.monotonic(50.0) - before, 6) == 30.0
    assert round(laptop.boottime(50.0) - before, 6) == 50.0


def test_a_clock_that_drifts_does_not_jump(play: Play) -> None:
    def story() -> None:
        sleep(100.0)
        first = (monotonic(), wall())
        play.scheduler.set_rate(play.host, 1.5)
        second = (monotonic(), wall())
        sleep(10.0)
        third = (monotonic(), wall())
        assert [round(b - a, 3) for a, b in zip(first, second, strict=True)] == [0.0, 0.0]
        assert [round(b - a, 3) for a, b in zip(second, third, strict=True)] == [15.0, 15.0]

    assert play.run(story)


def test_a_fuse_ends_a_host_anywhere_in_its_code(play: Play) -> None:
    """With its locks held, as often as not, and after as many switching points as were asked for."""
    ends = set()
    for points in range(1, 8):
        victim, lock = play.scheduler.host("two"), Lock()

        def doomed(lock: Lock = lock) -> None:
            for number in range(10):
                with lock:
                    play.note(f"{number}")
                    monotonic()

        play.notes.clear()
        play.spawn(doomed, victim)
        play.scheduler.light_fuse(victim, points)
        assert play.run(lambda: sleep(1.0))
        assert not victim.alive
        assert not lock.locked()
        ends.add(len(play.notes))
    assert ends == {0, 1, 2, 3}


def test_a_trap_ends_a_host_at_what_has_a_name(play: Play) -> None:
    victim = play.scheduler.host("two")
    victim.trap = "put manifests/"

    def doomed() -> None:
        for key in ("objects/1", "manifests/1", "manifests/2"):
            play.scheduler.event(victim, f"put {key}")
            play.note(key)

    play.spawn(doomed, victim)
    assert play.run(lambda: sleep(1.0))
    assert [what for _, what in play.notes] == ["objects/1"]
    assert not victim.alive


def test_who_is_paused_while_it_logs_holds_up_nobody(play: Play) -> None:
    handler = TraceHandler(cast(Any, SimpleNamespace(scheduler=play.scheduler)))
    handler.lock = RLock()  # as a process has it
    victim = play.scheduler.host("two")
    victim.trap = "log info held"
    victim.trap_seconds = 5.0

    def log(name: str, after: float) -> None:
        sleep(after)
        handler.handle(logging.LogRecord("scar", logging.INFO, "", 0, name, None, None))
        play.note(name)

    play.spawn(lambda: log("held", 0.0), victim)
    assert play.run(lambda: log("free", 1.0))
    assert play.run(lambda: sleep(10.0))
    assert [(round(when), what) for when, what in play.notes] == [(1, "free"), (5, "held")]


def test_a_trap_may_hold_a_host_for_a_while_instead(play: Play) -> None:
    victim = play.scheduler.host("two")
    victim.trap = "put manifests/"
    victim.trap_seconds = 5.0

    def late() -> None:
        for key in ("objects/1", "manifests/1", "manifests/2"):
            play.scheduler.event(victim, f"put {key}")
            play.note(key)

    play.spawn(late, victim)
    assert play.run(lambda: sleep(10.0))
    assert [(round(when), what) for when, what in play.notes] == [
        (0, "objects/1"),
        (5, "manifests/1"),
        (5, "manifests/2"),
    ]
    assert victim.alive


def test_a_partition_swallows_one_direction_only(play: Play) -> None:
    other, network = play.scheduler.host("two"), Network(play.scheduler, 1)

    def story() -> None:
        network.cut("one", "two", 10.0)
        network.send(play.host, other, lambda: play.note("there"))
        network.send(other, play.host, lambda: play.note("back"))
        sleep(11.0)
        network.send(play.host, other, lambda: play.note("there, later"))
        sleep(1.0)

    assert play.run(story)
    assert [what for _, what in play.notes] == ["back", "there, later"]


def test_another_seed_takes_another_order() -> None:
    def orders(seed: int) -> list[str]:
        play = Play(seed)
        for name in "abcdefgh":
            play.spawn(lambda name=name: play.note(name))  # type: ignore[misc]
        assert play.run(lambda: sleep(1.0))
        return [what for _, what in play.notes]

    assert orders(1) == orders(1) != orders(2)
    scheduler.use(scheduler.Nobody())
