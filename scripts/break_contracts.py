"""Break the sources in one place after the other, in a copy, and see that the tests notice.

A test that cannot fail proves nothing.

    python -m scripts.break_contracts [LABEL ...] [--jobs 2] [--shard 1/4] [--sample 40 --seed COMMIT]
    [--minutes 5] [--clean]

Exit code 1: more than one in twenty went unnoticed, or a break does not fit the sources any more. Every break
is one edit, see scripts/breaks; docs/guarantees.md has the promises. ``--minutes``: no break is tried that
would begin later. ``--clean`` first runs the named tests on the sources as they are: a test that fails anyway
notices nothing.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.breaks import BREAKS
from scripts.breaks.kind import Break

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".scar", ".*_cache", ".hypothesis", "build", "dist")
SECONDS = 300.0  # for the tests of one break
NOTICED = 0.95  # of the breaks: a test that needs a race may miss one now and then
TEST_SECONDS = 60  # for one test: a break may make it wait forever
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def find_failing_test(test: str, one: Break | None = None) -> str:
    """The first of these tests that fails in a copy of the sources with this break; empty: all pass."""
    with tempfile.TemporaryDirectory(prefix="scar-break-") as folder:
        tree = Path(folder) / "scar"
        # with compiled files: only what is broken is compiled again
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        if one is not None:
            one.apply(tree)
        return _first_failed(test, tree)


def _first_failed(test: str, tree: Path) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--hypothesis-seed=0",  # a break is noticed every time or never
        "--hypothesis-profile=unshrunk",
        f"--timeout={TEST_SECONDS}",
        *test.split(),
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end within {SECONDS:g} s"
    if done.returncode == 0:
        return ""
    if done.returncode < 0:  # e.g. gRPC crashes when a closed connection is used
        return f"signal {-done.returncode}, which ended the tests"
    if done.returncode not in (1, 2):  # 2: a file that cannot even be imported
        raise SystemExit(f"{test} could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = FAILED.search(done.stdout)
    return found[1] if found else done.stdout[-200:]


def is_noticed(one: Break) -> bool:
    """Whether a test fails with this break. Says so."""
    started = time.monotonic()
    by = find_failing_test(one.test, one)
    verdict = f"by {by}" if by else f"not by {one.test}"
    sys.stdout.write(
        f"{'noticed' if by else 'MISSED '}  {one.label}: {one.file} {verdict}"
        f" ({time.monotonic() - started:.0f} s)\n"
    )
    sys.stdout.flush()
    return bool(by)


def count_noticed(breaks: Sequence[Break], jobs: int, minutes: float) -> tuple[int, int]:
    """How many were noticed, of how many that began within ``minutes``."""
    until = time.monotonic() + 60 * minutes

    def verdict(one: Break) -> bool | None:
        return is_noticed(one) if time.monotonic() < until else None

    with ThreadPoolExecutor(jobs) as pool:
        verdicts = Counter(pool.map(verdict, breaks))
    return verdicts[True], verdicts[True] + verdicts[False]


def choose_breaks(arguments: argparse.Namespace) -> list[Break]:
    """Raises SystemExit for a label that nobody has."""
    labels = set(arguments.labels)
    if unknown := labels - {one.label for one in BREAKS}:
        raise SystemExit(f"there is no break {', '.join(sorted(unknown))}")
    found = [one for one in BREAKS if not labels or one.label in labels]
    if arguments.sample:
        found = random.Random(arguments.seed).sample(found, min(arguments.sample, len(found)))
    number, of = map(int, arguments.shard.split("/"))
    return found[number - 1 :: of]


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("labels", nargs="*", help="of breaks; none: all")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="breaks that are tried at the same time"
    )
    parser.add_argument("--shard", default="1/1", metavar="N/OF", help="only this part of them")
    parser.add_argument(
        "--sample", type=int, default=0, metavar="COUNT", help="only so many of them, drawn by --seed"
    )
    parser.add_argument("--seed", default="1", help="any text, e.g. that of a commit")
    parser.add_argument("--minutes", type=float, default=math.inf, help="within which breaks begin")
    parser.add_argument(
        "--clean", action="store_true", help="see first that the named tests pass without a break"
    )
    return parser.parse_args(argv)


def find_stale() -> list[Break]:
    """Breaks that do not fit the sources any more. Says which."""
    stale = [one for one in BREAKS if not one.fits(ROOT)]
    for one in stale:
        sys.stdout.write(
            f"STALE    {one.label}: {one.file} or {one.test} has moved on; take the break along\n"
        )
    return stale


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    stale = find_stale()
    breaks = [one for one in choose_breaks(arguments) if one not in stale]
    if arguments.clean:
        tests = sorted({one.test for one in breaks})
        if by := find_failing_test(" ".join(tests)):
            sys.stdout.write(f"without any break {by} fails: it notices nothing\n")
            return 1
    noticed, tried = count_noticed(breaks, arguments.jobs, arguments.minutes)
    left = f"; {len(breaks) - tried} were left out for want of time" if tried < len(breaks) else ""
    sys.stdout.write(f"{noticed} of {tried} breaks were noticed; {NOTICED:.0%} have to be{left}\n")
    return int(bool(stale) or noticed < NOTICED * tried)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
