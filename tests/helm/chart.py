"""Rendering the chart, and finding one's way in what comes out."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "scar"
TOOLS = ROOT / ".venv" / "tools"  # where `make tools` puts what is not on PATH
EVERYTHING = (
    "chaos.enabled=true",
    "console.enabled=true",
    "metrics.podMonitor.enabled=true",
    "metrics.alerts.enabled=true",
    "metrics.dashboard.enabled=true",
)

Object = dict[str, Any]
Render = Callable[..., list[Object]]


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(TOOLS))
    if found is None:
        pytest.skip(f"{name} is neither on PATH nor in {TOOLS}: run `make tools`")
    return found


def template(helm: str, *values: str, files: tuple[str, ...] = (), release: str = "scar") -> list[Object]:
    """All objects of the chart with ``--set`` of these values. Fails with what helm said."""
    options = [word for value in values for word in ("--set", value)]
    options += [word for file in files for word in ("--set-file", file)]
    command = [helm, "template", release, str(CHART), "--namespace", "here", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [one for one in objects if one["kind"] in kinds]


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = [one for one in of_kind(objects, kind) if one["metadata"]["name"] == name]
    return found


def pods(objects: list[Object]) -> dict[str, Object]:
    """kind/name -> pod template, of everything that makes pods, also of the StatefulSet inside the worker
    template.
    """
    found = {}
    for one in [
        *objects,
        yaml.safe_load(named(objects, "ConfigMap", "scar-worker-template")["data"]["statefulset.yaml"]),
    ]:
        spec = one.get("spec", {})
        if one["kind"] == "Pod":
            template = one
        elif one["kind"] == "CronJob":
            template = spec["jobTemplate"]["spec"]["template"]
        elif "template" in spec:
            template = spec["template"]
        else:
            continue
        name = f"{one['kind']}/{one['metadata']['name']}"
        found[name if name not in found else f"{name} (template)"] = template
    return found


def containers(pod: Object) -> list[Object]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def environment(container: Object) -> dict[str, Any]:
    """Variable -> its value, or where it comes from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", [])}


def component(pod: Object) -> str:
    label: str = pod["metadata"]["labels"]["app.kubernetes.io/component"]
    return label
