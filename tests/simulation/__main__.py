"""Run scenarios by seeds.

    python -m tests.simulation lost_shard --first 1 --seeds 20 [--undo B2] [--stop] [--trace FOLDER]
    python -m tests.simulation swarm --plan FILE

Writes one JSON object a run: what was wrong, if anything, and the digest of its trace. Each run is a fork of
this process, so it begins with the same memory. Exit code 1: one has failed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from tests.simulation import patches
from tests.simulation.heartbeats import heartbeat_of, heartbeat_of_plan

ROOT = Path(__file__).resolve().parents[2]
# or each fork would import them
LATE = ("tests.simulation.run", "numpy.random", "numpy.ma", "scar_runtime.store.s3")
end_process = os._exit


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("scenarios", nargs="+")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--undo", default="", help="a mended bug whose mending is taken back")
    parser.add_argument("--trace", default="", help="folder for traces, a file for each run")
    parser.add_argument("--carrier", default="", help="greenlet or thread; the best one that is installed")
    parser.add_argument("--plan", default="", help="file with the plan of a swarm, instead of seeds")
    parser.add_argument("--heartbeat", type=float, default=0.0, help="seconds; 0: what a seed draws")
    parser.add_argument("--stop", action="store_true", help="at the first seed that fails")
    return parser.parse_args(argv)


def main(arguments: argparse.Namespace) -> int:
    patches.install()
    failed = False
    for scenario, heartbeat, seeds in _groups(arguments):
        if not (failed and arguments.stop):
            failed = run_forked(partial(_play_all, scenario, heartbeat, seeds, arguments)) != 0 or failed
    return int(failed)


def _groups(arguments: argparse.Namespace) -> Iterator[tuple[str, float, list[int]]]:
    """Scenario, heartbeat, seeds: what can be played with the services as they are imported once."""
    if arguments.plan:
        yield "swarm", arguments.heartbeat or heartbeat_of_plan(arguments.plan), [0]
        return
    for scenario in arguments.scenarios:
        drawn = scenario == "swarm" and not arguments.heartbeat
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        for heartbeat, group in groupby(seeds, heartbeat_of if drawn else lambda _: arguments.heartbeat):
            yield scenario, heartbeat, list(group)


def import_services(heartbeat: float, bug: str = "") -> None:
    """As they are, but for their heartbeat (seconds; 0: as the sources say) and a bug that comes back."""
    from tests.simulation import mutations

    gc.disable()  # what is imported stays, and each run is without it, too
    if heartbeat:
        os.environ["SCAR_HEARTBEAT_SECONDS"] = str(heartbeat)  # of this fork; read as timing is imported
    if bug:
        mutations.apply(mutations.edits_of(bug))
    for module in LATE:
        importlib.import_module(module)


def _play_all(scenario: str, heartbeat: float, seeds: list[int], arguments: argparse.Namespace) -> bool:
    """Whether one has failed."""
    import_services(heartbeat, arguments.undo)
    failed = False
    for seed in seeds:
        if not (failed and arguments.stop):
            failed = _play(scenario, seed, arguments) or failed
    return failed


def _play(scenario: str, seed: int, arguments: argparse.Namespace) -> bool:
    """Whether this run has failed. What it does to the process's memory is gone with the fork."""
    from tests.simulation.plan import Plan  # here, because the patches come before everything else
    from tests.simulation.run import run

    plan = Plan.from_json(Path(arguments.plan).read_text()) if arguments.plan else None
    seed = plan.seed if plan else seed
    status = run_forked(partial(run, scenario, seed, arguments.carrier, arguments.trace, plan))
    if os.WIFSIGNALED(status):
        wrong = f"its process was ended by signal {os.WTERMSIG(status)}: it takes too much time or memory"
        sys.stdout.write(json.dumps({"scenario": scenario, "seed": seed, "wrong": wrong}) + "\n")
        sys.stdout.flush()
    return status != 0


def run_forked(body: Callable[[], bool]) -> int:
    """How a fork of this process ended that does this: 0 when it has not failed."""
    child = os.fork()
    if not child:
        failed = True
        try:
            failed = body()
        except BaseException:
            traceback.print_exc()
        finally:
            end_process(int(failed))
    return os.waitpid(child, 0)[1]


def prepare_process(module: str) -> None:
    """Start this program again as ``python -m module``, unless sets have the same order in each process."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a run
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        alone = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}  # idle ones spin
        os.execve(sys.executable, command, {**os.environ, **alone})
    os.environ["SCAR_INSECURE"] = "true"  # simulated hosts reach each other, and have no certificates
    sys.path[:0] = [str(ROOT / "sdk"), str(ROOT / "services")]


if __name__ == "__main__":
    prepare_process("tests.simulation")
    raise SystemExit(main(parsed(sys.argv[1:])))
