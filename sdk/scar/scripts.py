"""Training scripts without a training function: each worker runs the file from top to bottom.

`scar train FILE` runs it once more before, as far as :func:`initialize`, to learn the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from scar.errors import ConfigError, InvalidRequest
from scar.tables import Job

if TYPE_CHECKING:
    from scar.training import Worker

_initialize: ContextVar[Callable[[Job], Worker] | None] = ContextVar("_initialize", default=None)


class JobDeclared(BaseException):
    """Ends a script where its job is known. No ``except Exception`` of the script stops it."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.name)
        self.job = job


def initialize(job: Job) -> Worker:
    """In a script: declare its job, and go on as one of its workers.

    What stands before runs also in the process of `scar train`, and again in a worker that comes back. Call
    it once, at any depth. The worker is closed when the script ends. Raises :class:`ConfigError` when Python
    runs the file instead of `scar train`, :class:`InvalidRequest` when it is called twice.
    """
    start = _initialize.get()
    if start is None:
        raise ConfigError("nobody has started this script as a worker", "Run: scar train FILE --workers 2")
    return start(job)


def _declare(job: Job) -> Worker:
    raise JobDeclared(job)


@contextmanager
def declaring() -> Iterator[None]:
    """Meanwhile :func:`initialize` raises :class:`JobDeclared`."""
    with _initialized_by(_declare):
        yield


@contextmanager
def training_as(worker: Worker) -> Iterator[None]:
    """Meanwhile :func:`initialize` returns this worker, once. Raises :class:`ConfigError` if nobody asks."""
    asked: list[Job] = []

    def give_worker(job: Job) -> Worker:
        if asked:
            raise InvalidRequest(
                f"the script is a worker of {asked[0].name} already",
                "Call initialize once, and keep what it gives",
            )
        asked.append(job)
        return worker

    with _initialized_by(give_worker):
        yield
    if not asked:
        raise ConfigError(
            "the script ended without initialize, which it called when its job was read",
            "Call initialize in every run of the script",
        )


@contextmanager
def _initialized_by(start: Callable[[Job], Worker]) -> Iterator[None]:
    token = _initialize.set(start)
    try:
        yield
    finally:
        _initialize.reset(token)
