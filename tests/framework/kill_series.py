"""Runs in which shards die by SIGKILL at random moments, each compared bit by bit with one without failure.

    python -m tests.framework.kill_series --kills 100 --report build/kills.json
    python -m tests.framework.kill_series --kills 20 --copies missing
    python -m tests.framework.kill_series --kills 20 --copies chain
    python -m tests.framework.kill_series --kills 20 --copies slots
    python -m tests.framework.kill_series --kills 20 --consistency asp

Seeds say who dies when: one shard and later another, half of them together or one just after the other, one
while shards have different clocks open. ``--copies``: with slots and partial pulls, and replicas of what
workers lack (``missing``) or of everything (``chain``, nothing from workers); then one shard at a time, as
there is one replica. ``slots``: with slots that workers pull along, and no replica. ``--consistency``: under
SSP and ASP whole numbers are pushed, whose sums depend on no order, and each of them has to be there once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import MappingProxyType
from typing import Any

import numpy as np

from scar.errors import ConfigError
from scar.strategies import variant_options
from scar_local import LocalCluster
from scar_runtime.failure_records import FailureRecord
from scar_runtime.store.failure_codec import failure_from_proto
from tests.framework import healing
from tests.framework.cluster import TIMEOUT

SHARDS = 4
LACKING = [*healing.WHOLE, *healing.MISSING]
VARIANTS: dict[str, dict[str, Any]] = {  # by what is copied
    "": variant_options("partial-workers"),
    "missing": variant_options("partial-missing") | {"kinds": LACKING},
    "chain": variant_options("sync-chain") | {"kinds": LACKING},
    "slots": variant_options("partial-slots") | {"kinds": [*healing.WHOLE, *healing.SLOTTED]},
}
Kills = Callable[[LocalCluster, random.Random], None]


def trained(
    folder: Path,
    kills: Kills,
    seed: int = 0,
    training: str = healing.__file__,
    more: Mapping[str, str] = MappingProxyType({}),
    copies: str = "",
    **job: Any,
) -> tuple[dict[str, bytes], Sequence[FailureRecord]]:
    """Everything that each of two workers ended with, and the ledger. ``copies``: of :data:`VARIANTS`.
    ``job``: more of its options.
    """
    options: dict[str, Any] = {"seed": 3, "shards": SHARDS, "workers": 2, **VARIANTS[copies], **job}
    folder.mkdir(exist_ok=True)
    environment = {"SCAR_TEST_JOB": json.dumps(options), "SCAR_TEST_HISTORY": str(folder), **more}
    environment["SCAR_OFFER_SECONDS"] = "30"  # a worker on a busy machine is a source, too
    with LocalCluster(folder / "cluster", shards=SHARDS, environment=environment) as cluster:
        cluster.start_job(healing.make_job(**options))
        cluster.start_workers(training, 2)
        kills(cluster, random.Random(seed))
        (folder / "over").touch()
        assert cluster.wait(TIMEOUT) == {"worker-0": 0, "worker-1": 0}
        ledger = [failure_from_proto(failure) for failure in cluster.status().failures]
    return read_ends(folder), ledger


def read_ends(folder: Path) -> dict[str, bytes]:
    """Everything that each worker of :mod:`tests.framework.healing` ended with: rank and table -> bits."""
    found = {}
    for path in sorted(folder.glob("rank-*.npz")):
        with np.load(path) as arrays:
            found |= {f"{path.stem}/{name}": arrays[name].tobytes() for name in arrays.files}
    return found


@cache
def undisturbed(copies: str = "") -> dict[str, bytes]:
    found, ledger = trained(Path(mkdtemp()), lambda _cluster, _draw: None, copies=copies)
    assert len(found) == 2 * len(VARIANTS[copies].get("kinds", healing.WHOLE))
    assert not ledger
    return found


# --- who dies when


def wait_clock(cluster: LocalCluster, clock: int) -> None:
    end = time.monotonic() + TIMEOUT
    while cluster.status().clock < clock:
        assert time.monotonic() < end, f"clock {clock} was not reached"
        time.sleep(0.005)


def kill_running(cluster: LocalCluster, name: str) -> None:
    """As soon as it runs: on a busy machine one that has died before may be on its way."""
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            cluster.kill(name)
            return
        except ConfigError:
            assert time.monotonic() < end, f"{name} does not come back"
            time.sleep(0.05)


def kill_one(cluster: LocalCluster, draw: random.Random) -> None:
    """Twice, at any moment of a clock."""
    for clock in (8, 30):
        wait_clock(cluster, clock)
        time.sleep(draw.uniform(0.0, 0.1))
        kill_running(cluster, f"ps-{draw.randrange(SHARDS)}")


def kill_half(cluster: LocalCluster, draw: random.Random) -> None:
    """Two at once, or one just after the other: the second may have gained blocks of the first."""
    wait_clock(cluster, 10)
    time.sleep(draw.uniform(0.0, 0.1))
    first, second = draw.sample(range(SHARDS), 2)
    kill_running(cluster, f"ps-{first}")
    time.sleep(draw.choice([0.0, 0.0, 0.1, 0.3]))
    kill_running(cluster, f"ps-{second}")


def kill_all(cluster: LocalCluster, draw: random.Random) -> None:
    wait_clock(cluster, 10 + draw.randrange(5))
    for number in range(SHARDS):
        kill_running(cluster, f"ps-{number}")


def kill_between(cluster: LocalCluster, draw: random.Random) -> None:
    """Twice, one that has closed a clock before another, or has not yet; any, if they never differ."""
    for clock in (8, 30):
        wait_clock(cluster, clock)
        found: dict[int, str] = {}
        for _ in range(200):
            shards = cluster.status().shards.items()  # one that has just come back has nothing to lose
            found = {one.clock: name for name, one in shards if any(table.blocks for table in one.tables)}
            if len(found) > 1:
                break
        kill_running(cluster, found[draw.choice(sorted(found))])


# --- a series


def play(seed: int, copies: str, consistency: str = "bsp") -> dict[str, Any]:
    """One run; what it showed."""
    options: dict[str, Any] = {}
    if consistency != "bsp":
        kinds = healing.COUNTED if copies else ["count"]
        options = {"consistency": consistency, "staleness": 1, "kinds": kinds}
    found, ledger, kills = _train_killed(seed, copies, options)
    different = find_miscounts(found, options["kinds"]) if options else _find_differences(found, copies)
    sources: dict[str, int] = {}
    for record in ledger:
        for source, blocks in record.sources.items():
            sources[source] = sources.get(source, 0) + blocks
    return {
        "seed": seed,
        "kind": kills.__name__,
        "kills": 2,
        "failures": len(ledger),
        "sources": sources,
        "lost_pushes": sum(record.lost_pushes for record in ledger),
        "equal": not different,
        "different": different,
    }


def _train_killed(
    seed: int, copies: str, options: Mapping[str, Any]
) -> tuple[Mapping[str, bytes], Sequence[FailureRecord], Kills]:
    replicated = copies in ("missing", "chain")
    kinds: Sequence[Kills] = (kill_one, kill_between) if replicated else (kill_one, kill_half, kill_between)
    kills = kinds[seed % len(kinds)]
    with TemporaryDirectory() as folder:
        found, ledger = trained(Path(folder), kills, seed, copies=copies, **options)
    return found, ledger, kills


def _find_differences(found: Mapping[str, bytes], copies: str) -> list[str]:
    """Whose tables are not those of a run without failure, bit by bit."""
    return sorted(name for name, bits in undisturbed(copies).items() if found.get(name) != bits)


def find_miscounts(found: Mapping[str, bytes], kinds: Sequence[str]) -> list[str]:
    """Tables in which pushes are missing or twice. Each worker ends with all that was pushed when it pulled
    last; the last one with everything.
    """
    ends = {kind: [bits for name, bits in found.items() if name.endswith(f"/{kind}")] for kind in kinds}
    return [kind for kind, total in healing.counted(kinds, 2).items() if total.tobytes() not in ends[kind]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--first", type=int, default=1, help="seed of the first run")
    parser.add_argument("--copies", choices=list(VARIANTS), default="")
    parser.add_argument("--consistency", choices=["bsp", "ssp", "asp"], default="bsp")
    parser.add_argument("--report", type=Path, default=None, help="a JSON file")
    asked = parser.parse_args()
    runs: list[dict[str, Any]] = []
    while sum(run["kills"] for run in runs) < asked.kills:
        runs.append(play(asked.first + len(runs), asked.copies, asked.consistency))
        sys.stdout.write(json.dumps(runs[-1]) + "\n")
        sys.stdout.flush()
        if asked.report is not None:
            asked.report.parent.mkdir(parents=True, exist_ok=True)
            asked.report.write_text(json.dumps(runs, indent=1) + "\n")
    different = [run["seed"] for run in runs if not run["equal"] or run["lost_pushes"]]
    kills = sum(run["kills"] for run in runs)
    sys.stdout.write(f"{len(runs)} runs, {kills} kills, different: {different or 'none'}\n")
    raise SystemExit(bool(different))


if __name__ == "__main__":
    main()
