"""A user's training file: loaded by path, and refused with a reason when something is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import scar
from scar.errors import ConfigError, UnknownTable
from scar.jobfile import load_file

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


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "import scar\n\nrule = scar.sgd(0.1, speed=1)\n",
            [
                "line 3, in <module>",
                "rule = scar.sgd(0.1, speed=1)",
                "TypeError: sgd() got an unexpected keyword argument 'speed'",
            ],
        ),
        (
            "import scar\n\njob = scar.Job('j', [)\n",
            ["line 3", "job = scar.Job('j', [)", "^", "SyntaxError: "],
        ),
        (
            "import broken_helper\n",
            ['wrong.py", line 1', 'broken_helper.py", line 2', "ZeroDivisionError: division by zero"],
        ),
    ],
)
def test_an_error_shows_the_users_own_lines_and_no_others(
    tmp_path: Path, text: str, lines: list[str]
) -> None:
    (tmp_path / "broken_helper.py").write_text("zero = 0\n1 / zero\n")
    (tmp_path / "wrong.py").write_text(text)
    with pytest.raises(ConfigError) as caught:
        scar.load_job(str(tmp_path / "wrong.py"))
    sys.modules.pop("broken_helper", None)
    found = [caught.value.message.find(line) for line in lines]
    assert -1 not in found
    assert found == sorted(found)
    assert "importlib" not in caught.value.message
    assert "jobfile.py" not in caught.value.message


def test_a_hint_of_the_sdk_is_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "import scar\nrule = scar.sgd(-1)\njob = scar.Job('Not valid', [scar.Table('w', 3)])\n"
    )
    with pytest.raises(ConfigError) as caught:
        scar.load_job(str(tmp_path / "wrong.py"))
    assert "line 3, in <module>" in caught.value.message
    assert caught.value.message.endswith("\njob name 'Not valid' is not valid")
    assert caught.value.next_step == "Use 1 to 63 lower-case letters, digits and '-'"


def test_the_file_finds_its_arguments(tmp_path: Path) -> None:
    file = tmp_path / "given.py"
    file.write_text(
        "import sys, scar\njob = scar.Job(sys.argv[2], [scar.Table('w', 3)])\ndef train(worker): ...\n"
    )
    before = list(sys.argv)
    assert scar.load_job(str(file), arguments=["--name", "other"])[0].name == "other"
    assert sys.argv == before
    with pytest.raises(ConfigError, match="IndexError"):
        scar.load_job(str(file))


def test_a_name_that_is_not_known_is_answered_with_the_nearest() -> None:
    job = scar.Job("j", [scar.Table("weights", 3), scar.Table("bias", 3)])
    for name, meant in (
        ("weight", "Did you mean 'weights'? "),
        ("BIAS", "Did you mean 'bias'? "),
        ("nothing", ""),
    ):
        with pytest.raises(UnknownTable, match=f"no table '{name}'") as caught:
            job.table(name)
        assert caught.value.next_step == f"{meant}Use one of weights, bias"
    with pytest.raises(ConfigError, match="Did you mean 'sync-chain'"):
        scar.Job("j", [scar.Table("w", 3)], recovery="syncchain")


def test_callbacks_are_made_when_they_are_asked_for_and_not_by_workers(tmp_path: Path) -> None:
    file = tmp_path / "told.py"
    body = "import sys, scar\njob = scar.Job('told', [scar.Table('w', 1)])\ndef train(worker): ...\n"
    file.write_text(body)
    assert load_file(str(file)).callbacks() == []
    file.write_text(
        f"{body}made = []\ndef callbacks():\n    made.append(1)\n    return [tuple(sys.argv[1:])]\n"
    )
    found = load_file(str(file), arguments=("--lr", "1"))
    module = sys.modules["scar_job_told"]
    assert module.made == []
    assert found.callbacks() == [("--lr", "1")]
    file.write_text(f"{body}def callbacks():\n    import no_such_package\n")
    with pytest.raises(ConfigError, match=r"told.py(?s:.*)no_such_package"):
        load_file(str(file)).callbacks()
    file.write_text(f"{body}callbacks = []\n")
    with pytest.raises(ConfigError, match="is no function") as refused:
        load_file(str(file))
    assert "def callbacks()" in refused.value.next_step
