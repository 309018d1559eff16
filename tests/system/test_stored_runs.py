"""How runs went, from the store alone: with no process of theirs left, the page says what it said before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scar_local import ClusterDirectory
from scar_runtime.store import open_store
from scar_runtime.store.layout import HISTORY, folder
from tests.component.test_cli import Shell
from tests.system.test_console import PATIENCE, looks, page

pytestmark = pytest.mark.timeout(400)  # many processes, and other tests may run beside them

CLOCKS = 700  # more than there are intervals of a curve: it is thinned
KILLED_AT = 100
EVERY = 0.1  # seconds between two looks of the page
SETTLED = (
    "number",
    "members",
    "clock",
    "repaired",
    "lost_blocks",
    "total_blocks",
    "sources",
    "phases",
    "delta_norm",
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    made.run("up", "--shards", "2", "--detach")
    yield made
    if ClusterDirectory(tmp_path / ".scar" / "local").alive():
        made.run("down")


def test_a_finished_and_a_dead_run_are_as_they_were_seen_live(shell: Shell) -> None:
    store = shell.json("jobs", "ls")["store"]
    with page(shell, "--interval", str(EVERY)) as (host, token):
        live, told = watch_finished_run(shell, host, token)
    dead = watch_dead_run(shell)
    with page(shell, "--store", store) as (host, token):
        look = next(looks(host, token))
    assert look["names"] == ["dead", "count"], "the one that was seen last comes first"
    runs = {run["name"]: run for run in look["runs"]}
    check_finished(runs["count"], live, told)
    check_dead(runs["dead"], dead)
    root = open_store(store)
    assert [len(root.under(name).list(folder(HISTORY))) for name in ("count", "dead")] == [1, 1]
    shell.run("jobs", "rm", "count", "--store", store, "--yes")
    assert root.under("count").list("") == []


def watch_finished_run(shell: Shell, host: str, token: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train with a failure on the way. Returns all that the live page has in the end, and the ledger."""
    training = shell.start("train", "count.py", TEST_CLOCKS=str(CLOCKS))
    try:
        seen = looks(host, token)
        next(one for one in seen if one["state"]["clock"] > KILLED_AT)
        shell.run("kill", "ps-0")
        next(one for one in seen if one["state"]["job"] and one["state"]["job"]["finished_manifest"])
        training.communicate(timeout=PATIENCE)
    finally:
        training.kill()
    told = shell.json("failures")["failures"]
    [record] = told

    def is_told(look: dict[str, Any]) -> bool:
        """The page may show a failure as it was a look before."""
        phases = look["state"]["failures"][0]["phases"]
        return bool(phases == {name: record[f"{name}_seconds"] for name in phases})

    return next(filter(is_told, looks(host, token))), told


def watch_dead_run(shell: Shell) -> dict[int, float]:
    """Train, and stop everything on the way. Returns losses by clock, as they were seen before."""
    training = shell.start("train", "count.py", TEST_CLOCKS="1000000", TEST_JOB="dead")
    try:
        until(lambda: shell.json("status"), lambda one: one["job"] == "dead" and one["clock"] > KILLED_AT)
        with page(shell, "--interval", str(EVERY)) as (host, token):
            curve = next(looks(host, token))["curve"]
        time.sleep(5)  # what is not written yet is lost with the last leader: a few seconds
    finally:
        training.kill()
        training.communicate(timeout=PATIENCE)
        shell.run("down")
    return dict(zip(curve["clocks"], curve["losses"], strict=True))


def check_finished(run: dict[str, Any], live: dict[str, Any], told: list[dict[str, Any]]) -> None:
    """Loss curve and failures are those of the live page, and of the ledger."""
    assert run["curve"]["clocks"] == live["curve"]["clocks"]
    assert run["curve"]["losses"] == live["curve"]["losses"]
    state = run["state"]
    assert state["job"] == live["state"]["job"] | {"blocks": 0}, "nobody holds a block any more"
    assert (state["clock"], state["loss"], state["loss_clock"]) == (CLOCKS, 1 / CLOCKS * 2, CLOCKS - 1)
    [failure] = state["failures"]
    [seen] = live["state"]["failures"]
    assert {name: failure[name] for name in SETTLED} == {name: seen[name] for name in SETTLED}
    [record] = told
    assert failure["phases"] == {name: record[f"{name}_seconds"] for name in failure["phases"]}
    assert failure["healed_clock"] >= failure["clock"] == record["clock"]
    assert run["pace"] > 0
    assert (run["workers"], run["lowest"]) == (2, state["loss"])


def check_dead(run: dict[str, Any], seen: dict[int, float]) -> None:
    """Each loss that the store has is that of its clock; what was seen some seconds before is there."""
    stored = dict(zip(run["curve"]["clocks"], run["curve"]["losses"], strict=True))
    assert all(loss == pytest.approx(2 / (1 + clock)) for clock, loss in stored.items())
    assert max(stored) >= max(seen)
    assert not run["state"]["job"]["finished_manifest"]


def until(read: Callable[[], Any], found: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not found(seen := read()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)
    return seen
