"""Which cluster the command line means."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from scar.errors import ConfigError
from scar_cli import options
from scar_cli.cluster_ref import ClusterRef
from scar_cli.main import app
from scar_cli.options import RunsOn, cluster_ref_of
from scar_kube.where import Where


def test_kubernetes_is_meant_by_any_of_its_options() -> None:
    assert cluster_ref_of("local", RunsOn.local, "", "", "") == ClusterRef()
    assert cluster_ref_of("mine", RunsOn.local, "", "", "", "host:1") == ClusterRef("mine", "host:1")
    assert cluster_ref_of("local", RunsOn.kubernetes, "", "", "") == ClusterRef(release=Where())
    assert cluster_ref_of("local", RunsOn.local, "kind", "ml", "scar") == ClusterRef(
        release=Where("kind", "ml", "scar")
    )


@pytest.mark.parametrize(("cluster", "recovery"), [("mine", ""), ("local", "host:1")])
def test_two_places_at_once_are_refused(cluster: str, recovery: str) -> None:
    with pytest.raises(ConfigError, match="at once"):
        cluster_ref_of(cluster, RunsOn.kubernetes, "", "", "", recovery)


def test_hints_repeat_what_was_given() -> None:
    assert ClusterRef().options() == ""
    assert ClusterRef("mine").options() == " --cluster mine"
    assert ClusterRef(recovery="host:1").options() == " --recovery host:1"
    assert ClusterRef(release=Where(namespace="ml")).options() == " --on kubernetes --namespace ml"


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "status",
        "watch",
        "failures",
        "kill",
        "freeze",
        "doctor",
        "checkpoints ls",
        "checkpoints verify",
        "checkpoints export",
    ],
)
def test_every_command_that_looks_at_a_cluster_has_the_same_options(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.output)
    for name in set(options.SHARED) - {"recovery"}:
        assert f"--{name}" in text
    assert ("--recovery" in text) is (command in ("status", "watch", "failures", "doctor"))
