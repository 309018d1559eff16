"""Why a training does not continue: who is waited for, and since when."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.markup import escape

from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus
from scar_admin.waits import Wait, waits
from scar_cli.clusters import ClusterTarget, observed_status
from scar_cli.output import format_seconds

SAY_SECONDS = 5.0  # after which a wait is worth lines of its own
WORTH_SECONDS = 1.0  # before which nothing is said: every start waits for an instant
AGAIN_SECONDS = 30.0  # between two looks at the stack of one worker


def describe_wait(wait: Wait) -> str:
    """One line: what is waited for, and for how long."""
    return f"{wait.text} ({format_seconds(wait.seconds)})" if wait.seconds >= 0 else wait.text


class WaitReporter:
    """Remembers when each wait began, and prints the long ones once, with the stack of the worker."""

    def __init__(
        self, screen: Console, observer: ClusterObserver, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = screen
        self._observer = observer
        self._now = now
        self._since: dict[str, float] = {}
        self._told: dict[str, float] = {}

    def look(self, status: ClusterStatus) -> tuple[str, ...]:
        """Lines about what is waited for now. Prints more about those that have been there for long."""
        now = self._now()
        found = {_wait_key(wait): wait for wait in waits(status)}
        self._since = {key: self._since.get(key, now) for key in found}
        self._told = {key: told for key, told in self._told.items() if key in found}
        measured = {key: self._timed(key, wait, now) for key, wait in found.items()}
        for key, wait in measured.items():
            if wait.seconds >= SAY_SECONDS and now >= self._told.get(key, -AGAIN_SECONDS) + AGAIN_SECONDS:
                self._told[key] = now
                self._tell(wait)
        return tuple(describe_wait(wait) for wait in measured.values() if wait.seconds >= WORTH_SECONDS)

    def _timed(self, key: str, wait: Wait, now: float) -> Wait:
        return wait if wait.seconds >= 0 else replace(wait, seconds=now - self._since[key])

    def _tell(self, wait: Wait) -> None:
        for line in wait_lines(wait, self._observer.stack(wait.worker) if wait.worker else []):
            self._screen.print(line, soft_wrap=True)


def wait_lines(wait: Wait, stack: Sequence[str]) -> list[str]:
    """What is waited for, where that worker is, and what to do; with markup."""
    lines = [f"[bold yellow]waiting:[/] {escape(describe_wait(wait))}"]
    lines += [f"  {escape(frame)}" for frame in stack]
    return lines + ([f"  [bold]next:[/] {escape(wait.step)}"] if wait.step else [])


def read_waits(target: ClusterTarget) -> tuple[ClusterStatus, list[tuple[Wait, list[str]]]]:
    """One look at a cluster: what is waited for, each with the stack of the worker.

    Raises what :func:`look` raises.
    """
    with target.observer() as observer:
        status = observed_status(observer, target)
        return status, [(wait, observer.stack(wait.worker) if wait.worker else []) for wait in waits(status)]


def _wait_key(wait: Wait) -> str:
    """The same wait, whatever the numbers in its text."""
    return wait.worker or "".join(letter for letter in wait.text if not letter.isdigit())
