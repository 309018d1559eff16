"""Does the detector accuse the living? A healthy cluster trains for some minutes.

The machine is idle, or has busy processes beside it.

python -m benchmarks.accusations --minutes 10 [--burners 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import scar
from benchmarks.training import BenchTraining, start_training
from scar.v1 import detector_pb2, recovery_pb2

SHARDS = 4
LOOK_SECONDS = 0.25
BURN = [sys.executable, "-c", "while True: sum(range(100000))"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Failures that the ledger lists of a cluster in which nothing fails."
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--burners", type=int, default=0, help="processes that each keep one core busy")
    options = parser.parse_args(arguments)
    burners = [subprocess.Popen(BURN) for _ in range(options.burners)]
    try:
        with start_training([scar.Table("w", (1024, 16))], shards=SHARDS) as run:
            result = _watch_cluster(run, options.minutes * 60)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    result |= {"minutes": options.minutes, "burners": options.burners, "load": os.getloadavg()[1]}
    print(json.dumps(result))  # noqa: T201
    path = Path(f"build/bench/accusations-{options.burners}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["failures"] else 0


def _watch_cluster(run: BenchTraining, seconds: float) -> dict[str, float]:
    """Highest suspicion and silence of any member, clocks done, failures listed at the end."""
    started = time.monotonic()
    highest = 0.0
    silence = 0.0
    clocks = 0
    while time.monotonic() - started < seconds:
        run.step(lambda: run.worker.pull("w"))
        clocks += 1
        members = run.cluster.endpoints.detector.ListMembers(
            detector_pb2.ListMembersRequest(), timeout=10
        ).members
        highest = max([highest, *(view.phi for view in members)])
        silence = max([silence, *(view.silence for view in members)])
        time.sleep(LOOK_SECONDS)
    failures = run.cluster.endpoints.recovery.ListFailures(
        recovery_pb2.ListFailuresRequest(), timeout=10
    ).failures
    return {"failures": len(failures), "clocks": clocks, "highest_phi": highest, "longest_silence": silence}


if __name__ == "__main__":
    raise SystemExit(main())
