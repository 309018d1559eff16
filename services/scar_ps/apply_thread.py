"""The apply thread, and the turn: who has it is the only one that touches the shard, one event after the
other.

Other threads hand in events and wait for their answers, or post them and go on. Where nobody has the turn or
waits for it, a caller takes it and runs its own call, which spares two switches of threads; else the apply
thread runs what has come, in its order. The shard's actions are carried out here: answers are given to those
who wait, everything else is handed to whoever does it. A call has a deadline: one that has not been served by
then is withdrawn and will never run, one that runs is waited for. So an error always means that nothing was
done.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from threading import Event as ThreadEvent
from threading import Lock
from typing import Any

from scar.errors import DeadlineExceeded, Internal, NotServing, ScarError
from scar.wire.timing import TIMING
from scar_ps.core.actions import (
    AnswerRequest,
    CrashProcess,
    ParkRequest,
    RefuseRequest,
    RetryRequests,
    ShardAction,
)
from scar_ps.core.events import Event, ShardTick
from scar_ps.core.shard import NO_LEASE, RequestQueue, ShardRequest
from scar_runtime.liveness.progress_monitor import ProgressMonitor

BEAT_SECONDS = TIMING.idle_step  # an idle thread shows that it lives
TICK_SECONDS = 2 * TIMING.look_every  # between looks at what is due

HandleEvent = Callable[[Any, float], list[ShardAction]]
CarryOut = Mapping[type[ShardAction], Callable[[Any], None]]


class _Call:
    """A request, and the thread that waits for its answer. ``observe`` hears how long it took, in seconds."""

    def __init__(self, request: ShardRequest, observe: Callable[[float], Any] | None = None) -> None:
        self.request = request
        self.observe = observe
        self.done = ThreadEvent()
        self.result: Any = None
        self.error: ScarError | None = None
        self.reason = "its turn"
        self._claim = Lock()  # held while it runs, and for good once it is withdrawn

    def claim(self) -> bool:
        """Before it runs. False: it is withdrawn."""
        return self._claim.acquire(blocking=False)

    def release(self) -> None:
        self._claim.release()

    def withdraw(self) -> bool:
        """It will never run. False: it has run; while it does this waits, as nobody can undo what it does."""
        self._claim.acquire()
        return not self.done.is_set()

    @property
    def withdrawn(self) -> bool:
        """Of a parked call, for the apply thread: nothing else runs it."""
        return self._claim.locked()

    def refuse(self, error: ScarError) -> None:
        self.error = error
        self.done.set()

    def reply(self, result: Any) -> None:
        self.result = result
        self.done.set()


class ApplyThread:
    """``handle_event`` is the shard's ``handle``.

    ``fail`` ends the process: after an unexpected error in the middle of a change nobody may trust the
    values.

    ``carry_out``: who does what the shard wants done beside answers, by action, without waiting. To be set
    before the thread starts.
    """

    def __init__(
        self,
        handle_event: HandleEvent,
        liveness: ProgressMonitor,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._queue = RequestQueue(handle_event)
        self._liveness = liveness
        self._fail = fail
        self.carry_out: CarryOut = {}
        self._numbers = count(1)
        self._turn = Lock()  # guards the shard, and what follows but for appending to the mailbox
        self._mailbox: deque[_Call] = deque()
        self._wanted = ThreadEvent()  # the apply thread comes next: callers let it pass
        self._parked: dict[int, _Call] = {}
        self._retries: deque[_Call] = deque()
        self._closed = ThreadEvent()

    # --- for other threads
    # ---------------------------------------------------------------------------------------------------

    def call(self, event: Event, timeout: float, observe: Callable[[float], Any] | None = None) -> Any:
        """Have the shard handle ``event``; returns its answer.

        Raises what it refuses with, and :class:`DeadlineExceeded` when it could not be served within
        ``timeout`` seconds; then it never will be. What has begun is never given up: its answer may come
        late. ``observe`` hears how long the shard took, in seconds.
        """
        request = ShardRequest(next(self._numbers), event, time.monotonic() + timeout)
        return self._wait_for(_Call(request, observe), timeout)

    def serve(self, event: Event, timeout: float, observe: Callable[[float], Any] | None = None) -> Any:
        """The same for workers and readers: with a valid lease, before it is applied and before the answer.

        Raises :class:`Busy`, too: they are many, so only so many of them may wait.
        """
        request = ShardRequest(next(self._numbers), event, time.monotonic() + timeout, limited=True)
        result = self._wait_for(_Call(request, observe), timeout)
        self.check_lease()
        return result

    def post(self, event: Event) -> None:
        """Have the shard handle ``event`` some time; nobody waits for its answer."""
        self._mail(_Call(ShardRequest(next(self._numbers), event, math.inf)))

    def _mail(self, call: _Call) -> None:
        self._mailbox.append(call)
        self._wanted.set()

    def _wait_for(self, call: _Call, timeout: float) -> Any:
        if not self._run_here(call):
            self._mail(call)
        if self._closed.is_set():
            self._refuse_all()
        if not call.done.wait(timeout) and call.withdraw():
            raise DeadlineExceeded(f"waited {timeout:.1f} s for {call.reason}")
        if call.error is not None:
            raise call.error
        return call.result

    def _run_here(self, call: _Call) -> bool:
        """Run it on its caller's thread, unless others come first."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            free = not self._wanted.is_set() and not self._closed.is_set()
            if free:
                self._run_call(call)
            return free
        finally:
            self._turn.release()

    @property
    def leased(self) -> bool:
        return self._liveness.lease_valid()

    def check_lease(self) -> None:
        if not self.leased:
            raise NotServing(NO_LEASE)

    @property
    def waiting_reason(self) -> str:
        """What the oldest parked call waits for, in words; empty: nothing waits."""
        return self._queue.waiting_reason

    # --- the thread
    # ---------------------------------------------------------------------------------------------------

    def run(self, stopped: ThreadEvent) -> None:
        """Body of the apply thread."""
        next_tick = 0.0
        while not stopped.is_set():
            self._liveness.record_progress()
            self._wanted.wait(BEAT_SECONDS)
            self._wanted.set()
            with self._turn:  # who hangs with it hangs this thread, too, and the heart stops
                self._run_next()
                if time.monotonic() >= next_tick:
                    self._tick()
                    next_tick = time.monotonic() + TICK_SECONDS
        self._closed.set()
        self._refuse_all()

    def _run_next(self) -> None:
        """The oldest call, which leaves the mailbox only now: nobody overtakes it."""
        if self._mailbox:
            self._run_call(self._mailbox.popleft())
        if not self._mailbox:
            self._wanted.clear()
            if self._mailbox:  # it came in between
                self._wanted.set()

    def _tick(self) -> None:
        self._parked = {number: call for number, call in self._parked.items() if not call.withdrawn}
        self._run_call(_Call(ShardRequest(0, ShardTick(self.leased), math.inf)))

    def _refuse_all(self) -> None:
        """Nobody will run what is left: let its callers go."""
        with self._turn:
            left = [*self._parked.values(), *self._mailbox]
            self._parked = {}
            self._mailbox.clear()
        for call in left:
            call.refuse(NotServing("this shard is stopping"))

    def _run_call(self, call: _Call) -> None:
        """Run it, and those that may be served after it."""
        self._handle(call)
        while self._retries:
            self._liveness.record_progress()
            self._handle(self._retries.popleft())

    def _handle(self, call: _Call) -> None:
        if not call.claim():
            return
        try:
            started = time.monotonic()
            for action in self._queue.handle(call.request, started, self.leased):
                self._take_action(call, action, started)
        except Exception as error:  # of what carries actions out
            self._fail(error)
            call.refuse(Internal(f"{type(error).__name__} in the apply thread"))
        finally:
            call.release()

    def _take_action(self, call: _Call, action: ShardAction, started: float) -> None:
        match action:
            case AnswerRequest(result):
                if call.observe is not None:
                    call.observe(time.monotonic() - started)
                call.reply(result)
            case RefuseRequest(error):
                call.refuse(error)
            case ParkRequest(reason):
                call.reason = reason
                self._parked[call.request.number] = call
            case RetryRequests(numbers):
                parked = [self._parked.pop(number, None) for number in numbers]
                self._retries.extend(call for call in parked if call is not None)
            case CrashProcess(unexpected):
                self._fail(unexpected)
            case _:
                self.carry_out[type(action)](action)


def remaining(limit: float, left: float | None) -> float:
    """Seconds that a handler may wait: a little less than its caller's deadline, so that its answer arrives.

    ``left``: None when the caller has no deadline.
    """
    return max(0.001, min(limit, math.inf if left is None else left - 0.05))
