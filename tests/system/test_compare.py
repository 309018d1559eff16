"""`scar compare` on real processes: strategies go through the same kills, and a stopped run goes on where
it was.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scar_cli.main import app

CALL = [
    "compare",
    "partial",
    "ps",
    "--kill",
    "ps-1@5",
    "--kill",
    "worker-1@10",
    "--seeds",
    "1",
    "--goal",
    "1.2",
    "-o",
    "json",
]


@pytest.mark.timeout(600)  # three whole trainings, on a busy machine
def test_strategies_side_by_side(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*CALL, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["strategies"]
    assert list(found) == ["undisturbed", "partial", "ps"]
    for name in ("partial", "ps"):
        assert found[name]["seeds"] == 1
        if "detect, s" in found[name]:  # a successor that joins before the detector reports leaves none
            assert found[name]["detect, s"]["value"] > 0
        assert found[name]["pause, s"]["value"] > 0
        assert found[name]["iterations"]["value"] > 10, "it was over before the second kill"
        assert found[name]["written, MB"]["value"] > 0
    assert found["undisturbed"]["lost pushes"]["value"] == 0
    assert (tmp_path / "compare.png").is_file()
    records = (tmp_path / "compare.jsonl").read_text()
    for trial in map(json.loads, records.splitlines()):
        assert bool(trial["detect"]) is bool(trial["kills"]), "it was over before the ledger named who died"
    again = CliRunner().invoke(app, [*CALL, "--out", str(tmp_path)])
    assert json.loads(again.stdout)["strategies"] == found
    assert (tmp_path / "compare.jsonl").read_text() == records
