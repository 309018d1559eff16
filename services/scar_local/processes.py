"""Operating-system processes of a cluster: one thread starts them, notices their end and starts them again.

Only the supervising thread starts processes: the kernel's parent-death signal belongs to the *thread* that
started a child, so a helper thread that ends would take its children with it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from scar.errors import ConfigError, DeadlineExceeded
from scar_admin.status import ProcessInfo
from scar_local.cuts import CutKeeper
from scar_local.forks import ForkServer, last_words
from scar_local.forkserver import NOT_STARTED
from scar_local.process_spec import Child, Spec

TICK = 0.03  # seconds between looks at the children
SEEN = 1.0  # seconds at most until a signal that cannot be refused has had its effect
AFTER = {signal.SIGKILL: "killed", signal.SIGSTOP: "paused", signal.SIGCONT: "running"}


class Supervisor:
    """Starts, restarts and ends processes; every method may be called from any thread.

    ``logs``: directory for ``<name>.log``. ``environment``: variables of all processes. ``delay``: seconds
    between an end and the next start. ``changed``: called (from the supervising thread) after anything
    changed. ``cuts``: folder in which others ask for processes to be cut off; None: nobody does.
    """

    def __init__(
        self,
        logs: Path,
        environment: Mapping[str, str],
        *,
        respawn: bool = True,
        delay: float = 1.0,
        changed: Callable[[], None] = lambda: None,
        cuts: Path | None = None,
    ) -> None:
        self._logs = logs
        self._environment = environment
        self._respawn = respawn
        self._delay = delay
        self._changed = changed
        self._children: dict[str, Child] = {}
        self._moved = threading.Condition(threading.RLock())
        self._wake = threading.Event()
        self._closed = False
        self.cuts = CutKeeper(cuts, self.info)
        self._forks: dict[tuple[str, ...], ForkServer] = {}  # by what it imports beforehand
        self._owner = os.getpid()
        logs.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._supervise_children, name="supervisor", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # --- for callers

    def start(self, *specs: Spec) -> None:
        """Start these processes at the same time; returns at once. :class:`ConfigError` when one of them
        runs already.
        """
        with self._moved:
            for spec in specs:
                known = self._children.get(spec.name)
                if known is not None and known.alive:
                    raise ConfigError(
                        f"a process {spec.name} runs already", "Stop it first, or choose another name"
                    )
                if spec.output is not None:
                    for old in (spec.output, self._log_path(spec.name)):
                        old.unlink(missing_ok=True)
                self._children[spec.name] = Child(spec)
        self._wake.set()

    def await_started(self, names: Iterable[str], timeout: float) -> None:
        """Wait until these processes run and have written their address files.

        Raises :class:`ConfigError` when one ends before that, :class:`DeadlineExceeded` after ``timeout``
        seconds.
        """
        children = [self._find_child(name) for name in names]

        def settled() -> bool:
            for child in children:
                if child.code is not None:
                    raise ConfigError(*self.describe_end(child.spec.name))
            return all(child.pid and (child.address or not child.spec.address_file) for child in children)

        self._wait_for(
            settled,
            time.monotonic() + timeout,
            f"the start of {', '.join(child.spec.name for child in children)}",
        )

    def restart(self, name: str) -> None:
        """Start it again now; a living process is killed first."""
        with self._moved:
            child = self._find_child(name)
            child.held = False
            if child.alive:
                self._server_of(child).signal(child.pid, signal.SIGKILL)
                child.state = "killed"
            child.due = 0.0
        self._wake.set()
        self._wait_for(lambda: child.alive, time.monotonic() + 10, f"{name} to start")

    def signal(self, name: str, number: signal.Signals, *, respawn: bool | None = None) -> int:
        """Send a signal to the process and its own children; returns its pid. ``respawn=False``: it stays
        down afterwards.

        Returns when the effect is visible. Raises :class:`ConfigError` when there is no such process or it
        does not run.
        """
        with self._moved:
            child = self._find_child(name)
            if not child.alive:
                raise ConfigError(
                    f"{name} does not run ({child.state})", "Wait for its restart, or restart it"
                )
            if respawn is not None:
                child.held = not respawn
            pid = child.pid
            self._server_of(child).signal(pid, number)
            self._wake.set()
            self._moved.wait_for(
                lambda: child.pid != pid or child.state == AFTER.get(number, child.state), SEEN
            )
        return pid

    def retire(self, name: str) -> None:
        """Ask it to end by SIGTERM; it takes its time, is not started again, and is forgotten then."""
        with self._moved:
            child = self._children.get(name)
            if child is None:
                return
            child.retired = True
            self._end_child(child, at_once=False)
        self._wake.set()

    def stop(self, names: Collection[str], grace: float) -> None:
        """End these processes for good: SIGTERM, and SIGKILL after ``grace`` seconds (0: at once)."""
        with self._moved:
            children = [self._children[name] for name in names if name in self._children]
            for child in children:
                self._end_child(child, at_once=not grace)
        self._wake.set()
        if grace and not self._await_end(children, grace):
            self.stop(names, 0)
        elif not grace:
            self._await_end(children, 5.0)

    def _end_child(self, child: Child, at_once: bool) -> None:
        """For good, also one that is frozen; the lock is held."""
        child.held = True
        child.due = None
        if child.alive:
            self._server_of(child).signal(child.pid, signal.SIGKILL if at_once else signal.SIGTERM)
            self._server_of(child).signal(child.pid, signal.SIGCONT)

    def wait(self, names: Collection[str], timeout: float) -> dict[str, int]:
        """Exit code of each of these processes when all have ended for good. Raises
        :class:`DeadlineExceeded`.
        """
        with self._moved:
            children = {name: self._find_child(name) for name in names}
        self._wait_for(
            lambda: all(not child.alive and child.due is None for child in children.values()),
            time.monotonic() + timeout,
            f"the end of {', '.join(names)}",
        )
        return {
            name: child.code if child.code is not None else NOT_STARTED for name, child in children.items()
        }

    def address(self, name: str) -> str:
        """host:port that the process wrote into its address file."""
        with self._moved:
            return self._find_child(name).address

    def describe_end(self, name: str) -> tuple[str, str]:
        """What is known of a process that has ended, or does not do its work: the end of its log, and
        where that is.
        """
        child = self._find_child(name)
        path = self._log_path(name)
        if child.refusal:
            return f"{name} could not be started: {child.refusal}", f"See the logs in {self._logs}"
        end = (
            f"ended with exit code {child.code} while it started"
            if child.code is not None
            else "does not answer"
        )
        printed = child.spec.output
        words = (last_words(printed) if printed and printed.exists() else "") or last_words(
            path, child.logged
        )
        return f"{name} {end}{words and f': {words}'}", f"See {path}"

    def info(self) -> list[ProcessInfo]:
        with self._moved:
            return [child.info(self.cuts.names) for child in self._children.values()]

    def close(self) -> None:
        """Kill whatever is left and end the thread. Safe to call twice; does nothing in a forked copy of
        this process.
        """
        if self._closed or os.getpid() != self._owner:
            return
        self.stop(list(self._children), 0)
        self._closed = True
        self._wake.set()
        self._thread.join(5.0)
        for server in self._forks.values():
            server.close()
        atexit.unregister(self.close)

    # --- the supervising thread

    def _supervise_children(self) -> None:
        while not self._closed:
            with self._moved:
                moved = [self._collect_changes(time.monotonic()), self._forget_retired(), self.cuts.look()]
                moved += [self._step_child(child, time.monotonic()) for child in self._children.values()]
                if any(moved):
                    self._moved.notify_all()
            if any(moved):
                with contextlib.suppress(OSError):  # a full disk must not end the cluster
                    self._changed()
            self._wake.wait(TICK)
            self._wake.clear()

    def _collect_changes(self, now: float) -> bool:
        """What became of the children; True when something changed."""
        changes = [change for server in self._forks.values() for change in server.changes()]
        by_pid = {child.pid: child for child in self._children.values() if child.pid}
        for pid, status in changes:
            if pid in by_pid:
                self._note_change(by_pid[pid], status, now)
        return bool(changes)

    def _forget_retired(self) -> bool:
        ended = [name for name, child in self._children.items() if child.retired and not child.alive]
        for name in ended:
            del self._children[name]
        return bool(ended)

    def _note_change(self, child: Child, status: int, now: float) -> None:
        if os.WIFSTOPPED(status):
            child.state = "paused"
        elif os.WIFCONTINUED(status):
            child.state = "running"
        else:
            self._note_end(child, os.waitstatus_to_exitcode(status), now)

    def _step_child(self, child: Child, now: float) -> bool:
        """Start one child if that is due, and look for its address; True when something changed."""
        before = (child.pid, child.state, child.address)
        due = child.due is not None and child.due <= now and (child.pid == 0 or child.code is not None)
        if due and self._server_of(child).ready():
            self._spawn_child(child, now)
        if child.alive and not child.address and child.spec.address_file and child.spec.address_file.exists():
            child.address = child.spec.address_file.read_text().strip()
            child.listen = child.address if child.spec.fixed else ""
            child.proved = True
        return before != (child.pid, child.state, child.address)

    def _note_end(self, child: Child, code: int, now: float) -> None:
        child.code = code
        child.state = "killed" if code < 0 else "exited"
        returns = child.spec.returns(code) or child.proved  # what it needs may be down: its port, Redis
        if child.due is None and self._respawn and not child.held and returns:
            child.due = now + self._delay

    def _spawn_child(self, child: Child, now: float) -> None:
        spec = child.spec
        environment = {**os.environ, **self._environment, **spec.environment}
        if child.listen:
            environment["SCAR_LISTEN"] = child.listen
        if spec.address_file:
            spec.address_file.unlink(missing_ok=True)
        child.due = None
        child.code = None
        child.address = ""
        child.refusal = ""
        child.restarts += 1
        log = self._log_path(spec.name)
        try:
            child.logged = log.stat().st_size if log.exists() else 0
            child.pid = self._server_of(child).spawn(spec.name, spec.command, environment, log)
            child.state = "running"
        except OSError as error:
            child.refusal = str(error)
            self._note_end(child, NOT_STARTED, now)

    # --- waiting

    def _find_child(self, name: str) -> Child:
        if name not in self._children:
            raise ConfigError(
                f"there is no process {name!r}", f"Known are {', '.join(self._children) or 'none'}"
            )
        return self._children[name]

    def _server_of(self, child: Child) -> ForkServer:
        """Another one for each list of modules: what ends one server while it imports them ends no process
        of another.
        """
        preload = child.spec.preload
        if preload not in self._forks:
            name = "-".join(["forkserver", *preload[:1]])
            self._forks[preload] = ForkServer(self._environment, self._logs / f"{name}.log", preload)
        return self._forks[preload]

    def _log_path(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _await_end(self, children: Sequence[Child], seconds: float) -> bool:
        with self._moved:
            return self._moved.wait_for(
                lambda: all(not child.pid or child.code is not None for child in children), seconds
            )

    def _wait_for(self, condition: Callable[[], bool], deadline: float, what: str) -> None:
        with self._moved:
            if not self._moved.wait_for(condition, max(0.0, deadline - time.monotonic())):
                raise DeadlineExceeded(f"waited without result for {what}", f"See the logs in {self._logs}")
