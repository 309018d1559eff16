"""A job that is resumed with other settings: they hold from then on, and what it has learnt stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scar
from scar.errors import JobExists
from tests.component.test_cli import Shell
from tests.framework.cluster import TIMEOUT

FIRST, SECOND = 10, 30  # clocks after which the runs end


def make_job(lr: float, workers: int = 2, rows: int = 6) -> scar.Job:
    table = scar.Table("w", (rows, 2), rule=scar.sgd(lr), init=scar.constant(0.0))
    return scar.Job("settings", [table], workers=workers)


def first(worker: scar.Worker) -> None:
    """Each clock takes a step of the learning rate down, whatever the number of workers."""
    for _ in worker.clocks(limit=FIRST):
        worker.push("w", np.full((6, 2), 1 / worker.world_size, np.float32))
        worker.report(1.0)


def second(worker: scar.Worker) -> None:
    for _ in worker.clocks(limit=SECOND):
        worker.push("w", np.full((6, 2), 1 / worker.world_size, np.float32))
        worker.report(1.0)


def test_on_a_cluster_that_has_run_it(tmp_path: Path) -> None:
    with scar.LocalCluster(tmp_path / "home", shards=2) as cluster:
        before = cluster.train(make_job(0.5), first, timeout=TIMEOUT)
        np.testing.assert_array_equal(before.model["w"], np.full((6, 2), -5.0))
        with pytest.raises(JobExists, match=r"w\.shape"):
            cluster.train(make_job(0.25, rows=7), second, resume=True, timeout=TIMEOUT)
        after = cluster.train(make_job(0.25, workers=4), second, resume=True, timeout=TIMEOUT)
        np.testing.assert_allclose(after.model["w"], np.full((6, 2), -10.0), rtol=1e-6)
        assert after.ledger == ()
        (revision,) = cluster.status().revisions
        assert revision.changes == "workers: 2 -> 4, w.rule.lr: 0.5 -> 0.25"
        again = cluster.train(make_job(0.25, workers=4), second, resume=True, timeout=TIMEOUT)
        np.testing.assert_array_equal(again.model["w"], after.model["w"])
        assert len(cluster.status().revisions) == 1, "nothing has changed since"


FILE = """
import sys
import numpy as np
import scar

job = scar.Job("told", [scar.Table("w", (6, 2), rule=scar.sgd(0.5))], workers=1)

def train(worker):
    for _ in worker.clocks(limit=int(sys.argv[1])):
        with open("values.txt", "a") as file:
            print(worker.pull("w")[0, 0], file=file)
        worker.push("w", np.ones((6, 2)))
        worker.report(1.0)
"""


def test_by_the_command_line_from_the_store_alone(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "told.py").write_text(FILE)
    shell.run("train", "told.py", "--quiet", "--", "3")
    said = shell.run("train", "told.py", "--quiet", "--resume", "--set", "lr=0.25", "--", "6")
    assert "settings changed: w.rule.lr: 0.5 -> 0.25" in said
    values = [float(line) for line in (tmp_path / "values.txt").read_text().splitlines()]
    assert values == [0, -0.5, -1, -1.5, -1.75, -2]
    assert "settings changed at" in shell.run("failures")
    [revision] = shell.json("failures")["revisions"]
    assert (revision["number"], revision["changes"]) == (1, "w.rule.lr: 0.5 -> 0.25")
    refused = shell.run("train", "told.py", "--resume", "--set", "consistency=lazy", "--", "6", code=1)
    assert "consistency 'lazy' is unknown" in refused
