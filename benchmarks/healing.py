"""What workers that heal servers cost while nothing happens, and how long a recovery takes, in pairs.

    python -m benchmarks.healing [--pairs 20] [--kills 6] [--consistency asp]

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

SOURCES = ("checkpoint", "workers")
SIZES = {"4 kB": (64, 16), "4 MB": (1 << 16, 16)}
LOST = (2 * 20_000_000 // 256, 64)  # of float32: 20 MB on each of two servers
WARM_UP = 20  # clocks
Runs = Mapping[str, BenchTraining]


@contextmanager
def start_both(shape: tuple[int, int], consistency: str) -> Iterator[Runs]:
    """By sources of lost blocks: a cluster of two servers, with this process as its only worker."""
    with ExitStack() as stack:
        table = scar.Table("w", shape, rule=scar.add())
        yield {
            sources: stack.enter_context(
                start_training([table], shards=2, sources=sources, consistency=consistency)
            )
            for sources in SOURCES
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


def measure_idle(shape: tuple[int, int], pairs: int, clocks: int, consistency: str) -> dict[str, object]:
    """Milliseconds of an iteration without workers as sources, and how many it takes more with them."""
    gradient = np.full(shape, 1e-3, np.float32)
    order = random.Random(1)
    found: dict[str, list[NDArray[np.float64]]] = {sources: [] for sources in SOURCES}
    with start_both(shape, consistency) as runs:
        for run in runs.values():
            train(run, gradient, WARM_UP)
        for _ in range(pairs):
            for sources in order.sample(SOURCES, 2):
                found[sources].append(train(runs[sources], gradient, clocks))
    report: dict[str, object] = {"pairs": pairs}
    bare, with_workers = (np.array(found[sources]) for sources in SOURCES)
    for kind, name in enumerate(("wall", "processors")):
        more = with_workers[:, kind] - bare[:, kind]
        report[f"{name}, ms"] = f"{mean_estimate(bare[:, kind].tolist()):.3f}"
        report[f"{name}, more"] = f"{mean_estimate(more.tolist()):.3f}"
    return report


def measure_recovery(kills: int, consistency: str) -> dict[str, object]:
    """Seconds from the report of a death to the last block that is served again, by sources."""
    found: dict[str, list[float]] = {sources: [] for sources in SOURCES}
    with start_both(LOST, consistency) as runs:
        for run in runs.values():
            _change_all(run)
            run.save()
        for number in range(1, kills + 1):
            for sources in random.Random(number).sample(SOURCES, 2):
                run = runs[sources]
                run.worker.pull("w")  # a copy of the open clock
                record = kill_and_recover(run, number)
                came = "worker" if sources == "workers" else "object"
                assert record.sources[came] == record.lost_blocks, dict(record.sources)
                found[sources].append(record.wait_seconds + record.commit_seconds + record.load_seconds)
    more = [late - early for late, early in zip(found["workers"], found["checkpoint"], strict=True)]
    means = {sources: f"{mean_estimate(seconds):.3f}" for sources, seconds in found.items()}
    return {**means, "more": f"{mean_estimate(more):.3f}", "most": round(max(more), 3), "kills": kills}


def _change_all(run: BenchTraining) -> None:
    run.step(lambda: run.worker.push("w", np.ones(LOST, np.float32)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20, help="of windows, for each size of table")
    parser.add_argument("--clocks", type=int, default=50, help="of a window")
    parser.add_argument("--kills", type=int, default=6, help="in each cluster")
    parser.add_argument("--consistency", choices=("bsp", "ssp", "asp"), default="bsp")
    asked = parser.parse_args(arguments)
    report: dict[str, object] = {}
    for name, shape in SIZES.items():
        report[f"iteration of {name}"] = measure_idle(shape, asked.pairs, asked.clocks, asked.consistency)
    if asked.kills:
        report["recovery of 20 MB, seconds"] = measure_recovery(asked.kills, asked.consistency)
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
