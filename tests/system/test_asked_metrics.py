"""Each query of the dashboards and the alerts, against what services that run expose: metrics and labels."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import scar
from scar_local import LocalCluster
from tests.component.test_cli import TRAIN
from tests.framework.asked_metrics import Samples, check_query, queries, read_samples
from tests.framework.cluster import TIMEOUT

pytestmark = pytest.mark.timeout(400)  # many processes, and other tests may run beside them

QUERIES = list(queries())


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Of a cluster that has trained, saved, and lost a shard."""
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "count.py").write_text(TRAIN.replace('"40"', '"1000000"'))
    with LocalCluster(folder / "home", shards=2, environment={"SCAR_METRICS_PORT": "0"}) as cluster:
        job, _ = scar.load_job(folder / "count.py")
        cluster.start_job(job)
        cluster.start_workers(folder / "count.py", 2)
        cluster.until(
            lambda status: bool(status.checkpoint and status.checkpoint.manifest >= 2), TIMEOUT, "two rounds"
        )
        cluster.kill("ps-1")
        cluster.until(
            lambda status: any(one.epoch and one.load_seconds for one in status.failures), TIMEOUT, "recovery"
        )
        addresses = metrics_addresses(folder / "home")
        return read_samples((component, scrape(address)) for component, address in addresses)


def scrape(address: str) -> str:
    """Empty: nobody is there any more, as that process was killed."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT) as answer:
            said: str = answer.read().decode()
            return said
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return ""
        raise


def metrics_addresses(home: Path) -> list[tuple[str, str]]:
    """Component and newest address of each process, as its log says."""
    found = []
    for log in home.rglob("*.log"):
        told = re.findall(r"metrics\.started.*?((?:\d+\.){3}\d+:\d+)", log.read_text())
        if told:
            found.append((re.sub(r"-?\d+$", "", log.stem), told[-1]))
    return found


def test_every_service_is_scraped(samples: Samples) -> None:
    assert {component for component, _ in samples} == {"ps", "worker", "checkpoint", "recovery", "detector"}


@pytest.mark.parametrize(("place", "query"), QUERIES, ids=[place for place, _ in QUERIES])
def test_what_it_asks_for_is_there(samples: Samples, place: str, query: str) -> None:
    check_query(samples, place, query)
