"""Options, help, exit codes, and the commands that need no service."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scar.version import __version__
from scar_cli import checks, kill
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import find_cluster, running_cluster
from scar_cli.main import app, main
from scar_compare.strategy_options import strategy_names
from scar_local import ClusterDirectory, ClusterState
from scar_local.directory import default_directory
from scar_local.process_spec import Spec
from scar_local.processes import Supervisor
from scar_local.specs import machine_variables

COMMANDS = (
    "up",
    "down",
    "train",
    "status",
    "watch",
    "kill",
    "failures",
    "jobs",
    "checkpoints",
    "demo",
    "doctor",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCAR_RECOVERY", raising=False)
    return tmp_path


def scar(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["scar", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.parametrize(
    "command",
    [
        "",
        *COMMANDS,
        *(f"checkpoints {name}" for name in ("ls", "show", "verify", "export")),
        *(f"jobs {name}" for name in ("ls", "show", "rm")),
        *(f"tls {name}" for name in ("init", "renew")),
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"])
    assert shown.exit_code == 0
    assert "Usage:" in shown.stdout


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert scar(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"scar {__version__}\n"


def test_a_help_text_ends_its_lines_where_the_terminal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to break where the docstring in the source does, in mid-sentence."""
    monkeypatch.setenv("COLUMNS", "1000")
    shown = [line.strip() for line in CliRunner().invoke(app, ["train", "--help"]).stdout.splitlines()]
    (kubernetes,) = [line for line in shown if line.startswith("With --on kubernetes")]
    assert kubernetes.endswith("the same command comes back to the training.")


def test_compare_names_every_strategy() -> None:
    shown = CliRunner().invoke(app, ["compare", "--help"], env={"COLUMNS": "100", "NO_COLOR": "1"}).output
    assert [name for name in strategy_names() if not re.search(rf"\b{name}\b", shown)] == []


def test_the_help_names_every_command_and_gives_examples() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert all(re.search(rf"\b{command}\b", shown) for command in COMMANDS)
    assert "scar train examples/mlr.py" in shown


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["kill"], ["up", "--shards", "0"], ["status", "-o", "xml"], ["watch", "x"]]
)
def test_a_wrong_call_is_exit_code_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert scar(monkeypatch, *arguments) == 2


@pytest.mark.parametrize("command", ["status", "watch", "failures", "down", "kill ps-0", "checkpoints ls"])
def test_without_a_cluster_the_error_says_what_to_do(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scar(monkeypatch, *command.split()) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: no cluster 'local'")
    assert "next:" in shown.err
    assert "Traceback" not in shown.err


def test_a_recovery_coordinator_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scar(monkeypatch, "status", "--recovery", "127.0.0.1:1") == 1
    assert "recovery does not answer" in capsys.readouterr().err


@pytest.fixture
def cluster(here: Path) -> Iterator[Supervisor]:
    """A directory that is held, with one real process in it."""
    home = ClusterDirectory(default_directory())
    home.claim()
    home.token.write_text("t" * 43)
    home.token.chmod(0o600)
    supervisor = Supervisor(
        home.logs, machine_variables(), respawn=False, changed=lambda: record(home, supervisor)
    )
    supervisor.start(Spec("ps-0", ("program", "sleep", "60")))
    supervisor.await_started(["ps-0"], 10)
    record(home, supervisor)
    yield supervisor
    supervisor.close()
    home.release()


def record(home: ClusterDirectory, supervisor: Supervisor) -> None:
    home.write(ClusterState(1, "", "", "mnist", {"recovery": "127.0.0.1:1"}, supervisor.info()))


def await_record(name: str, state: str) -> None:
    """The supervising thread writes the state file a moment after the fact."""
    deadline = time.monotonic() + 10
    while {process.name: process.state for process in find_cluster(ClusterRef()).processes()}[name] != state:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kill_sends_the_signal(cluster: Supervisor, capsys: pytest.CaptureFixture[str]) -> None:
    pid = cluster.info()[0].pid
    kill.kill_process(ClusterRef(), "ps-0", "STOP")
    assert capsys.readouterr().out == f"frozen ps-0 (pid {pid}); see `scar watch` and `scar failures`\n"
    kill.kill_process(ClusterRef(), "ps-0", "KILL")
    assert cluster.wait(["ps-0"], 10) == {"ps-0": -signal.SIGKILL}


def test_kill_knows_who_is_there(
    cluster: Supervisor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scar(monkeypatch, "kill", "ps-9") == 1
    assert "there is no process 'ps-9'" in capsys.readouterr().err
    cluster.signal("ps-0", signal.SIGKILL)
    await_record("ps-0", "killed")
    assert scar(monkeypatch, "kill", "ps-0") == 1
    assert "ps-0 does not run at the moment (killed)" in capsys.readouterr().err


def test_a_cluster_is_found_while_it_is_held(cluster: Supervisor) -> None:
    target = find_cluster(ClusterRef())
    assert (target.recovery, [process.name for process in target.processes()]) == ("127.0.0.1:1", ["ps-0"])
    assert not target.ended()
    assert running_cluster("other") is None
    assert find_cluster(ClusterRef("other", "10.0.0.1:7000")).recovery == "10.0.0.1:7000"
    assert not find_cluster(ClusterRef("other", "10.0.0.1:7000")).ended()


def test_doctor_finds_this_machine_fit(
    monkeypatch: pytest.MonkeyPatch, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scar(monkeypatch, "doctor", "--store", f"file://{here / 'store'}") == 0
    shown = capsys.readouterr().out
    assert "fail" not in shown
    assert all(
        re.search(rf"^ok +{name} ", shown, re.M)
        for name in ("python", "package", "ports", "store", "cluster")
    )


def test_doctor_says_how_to_fix_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scar(monkeypatch, "doctor", "--redis", "redis://:secret@127.0.0.1:1/0", "--store", "ftp://x") == 1
    lines = capsys.readouterr().out.splitlines()
    broken = [number for number, line in enumerate(lines) if line.startswith("fail")]
    assert [lines[number].split()[1] for number in broken] == ["redis", "store"]
    assert all(lines[number + 1].strip().startswith("fix:") for number in broken)
    assert "secret" not in "".join(lines)


def test_doctor_sees_a_cluster_that_is_not_well(cluster: Supervisor) -> None:
    cluster.signal("ps-0", signal.SIGKILL)
    await_record("ps-0", "killed")
    found = checks.check_cluster(find_cluster(ClusterRef()))
    assert [(check.name, check.level) for check in found] == [("process", "fail"), ("cluster", "fail")]
    assert "ps-0 is killed" in found[0].detail
