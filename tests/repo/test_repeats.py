"""`make test` plays tests of real processes that fail once more, no others, and only a few of them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAILS_ONCE = """\
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.mark.parametrize("number", range({count}))
def test_it(cluster, number):
    played = Path(__file__).with_name(f"played-{{number}}")
    first = not played.exists()
    played.touch()
    assert cluster.exists()
    assert not first, "a busy machine"
"""


def repeat_options() -> list[str]:
    """As the Makefile says them."""
    _, _, rest = (ROOT / "Makefile").read_text().partition("\nREPEATS := ")
    words, _, _ = rest.replace("\\\n", " ").partition("\n")
    return shlex.split(words)


def play_tests(folder: Path, counts: dict[str, int]) -> tuple[int, str]:
    """Exit code and output of a run of so many tests below ``tests``, each of which fails the first time."""
    for kind, count in counts.items():
        tests = folder / "tests" / kind
        tests.mkdir(parents=True)
        (tests / f"test_{kind}.py").write_text(FAILS_ONCE.format(count=count))
    (folder / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", *repeat_options()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    return done.returncode, done.stdout


def test_only_failures_of_real_processes_are_played_again_and_they_are_shown(tmp_path: Path) -> None:
    real = ("component", "contract", "system")
    deterministic = ("repo", "unit", "simulation", "helm")
    code, output = play_tests(tmp_path, dict.fromkeys((*real, *deterministic), 1))
    assert code == 1, output
    assert "4 failed, 3 passed, 3 rerun" in output
    _, _, shown = output.partition("rerun test summary info")
    assert shown.count("AssertionError: a busy machine") >= 3, "the first traceback of each"
    for kind in real:
        assert f"RERUN tests/{kind}/" in shown
    for kind in deterministic:
        assert f"FAILED tests/{kind}/" in output
        assert f"RERUN tests/{kind}/" not in output


def test_the_fourth_fails_the_run(tmp_path: Path) -> None:
    code, output = play_tests(tmp_path, {"chaos": 4})
    assert code == 1, output
    assert "1 failed, 3 passed, 3 rerun" in output
