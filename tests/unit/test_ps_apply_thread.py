"""The apply thread: order, waiting, deadlines, leases, and what happens to calls when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from scar.errors import Busy, DeadlineExceeded, Internal, InvalidRequest, NotServing, ScarError
from scar_ps.apply_thread import BEAT_SECONDS, ApplyThread, remaining
from scar_ps.core import shard as module
from scar_ps.core.actions import AnswerRequest, ParkRequest, RefuseRequest, ShardAction
from scar_ps.core.events import Event
from scar_ps.core.requests import MustWait
from scar_runtime.liveness.progress_monitor import ProgressMonitor


class Work(Event):
    """An event that is handled by what a test wants done."""

    def __init__(self, work: Callable[[], Any], changes: bool = True) -> None:
        self.work = work
        self.changes = changes


def handle(event: Event, _now: float) -> list[ShardAction]:
    """What a shard does with its handlers."""
    if not isinstance(event, Work):
        return [AnswerRequest(None)]
    try:
        return [AnswerRequest(event.work())]
    except MustWait as reason:
        return [ParkRequest(str(reason))]
    except ScarError as error:
        return [RefuseRequest(error)]


class Running:
    """An apply thread that runs."""

    def __init__(self, lease: float = 60.0) -> None:
        self.liveness = ProgressMonitor(lease)
        self.liveness.renew_lease(self.liveness.now(), confirmed=True)
        self.failures: list[BaseException] = []
        self.apply = ApplyThread(handle, self.liveness, self.failures.append)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.apply.run, args=(self.stopped,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(5)


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.stop()


def parked(apply: ApplyThread, count: int) -> None:
    end = time.monotonic() + 5
    while len(apply._parked) < count:
        assert time.monotonic() < end
        apply.call(Work(lambda: None, changes=False), 5)


def begun_in_time(apply: ApplyThread, work: Callable[[], Any], begun: threading.Event) -> Any:
    """Call it with little time until it was not too late to begin."""
    while True:
        try:
            return apply.call(Work(work), 0.02)
        except DeadlineExceeded:
            assert not begun.is_set()


def test_a_call_that_nobody_is_before_runs_on_its_callers_thread(running):
    """It spares two switches of threads. What is posted runs on the apply thread."""
    waiting = threading.Event()
    assert {running.apply.call(Work(threading.current_thread), 5) for _ in range(10)} <= {
        threading.current_thread(),
        running.thread,  # at its ticks it comes first
    }
    threads = [running.apply.call(Work(threading.current_thread), 5) for _ in range(50)]
    assert threads.count(threading.current_thread()) > 25
    found = []
    running.apply.post(Work(lambda: (found.append(threading.current_thread()), waiting.set())))
    assert waiting.wait(5)
    assert found == [running.thread]


def test_no_two_calls_run_at_once_whoever_runs_them(running):
    inside, most, done = [0], [0], []

    def work() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.0005)
        inside[0] -= 1

    def call_often() -> None:
        for _ in range(40):
            running.apply.call(Work(work), 20)
            running.apply.post(Work(work))
        done.append(True)

    callers = [threading.Thread(target=call_often) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert (most, len(done)) == ([1], 4)


def test_the_apply_thread_waits_while_a_caller_has_the_turn(running):
    runs_on: list[threading.Thread] = []

    def hold(entered: threading.Event, leave: threading.Event) -> None:
        runs_on.append(threading.current_thread())
        entered.set()
        assert leave.wait(20)

    while True:  # until no tick has come in between
        entered, leave, posted = (threading.Event() for _ in range(3))
        work = Work(partial(hold, entered, leave))
        caller = threading.Thread(target=lambda work=work: running.apply.call(work, 20))
        caller.start()
        assert entered.wait(20)
        running.apply.post(Work(posted.set))
        early = posted.wait(0.5)
        leave.set()
        caller.join(20)
        assert posted.wait(20)
        if runs_on[-1] is caller:
            break
    assert not early


def test_a_call_overtakes_nothing_that_was_posted_before():
    """Even while nobody has the turn: here the apply thread, whose turn it is, has not begun."""
    order: list[str] = []
    apply = ApplyThread(handle, ProgressMonitor(60.0), lambda error: None)
    apply.post(Work(lambda: order.append("posted")))
    with pytest.raises(DeadlineExceeded):
        apply.call(Work(lambda: order.append("called")), 0.05)
    assert order == []


def test_who_hangs_on_its_own_thread_stops_the_heart(running):
    """Else a shard that is stuck would look alive."""
    entered, leave = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert leave.wait(10)

    caller = threading.Thread(target=lambda: running.apply.call(Work(hang), 10))
    caller.start()
    assert entered.wait(5)
    deadline = time.monotonic() + 5
    while running.liveness.idle_seconds < 4 * BEAT_SECONDS:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    leave.set()
    caller.join(5)
    while running.liveness.idle_seconds > 2 * BEAT_SECONDS:
        assert time.monotonic() < deadline + 5
        time.sleep(0.01)


def test_typed_errors_pass_and_do_not_end_the_process(running):
    def refuse() -> None:
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        running.apply.call(Work(refuse), 5)
    assert running.failures == []


def test_an_unexpected_error_in_a_change_ends_the_process_but_not_in_a_look(running):
    with pytest.raises(Internal):
        running.apply.call(Work(lambda: 1 // 0, changes=False), 5)
    assert running.failures == []
    with pytest.raises(Internal):
        running.apply.call(Work(lambda: 1 // 0), 5)
    running.apply.call(Work(lambda: None), 5)
    assert [type(error) for error in running.failures] == [ZeroDivisionError]


def test_a_call_that_must_wait_is_tried_again_after_a_change(running):
    state = {"clock": 0}

    def wait() -> int:
        if state["clock"] < 2:
            raise MustWait("clock 2")
        return state["clock"]

    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(running.apply.call(Work(wait), 5)))
    waiting.start()
    parked(running.apply, 1)
    assert running.apply.waiting_reason == "clock 2"
    running.apply.call(Work(lambda: state.update(clock=1)), 5)
    assert found == []
    running.apply.call(Work(lambda: state.update(clock=2)), 5)
    waiting.join(5)
    assert found == [2]
    assert running.apply.waiting_reason == ""


def test_a_change_that_was_parked_wakes_others(running):
    done: list[str] = []

    def first() -> None:
        if "start" not in done:
            raise MustWait("start")
        done.append("first")

    def second() -> None:
        if "first" not in done:
            raise MustWait("first")
        done.append("second")

    threads = []
    for count, work in enumerate((second, first), 1):
        threads.append(threading.Thread(target=running.apply.call, args=(Work(work), 5)))
        threads[-1].start()
        parked(running.apply, count)
    running.apply.call(Work(lambda: done.append("start")), 5)
    for thread in threads:
        thread.join(5)
    assert done == ["start", "first", "second"]


def test_the_deadline_says_what_was_waited_for_and_the_call_is_never_run(running):
    state = {"open": False, "ran": False}

    def wait() -> None:
        if not state["open"]:
            raise MustWait("worker-3 to finish")
        state["ran"] = True

    with pytest.raises(DeadlineExceeded, match="worker-3 to finish"):
        running.apply.call(Work(wait), 0.05)
    running.apply.call(Work(lambda: state.update(open=True)), 5)
    assert not state["ran"]


def test_a_call_that_runs_at_its_deadline_is_waited_for(running):
    begun, goes_on, done = threading.Event(), threading.Event(), list[str]()

    def work() -> str:
        begun.set()
        goes_on.wait(5)
        done.append("done")
        return "result"

    found: list[str] = []
    caller = threading.Thread(target=lambda: found.append(begun_in_time(running.apply, work, begun)))
    caller.start()
    assert begun.wait(5)
    caller.join(0.1)  # its time is over by far
    assert caller.is_alive()
    goes_on.set()
    caller.join(5)
    assert (found, done) == (["result"], ["done"])


def test_an_error_of_a_call_that_runs_at_its_deadline_is_its_own(running):
    begun, goes_on = threading.Event(), threading.Event()

    def refuse() -> None:
        begun.set()
        goes_on.wait(0.1)
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        begun_in_time(running.apply, refuse, begun)


def test_a_call_whose_turn_does_not_come_in_time_has_no_effect(running):
    begun, goes_on, ran = threading.Event(), threading.Event(), list[str]()

    def busy() -> None:
        begun.set()
        goes_on.wait(5)

    caller = threading.Thread(target=lambda: running.apply.call(Work(busy), 5))
    caller.start()
    assert begun.wait(5)
    with pytest.raises(DeadlineExceeded, match="its turn"):
        running.apply.call(Work(lambda: ran.append("late")), 0.01)
    goes_on.set()
    caller.join(5)
    running.apply.call(Work(lambda: ran.append("next")), 5)
    assert ran == ["next"]


def test_too_many_waiting_workers_are_refused_and_nobody_else(running, monkeypatch):
    monkeypatch.setattr(module, "MAX_PARKED", 1)
    state = {"open": False}

    def wait() -> str:
        if not state["open"]:
            raise MustWait("the others")
        return "served"

    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(running.apply.serve(Work(wait), 5))),
        threading.Thread(target=lambda: found.append(running.apply.call(Work(wait), 5))),
        threading.Thread(target=lambda: found.append(running.apply.call(Work(wait), 5))),
    ]
    for count, thread in enumerate(threads, 1):
        thread.start()
        parked(running.apply, count)
    with pytest.raises(Busy):
        running.apply.serve(Work(wait), 5)
    running.apply.call(Work(lambda: state.update(open=True)), 5)
    for thread in threads:
        thread.join(5)
    assert found == ["served"] * 3


def test_one_that_gave_up_makes_room_for_another(running, monkeypatch):
    monkeypatch.setattr(module, "MAX_PARKED", 1)

    def wait() -> None:
        raise MustWait("forever")

    for _ in range(3):
        with pytest.raises(DeadlineExceeded):
            running.apply.serve(Work(wait), 0.001)


def test_without_a_lease_nothing_is_applied():
    running = Running(lease=60.0)
    ran: list[int] = []
    assert running.apply.serve(Work(lambda: ran.append(1)), 5) is None
    running.liveness.give_up_lease()
    with pytest.raises(NotServing, match="lease"):
        running.apply.serve(Work(lambda: ran.append(2)), 5)
    assert ran == [1]
    running.stop()


def test_a_lease_that_runs_out_while_applying_is_not_acknowledged(running):
    with pytest.raises(NotServing, match="lease"):
        running.apply.serve(Work(running.liveness.give_up_lease), 5)


def test_calls_end_when_the_thread_ends(running):
    def wait() -> None:
        raise MustWait("forever")

    found: list[BaseException] = []

    def call() -> None:
        try:
            running.apply.call(Work(wait), 30)
        except NotServing as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    parked(running.apply, 1)
    running.stop()
    thread.join(5)
    assert len(found) == 1
    with pytest.raises(NotServing, match="stopping"):
        running.apply.call(Work(lambda: None), 30)


def test_an_idle_thread_beats(running):
    before = running.liveness.progress
    while running.liveness.progress == before:
        running.stopped.wait(0.01)


def test_handlers_answer_before_their_callers_give_up():
    assert remaining(600, None) == 600
    assert remaining(600, 2.0) == pytest.approx(1.95)
    assert remaining(600, 0.0) > 0
