"""A user's training file: loaded by path, and refused with a reason when something is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import scar
from scar.errors import ConfigError

GOOD = """
from dataclasses import dataclass
import scar
from helper_of_a_test import SHAPE

@dataclass
class Setting:
    shape: int = SHAPE

job = scar.Job("mine", [scar.Table("w", Setting().shape)])

def train(worker):
    return "trained"

def other(worker):
    return "otherwise"
"""


def test_job_and_function(tmp_path: Path) -> None:
    (tmp_path / "helper_of_a_test.py").write_text("SHAPE = 7")
    (tmp_path / "mine.py").write_text(GOOD)
    before = list(sys.path)
    job, train = scar.load_job(str(tmp_path / "mine.py"))
    assert (job.name, job.table("w").shape) == ("mine", (7,))
    assert train(None) == "trained"
    assert scar.load_job(str(tmp_path / "mine.py"), "other")[1](None) == "otherwise"
    assert sys.path == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no Python file"),
        ("job = 3", "has no job"),
        ("import scar\njob = scar.Job('j', [scar.Table('w', 3)])", "no function train"),
        ("import nothing_like_this", "ModuleNotFoundError"),
        ("import scar\njob = scar.Job('j', [scar.Table('w', -3)])", "no elements"),
        ("def train(:", "SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str | None, reason: str) -> None:
    file = tmp_path / "wrong.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        scar.load_job(str(file))
