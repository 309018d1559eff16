"""The command line against a release on a real cluster: train a file, look, break, come back, and read the
bucket.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.site import Site, environment, missing
from tests.system.test_console import looks

if reason := missing():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.timeout(600)

SECONDS = 180.0

TRAIN = """
import time
import numpy as np
import scar

table = scar.Table("w", (60, 8), rule=scar.add())
job = scar.Job("{name}", [table], workers=2, checkpoint=scar.Checkpoint("priority", 0.5, 4))

def train(worker):
    for clock in worker.clocks(limit={clocks}):
        worker.pull("w")
        worker.push("w", np.ones((60, 8)))
        if {fails} and clock == 3:
            raise ValueError("a user's mistake")
        time.sleep({pause})
"""


def scar(
    site: Site, *arguments: str, check: bool = True, release: str = ""
) -> subprocess.CompletedProcess[str]:
    command = (replace(site, release=release) if release else site).scar(*arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment())
    if check:
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done


def seen(site: Site, *arguments: str) -> Any:
    """What a command says as JSON; None when the cluster does not answer for a moment."""
    done = scar(site, *arguments, "-o", "json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def until(site: Site, condition: Callable[[Any], object], *arguments: str, what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while not ((found := seen(site, *arguments)) and condition(found)):
        assert time.monotonic() < deadline, f"waited in vain for {what}; last: {found}"
        time.sleep(0.5)
    return found


def name_of(folder: Path, word: str) -> str:
    """Of a job: a store has a name once, and a test may be run again, in another folder."""
    return f"{word}{folder.name[-1]}"


def write(folder: Path, name: str, clocks: int, fails: bool = False, pause: float = 0.05) -> str:
    path = folder / f"{name}.py"
    path.write_text(TRAIN.format(name=name, clocks=clocks, fails=fails, pause=pause))
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def release(site: Site) -> None:
    """A small one; nothing of it is left."""
    site.install(ps__replicas="2", bundled__minio__persistence__enabled="false", chaos__enabled="false")


def workers(site: Site) -> list[str]:
    """Names of all that a training may have made on the cluster."""
    lists = (site.apps.list_namespaced_stateful_set, site.core.list_namespaced_config_map)
    return [one.metadata.name for found in lists for one in found(site.namespace).items]


def test_a_file_is_trained_and_nothing_is_left_of_its_workers(site: Site, tmp_path: Path) -> None:
    name = name_of(tmp_path, "first")
    done = scar(site, "train", write(tmp_path, name, 8))
    assert f"finished job {name}: 8 clocks" in done.stdout
    assert not [name for name in workers(site) if "worker-file" in name]
    assert "scar-worker" not in workers(site)
    (found,) = {one["job"] for one in [seen(site, "status")]}
    assert found == name
    listed = seen(site, "checkpoints", "ls", "--job", name)
    assert listed["manifests"]
    assert scar(site, "checkpoints", "verify", "--job", name).stdout.startswith("all good")


def test_a_training_outlives_whoever_watches_it_and_is_found_again(site: Site, tmp_path: Path) -> None:
    name = name_of(tmp_path, "long")
    file = write(tmp_path, name, 120, pause=0.25)
    command = site.scar("train", file)
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    until(
        site,
        lambda status: status["job"] == name and status["clock"] >= 2,
        "status",
        what="the first clocks",
    )
    watching.send_signal(signal.SIGINT)
    text, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "the training goes on" in text
    other = scar(site, "train", write(tmp_path, name_of(tmp_path, "other"), 1), check=False)
    assert other.returncode == 1
    assert f"job '{name}' is being trained" in other.stderr
    before = seen(site, "status")["clock"]
    again = scar(site, "train", file)
    assert "runs already, and is followed" in again.stdout
    assert f"finished job {name}: 120 clocks" in again.stdout
    assert before > 1


def test_a_killed_shard_heals_and_a_finished_job_is_not_started_again(site: Site, tmp_path: Path) -> None:
    """A push of the last clock that has to be sent again, to a shard that has closed it, gets one more."""
    name = name_of(tmp_path, "healed")
    file = write(tmp_path, name, 60, pause=0.3)
    command = site.scar("train", file)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as training:
        until(
            site,
            lambda status: status["job"] == name and status["clock"] >= 2,
            "status",
            what="the first clocks",
        )
        assert "killed ps-1" in scar(site, "kill", "ps-1").stdout
        ledger = until(
            site,
            lambda found: any(one["epoch"] for one in found["failures"]),
            "failures",
            what="the recovery",
        )
        assert any("scar-ps-1@" in member for one in ledger["failures"] for member in one["members"])
        text, _ = training.communicate(timeout=SECONDS)
        assert training.returncode == 0, text
    found = re.search(rf"finished job {name}: (\d+) clocks", text)
    assert found, text
    assert int(found[1]) == 60
    refused = scar(site, "train", file, check=False)
    assert refused.returncode == 1
    assert "--resume" in refused.stderr
    assert "scar-worker" not in workers(site), "a job that is refused leaves nothing behind"


def test_the_live_page_looks_at_the_release_and_cannot_break_it(site: Site) -> None:
    with subprocess.Popen(site.scar("console"), stdout=subprocess.PIPE, text=True, env=environment()) as page:
        assert page.stdout is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", page.stdout.readline())
            assert found
            url = urlsplit(found[0])
            token = url.query.removeprefix("token=")
            state = look_of_the_same_moment(site, looks(url.netloc, token))
            assert any(row["leader"] for row in state["services"])
            assert state["can_break"] == []
            lines = (line for look in looks(url.netloc, token) for line in look["logs"])
            written = next(line for line in lines if line["level"] == "info")
            assert written["member"] in site.pods()
            assert written["time"] > 0
            connection = http.client.HTTPConnection(url.netloc, timeout=SECONDS)
            connection.request("POST", "/kill/ps-0", headers={"X-Scar-Token": token})
            assert connection.getresponse().status == 404
        finally:
            page.send_signal(signal.SIGINT)
        assert page.wait(timeout=60) == 0


def look_of_the_same_moment(site: Site, states: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """One that says of the job and its shards what `scar status` does. Shards may still come home."""
    deadline = time.monotonic() + SECONDS
    for look in states:
        state, told = look["state"], seen(site, "status")
        page = (
            state["job"] and state["job"]["name"],
            state["clock"],
            {row["name"]: row["blocks"] for row in state["shards"]["rows"]},
            state["checkpoint"] and state["checkpoint"]["manifest"],
        )
        owned = {name: owned_blocks(one) for name, one in told["shards"].items()} if told else {}
        status = told and (told["job"], told["clock"], owned, int(told["checkpoint"]["manifest"]))
        if page == status and state["shards"]["well"] == 2:
            return state
        assert time.monotonic() < deadline, f"the page says {page}, scar status {status}"
    raise AssertionError("the page has ended")


def owned_blocks(shard: dict[str, Any]) -> int:
    return sum(int(table.get("blocks", 0)) for table in shard.get("tables", ()))


def test_a_mistake_in_the_file_is_shown_as_it_happened(site: Site, tmp_path: Path) -> None:
    done = scar(site, "train", write(tmp_path, name_of(tmp_path, "wrong"), 50, fails=True), check=False)
    assert done.returncode == 1
    assert "ValueError: a user's mistake" in done.stderr
    assert "scar-worker" not in workers(site)


def test_the_doctor_finds_nothing_to_mend(site: Site) -> None:
    checks = until(site, lambda found: found["ok"], "doctor", what="a healthy release")["checks"]
    names = {check["name"] for check in checks}
    assert {"release", "rights", "pods", "store", "redis"} <= names


def test_a_release_that_is_not_there(site: Site) -> None:
    done = scar(site, "status", check=False, release="nobody")
    assert done.returncode == 1
    assert "no release 'nobody'" in done.stderr
    assert "--release: scar" in done.stderr
