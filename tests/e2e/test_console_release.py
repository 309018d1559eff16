"""The live page that the chart runs: who sees it, what a port-forward shows, and that it breaks nothing."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import OPTIONS
from tests.e2e.site import READY_SECONDS, ROOT, WAIT_SECONDS, Site, environment, missing
from tests.framework.asked_metrics import check_query, queries, read_samples
from tests.system.test_console import LOOKS, is_settled, ledger_facts, looks, page_facts

if reason := missing():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.timeout(600)

STEADY = str(ROOT / "tests" / "e2e" / "steady.py")
DENIED = (ROOT / "tests" / "e2e" / "denied.py").read_text()
MEASURED = {"ps", "worker", "checkpoint", "recovery", "detector"}
SCRAPE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9090/metrics').read().decode())"
FENCED = 3  # exit code of who has heard that it was replaced
CHANGES = {  # of each service, some of what a reader must not do
    *("Recovery/Join", "Recovery/StartJob", "Recovery/ReportFailure", "Checkpoint/Trigger"),
    *("ShardData/Push", "ShardData/Restore", "ShardControl/Adopt", "ShardControl/Freeze", "Detector/Beat"),
}


@dataclass(frozen=True)
class ForwardedPage:
    """``host``: where a port of this machine leads to it."""

    host: str
    token: str

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, timeout=WAIT_SECONDS)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        said = answer.read().decode()
        connection.close()
        return answer.status, said


@pytest.fixture(scope="module", autouse=True)
def _training(site: Site) -> Iterator[None]:
    site.install(
        ps__replicas="3",
        console__enabled="true",
        console__logs="true",
        bundled__minio__persistence__enabled="false",
        chaos__enabled="true",
    )
    with site.background("train", STEADY, "--shards", "3"):
        site.until(
            lambda status: len(status.workers) == 2 and status.clock >= 5, "training to begin", READY_SECONDS
        )
        yield


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[ForwardedPage]:
    """As docs/console.md says: the Secret has the token, and kubectl forwards."""
    secret = site.core.read_namespaced_secret("scar-console", site.namespace)
    command = ["kubectl", "port-forward", "--namespace", site.namespace, "deploy/scar-console", ":8080"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as forward:
        assert forward.stdout is not None
        try:
            found = re.search(r"127\.0\.0\.1:\d+", forward.stdout.readline())
            assert found
            yield ForwardedPage(found[0], base64.b64decode(secret.data["token"]).decode())
        finally:
            forward.terminate()


def test_without_its_token_nothing_is_shown(page: ForwardedPage) -> None:
    for path in ("/", "/events", f"/?token={page.token}x"):
        status, said = page.ask("GET", path)
        assert (status, "steady" in said) == (403, False)
    assert page.ask("GET", f"/?token={page.token}")[0] == 200


def test_the_token_is_in_no_log(site: Site, page: ForwardedPage) -> None:
    page.ask("GET", f"/?token={page.token}")
    (pod,) = site.pods("console")
    log = site.core.read_namespaced_pod_log(pod, site.namespace)
    assert "the page:" in log
    assert page.token not in log


def test_a_killed_shard_heals_on_it_as_the_ledger_has_it(site: Site, page: ForwardedPage) -> None:
    seen = looks(page.host, page.token)
    before = next(look["state"] for look in seen if look["state"]["clock"] > 5)
    assert before["job"]["name"] == "steady"
    assert [row["name"] for row in before["shards"]["rows"]] == ["scar-ps-0", "scar-ps-1", "scar-ps-2"]
    assert before["can_break"] == []
    lines = (line for look in seen for line in look["logs"])
    assert next(line for line in lines if line["level"] == "info")["member"].startswith("scar-")
    site.run("kill", "ps-1")
    next(look for look in seen if is_settled(look["state"]["failures"]))
    told = json.loads(site.run("failures", "-o", "json"))["failures"]
    killed = [one for one in told if any(key.startswith("scar-ps-1@") for key in one["members"])]
    assert killed
    shown = (look["state"]["failures"] for look in itertools.islice(seen, LOOKS))
    assert next(
        one for one in shown if [page_facts(record) for record in one] == list(map(ledger_facts, told))
    )


def test_each_query_of_boards_and_alerts_finds_what_it_asks_for(site: Site) -> None:
    """In a release that has trained, saved, and lost a shard."""
    found = [(part, site.python(pod, SCRAPE)) for part in MEASURED for pod in site.pods(part)]
    samples = read_samples(found)
    assert {component for component, _ in samples} == MEASURED
    for place, query in queries():
        check_query(samples, place, query)


@contextmanager
def operator_page(site: Site) -> Iterator[ForwardedPage]:
    """`scar console --on kubernetes`."""
    command = site.scar("console")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as console:
        assert console.stdout is not None
        try:
            found = re.search(r"http://(127\.0\.0\.1:\d+)/\?token=(\S+)", console.stdout.readline())
            assert found
            yield ForwardedPage(found[1], found[2])
        finally:
            console.send_signal(signal.SIGINT)
        assert console.wait(timeout=60) == 0


def test_the_page_of_the_operator_breaks_what_it_shows_where_chaos_is_allowed(site: Site) -> None:
    with operator_page(site) as page:
        seen = looks(page.host, page.token)
        state = next(seen)["state"]
        assert state["can_break"] == ["kill", "freeze"]
        assert "violates PodSecurity" in state["cannot_break"][0]
        before = state["failure_count"]
        for count, how, name in ((1, "kill", "scar-ps-2"), (2, "freeze", "scar-ps-0")):
            status, said = page.ask("POST", f"/{how}/{name}", **{"X-Scar-Token": page.token})
            assert status == 200, said
            healed = next(one["state"] for one in seen if is_healed(one["state"], before + count))
            assert any(name in one["members"] for one in healed["failures"][before:])


def test_a_browser_kills_a_shard_by_its_button_and_sees_it_heal_as_the_ledger_has_it(site: Site) -> None:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium is here: apt-get install chromium")
    with operator_page(site) as page, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        shown = browser.new_page()
        shown.set_default_timeout(1000 * WAIT_SECONDS)
        shown.goto(f"http://{page.host}/?token={page.token}")
        button = shown.get_by_label("Kill scar-ps-1", exact=True)
        expect(button).to_be_enabled(timeout=1000 * WAIT_SECONDS)
        known = len(json.loads(site.run("failures", "-o", "json"))["failures"])
        button.click()
        shown.get_by_label("Really kill scar-ps-1?").click()
        flag = shown.locator(f'.flag[data-failure="{known + 1}"].healed')
        expect(flag).to_be_visible(timeout=1000 * WAIT_SECONDS)
        flag.click()
        told = json.loads(site.run("failures", "-o", "json"))["failures"][known]
        opened = expect(shown.locator("#failure"))
        opened.to_contain_text(f"Failure {told['number']}: scar-ps-1 at clock {told['clock']}")
        opened.to_contain_text(f"{told['lost_blocks']} of {told['total_blocks']} blocks lost")
        opened.to_contain_text(f"epoch {told['epoch']} ")
        browser.close()


def test_a_shard_that_the_page_cuts_off_is_replaced_while_it_lives_and_joins_again(site: Site) -> None:
    """Where a container with NET_ADMIN may join its pod."""
    with site.privileged(), operator_page(site) as page, ThreadPoolExecutor() as threads:
        seen = looks(page.host, page.token)
        states = (look["state"] for look in seen)
        # what an earlier test has killed may not be back yet
        calm = (one for one in states if not one["failures"] or is_healed(one, 0))
        state = next(one for one in calm if serves(one, "scar-ps-1"))
        assert state["can_break"] == ["kill", "freeze", "cut"]
        before, failures = site.pods("ps")["scar-ps-1"], state["failure_count"]
        cut = threads.submit(page.ask, "POST", "/cut/scar-ps-1", **{"X-Scar-Token": page.token})
        next(one for one in states if shard(one, "scar-ps-1")["hindered"] == "cut off")
        next(
            one for one in states if one["failure_count"] > failures and not shard(one, "scar-ps-1")["blocks"]
        )
        assert cut.result() == (200, '{"done":"scar-ps-1 was cut off for 5 s"}')
        healed = next(one for one in states if is_healed(one, failures + 1))
        next(one for one in states if serves(one, "scar-ps-1"))
        (killed,) = [one for one in healed["failures"][failures:] if "scar-ps-1" in one["members"]]
        assert any("silent for" in said for said in killed["evidence"]), killed["evidence"]
        told = json.loads(site.run("failures", "-o", "json"))["failures"][failures:]
        assert page_facts(killed) in map(ledger_facts, told)
        check_restart(before, site.pods("ps")["scar-ps-1"])
        assert "cutting off scar-worker-0 for 1 s" in site.run("cut", "worker-0", "--seconds", "1")


def shard(state: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in state["shards"]["rows"] if row["name"] == name)
    return found


def serves(state: dict[str, Any], name: str) -> bool:
    """It is there, and has blocks: one that has just died may be neither."""
    return any(row["name"] == name and row["blocks"] for row in state["shards"]["rows"])


def check_restart(before: Any, after: Any) -> None:
    """The pod is the same one, and its container began anew by itself: no probe has killed it."""
    assert after.metadata.uid == before.metadata.uid
    (was,), (now,) = before.status.container_statuses, after.status.container_statuses
    assert now.restart_count == was.restart_count + 1
    assert now.last_state.terminated.exit_code == FENCED


def is_healed(state: dict[str, Any], failures: int) -> bool:
    """So many failures are repaired, and all members are back."""
    well = all(state[kind]["well"] == state[kind]["total"] for kind in ("shards", "workers"))
    return state["failure_count"] >= failures and is_settled(state["failures"]) and well


def test_it_can_break_nothing(site: Site, page: ForwardedPage) -> None:
    """Neither by its buttons, nor whoever gets into its pod: its certificate may only look."""
    assert page.ask("POST", "/kill/scar-ps-0", **{"X-Scar-Token": page.token})[0] == 404
    (pod,) = site.pods("console")
    text = site.python(pod, DENIED)
    assert "found: " in text, text
    denied = json.loads(text.rpartition("found: ")[2])["denied"]
    assert set(denied.values()) == {"PERMISSION_DENIED"}, denied
    assert set(denied) >= CHANGES, CHANGES - set(denied)
    account = site.core.read_namespaced_pod(pod, site.namespace).spec
    for verb, resource in (
        ("delete", "pods"),
        ("create", "pods/exec"),
        ("get", "secrets"),
        ("patch", "pods"),
    ):
        command = ["kubectl", "auth", "can-i", verb, resource, "--namespace", site.namespace]
        user = f"--as=system:serviceaccount:{site.namespace}:{account.service_account_name}"
        asked = subprocess.run(
            [*command, user], capture_output=True, text=True, env=environment(), check=False
        )
        assert asked.stdout.strip() == "no", (verb, resource)
