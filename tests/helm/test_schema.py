"""Wrong values are refused by both versions of Helm, with a message that names the value."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scar.wire.timing import LEAST, MOST, MOST_LEASE
from tests.helm.chart import CHART

Helm = Callable[..., subprocess.CompletedProcess[str]]

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
WRONG = [
    ("ps.replicas=0", "replicas"),
    ("ps.replicas=many", "replicas"),
    ("ps.replicas=2.5", "replicas"),
    ("ps.settings.leaveSeconds=-1", "leaveSeconds"),
    ("ps.settings.leafSeconds=3", "leafSeconds"),
    ("ps.pod.nodeselector.a=b", "nodeselector"),
    ("ps.resources.requests.cpu=lots", "cpu"),
    ("ps.resources.request.cpu=1", "request"),
    ("leaseSeconds=0", "leaseSeconds"),
    ("leaseSeconds=two", "leaseSeconds"),
    ("heartbeatSeconds=3", "heartbeatSeconds"),
    ("heartbeatSeconds=", "heartbeatSeconds"),
    ("logLevel=loud", "logLevel"),
    ("image.pullPolicy=Sometimes", "pullPolicy"),
    ("imagePullSecrets=secret", "imagePullSecrets"),
    ("image.digest=sha256:short", "digest"),
    ("store.bucket=My_Bucket", "bucket"),
    ("store.endpoint=s3.example.com", "endpoint"),
    ("redis.url=http://redis:6379", "url"),
    ("redis.port=70000", "port"),
    ("bundled.minio.persistence.size=large", "size"),
    ("bundled.redis.enabled=yes please", "enabled"),
    ("training.path=relative.py", "path"),
    ("training.function=not a name", "function"),
    ("training.workers=0", "workers"),
    ("training.settings.timeoutSeconds=0", "timeoutSeconds"),
    ("checkpoint.replicas=6", "replicas"),
    ("recovery.settings.rebalance=often", "rebalance"),
    ("detector.replicas=0", "replicas"),
    ("detector.settings.phiThreshold=0", "phiThreshold"),
    ("chaos.schedule=sometimes", "schedule"),
    ("chaos.runs=0", "runs"),
    ("spread.whenUnsatisfiable=Hope", "whenUnsatisfiable"),
    ("networkPolicy.apiServerPorts={0}", "apiServerPorts"),
    ("metrics.podMonitor.interval=often", "interval"),
    ("metricz.enabled=true", "metricz"),
]
CONFLICTS = [
    (["store.endpoint=https://s3.example.com"], "bundled.minio.enabled=false"),
    (["bundled.minio.enabled=false", "store.accessKey=me"], "store.secretKey"),
    (
        [
            "bundled.minio.enabled=false",
            "store.accessKey=me",
            "store.secretKey=x",
            "store.existingSecret=mine",
        ],
        "one of them",
    ),
    (["redis.url=redis://redis:6379/0"], "bundled.redis.enabled=false"),
    (["bundled.redis.enabled=false"], "redis.url, redis.existingSecret"),
    (
        ["bundled.redis.enabled=false", "redis.url=redis://redis:6379/0", "redis.existingSecret=mine"],
        "one of them",
    ),
    (["ps.settings.leaveSeconds=60"], "ps.terminationGracePeriodSeconds"),
    (["training.file=a", "training.path=/job/train.py"], "use one of them"),
]


@pytest.mark.parametrize(("value", "names"), WRONG)
def test_a_wrong_value_is_named(helm: Helm, value: str, names: str) -> None:
    done = helm("template", "scar", str(CHART), "--set", value)
    assert done.returncode != 0
    assert re.search(rf"\b{names}\b", done.stderr), done.stderr


@pytest.mark.parametrize(("values", "says"), CONFLICTS)
def test_values_that_do_not_go_together_say_what_to_do(helm: Helm, values: list[str], says: str) -> None:
    done = helm("template", "scar", str(CHART), *[word for value in values for word in ("--set", value)])
    assert done.returncode != 0
    assert says in done.stderr


def test_a_training_file_that_no_configmap_can_hold_is_refused(helm: Helm, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("#" * (901 << 10))
    done = helm("template", "scar", str(CHART), "--set-file", f"training.file={file}")
    assert done.returncode != 0
    assert "900 KiB" in done.stderr
    assert "training.image" in done.stderr


def test_a_release_name_that_makes_names_too_long_is_refused(helm: Helm) -> None:
    done = helm("template", "a" * 45, str(CHART))
    assert done.returncode != 0
    assert "too long" in done.stderr


def test_it_passes_the_strict_linter(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def closed(schema: Any, path: str = "") -> Iterator[str]:
    """Paths of objects with named properties that would let an unknown one pass."""
    if isinstance(schema, dict):
        if "properties" in schema and schema.get("additionalProperties") is not False:
            yield path
        for key, inner in schema.items():
            yield from closed(inner, f"{path}/{key}")


def test_no_object_lets_an_unknown_key_pass() -> None:
    assert list(closed(SCHEMA)) == []


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)
    for key, schema in SCHEMA["properties"].items():
        if "properties" in schema:
            assert set(schema["properties"]) == set(VALUES[key]), key


def test_times_of_liveness_have_the_bounds_of_the_services() -> None:
    heartbeat, lease = (SCHEMA["properties"][name] for name in ("heartbeatSeconds", "leaseSeconds"))
    assert (heartbeat["minimum"], heartbeat["maximum"]) == (LEAST, MOST)
    assert lease["maximum"] == MOST_LEASE
