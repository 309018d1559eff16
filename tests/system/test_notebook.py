"""The notebook runs headless, cell by cell, as it lies in the repository, and shows what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient

from tests.framework.cluster import TIMEOUT

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of this Python, whatever else is installed for the user."""
    folder = tmp_path / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(KernelSpec(argv=command, language="python").to_json())
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("kernel")
def test_the_notebook_trains_through_a_kill_and_plots_it(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # what lies in the repository has none
    NotebookClient(notebook, timeout=3 * TIMEOUT, resources={"metadata": {"path": str(tmp_path)}}).execute()
    ledger, plot = (cell for cell in notebook.cells[-2:])
    text = "".join(output.text for output in ledger.outputs)
    found = re.search(r"^ps-1@\w+ lost (\d+) of 785 blocks\nback from .*; \|delta\| \d", text, re.MULTILINE)
    assert found, text
    assert 0 < int(found[1]) < 785
    assert any("image/png" in output.get("data", {}) for output in plot.outputs)
