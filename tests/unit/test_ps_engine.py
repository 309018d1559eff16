"""The apply thread: order, waiting, deadlines, leases, and what happens to calls when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from scar.errors import Busy, DeadlineExceeded, Internal, InvalidRequest, NotServing
from scar_ps import engine as module
from scar_ps.barrier import NotYet
from scar_ps.engine import Engine, remaining
from scar_runtime.heart import Heart


class Running:
    """An engine with its thread."""

    def __init__(self, lease: float = 60.0) -> None:
        self.heart = Heart(lease)
        self.heart.renew(self.heart.now(), confirmed=True)
        self.failures: list[BaseException] = []
        self.engine = Engine(self.heart, self.failures.append)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.engine.run, args=(self.stopped,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(5)


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.stop()


def parked(engine: Engine, count: int) -> None:
    while len(engine._parked) < count:
        engine.call(lambda: None, 5, changes=False)


def test_calls_run_on_one_thread_and_return_their_result(running):
    names = {running.engine.call(lambda: threading.current_thread().name, 5) for _ in range(10)}
    assert names == {running.thread.name}


def test_typed_errors_pass_and_do_not_end_the_process(running):
    def refuse() -> None:
        raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        running.engine.call(refuse, 5)
    assert running.failures == []


def test_an_unexpected_error_in_a_change_ends_the_process_but_not_in_a_look(running):
    with pytest.raises(Internal):
        running.engine.call(lambda: 1 // 0, 5, changes=False)
    assert running.failures == []
    with pytest.raises(Internal):
        running.engine.call(lambda: 1 // 0, 5)
    running.engine.call(lambda: None, 5)
    assert [type(error) for error in running.failures] == [ZeroDivisionError]


def test_a_call_that_must_wait_is_tried_again_after_a_change(running):
    state = {"clock": 0}

    def wait() -> int:
        if state["clock"] < 2:
            raise NotYet("clock 2")
        return state["clock"]

    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(running.engine.call(wait, 5)))
    waiting.start()
    parked(running.engine, 1)
    assert running.engine.waiting_for() == "clock 2"
    running.engine.call(lambda: state.update(clock=1), 5)
    assert found == []
    running.engine.call(lambda: state.update(clock=2), 5)
    waiting.join(5)
    assert found == [2]
    assert running.engine.waiting_for() == ""


def test_a_change_that_was_parked_wakes_others(running):
    done: list[str] = []

    def first() -> None:
        if "start" not in done:
            raise NotYet("start")
        done.append("first")

    def second() -> None:
        if "first" not in done:
            raise NotYet("first")
        done.append("second")

    threads = []
    for count, work in enumerate((second, first), 1):
        threads.append(threading.Thread(target=running.engine.call, args=(work, 5)))
        threads[-1].start()
        parked(running.engine, count)
    running.engine.call(lambda: done.append("start"), 5)
    for thread in threads:
        thread.join(5)
    assert done == ["start", "first", "second"]


def test_the_deadline_says_what_was_waited_for_and_the_call_is_never_run(running):
    state = {"open": False, "ran": False}

    def wait() -> None:
        if not state["open"]:
            raise NotYet("worker-3 to finish")
        state["ran"] = True

    with pytest.raises(DeadlineExceeded, match="worker-3 to finish"):
        running.engine.call(wait, 0.05)
    running.engine.call(lambda: state.update(open=True), 5)
    assert not state["ran"]


def test_too_many_waiting_calls_are_refused(running, monkeypatch):
    monkeypatch.setattr(module, "MAX_PARKED", 1)

    def wait() -> None:
        raise NotYet("for ever")

    def waiting() -> None:
        with pytest.raises(DeadlineExceeded):
            running.engine.call(wait, 0.5)

    thread = threading.Thread(target=waiting)
    thread.start()
    parked(running.engine, 1)
    with pytest.raises(Busy):
        running.engine.call(wait, 5)
    thread.join(5)


def test_without_a_lease_nothing_is_applied():
    running = Running(lease=60.0)
    ran: list[int] = []
    assert running.engine.serve(lambda: ran.append(1), 5) is None
    running.heart.resign()
    with pytest.raises(NotServing, match="lease"):
        running.engine.serve(lambda: ran.append(2), 5)
    assert ran == [1]
    running.stop()


def test_a_lease_that_runs_out_while_applying_is_not_acknowledged(running):
    with pytest.raises(NotServing, match="lease"):
        running.engine.serve(running.heart.resign, 5)


def test_calls_end_when_the_thread_ends(running):
    def wait() -> None:
        raise NotYet("for ever")

    found: list[BaseException] = []

    def call() -> None:
        try:
            running.engine.call(wait, 30)
        except NotServing as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    parked(running.engine, 1)
    running.stop()
    thread.join(5)
    assert len(found) == 1
    with pytest.raises(NotServing, match="stopping"):
        running.engine.call(lambda: None, 30)


def test_an_idle_engine_beats(running):
    before = running.heart.progress
    while running.heart.progress == before:
        running.stopped.wait(0.01)


def test_handlers_answer_before_their_callers_give_up():
    assert remaining(600, None) == 600
    assert remaining(600, 2.0) == pytest.approx(1.95)
    assert remaining(600, 0.0) > 0
