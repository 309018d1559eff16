"""A cluster's directory: held by one, readable by all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scar.errors import ConfigError
from scar_admin.status import ProcessInfo
from scar_local.directory import ClusterDirectory, ClusterState, default_directory

STATE = ClusterState(
    pid=7,
    redis="redis://127.0.0.1:1/0",
    store="file:///s",
    job="mnist",
    addresses={"recovery": "127.0.0.1:2"},
    processes=(ProcessInfo("ps-0", 11, "running", 2), ProcessInfo("worker-0", 12, "exited", 0, 0)),
)


def test_a_second_holder_is_told_what_to_do(tmp_path: Path) -> None:
    first, second = ClusterDirectory(tmp_path), ClusterDirectory(tmp_path)
    first.claim()
    first.write(STATE)
    with pytest.raises(ConfigError, match=r"in use by process 7.*scar down.*--cluster"):
        second.claim()
    first.release()
    second.claim()
    second.release()


def test_the_two_parts_of_a_directory_are_held_apart(tmp_path: Path) -> None:
    cluster, train = ClusterDirectory(tmp_path), ClusterDirectory(tmp_path, "train")
    cluster.claim()
    train.claim()
    assert cluster.alive()
    assert train.alive()
    train.release()
    cluster.release()


def test_it_is_alive_only_while_it_is_held(tmp_path: Path) -> None:
    home = ClusterDirectory(tmp_path)
    assert not home.alive()
    home.claim()
    assert home.alive()
    home.release()
    assert not home.alive()


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from scar_local.directory import"
        " ClusterDirectory\nClusterDirectory(Path(sys.argv[1])).claim(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env={"PYTHONPATH": ":".join(sys.path)}, check=False
    )
    assert ended.returncode == -9
    assert not ClusterDirectory(tmp_path).alive()


def test_the_state_survives_a_round_trip(tmp_path: Path) -> None:
    home = ClusterDirectory(tmp_path)
    assert home.read() is None
    home.write(STATE)
    assert home.read() == STATE


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "redis": "", "store": "", "processes": [3]}']
)
def test_a_state_that_cannot_be_read_is_no_state(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    assert ClusterDirectory(tmp_path).read() is None


def test_a_directory_that_cannot_be_made_is_a_setting_to_correct(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        ClusterDirectory(tmp_path / "file" / "cluster").claim()


def test_every_life_has_a_label_of_its_own(tmp_path: Path) -> None:
    home = ClusterDirectory(tmp_path / "my cluster")
    first, second = home.new_label(), home.new_label()
    assert first.startswith("my-cluster-")
    assert first != second
    assert default_directory("x") == Path(".scar/x")


def test_only_its_owner_reads_the_state(tmp_path: Path) -> None:
    home = ClusterDirectory(tmp_path)
    home.write(STATE)
    assert (tmp_path / "cluster.json").stat().st_mode & 0o077 == 0
