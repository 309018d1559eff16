"""What a plain script of PyTorch reaches, alone, on SCAR, and on SCAR when a shard and a worker die.

    python -m benchmarks.script_accuracy [--scripts mlp cnn recommender] [--seeds 5]

Scripts are those of examples/plain/ and their twins examples/torch_*.py, which print what they reach on
examples that were held out. On SCAR two workers share each batch. ps-1 dies by SIGKILL at a third of the
steps and worker-1 at two thirds. Strategy and checkpoint are the defaults; seeds change initial values
and batches.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scar import load_job
from scar_local import LocalCluster

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = ("mlp", "cnn", "recommender")
WORKERS = 2
PATIENCE = 1800.0  # seconds
RESULT = re.compile(r"held out: ([0-9.]+)")


def write_script(name: str, seed: int, folder: Path) -> Path:
    """A script of examples/ with this seed."""
    text, edits = re.subn(r"(?m)^SEED = 0$", f"SEED = {seed}", (EXAMPLES / name).read_text())
    assert edits == 1
    file = folder / Path(name).name
    file.write_text(text)
    return file


def read_steps(file: Path) -> int:
    found = re.search(r"(?m)^STEPS = (\d+)$", file.read_text())
    assert found is not None
    return int(found[1])


def run_plain(name: str, seed: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = write_script(f"plain/{name}.py", seed, Path(folder))
        done = subprocess.run([sys.executable, file], check=True, capture_output=True, timeout=PATIENCE)
    return read_result(done.stdout.decode())


def run_on_cluster(name: str, seed: int, kill: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        file = write_script(f"torch_{name}.py", seed, Path(folder))
        steps = read_steps(file)
        with LocalCluster(Path(folder) / "home", shards=4, respawn_delay=0.1) as cluster:
            cluster.start_job(load_job(str(file))[0])
            cluster.start_workers(file, WORKERS)
            for at, dying in ((steps // 3, "ps-1"), (2 * steps // 3, "worker-1")) if kill else ():
                await_clock(cluster, at)
                cluster.kill(dying)
            codes = cluster.wait(PATIENCE)
            assert set(codes.values()) == {0}, codes
            dead = {one.partition("@")[0] for failure in cluster.status().failures for one in failure.members}
            assert dead == ({"ps-1", "worker-1"} if kill else set()), dead
            return read_result((cluster.directory / "logs" / "worker-0.out").read_text())


def await_clock(cluster: LocalCluster, clock: int) -> None:
    cluster.until(lambda status: status.clock >= clock, PATIENCE, f"clock {clock}")


def read_result(printed: str) -> float:
    found = RESULT.search(printed)
    assert found is not None, printed
    return float(found[1])


def measure_script(name: str, seeds: int) -> dict[str, object]:
    """What is reached by each seed; how far the means are apart, in standard deviations of the plain script's
    seeds.
    """
    found: dict[str, list[float]] = {"plain": [], "scar": [], "killed": []}
    for seed in range(seeds):
        found["plain"].append(run_plain(name, seed))
        found["scar"].append(run_on_cluster(name, seed, kill=False))
        found["killed"].append(run_on_cluster(name, seed, kill=True))
        reached = ", ".join(f"{way} {values[-1]}" for way, values in found.items())
        sys.stderr.write(f"{name}, seed {seed}: {reached}\n")
    spread = float(np.std(found["plain"], ddof=1)) if seeds > 1 else float("nan")
    means = {way: float(np.mean(values)) for way, values in found.items()}
    return {
        "seeds": found,
        "means": means,
        "spread": spread,
        "apart": {way: (means[way] - means["plain"]) / spread for way in ("scar", "killed")},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scripts", nargs="+", default=SCRIPTS, choices=SCRIPTS)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args(arguments)
    found: dict[str, object] = {name: measure_script(name, asked.seeds) for name in asked.scripts}
    found["load"] = os.getloadavg()[0]
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
