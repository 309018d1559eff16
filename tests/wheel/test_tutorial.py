"""A wheel of this checkout, in a new virtual environment of each Python that is to be had, runs the tutorial
as it is written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.framework.documents import missing_lines, plain, read_page

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
VERSIONS = ("3.11", "3.12", "3.13")
INSTALL_SECONDS = 400.0


def find_python(version: str) -> Path | None:
    """An interpreter of this version: this one's base, one on PATH, or one of pyenv."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.base_prefix, "bin", "python3")
    roots = [os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))]
    installed = [path for root in roots for path in Path(root, "versions").glob(f"{version}.*/bin/python3")]
    on_path = shutil.which(f"python{version}")
    for path in [*installed, *([Path(on_path)] if on_path else [])]:
        asked = [str(path), "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    return None


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, timeout=INSTALL_SECONDS)
    return folder


def environment(python: Path, wheels: Path, home: Path) -> dict[str, str]:
    """Of a user who has this Python and nothing of the checkout; the index has the wheel, too."""
    left_out = re.compile("SCAR_|PYTHON|VIRTUAL_ENV|PYTEST")
    kept = {name: value for name, value in os.environ.items() if not left_out.match(name)}
    path = [str(python.parent), *(one for one in kept["PATH"].split(os.pathsep) if ".venv" not in one)]
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join(path),
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONSTRAINT": str(ROOT / "requirements" / "ci.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_tutorial_runs_as_it_is_written(version: str, wheels: Path, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} is to be had here: NOTHING WAS TESTED ON IT")
    page = read_page(TUTORIAL)
    try:
        done = subprocess.run(
            ["bash", "-c", page.script],
            cwd=tmp_path,
            env=environment(python, wheels, tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
        )
    finally:
        subprocess.run(["scar-tutorial/bin/scar", "down"], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert not (missing := missing_lines(page.expected, done.stdout)), f"{missing}\n{done.stdout}"
    site = next((tmp_path / "scar-tutorial" / "lib").glob(f"python{version}/site-packages/scar/__init__.py"))
    assert ROOT not in site.resolve().parents, "it ran the checkout and not the wheel"


def test_a_page_is_read_to_its_last_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('```console\necho a 12\n```\n\n```python title="f.py"\nx = 1\n```\n\n```text\na 3\n```\n')
    read = read_page(page)
    said = subprocess.check_output(["bash", "-c", read.script], cwd=tmp_path, text=True)
    assert (tmp_path / "f.py").read_text() == "x = 1\n"
    assert missing_lines(read.expected, said) == []
    assert missing_lines(("b 3", "a 3"), said) == ["b 3", "a 3"]
    assert plain("loss 0.149,  2 s") == "loss N, N s"
    page.write_text("```python\nx = 1\n```\n")
    with pytest.raises(ValueError, match="nobody runs"):
        read_page(page)
