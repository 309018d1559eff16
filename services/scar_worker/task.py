"""One run of a user's training function: join, train, leave; and what it looks like from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import scar
from scar.errors import DeadlineExceeded
from scar.placement import Member
from scar.tables import Job
from scar.transport import Deadline
from scar_worker.starter import ensure_started


class State(StrEnum):
    WAITING = "waiting"  # for the job to start, or for other workers
    TRAINING = "training"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class Plan:
    """What to run, and with which patience (seconds)."""

    recovery: str
    job: Job
    train: Callable[[scar.Worker], object]
    timeout: float
    patience: float
    unacked_bytes: int
    resident: bool = False  # start the job when nobody else has, and stay up afterwards: whoever runs us restarts what ends


class Task:
    """``run`` belongs to the main thread; everything else may be read by any."""

    def __init__(self, plan: Plan, member: Member) -> None:
        self._plan, self.member = plan, member
        self.worker: scar.Worker | None = None
        self.state = State.WAITING
        self.error = ""

    def run(self, stopping: threading.Event) -> None:
        """Train until the function returns. Once ``stopping`` is set, :meth:`scar.Worker.clocks` ends with the open clock."""
        try:
            if self._join(stopping):
                self._train()
            self.state = State.FINISHED
            if self._plan.resident:
                stopping.wait()
        except Exception as error:
            self.state, self.error = State.FAILED, str(error) or repr(error)
            raise

    def follow(self, stopping: threading.Event) -> None:
        """Tell the worker when the process is asked to stop; runs in a thread of its own."""
        stopping.wait()
        worker = self.worker
        if worker is not None:
            worker.stop()

    @property
    def job(self) -> str:
        """Name of the job that it trains, or waits for."""
        return self._plan.job.name

    @property
    def epoch(self) -> int:
        return self.worker.epoch if self.worker is not None else 0

    def _join(self, stopping: threading.Event) -> bool:
        """False when the process was asked to stop before the training could begin."""
        plan, member = self._plan, self.member
        try:
            if plan.resident:
                ensure_started(plan.recovery, plan.job, Deadline(plan.patience, stopping))
            self.worker = scar.join(
                plan.recovery,
                member.name,
                job=plan.job.name,
                incarnation=member.incarnation,
                address=member.address,
                timeout=plan.timeout,
                patience=plan.patience,
                unacked_bytes=plan.unacked_bytes,
                stopping=stopping,
            )
        except DeadlineExceeded:
            if not stopping.is_set():
                raise
        return self.worker is not None

    def _train(self) -> None:
        assert self.worker is not None
        with self.worker as worker:
            self.state = State.TRAINING
            self._plan.train(worker)
