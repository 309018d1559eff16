"""The scheduler: one task runs at a time, chosen by the seed, and the clock jumps when all wait.

A task is what the services know as a thread. It runs until a *switching point*: a lock, a wait, a sleep, a
call, a look at a clock. Tasks belong to hosts, which stand for processes: a host can be paused, slowed down,
and crashed. While code runs no time passes; a slow host is one on which switching points take time.
"""

from __future__ import annotations

import heapq
import math
import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from tests.simulation.carriers import BEST, CARRIERS, Carrier
from tests.simulation.trace import RunTrace

STEP = 1e-6  # seconds that pass with each step, so that no loop of steps lasts forever
WALL = 1_800_000_000.0  # seconds since 1970 at which every simulation begins
NO_TASK = 0  # in the place of a task's token, which begins at 1
MOST_DYING = 1000  # switching points that a task may reach while it is unwound

Body = Callable[[], None]


class Crashed(BaseException):
    """The host of this task is dead: its stack is unwound. No handler of errors may catch it."""


class Stuck(AssertionError):
    """Nothing will ever run again."""


@dataclass(eq=False)
class Host:
    """A process on a machine of its own.

    ``boot``: what its monotonic clock showed at first, less what it has slept; ``skew``: error of its wall
    clock; ``rate``: seconds of its clocks in a second; ``asleep``: seconds for which it was suspended.
    """

    name: str
    address: str
    boot: float = 0.0
    skew: float = 0.0
    rate: float = 1.0
    asleep: float = 0.0
    alive: bool = True
    paused_until: float = 0.0
    slow: float = 0.0  # mean seconds that a switching point takes
    fuse: int = 0  # switching points, while it is slow, after which it crashes; 0: it does not
    trap: str = ""  # it crashes at the next event whose name contains this; empty: it does not
    trap_seconds: float = 0.0  # for which it is paused there instead; 0: it crashes
    held: list[Task] = field(default_factory=list)  # that would run if it were not paused
    tasks: dict[int, Task] = field(default_factory=dict)
    crashed: list[Body] = field(default_factory=list)  # who wants to know of its end

    def monotonic(self, now: float) -> float:
        """What CLOCK_MONOTONIC shows, which stands still while the machine is suspended."""
        return self.boot + self.rate * now

    def boottime(self, now: float) -> float:
        """What CLOCK_BOOTTIME shows, which does not."""
        return self.boot + self.rate * now + self.asleep

    def wall(self, now: float) -> float:
        return WALL + self.rate * now + self.skew


class Task:
    """``owner``: the thread object that it stands for."""

    __slots__ = (
        "carrier",
        "deaths",
        "ended",
        "host",
        "joiners",
        "label",
        "name",
        "number",
        "owner",
        "slow",
        "token",
        "waiting",
        "woken",
    )

    def __init__(self, number: int, host: Host, name: str) -> None:
        self.number, self.host, self.name = number, host, name
        self.label = f"{host.name}/{name}"
        self.token = self.deaths = 0
        self.waiting = self.woken = self.ended = False
        self.slow = 0.0
        self.joiners: list[Task] = []
        self.owner: object = None
        self.carrier: Carrier  # set by who makes it


class Scheduler:
    """``preempt``: probability of a switch where none is needed; ``trace``: gets a line for each step.

    ``calm``: switching points without a switch until the next one: what drawing at each of them would give.
    Below 0 all the time while the running task's host is slow or dead. ``sprung``: how often hosts have
    crashed or paused at an event whose name contains this: "crash epoch.created".
    """

    def __init__(
        self, seed: int, preempt: float = 0.02, carrier: str = BEST, trace: TextIO | None = None
    ) -> None:
        self.random = random.Random(f"scheduler {seed}")
        self.secrets = random.Random(f"secrets {seed}")
        self.now = 0.0
        self.current: Task | None = None
        self.failures: list[str] = []
        self.hosts: dict[str, Host] = {}
        self.steps = 0
        self.sprung: Counter[str] = Counter()
        self._preempt, self._carrier, self._trace = preempt, CARRIERS[carrier], RunTrace(trace)
        self.calm = self._next_calm()
        self._kept_calm: float | None = None  # while the running task's host is slow or dead
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Any, int]] = []  # when, number, task or action, token
        self._numbers = self._hosts = 0

    # --- hosts and tasks -----------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """A new host with clocks of its own; a former one of this name is another one."""
        self._numbers += 1
        self._hosts += 1
        address = f"10.0.{self._hosts >> 8}.{self._hosts & 255}"
        found = Host(name, address, boot=self.random.uniform(1e3, 1e6))
        self.hosts[name] = found
        return found

    def spawn(self, host: Host, name: str, body: Body) -> Task:
        self._numbers += 1
        task = Task(self._numbers, host, name)
        task.carrier = self._carrier(lambda: self._run_task(task, body))
        if host.alive:
            host.tasks[task.number] = task
            self._ready.append(task)
        else:
            task.ended = True
        return task

    def _run_task(self, task: Task, body: Body) -> None:
        try:
            if task.host.alive:
                body()
        except Crashed:
            pass
        except BaseException:
            if task.host.alive:  # a stack that is unwound may release what it did not get
                self.fail(f"{task.label}: {traceback.format_exc()}")
        finally:
            task.ended = True
            task.host.tasks.pop(task.number, None)
            for joiner in task.joiners:
                self.unpark(joiner)

    def fail(self, what: str) -> None:
        self.failures.append(what)
        self.record(f"failure {what}")

    # --- what tasks call -----------------------------------------------------------------------------------

    def switch(self) -> None:
        """A switching point: now and then another task runs first; on a slow host time passes."""
        self.calm -= 1
        if self.calm < 0:
            self.pass_on()

    def pass_on(self) -> None:
        """The part of a switching point that is seldom needed: when ``calm`` is below 0."""
        task = self.current
        if task is None:
            return
        if not task.host.alive:
            self._die(task)
        if slow := task.slow or task.host.slow:
            self._burn_fuse(task.host)
            self.sleep(self.random.expovariate(1 / slow))
            return
        self.calm = self._next_calm()
        self._ready.append(task)
        self._suspend(task)

    def _next_calm(self) -> float:
        return self.random.expovariate(self._preempt) if self._preempt else math.inf

    def park(self, until: float | None = None) -> bool:
        """Wait for :meth:`unpark`. False when time ``until`` has come first."""
        task = self.current
        if task is None:
            raise Stuck("code outside of every task would wait forever")
        if not task.host.alive:
            self._die(task)
        task.token += 1
        task.waiting = True
        task.woken = False
        if until is not None:
            self._numbers += 1
            heapq.heappush(self._timers, (until, self._numbers, task, task.token))
        task.carrier.suspend()
        if not task.host.alive:
            self._die(task)
        return task.woken

    def unpark(self, task: Task) -> None:
        if task.waiting:
            task.waiting = False
            task.woken = True
            self._ready.append(task)

    def sleep(self, seconds: float) -> None:
        self.park(self.now + max(0.0, seconds))

    def at(self, when: float, action: Body) -> None:
        """Call this then, outside of every task: it may not wait."""
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, action, NO_TASK))

    def record(self, what: str) -> None:
        """Add an event to the trace."""
        self._trace.event(self.now, what)

    @property
    def digest(self) -> str:
        return self._trace.digest

    def event(self, host: Host, what: str) -> None:
        """Something that has a name happens on this host. No switching point."""
        self._trace.event(self.now, f"{host.name} {what}")
        if host.trap and host.trap in what:
            self.record(f"trap {host.name} {host.trap}")
            self.sprung[f"{'pause' if host.trap_seconds else 'crash'} {host.trap}"] += 1
            host.trap = ""
            self._spring_trap(host)

    def _spring_trap(self, host: Host) -> None:
        if not host.trap_seconds:
            self.crash(host)
            return
        self.pause(host, host.trap_seconds)
        task = self.current
        if task is not None and task.host is host:
            self._ready.append(task)
            self._suspend(task)

    def _die(self, task: Task) -> None:
        task.deaths += 1
        if task.deaths > MOST_DYING:
            self.fail(f"{task.label} does not end with its host")
            task.carrier.suspend()
        raise Crashed

    def _suspend(self, task: Task) -> None:
        task.carrier.suspend()
        if not task.host.alive:
            self._die(task)

    # --- faults of hosts -----------------------------------------------------------------------------------

    def crash(self, host: Host) -> None:
        """Its tasks are unwound before anything else runs; what they do meanwhile reaches nobody."""
        if not host.alive:
            return
        self.record(f"crash {host.name}")
        host.alive = False
        for task in list(host.tasks.values()):
            if task is not self.current:
                task.waiting = False
                task.token += 1
                self._remove(task)
                self._ready.append(task)
        for told in host.crashed:
            told()
        if self.current is not None and self.current.host is host:
            self._keep_calm()
            self._die(self.current)

    def _remove(self, task: Task) -> None:
        for waiting in (self._ready, task.host.held):
            if task in waiting:
                waiting.remove(task)

    def light_fuse(self, host: Host, points: int) -> None:
        """Crash it after so many of its switching points: anywhere in its code, with its locks held."""
        host.fuse = max(1, points)
        host.slow = host.slow or STEP  # so that each of them counts

    def _burn_fuse(self, host: Host) -> None:
        if host.fuse:
            host.fuse -= 1
            if not host.fuse:
                self.crash(host)

    def set_rate(self, host: Host, rate: float) -> None:
        """Its clocks run faster or slower from now on, without a jump."""
        host.boot += (host.rate - rate) * self.now
        host.skew += (host.rate - rate) * self.now
        host.rate = rate

    def suspend(self, host: Host, seconds: float) -> None:
        """As when a laptop's lid is closed: nothing runs, timers and the monotonic clock stand still."""
        lost = max(0.0, self.now + seconds - max(self.now, host.paused_until))
        host.boot -= host.rate * lost
        host.asleep += host.rate * lost
        self._timers[:] = [
            (when + lost if isinstance(what, Task) and what.host is host else when, number, what, token)
            for when, number, what, token in self._timers
        ]
        heapq.heapify(self._timers)
        self.pause(host, seconds)

    def pause(self, host: Host, seconds: float) -> None:
        """As SIGSTOP and SIGCONT do."""
        self.record(f"pause {host.name} {seconds:.3f}")
        host.paused_until = max(host.paused_until, self.now + seconds)
        self.at(host.paused_until, lambda: self._thaw(host))

    def _thaw(self, host: Host) -> None:
        if self.now >= host.paused_until:
            self._ready += host.held
            host.held = []

    # --- the loop ------------------------------------------------------------------------------------------

    def run(self, task: Task, seconds: float) -> bool:
        """Run everything until this task has ended; False when it has not within so much simulated time."""
        end = self.now + seconds
        timers, ready = self._timers, self._ready
        while not task.ended:
            if timers and timers[0][0] <= self.now:
                self._fire()
            if ready:
                self._resume()
            elif not timers:
                raise Stuck(f"{task.name} waits forever, and so does everybody else")
            elif timers[0][0] > end:
                return False
            elif timers[0][0] > self.now:
                self.now = timers[0][0]
        return True

    def _fire(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            _, _, what, token = heapq.heappop(timers)
            if token == NO_TASK:
                what()
            elif what.waiting and what.token == token:
                what.waiting = False
                self._ready.append(what)

    def _resume(self) -> None:
        """One step of a task that could go on."""
        ready = self._ready
        count = len(ready)
        if count > 1:
            index = int(self.random.random() * count)
            ready[index], ready[-1] = ready[-1], ready[index]
        task = ready.pop()
        host = task.host
        if host.paused_until > self.now and host.alive:
            host.held.append(task)
            return
        self.now += STEP
        self.steps += 1
        if host.alive:
            self._trace.step(self.now, task.number, task.label)
        if task.slow or host.slow or not host.alive:
            self._keep_calm()
        self.current = task
        try:
            task.carrier.resume()
        finally:
            self.current = None
            if self._kept_calm is not None:
                self.calm, self._kept_calm = self._kept_calm, None

    def _keep_calm(self) -> None:
        """Until this step is over, each switching point is one at which something happens."""
        if self._kept_calm is None:
            self._kept_calm, self.calm = self.calm, -1.0


class Nobody(Scheduler):
    """Stands in while nothing is simulated, as when modules are imported: nobody may wait then."""

    def __init__(self) -> None:
        super().__init__(0, preempt=0.0)


active: Scheduler = Nobody()


def use(scheduler: Scheduler) -> None:
    """From now on this is the one that replaced primitives ask."""
    global active
    active = scheduler
