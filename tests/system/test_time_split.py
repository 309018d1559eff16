"""What a worker's time goes to, as it is reported, against the clocks of the training code itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.component.test_cli import Shell

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them

PATIENCE = 90.0
SLEEP = 0.05  # of one of the workers, in each clock
CLOCKS = 40
ON_THE_WAY = 0.8  # of a wait is seen by its shard at least: the request has to get there first
TRAIN = f"""
import json, os, time
from dataclasses import asdict
import numpy as np
import scar

job = scar.Job("split", [scar.Table("w", (40, 3), rule=scar.add())], shards=2, workers=2)

def train(worker):
    slow = worker.rank == 1
    ones = np.ones((40, 3), np.float32)
    times = []
    for clock in worker.clocks(limit=int(os.environ.get("TEST_CLOCKS", "{CLOCKS}"))):
        began = time.monotonic()
        worker.pull("w")
        pulled = time.monotonic()
        if slow:
            time.sleep({SLEEP})
        computed = time.monotonic()
        worker.push("w", ones)
        times.append((began, pulled, computed, time.monotonic()))
    pace = worker.pace
    seen = dict(times=times, ended=time.monotonic(), spent=asdict(pace.spent), clocks=pace.clocks)
    with open(f"{{os.environ['TEST_SEEN']}}/{{'slow' if slow else 'fast'}}.json", "w") as file:
        json.dump(seen, file)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    (tmp_path / "split.py").write_text(TRAIN)
    return made


def test_the_split_is_what_the_training_code_measures_itself(shell: Shell) -> None:
    shell.run("train", "split.py", "--shards", "2", TEST_SEEN=str(shell.folder))
    seen = {name: json.loads((shell.folder / f"{name}.json").read_text()) for name in ("slow", "fast")}
    for one in seen.values():
        check_bounds(one)
    slow, fast = seen["slow"], seen["fast"]
    assert slow["spent"]["compute"] >= SLEEP * (CLOCKS - 1)
    # a pull of clock c cannot be served before the slow one pushes in clock c - 1
    held = [slow["times"][clock - 1][2] - fast["times"][clock][0] for clock in range(1, CLOCKS)]
    truth = sum(max(0.0, one) for one in held)
    assert truth > 0.5 * SLEEP * CLOCKS, "else this proves nothing"
    assert ON_THE_WAY * truth <= fast["spent"]["wait"]
    assert slow["spent"]["wait"] < fast["spent"]["wait"]


def check_bounds(seen: dict[str, Any]) -> None:
    """Each part lies between what surely belongs to it and what might; the first clock is not counted."""
    times, spent = seen["times"], seen["spent"]
    counted = times[1:]
    between = [after[0] - before[3] for before, after in zip(times, counted, strict=False)]
    pulls = sum(pulled - began for began, pulled, _, _ in counted)
    computing = sum(computed - pulled for _, pulled, computed, _ in counted)
    pushes = sum(pushed - computed for _, _, computed, pushed in counted)
    ends = sum(between) + seen["ended"] - times[-1][3]  # the ends of clocks, which are pushes, too
    assert seen["clocks"] == CLOCKS - 1
    assert computing <= spent["compute"]
    assert spent["pull"] + spent["wait"] <= pulls
    assert spent["push"] <= pushes + ends
    total = sum(spent.values())
    assert pulls + computing + pushes <= total <= seen["ended"] - times[0][3]


def test_the_straggler_is_named_while_it_trains(shell: Shell) -> None:
    shell.run("up", "--shards", "2", "--detach")
    training = shell.start("train", "split.py", TEST_CLOCKS="1000000", TEST_SEEN=str(shell.folder))
    try:
        status = until(lambda: shell.json("status"), lambda one: bool(one.get("stragglers")))
        assert status["stragglers"] == ["worker-1"]
        split = status["workers"]["worker-1"]["per_clock"]
        assert split["compute"] >= SLEEP
        assert sum(split.values()) == pytest.approx(status["workers"]["worker-1"]["seconds_per_clock"])
        assert "straggler" in shell.run("status")
    finally:
        training.terminate()
        training.communicate(timeout=PATIENCE)
        shell.run("down")


def until(read: Callable[[], Any], found: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not found(seen := read()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)
    return seen
