"""What workers that heal servers cost while nothing happens, and how long a recovery takes, in pairs.

    python -m benchmarks.healing [--pairs 20] [--kills 6] [--consistency asp]
    python -m benchmarks.healing --strategy partial-slots --kills 0     # with Adam, as a replica would be

One cluster has ``sources="workers"``, the other one none; both stand all the time, and take turns in an order
that is drawn, so a busy moment of the machine meets both. An iteration pulls a table, pushes to all of it and
ends the clock; it computes nothing, so the share of a real one is smaller. Then one of two servers dies by
SIGKILL in each, and what it had comes back from the worker here, and there from the store.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

import scar
from benchmarks.measure import processor_seconds_of
from benchmarks.recover import kill_and_recover
from benchmarks.training import BenchTraining, start_training
from scar_compare.statistics import mean_estimate

BARE = "partial"
WITHOUT_SLOTS = "partial-workers"
SOURCES = {  # where what was lost comes from, by strategy
    BARE: "object",
    WITHOUT_SLOTS: "worker",
    "partial-slots": "worker",
    "partial-missing": "",  # a replica, or an object that is as new
}
SIZES = {"4 kB": (64, 16), "4 MB": (1 << 16, 16)}
LOST = (2 * 20_000_000 // 256, 64)  # of float32: 20 MB on each of two servers
WARM_UP = 20  # clocks
Runs = Mapping[str, BenchTraining]


@contextmanager
def start_both(shape: tuple[int, int], consistency: str, strategy: str) -> Iterator[Runs]:
    """By strategy: a cluster of two servers, with this process as its only worker."""
    rule = scar.add() if strategy == WITHOUT_SLOTS else scar.adam(1e-3)
    with ExitStack() as stack:
        table = scar.Table("w", shape, rule=rule)
        yield {
            name: stack.enter_context(
                start_training([table], shards=2, strategy=name, consistency=consistency)
            )
            for name in (BARE, strategy)
        }


def processor_seconds(run: BenchTraining) -> float:
    """That this process, the worker, and both servers have used; other work on the machine is not in it."""
    servers = (run.cluster.pid(name) for name in ("ps-0", "ps-1"))
    return time.process_time() + sum(map(processor_seconds_of, servers))


def train(run: BenchTraining, gradient: NDArray[np.float32], clocks: int) -> NDArray[np.float64]:
    """Milliseconds of an iteration: by the clock on the wall, and of processors."""
    began = np.array([time.perf_counter(), processor_seconds(run)])
    for _ in range(clocks):
        run.worker.pull("w")
        run.step(lambda: run.worker.push("w", gradient))
    took: NDArray[np.float64] = np.array([time.perf_counter(), processor_seconds(run)]) - began
    return 1e3 * took / clocks


def measure_idle(
    shape: tuple[int, int], pairs: int, clocks: int, consistency: str, strategy: str
) -> dict[str, object]:
    """Milliseconds of an iteration without workers as sources, and how many it takes more with them."""
    gradient = np.full(shape, 1e-3, np.float32)
    order = random.Random(1)
    found: dict[str, list[NDArray[np.float64]]] = {BARE: [], strategy: []}
    with start_both(shape, consistency, strategy) as runs:
        for run in runs.values():
            train(run, gradient, WARM_UP)
        for _ in range(pairs):
            for name in order.sample([BARE, strategy], 2):
                found[name].append(train(runs[name], gradient, clocks))
    report: dict[str, object] = {"pairs": pairs}
    bare, with_workers = (np.array(found[name]) for name in (BARE, strategy))
    for kind, name in enumerate(("wall", "processors")):
        more = with_workers[:, kind] - bare[:, kind]
        report[f"{name}, ms"] = f"{mean_estimate(bare[:, kind].tolist()):.3f}"
        report[f"{name}, more"] = f"{mean_estimate(more.tolist()):.3f}"
    return report


def measure_recovery(kills: int, consistency: str, strategy: str) -> dict[str, object]:
    """Seconds from the report of a death to the last block that is served again, by strategy."""
    found: dict[str, list[float]] = {BARE: [], strategy: []}
    with start_both(LOST, consistency, strategy) as runs:
        for run in runs.values():
            _change_all(run)
            run.save()
        for number in range(1, kills + 1):
            for name in random.Random(number).sample([BARE, strategy], 2):
                run = runs[name]
                run.worker.pull("w")  # a copy of the open clock
                record = kill_and_recover(run, number)
                came = SOURCES[name]
                assert not came or record.sources[came] == record.lost_blocks, dict(record.sources)
                found[name].append(record.wait_seconds + record.commit_seconds + record.load_seconds)
    more = [late - early for late, early in zip(found[strategy], found[BARE], strict=True)]
    means = {name: f"{mean_estimate(seconds):.3f}" for name, seconds in found.items()}
    return {**means, "more": f"{mean_estimate(more):.3f}", "most": round(max(more), 3), "kills": kills}


def _change_all(run: BenchTraining) -> None:
    run.step(lambda: run.worker.push("w", np.ones(LOST, np.float32)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="of windows, for each size of table")
    parser.add_argument("--clocks", type=int, default=50, help="of a window")
    parser.add_argument("--kills", type=int, default=6, help="in each cluster")
    parser.add_argument("--consistency", choices=("bsp", "ssp", "asp"), default="bsp")
    parser.add_argument("--strategy", choices=list(SOURCES)[1:], default=WITHOUT_SLOTS)
    asked = parser.parse_args(arguments)
    how = asked.consistency, asked.strategy
    report: dict[str, object] = {}
    for name, shape in SIZES.items():
        report[f"iteration of {name}"] = measure_idle(shape, asked.pairs, asked.clocks, *how)
    if asked.kills:
        report["recovery of 20 MB, seconds"] = measure_recovery(asked.kills, *how)
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
