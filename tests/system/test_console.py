"""The page of a real cluster: what it streams, and a kill by its button, are what the ledger says."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.component.test_cli import Shell

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them

PATIENCE = 90.0  # seconds without a look: something hangs
LOOKS = 300  # within which the page has what the ledger has
DONE = ("load", "settle", "return")
PHASES = ("suspect", "detect", "wait", "commit", "load", "settle", "return")
FACTS = ("epoch", "clock", "lost_blocks", "total_blocks", "sources", "lost_pushes", "resent_pushes")


@contextmanager
def page(shell: Shell, *options: str) -> Iterator[tuple[str, str]]:
    """Host and token of the page; in the end Ctrl-C ends it, and nothing was amiss."""
    command = shell.start("console", *options)
    assert command.stdout is not None
    said = command.stdout.readline()
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", said)
        assert found, said
        url = urlsplit(found[0])
        yield url.netloc, url.query.removeprefix("token=")
    finally:
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=PATIENCE)
    assert (command.returncode, "Traceback" in err) == (0, False), err


def looks(host: str, token: str) -> Iterator[dict[str, Any]]:
    """As the page has them: what has not changed is not sent again."""
    state: dict[str, Any] = {}
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.request("GET", f"/events?token={token}")
    answer = connection.getresponse()
    while line := answer.readline():
        if line.startswith(b"data: "):
            look = json.loads(line.removeprefix(b"data: "))
            state |= look.get("state", {})
            yield look | {"state": dict(state)}
    connection.close()


def press(host: str, token: str, how: str, name: str) -> dict[str, str]:
    """The button of a member's row."""
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    headers = {"X-Scar-Token": token, "Origin": f"http://{host}"}
    connection.request("POST", f"/{how}/{name}", headers=headers)
    said: dict[str, str] = json.loads(connection.getresponse().read())
    connection.close()
    return said


def test_a_kill_by_the_page_heals_on_it_as_the_ledger_has_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("up", "--shards", "2", "--detach")
    training = shell.start("train", "count.py", TEST_CLOCKS="1000000")
    try:
        with page(shell, "--interval", "0.1") as (host, token):
            seen = looks(host, token)
            state = next(look["state"] for look in seen if look["state"]["clock"] > 10)
            assert [row["name"] for row in state["shards"]["rows"]] == ["ps-0", "ps-1"]
            assert sum(row["blocks"] for row in state["shards"]["rows"]) == 40
            killed_at = time.time()
            assert re.fullmatch(r"ps-0 \(pid \d+\) killed", press(host, token, "kill", "ps-0")["done"])
            next(look for look in seen if is_settled(look["state"]["failures"]))
            lines = (line for look in looks(host, token) for line in look["logs"] if line["time"] > killed_at)
            next(
                line
                for line in lines
                if line["member"] == "ps-0" and line["text"].startswith("service.started")
            )
            told = [ledger_facts(one) for one in shell.json("failures")["failures"]]
            shown = (look["state"]["failures"] for look in itertools.islice(seen, LOOKS))
            failures = next(one for one in shown if [page_facts(record) for record in one] == told)
            killed = [one for one in failures if "ps-0" in one["members"]]
            assert killed
            curves = (look["curve"] for look in looks(host, token))
            drawn = next(curve for curve in curves if curve and curve["clocks"][-1] > killed[0]["clock"])
            assert drawn["clocks"] == sorted(drawn["clocks"])
    finally:
        training.send_signal(signal.SIGINT)
        training.communicate(timeout=PATIENCE)
        shell.run("down")


def is_settled(failures: list[dict[str, Any]]) -> bool:
    """All are repaired, every worker has reported what they cost it, and who died is back."""
    return bool(failures) and all(one["phases"][done] for one in failures for done in DONE)


def page_facts(failure: dict[str, Any]) -> dict[str, Any]:
    phases = {f"{phase}_seconds": failure["phases"][phase] for phase in PHASES}
    return {name: failure[name] for name in FACTS} | phases


def ledger_facts(record: dict[str, Any]) -> dict[str, Any]:
    """The same, of `scar failures -o json`."""
    return {name: record[name] for name in (*FACTS, *(f"{phase}_seconds" for phase in PHASES))}


def test_watch_opens_the_page_in_the_browser(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    noted = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {noted}.part && mv {noted}.part {noted}\n')
    browser.chmod(0o755)
    shell.run("up", "--shards", "1", "--detach")
    watch = shell.start("watch", "--web", DISPLAY=":0", BROWSER=str(browser))
    try:
        deadline = time.monotonic() + PATIENCE
        while not noted.exists():
            assert watch.poll() is None, watch.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        url = urlsplit(noted.read_text().strip())
        first = next(looks(url.netloc, url.query.removeprefix("token=")))
        assert [row["name"] for row in first["state"]["shards"]["rows"]] == ["ps-0"]
    finally:
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=PATIENCE)
        shell.run("down")
    assert watch.returncode == 0


def test_a_cluster_comes_up_with_its_page_and_ends_with_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    refused = shell.run("up", "--web", "--detach", code=1)
    assert "a detached cluster has no page of its own" in refused
    cluster = shell.start("up", "--shards", "2", "--web")
    assert cluster.stdout is not None
    try:
        said = list(itertools.takewhile(lambda line: not line.startswith("next: "), cluster.stdout))
        (shown,) = [line for line in said if line.startswith("the page: ")]
        url = urlsplit(shown.split()[2])
        states = (look["state"] for look in looks(url.netloc, url.query.removeprefix("token=")))
        first = next(states)
        assert [row["name"] for row in first["shards"]["rows"]] == ["ps-0", "ps-1"]
        assert (first["can_break"][:2], first["ended"]) == (["kill", "freeze"], False)
        cluster.send_signal(signal.SIGINT)
        assert [state["ended"] for state in states][-1]
    finally:
        cluster.send_signal(signal.SIGINT)
        _, err = cluster.communicate(timeout=PATIENCE)
    assert (cluster.returncode, "Traceback" in err) == (0, False), err
