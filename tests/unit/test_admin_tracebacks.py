"""What of a traceback a user has written."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

import scar
from scar_admin.tracebacks import user_part

FILE = """
import scar
job = scar.Job("j", [scar.Table("w", 3)])

def helper(worker):
    job.table(worker)

def train(worker):
    try:
        helper(worker)
    except scar.ScarError as error:
        if worker == "again":
            raise KeyError("mine") from error
        raise
"""


def shown(tmp_path: Path, worker: str) -> str:
    (tmp_path / "mine.py").write_text(FILE)
    train = scar.load_job(str(tmp_path / "mine.py"))[1]
    with pytest.raises((scar.ScarError, KeyError)) as caught:
        train(worker)  # type: ignore[arg-type]
    return "\n".join(
        user_part("".join(traceback.format_exception(caught.value)).splitlines(), str(tmp_path / "mine.py"))
    )


def test_frames_of_the_user_and_the_error(tmp_path: Path) -> None:
    text = shown(tmp_path, "v")
    assert "in train" in text
    assert "in helper" in text
    assert "job.table(worker)" in text
    assert text.endswith("scar.errors.UnknownTable: job j has no table 'v'. Use one of w")
    assert "tables.py" not in text
    assert "test_admin_tracebacks" not in text


def test_an_error_that_the_user_raises_from_another(tmp_path: Path) -> None:
    text = shown(tmp_path, "again")
    assert "tables.py" not in text
    assert "has no table 'again'" in text
    assert text.endswith("KeyError: 'mine'")


def test_another_installation_is_known_by_its_folder() -> None:
    trace = [
        '  File "/etc/scar/training/mlr.py", line 1, in train',
        '  File "/usr/lib/site-packages/scar/training.py", line 2, in pull',
    ]
    trace += [
        "    raise",
        '  File "/usr/lib/site-packages/grpc/x.py", line 2, in call',
        "scar.errors.NonFinite: NaN",
    ]
    assert user_part(trace, '/mlr.py"') == [trace[0], trace[-1]]
