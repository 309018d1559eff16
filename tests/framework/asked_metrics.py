"""What the queries of the dashboards and the alerts ask for, and whether services that run expose it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

FILES = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "scar" / "files"
TARGET = frozenset({"namespace", "release", "component", "pod"})  # what the PodMonitor gives each sample
OF_PROMETHEUS = "up"
MATCHED = re.compile(r"\b(scar_\w+|up)\s*(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
GROUPED = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")
LISTED = re.compile(r"label_values\((?:(.*),\s*)?(\w+)\)")

Samples = Mapping[tuple[str, str], list[Mapping[str, str]]]  # by component and name: labels of each sample


@dataclass(frozen=True)
class Selector:
    """A metric that a query asks for. ``matched``: labels and what they must be."""

    metric: str
    matched: Mapping[str, tuple[str, str]]
    grouped: frozenset[str]


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


def read_samples(scraped: Iterable[tuple[str, str]]) -> Samples:
    """``scraped``: component and text of each process."""
    found: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for component, text in scraped:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault((component, sample.name), []).append(sample.labels)
    return found


def check_query(samples: Samples, place: str, query: str) -> None:
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
