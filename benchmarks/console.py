"""What the live page costs a training: pairs of windows, without a page, and with one and its viewers.

Training goes on through all of them; a pair's order is drawn, so a busy moment of the machine meets both.
Viewers run on this machine, too, and what they take is said beside. ``--clocks``: the run is that long
before the first pair. Of these clocks workers skip all but the last 65,536, by one mark of a higher clock;
they have losses, and nothing else: shards keep no more, so a page that is opened then can see no others.

python -m benchmarks.console [--pairs 20] [--seconds 8] [--viewers 100] [--clocks 0]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.measure import processor_seconds_of
from scar_admin.observer import ClusterObserver
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import find_cluster
from scar_compare.statistics import mean_estimate
from scar_ps.core.barrier import LOSSES_KEPT

OUTPUT = Path("build/bench/console.json")
SETTLE_SECONDS = 2.0
TRAIN = """
import time
import numpy as np
import scar

job = scar.Job("busy", [scar.Table("w", (64, 16), rule=scar.add())], shards={shards}, workers={workers})

def train(worker):
    ones = np.ones((64, 16), np.float32)
    for clock in worker.clocks(limit=10**9):
        if clock < {skipped}:
            worker._client.state.clocks.known = {skipped}
        worker.report(1.0 / (1 + clock))
        if clock >= {clocks}:  # those before only count, so that there can be a million
            worker.pull("w")
            worker.push("w", ones)
            time.sleep(0.02)
"""


@dataclass(frozen=True)
class PairedWindows:
    """``bare``, ``watched``: milliseconds of training per clock. ``core``, ``viewers_core``: of one core,
    what the page and its viewers took.
    """

    bare: float
    watched: float
    core: float
    viewers_core: float
    bytes_per_second_each: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What the live page costs, with and without its viewers.")
    parser.add_argument("--pairs", type=int, default=20, help="of windows")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each window")
    parser.add_argument("--viewers", type=int, default=100, help="at the same time")
    parser.add_argument("--clocks", type=int, default=0, help="of the run before the first window")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the order of windows")
    options = parser.parse_args(arguments)
    output = OUTPUT.absolute()
    skipped = max(0, options.clocks - LOSSES_KEPT)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        (Path(folder) / "busy.py").write_text(TRAIN.format(skipped=skipped, **vars(options)))
        with _trained_cluster(options.shards), find_cluster(ClusterRef()).observer() as observer:
            began = _await_clock(observer, options.clocks)
            order = random.Random(options.seed)
            pairs = [_measure_pair(observer, options, order.random() < 0.5) for _ in range(options.pairs)]
    _report(pairs, began, output)
    return 0


def _report(pairs: list[PairedWindows], began: int, output: Path) -> None:
    share = mean_estimate([100 * (one.watched / one.bare - 1) for one in pairs])
    summary = {
        "pairs": len(pairs),
        "first_clock": began,
        "ms_per_clock_bare": asdict(mean_estimate([one.bare for one in pairs])),
        "ms_per_clock_watched": asdict(mean_estimate([one.watched for one in pairs])),
        "slower_percent": asdict(share),
        "page_percent_of_a_core": asdict(mean_estimate([100 * one.core for one in pairs])),
        "viewers_percent_of_a_core": asdict(mean_estimate([100 * one.viewers_core for one in pairs])),
        "bytes_per_second_each": round(sum(one.bytes_per_second_each for one in pairs) / len(pairs)),
        "load": round(os.getloadavg()[1], 1),
        "cores": os.cpu_count(),
    }
    print(json.dumps(summary, indent=1))  # noqa: T201
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(summary | {"windows": [asdict(one) for one in pairs]}, indent=1) + "\n")


def _scar(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scar_cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextmanager
def _trained_cluster(shards: int) -> Iterator[None]:
    _scar("up", "--shards", str(shards), "--detach").communicate()
    training = _scar("train", "busy.py", "--quiet")
    try:
        yield
    finally:
        training.terminate()
        training.communicate()
        _scar("down").communicate()


def _await_clock(observer: ClusterObserver, clock: int) -> int:
    """The clock at which the windows begin."""
    while True:
        status = observer.read()
        if status.workers and status.clock > clock + 10:
            return int(status.clock)
        time.sleep(1.0)


def _measure_pair(
    observer: ClusterObserver, options: argparse.Namespace, watched_first: bool
) -> PairedWindows:
    bare = None if watched_first else _measure_clocks(observer, options.seconds)
    with _page() as (page, url):
        watched, core, own, received = asyncio.run(_watch(observer, page, url, options))
    if bare is None:
        bare = _measure_clocks(observer, options.seconds)
    return PairedWindows(bare, watched, core, own, received)


@contextmanager
def _page() -> Iterator[tuple[subprocess.Popen[str], str]]:
    page = _scar("console")
    assert page.stdout is not None
    found = re.search(r"http://\S+", page.stdout.readline())
    assert found
    try:
        yield page, found[0]
    finally:
        page.terminate()
        page.communicate()


async def _watch(
    observer: ClusterObserver, page: subprocess.Popen[str], url: str, options: argparse.Namespace
) -> tuple[float, float, float, float]:
    """Milliseconds per clock, of a core what the page and its viewers used, bytes a second of one viewer."""
    received = [0] * options.viewers
    watching = [asyncio.create_task(_view(url, received, number)) for number in range(options.viewers)]
    while not all(received):  # every viewer sees the first look, which is the largest
        await asyncio.sleep(0.1)
    await asyncio.sleep(SETTLE_SECONDS)
    received[:] = [0] * options.viewers
    before, own_before, started = processor_seconds_of(page.pid), time.process_time(), time.monotonic()
    clock_ms = await asyncio.to_thread(_measure_clocks, observer, options.seconds)
    passed = time.monotonic() - started
    core = (processor_seconds_of(page.pid) - before) / passed
    own = (time.process_time() - own_before) / passed
    for task in watching:
        task.cancel()
    return clock_ms, core, own, sum(received) / options.viewers / passed


async def _view(url: str, received: list[int], number: int) -> None:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"GET /events?{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
    while data := await reader.read(1 << 16):
        received[number] += len(data)


def _measure_clocks(observer: ClusterObserver, seconds: float) -> float:
    """Milliseconds of one clock of the training, meanwhile."""
    first, started = _read_clock(observer, -1)
    time.sleep(seconds)
    last, ended = _read_clock(observer, first)
    return 1000 * (ended - started) / (last - first)


def _read_clock(observer: ClusterObserver, above: int) -> tuple[int, float]:
    """The open clock, and when it was read; a look to which no shard has answered in time says nothing."""
    while True:
        status = observer.read()
        if status.shards and status.clock > above:
            return int(status.clock), time.monotonic()
        time.sleep(0.1)


if __name__ == "__main__":
    raise SystemExit(main())
