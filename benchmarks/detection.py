"""How fast a dead and a frozen shard are noticed and repaired: many kills of one cluster that trains.

python -m benchmarks.detection [--kills 20] [--signal KILL|STOP] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import scar
from benchmarks.training import BenchTraining, start_training
from scar.v1 import recovery_pb2
from scar_local import ClusterStatus

SHARDS = 4
SECONDS = 60.0
TABLES = [scar.Table("w", (4096, 64))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Seconds from a fault to its report and to the epoch that repairs it."
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--signal", choices=("KILL", "STOP"), default="KILL")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which shards are struck")
    options = parser.parse_args(arguments)
    number = signal.Signals[f"SIG{options.signal}"]
    draw = random.Random(options.seed)
    seen: list[dict[str, float]] = []
    with start_training(TABLES, shards=SHARDS) as run:
        for count in range(1, options.kills + 1):
            seen.append(_strike_shard(run, f"ps-{draw.randrange(SHARDS)}", number, count))
            print(f"{count}/{options.kills}: {json.dumps(seen[-1])}", flush=True)  # noqa: T201
    _write_report(options.signal, seen)
    return 0


def _strike_shard(run: BenchTraining, name: str, number: signal.Signals, count: int) -> dict[str, float]:
    started = time.monotonic()
    run.cluster.kill(name, number)
    epoch = _await_repair(run, count)
    record = {"to_epoch": round(time.monotonic() - started, 4), "detect": round(epoch.detect_seconds, 4)}
    run.step(lambda: run.worker.push("w", np.ones((4096, 64), dtype=np.float32)))
    record["to_next_clock"] = round(time.monotonic() - started, 4)
    if number == signal.SIGSTOP:
        run.cluster.restart(name)
    run.cluster.until(_is_whole, SECONDS, "the return of the shard")
    return record


def _await_repair(run: BenchTraining, count: int) -> recovery_pb2.FailureRecord:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        reply = run.cluster.endpoints.recovery.ListFailures(recovery_pb2.ListFailuresRequest(), timeout=5)
        failures: Sequence[recovery_pb2.FailureRecord] = reply.failures
        if len(failures) >= count and failures[count - 1].epoch:
            return failures[count - 1]
        time.sleep(0.005)
    raise scar.ScarError(f"failure {count} was not repaired within {SECONDS:g} s")


def _is_whole(status: ClusterStatus) -> bool:
    owned = [sum(table.blocks for table in shard.tables) for shard in status.shards.values()]
    return len(owned) == SHARDS and status.loading == 0 and min(owned) > 0.8 * max(owned)


def _write_report(kind: str, seen: list[dict[str, float]]) -> None:
    summary = {}
    for key in seen[0]:
        values = [record[key] for record in seen]
        summary[key] = {"median": statistics.median(values), "max": max(values)}
    print(json.dumps(summary, indent=1))  # noqa: T201
    path = Path(f"build/bench/detection-{kind.lower()}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"kills": len(seen), "summary": summary, "records": seen}, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
