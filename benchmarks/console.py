"""What the live page costs: processor time of `scar console` with no viewer, one and a hundred.

The cluster trains on this machine meanwhile, and its time per clock is measured beside it.

python -m benchmarks.console [--seconds 10] [--viewers 100]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

OUTPUT = Path("build/bench/console.json")
TRAIN = """
import time
import numpy as np
import scar

job = scar.Job("busy", [scar.Table("w", (4096, 16), rule=scar.add())], shards=4, workers=2)

def train(worker):
    for clock in worker.clocks(limit=10**9):
        worker.pull("w")
        worker.push("w", np.ones((4096, 16), np.float32))
        worker.report(1.0 / (1 + clock))
        time.sleep(0.05)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Processor time of the live page, by its viewers.")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--viewers", type=int, default=100, help="at the same time, at most")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, _trained_cluster(Path(folder)):
        rows: list[dict[str, object]] = [
            {"console": False, "clocks_per_second": _measure_clocks(folder, options.seconds)}
        ]
        with _page(folder) as (page, url):
            for viewers in sorted({0, 1, options.viewers}):
                rows.append(asyncio.run(_measure_page(page, url, viewers, options.seconds, folder)))
    for row in rows:
        print(json.dumps(row))  # noqa: T201
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"load": os.getloadavg()[0], "rows": rows}, indent=1) + "\n")
    return 0


def _scar(folder: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "scar_cli", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


@contextmanager
def _trained_cluster(folder: Path) -> Iterator[None]:
    (folder / "busy.py").write_text(TRAIN)
    _scar(str(folder), "up", "--shards", "4", "--detach").communicate()
    training = _scar(str(folder), "train", "busy.py", "--quiet")
    try:
        yield
    finally:
        training.terminate()
        training.communicate()
        _scar(str(folder), "down").communicate()


@contextmanager
def _page(folder: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    page = _scar(folder, "console")
    assert page.stdout is not None
    found = re.search(r"http://\S+", page.stdout.readline())
    assert found
    try:
        yield page, found[0]
    finally:
        page.terminate()
        page.communicate()


async def _measure_page(
    page: subprocess.Popen[str], url: str, viewers: int, seconds: float, folder: str
) -> dict[str, object]:
    """``core``: of one core, how much the page's process used."""
    received = [0] * viewers
    watching = [asyncio.create_task(_view(url, received, number)) for number in range(viewers)]
    await asyncio.sleep(2.0)  # all have connected, and seen the first look
    received[:] = [0] * viewers
    before = _processor_seconds(page.pid)
    started = time.monotonic()
    clocks = await asyncio.to_thread(_measure_clocks, folder, seconds)
    used = (_processor_seconds(page.pid) - before) / (time.monotonic() - started)
    for task in watching:
        task.cancel()
    bytes_each = sum(received) / max(1, viewers) / seconds
    return {
        "console": True,
        "viewers": viewers,
        "core": round(used, 4),
        "bytes_per_second_each": round(bytes_each),
        "clocks_per_second": clocks,
    }


async def _view(url: str, received: list[int], number: int) -> None:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"GET /events?{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
    while data := await reader.read(1 << 16):
        received[number] += len(data)


def _processor_seconds(pid: int) -> float:
    """User and system time of a process so far; Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def _measure_clocks(folder: str, seconds: float) -> float:
    """Clocks a second of the training, meanwhile."""
    first = _read_clock(folder)
    started = time.monotonic()
    time.sleep(seconds)
    return round((_read_clock(folder) - first) / (time.monotonic() - started), 2)


def _read_clock(folder: str) -> int:
    said, _ = _scar(folder, "status", "-o", "json").communicate()
    return int(json.loads(said)["clock"])


if __name__ == "__main__":
    raise SystemExit(main())
