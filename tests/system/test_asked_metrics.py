"""Each query of the dashboards and the alerts, against what services that run expose: metrics and labels."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import scar
from scar_local import LocalCluster
from tests.component.test_cli import TRAIN
from tests.framework.cluster import TIMEOUT

pytestmark = pytest.mark.timeout(400)  # many processes, and other tests may run beside them

FILES = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "scar" / "files"
TARGET = frozenset({"namespace", "release", "component", "pod"})  # what the PodMonitor gives each sample
OF_PROMETHEUS = "up"
MATCHED = re.compile(r"\b(scar_\w+|up)\s*(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
GROUPED = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")
LISTED = re.compile(r"label_values\((?:(.*),\s*)?(\w+)\)")


@dataclass(frozen=True)
class Selector:
    """A metric that a query asks for. ``matched``: labels and what they must be."""

    metric: str
    matched: Mapping[str, tuple[str, str]]
    grouped: frozenset[str]


Samples = Mapping[tuple[str, str], list[Mapping[str, str]]]  # by component and name: labels of each sample


def queries() -> Iterator[tuple[str, str]]:
    """Where each comes from, and itself."""
    for rule in yaml.safe_load((FILES / "alerts.yaml").read_text().replace("@shards@", "3")):
        yield rule["alert"], rule["expr"].replace("@release@", 'namespace="n",release="r"')
    for board in FILES.glob("*-dashboard.json"):
        found = json.loads(board.read_text())
        for variable in found["templating"]["list"]:
            if (query := variable["query"]) != "prometheus":
                yield f"{board.name}: {variable['name']}", query
        for note in found.get("annotations", {}).get("list", []):
            yield f"{board.name}: {note['name']}", note["expr"]
        for panel in found["panels"]:
            for target in panel["targets"]:
                yield f"{board.name}: {panel['title']}", target["expr"]


def selectors(query: str) -> list[Selector]:
    listed = LISTED.search(query)
    grouped = {name.strip() for group in GROUPED.findall(query) for name in group.split(",") if name.strip()}
    if listed:
        grouped.add(listed[2])
    rest = GROUPED.sub("", query)
    return [
        Selector(
            name,
            {label: (how, value) for label, how, value in LABEL.findall(inside or "")},
            frozenset(grouped),
        )
        for name, inside in MATCHED.findall(rest)
    ]


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
        cluster.until(lambda status: status.clock > 50, TIMEOUT, "training")
        cluster.kill("ps-1")
        cluster.until(
            lambda status: any(one.epoch and one.load_seconds for one in status.failures), TIMEOUT, "recovery"
        )
        found: dict[tuple[str, str], list[Mapping[str, str]]] = {}
        for component, address in metrics_addresses(folder / "home"):
            for family in text_string_to_metric_families(scrape(address)):
                for sample in family.samples:
                    found.setdefault((component, sample.name), []).append(sample.labels)
        return found


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
    asked = selectors(query)
    assert asked, f"{place} asks for nothing: {query}"
    for one in asked:
        if one.metric == OF_PROMETHEUS:
            assert set(one.matched) <= TARGET
            continue
        component = one.matched.get("component", ("=", ""))[1]
        seen = [
            labels
            for (of, name), found in samples.items()
            if name == one.metric
            for labels in found
            if component in ("", of)
        ]
        assert seen, f"{place}: no {component or 'service'} has {one.metric}"
        own = set().union(*seen)
        assert set(one.matched) | one.grouped <= own | TARGET, f"{place}: {one.metric} has {sorted(own)}"
