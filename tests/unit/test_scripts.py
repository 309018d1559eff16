"""Scripts without a training function: run once to learn the job, and again in each worker."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import scar
from scar.errors import ConfigError, InvalidRequest
from scar.jobfile import load_file, load_function

DECLARED = 'worker = scar.initialize(scar.Job("mine", [scar.Table("w", 7)]))\n'
AT_THE_TOP = f"""
import sys
import scar
said = sys.argv[1:]
def callbacks(): return ["told"]
{DECLARED}
worker.seen.append((__name__, said))
"""
GUARDED = """
import sys
import scar
def main():
    worker = scar.initialize(scar.Job("mine", [scar.Table("w", 7)]))
    worker.seen.append((__name__, sys.argv[1:]))
    return 0
if __name__ == "__main__":
    sys.exit(main())
"""


def fake_worker() -> Any:
    return SimpleNamespace(seen=[])


def write_script(folder: Path, text: str) -> str:
    file = folder / "script.py"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("text", [AT_THE_TOP, GUARDED])
def test_a_script_declares_its_job_and_trains_as_a_worker(tmp_path: Path, text: str) -> None:
    arguments, before = list(sys.argv), list(sys.path)
    job, train = scar.load_job(write_script(tmp_path, text), "train", ["--lr", "1"])
    assert (job.name, job.table("w").shape) == ("mine", (7,))
    for _ in range(2):  # one that comes back runs it again
        worker = fake_worker()
        train(worker)
        assert worker.seen == [("__main__", ["--lr", "1"])]
    assert (sys.argv, sys.path) == (arguments, before)


def test_a_worker_of_a_job_that_somebody_else_has_started_runs_the_script(tmp_path: Path) -> None:
    worker = fake_worker()
    load_function(write_script(tmp_path, GUARDED), "train", [])(worker)
    assert len(worker.seen) == 1


def test_what_a_script_defines_before_is_known(tmp_path: Path) -> None:
    assert list(load_file(write_script(tmp_path, AT_THE_TOP)).callbacks()) == ["told"]


def test_a_file_with_a_function_is_not_run_as_a_script(tmp_path: Path) -> None:
    text = 'def other(worker): pass\nif __name__ == "__main__": raise AssertionError("was run")\n'
    load_function(write_script(tmp_path, text), "other", [])(fake_worker())


def test_python_alone_starts_no_worker() -> None:
    with pytest.raises(ConfigError, match="scar train"):
        scar.initialize(scar.Job("mine", [scar.Table("w", 7)]))


def test_a_script_is_one_worker(tmp_path: Path) -> None:
    _, train = scar.load_job(write_script(tmp_path, f"import scar\n{DECLARED}{DECLARED}"))
    with pytest.raises(InvalidRequest, match="mine already"):
        train(fake_worker())


def test_a_script_that_does_not_ask_again_is_no_finished_worker(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    text = (
        f"import scar, pathlib\nmark = pathlib.Path({str(marker)!r})\nif not mark.exists():\n    {DECLARED}"
    )
    _, train = scar.load_job(write_script(tmp_path, text))
    marker.touch()
    with pytest.raises(ConfigError, match="ended without initialize"):
        train(fake_worker())


def test_an_error_of_a_script_is_its_own(tmp_path: Path) -> None:
    _, train = scar.load_job(write_script(tmp_path, f"import scar\n{DECLARED}1 / 0\n"))
    with pytest.raises(ZeroDivisionError):
        train(fake_worker())
    _, train = scar.load_job(write_script(tmp_path, f"import scar, sys\n{DECLARED}sys.exit(3)\n"))
    with pytest.raises(SystemExit, match="3"):
        train(fake_worker())
    with pytest.raises(ConfigError, match="no elements"):
        scar.load_job(
            write_script(tmp_path, 'import scar\nscar.initialize(scar.Job("j", [scar.Table("w", -3)]))')
        )
