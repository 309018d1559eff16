"""What a step costs between machines, beside Ray and torch RPC, or of rows beside plain TCP; how it grows
from one machine to eight; what it costs that some rows are hot.

    sudo python -m benchmarks.machines peers [--ray PYTHON] [--rounds 3] [--steps 9]
    sudo python -m benchmarks.machines rows [--gigabits 10] [--rounds 3] [--steps 100]
    sudo python -m benchmarks.machines growth [--megabits 40] [--most 8] [--steps 9]
    sudo python -m benchmarks.machines hot [--megabits 40] [--rounds 3] [--steps 120]

Machines are network namespaces of this one, so all share its cores. Linux, as root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence

from benchmarks.machines import growth, hot, peers, rows

WARM_UPS = 2
RAY_HINT = "Ray is left out: give --ray PYTHON, made by: python -m venv DIR && DIR/bin/pip install ray numpy"


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    SHOWN[options.what](options)
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines", description=__doc__)
    parser.add_argument("what", choices=tuple(SHOWN))
    parser.add_argument("--ray", metavar="PYTHON", default="", help="an interpreter that has Ray")
    parser.add_argument("--rounds", type=int, default=3, help="turns of all systems")
    parser.add_argument("--steps", type=int, default=9, help="that are measured, after two others")
    parser.add_argument("--megabits", type=float, default=40, help="of each link, each way; for growth, hot")
    gigabits = "of each link, each way; for rows; 0: as fast as memory"
    parser.add_argument("--gigabits", type=float, default=10, help=gigabits)
    parser.add_argument("--most", type=int, default=8, help="growth: machines")
    return parser


def _show_peers(options: argparse.Namespace) -> None:
    systems: dict[str, Callable[[int], list[float]]] = dict(peers.SYSTEMS)
    if options.ray:
        systems["Ray"] = lambda steps: peers.measure_ray(steps, options.ray)
    else:
        _say(RAY_HINT)
    found: dict[str, list[float]] = defaultdict(list)
    for turn in range(options.rounds):
        for name, measure in systems.items():
            seconds = measure(WARM_UPS + options.steps)[WARM_UPS:]
            found[name] += seconds
            _say(f"{turn + 1}/{options.rounds} {name}: {1000 * statistics.median(seconds):.0f} ms a step")
    ours = statistics.median(found["SCAR"])
    for name, seconds in found.items():
        median = statistics.median(seconds)
        rate = 2 * peers.SIZE / 1e9 / median
        spread = f"{1000 * min(seconds):.0f} to {1000 * max(seconds):.0f}"
        times = f"{1000 * median:.0f} ms ({spread})"
        _say(f"| {name} | {times} | {rate:.2f} GB/s | SCAR is {median / ours:.2f} times as fast |")


def _show_rows(options: argparse.Namespace) -> None:
    for law in rows.LAWS:
        ratios = []
        for turn in range(options.rounds):
            found = rows.measure_rows(law, WARM_UPS + options.steps, options.gigabits or None)[WARM_UPS:]
            ours, plain = map(statistics.median, zip(*found, strict=True))
            ratios.append(plain / ours)
            times = f"{1000 * ours:.1f} ms a step, plain TCP {1000 * plain:.1f} ms"
            _say(f"{turn + 1}/{options.rounds} {law}: {times}, {ratios[-1]:.2f}")
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        _say(f"| {law} | {statistics.median(ratios):.2f} of plain TCP ({spread}) |")


def _show_growth(options: argparse.Namespace) -> None:
    alone = 0.0
    count = 1
    while count <= options.most:
        grown = growth.measure_growth(count, options.megabits, WARM_UPS, options.steps)
        alone = alone or grown.seconds
        _say(
            f"| {count} | {1000 * grown.seconds:.0f} ms | {count * alone / grown.seconds:.2f} |"
            f" {alone / grown.seconds:.2f} | {1000 * grown.least:.0f} ms | {grown.cores:.2f} |"
        )
        count *= 2


def _show_hot(options: argparse.Namespace) -> None:
    for turn in range(options.rounds):
        for looks in (False, True):
            steps = hot.measure_hot(looks, options.megabits, options.steps)
            halves = f"{1000 * steps.first:.0f} ms a clock at first, {1000 * steps.second:.0f} ms then"
            _say(f"{turn + 1}/{options.rounds} {'with' if looks else 'without'} exchanges: {halves}")


SHOWN: dict[str, Callable[[argparse.Namespace], None]] = {
    "peers": _show_peers,
    "rows": _show_rows,
    "growth": _show_growth,
    "hot": _show_hot,
}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
