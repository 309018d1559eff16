"""One run of a user's training function: join, train, leave; and what it looks like from outside."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import scar
from scar._client.pace import TimeSplit
from scar.errors import DeadlineExceeded
from scar.event_log import StorySource
from scar.placement import Member
from scar.tables import Job
from scar.wire.transport import Deadline
from scar_worker.starter import ensure_started

LEFT = (
    "sys.exit(0) was called before the work was done: this worker leaves it unfinished, and the others go on"
    " without it"
)

_log = logging.getLogger(__name__)


class TaskState(StrEnum):
    WAITING = "waiting"  # for the job to start, or for other workers
    TRAINING = "training"
    FINISHED = "finished"
    LEFT = "left"  # before its work was done: sys.exit(0)
    FAILED = "failed"


@dataclass(frozen=True)
class TrainingPlan:
    """What to run, and with which timeouts (seconds). ``job``: its name."""

    recovery: str
    job: str
    train: Callable[[scar.Worker], object]
    timeout: float
    start_timeout: float
    unacked_bytes: int
    outage_timeout: float  # seconds more while the store is away
    # start the job when nobody else has, and stay up afterwards: whoever runs us restarts what ends
    starts: Job | None = None


class TrainingTask:
    """``run`` belongs to the main thread; everything else may be read by any."""

    def __init__(self, plan: TrainingPlan, member: Member, secret: bytes = b"") -> None:
        self._plan = plan
        self._secret = secret
        self.member = member
        self.worker: scar.Worker | None = None
        self.state = TaskState.WAITING
        self.error = ""
        self._since = time.monotonic()

    def run(self, stopping: threading.Event) -> None:
        """Train until the function returns. Once ``stopping`` is set, :meth:`scar.Worker.clocks` ends with
        the open clock.
        """
        try:
            if self._join_job(stopping):
                self._run_training()
            self._enter_state(TaskState.FINISHED)
        except BaseException as error:
            if not isinstance(error, SystemExit) or error.code:
                self.error = describe_error(error)
                self._enter_state(TaskState.FAILED)
                raise
            _log.warning("worker.left", exc_info=error, extra={"reason": LEFT})
            sys.stderr.write(f"{LEFT}\n")
            self._enter_state(TaskState.LEFT)
        if self._plan.starts is not None:
            stopping.wait()

    def _enter_state(self, state: TaskState) -> None:
        self.state = state
        self._since = time.monotonic()

    def thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """A thread of the user's has died: the main thread may wait for it forever, so it is said where
        people look.
        """
        threading.__excepthook__(failure)
        if failure.exc_type is SystemExit:
            return
        name = failure.thread.name if failure.thread else "?"
        self.error = f"its thread {name!r} died: {describe_error(failure.exc_value or failure.exc_type())}"

    @property
    def waited(self) -> float:
        """Seconds since it finished its last clock, or began what it does now."""
        worker = self.worker
        return min(
            time.monotonic() - self._since,
            worker.pace.seconds_since_clock if worker is not None else math.inf,
        )

    def stop_with(self, stopping: threading.Event) -> None:
        """Tell the worker when the process is asked to stop; runs in a thread of its own."""
        stopping.wait()
        worker = self.worker
        if worker is not None:
            worker.stop()

    @property
    def job(self) -> str:
        """Name of the job that it trains, or waits for."""
        return self._plan.job

    @property
    def epoch(self) -> int:
        return self.worker.epoch if self.worker is not None else 0

    @property
    def time_spent(self) -> tuple[TimeSplit, int]:
        """Sums over its clocks, and how many those are; zero before it has joined."""
        worker = self.worker
        return (worker.pace.spent, worker.pace.clocks) if worker is not None else (TimeSplit(), 0)

    def stories(self) -> list[StorySource]:
        """What its worker has been through; nothing before it has joined."""
        worker = self.worker
        return [] if worker is None else [StorySource("client", worker.story, time.monotonic)]

    def _join_job(self, stopping: threading.Event) -> bool:
        """False when the process was asked to stop before the training could begin."""
        plan = self._plan
        member = self.member
        try:
            if plan.starts is not None:
                ensure_started(plan.recovery, plan.starts, Deadline(plan.start_timeout, stopping))
            self.worker = scar.join(
                plan.recovery,
                member.name,
                job=plan.job,
                incarnation=member.incarnation,
                address=member.address,
                secret=self._secret,
                timeout=plan.timeout,
                start_timeout=plan.start_timeout,
                unacked_bytes=plan.unacked_bytes,
                outage_timeout=plan.outage_timeout,
                stopping=stopping,
            )
        except DeadlineExceeded:
            if not stopping.is_set():
                raise
        return self.worker is not None

    def _run_training(self) -> None:
        assert self.worker is not None
        with self.worker as worker:
            self._enter_state(TaskState.TRAINING)
            self._plan.train(worker)


def describe_error(error: BaseException) -> str:
    """What an error says, or at least which one it is."""
    if isinstance(error, SystemExit):
        return f"the training function called sys.exit({error.code!r})"
    return str(error) or repr(error)
