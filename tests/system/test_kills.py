"""The benchmark of kills in its smallest form: real processes, real SIGKILLs. torchft is run by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills.__main__ import main
from tests.framework.cluster import TIMEOUT

STEPS = 60
KILL = 15
CHECKPOINT = 10


def measure_kill(system: str, model: str, folder: Path) -> dict[str, Any]:
    output = folder / "kills.json"
    sizes = ["--steps", str(STEPS), "--kill", str(KILL), "--checkpoint", str(CHECKPOINT), "--batch", "32"]
    run = ["--model", model, "--repeat", "1", "--pace", "0.1", "--timeout", str(3 * TIMEOUT)]
    assert main([system, *sizes, *run, "--synthetic", "--output", str(output)]) == 0
    report = json.loads(output.read_text())
    return dict(report["records"][system][0])


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("system", "model"),
    [("scar-worker", "mlp"), ("scar-shard", "deepfm"), ("scar-chain-shard", "mlp"), ("ddp", "deepfm")],
)
def test_a_killed_process_is_measured(system: str, model: str, tmp_path: Path) -> None:
    record = measure_kill(system, model, tmp_path)
    again = record["killed"]["again"]
    if system == "ddp":  # back to the last file: the kill came 5 steps after it, or a little later
        assert 1 <= again <= CHECKPOINT + 1
    else:
        assert again == 0
    assert record["killed"]["step"] >= 0.09
    worst = 0.3 if model == "mlp" else 2.0
    for score in (record["free_score"], record["killed_score"]):
        assert score > worst if model == "mlp" else score < worst
