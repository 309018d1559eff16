"""How fast a simulation is, and who takes its steps.

    python -m tests.simulation.measure [--standby] [--pace 1.0] [--heartbeat 0.5] [--seconds 60] [--seeds 1]
                                       [--steps] [--samples] [--carrier thread] [--scenario swarm]

Four shards and three workers train; a shard dies on the way, found by the detectors. ``--steps``: steps in a
simulated second, by task and by the line of code that waited. ``--samples``: processor time by task and
function, from frequent looks at the stack. Both cost time themselves: the speed is what it is without them.
"""

from __future__ import annotations

import argparse
import collections
import gc
import re
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from tests.simulation import patches
from tests.simulation.__main__ import import_services, prepare_process, run_forked

OWN = "tests/simulation/"
LINES = 110  # of a table
SAMPLE_SECONDS = 0.0003

Table = collections.Counter[str]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.measure")
    parser.add_argument("--scenario", default="", help="another one than that")
    parser.add_argument("--standby", action="store_true", help="each coordinator twice")
    parser.add_argument("--heartbeat", type=float, default=0.0, help="seconds; 0: as the sources say")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds that a worker computes in a clock")
    parser.add_argument("--look", type=float, default=0.0, help="seconds; 0: as the swarm's operator")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the run, simulated")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--carrier", default="", help="greenlet or thread; the best one that is installed")
    parser.add_argument("--steps", action="store_true", help="who takes them")
    parser.add_argument("--samples", action="store_true", help="where processor time goes")
    return parser.parse_args()


def main(arguments: argparse.Namespace) -> None:
    patches.install()
    import_services(arguments.heartbeat)
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        run_forked(partial(_measured, arguments, seed))


def _measured(arguments: argparse.Namespace, seed: int) -> bool:
    """Whether something was wrong."""
    from tests.simulation.carriers import BEST
    from tests.simulation.world import World

    gc.disable()
    world = World(seed, carrier=arguments.carrier or BEST)
    steps = _StepCount(world.scheduler) if arguments.steps else None
    samples = _Samples(world.scheduler) if arguments.samples else None
    try:
        world.run(partial(_story, arguments, world), 10_000.0)
    except Exception as error:  # what it costs is of interest all the same
        world.wrong.append(str(error))
    if samples is not None:
        samples.stop()
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, seconds = used.ru_utime + used.ru_stime, world.scheduler.now
    taken = world.scheduler.steps
    _say(
        f"seed {seed}: {seconds:.1f} simulated s in {cpu:.2f} s of processor time: {seconds / cpu:.1f} times;"
        f" {taken / seconds:.0f} steps in a simulated second, {1e6 * cpu / taken:.1f} us each;"
        f" {used.ru_maxrss / 1024:.0f} MiB; {'; '.join(world.wrong + world.scheduler.failures)}"
    )
    if steps is not None:
        steps.tell(seconds)
    if samples is not None:
        samples.tell(taken)
    sys.stdout.flush()
    return bool(world.wrong or world.scheduler.failures)


def _story(arguments: argparse.Namespace, world: Any) -> None:
    from tests.simulation.plan import CHEAP_LOOK, Plan, RunShape, SimulatedFault
    from tests.simulation.scenarios import SCENARIOS
    from tests.simulation.swarm import play

    if arguments.scenario:
        SCENARIOS[arguments.scenario](world)
        return
    shape = RunShape(
        shards=4,
        workers=3,
        standby=arguments.standby,
        pace=arguments.pace,
        seconds=arguments.seconds,
        heartbeat=arguments.heartbeat,
        look=arguments.look or CHEAP_LOOK,
    )
    kill = SimulatedFault("kill", world.random.choice(shape.shard_names), 0.5 * arguments.seconds)
    play(world, Plan(world.seed, shape, ((kill,),)))


class _StepCount:
    """Counts where tasks suspend: each suspension is one step."""

    def __init__(self, scheduler: Any) -> None:
        self.by_task: Table = collections.Counter()
        self.by_place: Table = collections.Counter()
        for name in ("park", "pass_on"):
            setattr(scheduler, name, self._counting(scheduler, getattr(scheduler, name)))

    def _counting(self, scheduler: Any, waiting: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            if (task := scheduler.current) is not None:
                name = _kind(task)
                self.by_task[name] += 1
                self.by_place[f"{name:38} {_place(sys._getframe(1))}"] += 1
            return waiting(*arguments)

        return counted

    def tell(self, seconds: float) -> None:
        for title, table in (("task", self.by_task), ("task and place", self.by_place)):
            _say(f"\nsteps in a simulated second, by {title}")
            for name, count in table.most_common(LINES):
                _say(f"{count / seconds:9.2f}  {name}")


def _kind(task: Any) -> str:
    return re.sub("@[0-9a-f]+|[0-9]+", "N", task.label)


def _place(frame: FrameType | None) -> str:
    """The primitive that waits, and the first line outside of the simulation and the standard library."""
    first = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if OWN not in name and "/lib/python" not in name:
            return f"{first} < {name.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        if not first or first in ("park", "sleep", "switch", "_wait"):
            first = frame.f_code.co_name
        frame = frame.f_back
    return first


def _package(file: str) -> str:
    for root in ("tests/", "services/", "sdk/", "site-packages/"):
        if root in file:
            return "/".join(file.partition(root)[2].split("/")[:2])
    return file.rpartition("/")[2]


class _Samples:
    """Processor time by task, and by function: its own, and with what it calls."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.tasks: Table = collections.Counter()
        self.packages: Table = collections.Counter()
        self.own: Table = collections.Counter()
        self.all: Table = collections.Counter()
        signal.signal(signal.SIGALRM, self._take)
        signal.setitimer(signal.ITIMER_REAL, SAMPLE_SECONDS, SAMPLE_SECONDS)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _take(self, _signal: int, frame: FrameType | None) -> None:
        seen: set[str] = set()
        task = self._scheduler.current
        self.tasks["the scheduler" if task is None else _kind(task)] += 1
        while frame is not None:
            code = frame.f_code
            name = f"{'/'.join(code.co_filename.rsplit('/', 2)[1:])}:{code.co_firstlineno} {code.co_name}"
            if not seen:
                self.own[name] += 1
                self.packages[_package(code.co_filename)] += 1
            seen.add(name)
            frame = frame.f_back
        for name in seen:
            self.all[name] += 1

    def tell(self, steps: int) -> None:
        total = sum(self.own.values())
        for title, table in (
            ("by task", self.tasks),
            ("own, by package", self.packages),
            ("own", self.own),
            ("with what it calls", self.all),
        ):
            _say(f"\npercent of {total} samples, {title} ({steps} steps)")
            for name, count in table.most_common(LINES):
                _say(f"{100 * count / total:7.1f}  {name}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    prepare_process("tests.simulation.measure")
    main(parsed())
