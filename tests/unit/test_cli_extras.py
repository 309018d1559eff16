"""What `scar` says where an extra was not installed, and outside of the repository: one line, never a
traceback.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from scar_cli.extras import MODULES
from tests.repo.test_docs import ROOT

RUN = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None  # as if it were not installed
sys.argv[0] = "scar"
from scar_cli.__main__ import main
main()
"""


def scar(folder: Path, without: str, *arguments: str, program: str = RUN) -> tuple[int, str]:
    paths = [str(ROOT / "sdk"), str(ROOT / "services")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"}
    run = subprocess.run(
        [sys.executable, "-c", program, without, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("without", "arguments", "extra"),
    [
        ("typer", "--help", "cli"),
        ("redis", "train mine.py", "cli"),
        ("yaml", "train mine.py --on kubernetes", "kubernetes"),
        ("kubernetes", "status --on kubernetes", "kubernetes"),
        ("matplotlib", "demo", "demo"),
        ("matplotlib", "compare", "demo"),
        ("scipy", "compare", "compare"),
        ("starlette", "console", "console"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    tmp_path: Path, without: str, arguments: str, extra: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "import scar\njob = scar.Job('j', [scar.Table('w', 3)])\ndef train(worker): ...\n"
    )
    code, said = scar(tmp_path, without, *arguments.split())
    assert code == 1, said
    assert f"pip install 'scar-ps[{extra}]'" in said
    assert "Traceback" not in said


def test_what_needs_a_checkout_says_so(tmp_path: Path) -> None:
    code, said = scar(tmp_path, "nothing", "experiment", "all")
    assert code == 1
    assert "needs a checkout" in said
    assert "next:  Run it in a checkout of the repository" in said


def test_strategies_are_compared_without_a_checkout(tmp_path: Path) -> None:
    code, said = scar(tmp_path, "experiments", "compare", "partial", "--recorded")
    assert code == 1
    assert "holds no trial of this" in said, "it came as far as its records"


INTERRUPTED = """
import sys

class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name == "scar_cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder)
from scar_cli.__main__ import main
main()
"""


def test_ctrl_c_while_modules_are_loaded_is_no_traceback(tmp_path: Path) -> None:
    code, said = scar(tmp_path, "nothing", program=INTERRUPTED)
    assert (code, said) == (130, "")


def test_a_bug_is_still_a_traceback(tmp_path: Path) -> None:
    assert "Traceback" in scar(tmp_path, "scar_cli.status", "status")[1]


def test_every_extra_brings_what_is_said_of_it() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    brought = {name: " ".join(packages).replace("-", "_") for name, packages in extras.items()}
    brought["cli"] += brought["services"]
    brought["experiments"] += brought["models"]
    by_module = packages_distributions()
    for extra, modules in MODULES.items():
        for module in modules:
            if module in ("botocore", "pydantic", "websocket"):  # a package of the extra brings them
                continue
            named = brought[extra].lower()
            assert any(one.replace("-", "_").lower() in named for one in by_module[module]), module
