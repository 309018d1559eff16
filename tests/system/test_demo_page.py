"""The page of the demo shows one cluster after the other, and nobody kills from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import scar
from scar_cli.demo.stage import DemoStage, open_stage
from scar_local import LocalCluster
from tests.system.test_console import looks, press

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them


def shown_jobs(stage: DemoStage) -> Iterator[tuple[str, int]]:
    """Name of the job and shards that own blocks, look by look."""
    for look in page_looks(stage):
        state = look["state"]
        owners = sum(row["blocks"] > 0 for row in state["shards"]["rows"])
        yield (state["job"] or {"name": ""})["name"], owners


def page_looks(stage: DemoStage) -> Iterator[dict[str, Any]]:
    where = urlsplit(stage.url)
    return looks(where.netloc, where.query.removeprefix("token="))


def test_it_shows_the_cluster_that_runs_then_the_next_one(tmp_path: Path) -> None:
    with open_stage() as stage:
        shown = shown_jobs(stage)
        assert next(shown) == ("", 0)
        for shards, name in ((1, "first"), (2, "second")):
            with LocalCluster(tmp_path / name, shards=shards) as cluster:
                cluster.start_job(scar.Job(name, tables=[scar.Table("w", 40)], shards=shards))
                stage.show(cluster)
                assert (name, shards) in shown
                stage.show(None)
            assert next(shown) == (name, shards), "between two it is as it was"
        where = urlsplit(stage.url)
        answer = page_looks(stage)
        assert not next(answer)["state"]["can_break"]
        with pytest.raises(ValueError, match="Expecting value"):  # there is no such route
            press(where.netloc, where.query.removeprefix("token="), "kill", "ps-0")
    assert list(answer)[-1]["state"]["ended"]
