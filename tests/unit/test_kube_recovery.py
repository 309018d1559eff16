"""The figures of benchmarks/kube_recovery.py: histogram and the model that it trains."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kube_recovery import MODEL, histogram
from scar.jobfile import load_job


def test_histogram_has_every_step_up_to_the_largest() -> None:
    assert histogram([0.1, 0.2, 0.3, 0.9]) == [(0.0, 2), (0.25, 1), (0.5, 0), (0.75, 1)]
    assert sum(count for _, count in histogram([n / 7 for n in range(50)])) == 50


def test_the_model_has_the_size_that_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text(MODEL.format(name="large", rows=256 * 1526, shards=2, pause=0.1))
    job, _ = load_job(str(file))
    assert 99e6 < job.table("w").elements * 4 < 101e6
    assert (job.shards, job.blocks) == (2, 1526)
