"""The supervisor with small programs: start, end, restart, pause, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scar.errors import ConfigError, DeadlineExceeded
from scar_admin.status import ProcessInfo
from scar_local.forkserver import NOT_STARTED
from scar_local.process_spec import Spec
from scar_local.processes import Supervisor
from scar_local.specs import machine_variables

SLEEP = Spec("sleeper", ("program", "sleep", "60"))


def shell(name: str, script: str, **more: Any) -> Spec:
    return Spec(name, ("program", "sh", "-c", script), **more)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path, machine_variables(), delay=0.05)
    yield made
    made.close()


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def look(supervisor: Supervisor, name: str = "sleeper") -> ProcessInfo:
    return next(info for info in supervisor.info() if info.name == name)


def gone(pid: int) -> bool:
    """No such process, or a dead one that its new parent has not buried yet."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return not listed or listed.startswith("Z")


def test_a_killed_process_comes_back_as_another_one(supervisor: Supervisor) -> None:
    supervisor.start(SLEEP)
    supervisor.await_started(["sleeper"], 60)
    pid = supervisor.signal("sleeper", signal.SIGKILL)
    eventually(lambda: look(supervisor).restarts == 1)
    assert look(supervisor).pid != pid
    assert look(supervisor).state == "running"
    assert gone(pid)


def test_it_stays_down_when_asked_to(supervisor: Supervisor) -> None:
    supervisor.start(SLEEP)
    supervisor.await_started(["sleeper"], 60)
    supervisor.signal("sleeper", signal.SIGKILL, respawn=False)
    eventually(lambda: look(supervisor).state == "killed")
    assert supervisor.wait(["sleeper"], 1) == {"sleeper": -9}
    supervisor.restart("sleeper")
    assert look(supervisor).state == "running"


def test_a_living_process_is_restarted_at_once(supervisor: Supervisor) -> None:
    supervisor.start(SLEEP)
    supervisor.await_started(["sleeper"], 60)
    before = look(supervisor).pid
    supervisor.restart("sleeper")
    eventually(lambda: look(supervisor).pid != before)
    assert look(supervisor) == ProcessInfo("sleeper", look(supervisor).pid, "running", 1)


def test_a_pause_is_seen_whoever_caused_it(supervisor: Supervisor) -> None:
    supervisor.start(SLEEP)
    supervisor.await_started(["sleeper"], 60)
    assert supervisor.signal("sleeper", signal.SIGSTOP) == look(supervisor).pid
    eventually(lambda: look(supervisor).state == "paused")
    os.kill(look(supervisor).pid, signal.SIGCONT)
    eventually(lambda: look(supervisor).state == "running")
    os.kill(look(supervisor).pid, signal.SIGSTOP)
    eventually(lambda: look(supervisor).state == "paused")
    supervisor.stop(["sleeper"], 5.0)
    assert look(supervisor).code == -15  # a paused process is woken to end in order


@pytest.mark.timed
def test_one_that_ignores_sigterm_is_killed_after_its_grace(supervisor: Supervisor, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    supervisor.start(shell("deaf", f"trap '' TERM; touch {ready}; while :; do sleep 0.05; done"))
    supervisor.await_started(["deaf"], 60)
    eventually(ready.exists)
    started = time.monotonic()
    supervisor.stop(["deaf"], 0.2)
    assert look(supervisor, "deaf").code == -9
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(("code", "restarts"), [(0, True), (1, True), (2, False), (3, True)])
def test_which_ends_of_a_service_are_final(code: int, restarts: bool) -> None:
    assert Spec("ps-0", ("module", "scar_ps")).returns(code) is restarts


@pytest.mark.parametrize(("code", "restarts"), [(0, False), (1, False), (2, False), (3, True), (-9, True)])
def test_which_ends_of_a_worker_are_final(code: int, restarts: bool) -> None:
    assert Spec("worker-0", ("module", "scar_worker"), worker=True).returns(code) is restarts


def test_a_worker_that_is_done_has_its_exit_code(supervisor: Supervisor) -> None:
    supervisor.start(shell("worker-0", "exit 0", worker=True), shell("worker-1", "exit 1", worker=True))
    assert supervisor.wait(["worker-0", "worker-1"], 60) == {"worker-0": 0, "worker-1": 1}


def test_waiting_has_an_end(supervisor: Supervisor) -> None:
    supervisor.start(SLEEP)
    with pytest.raises(DeadlineExceeded, match="the end of sleeper"):
        supervisor.wait(["sleeper"], 0.05)


def test_one_that_ends_while_it_starts_says_why(supervisor: Supervisor, tmp_path: Path) -> None:
    spec = shell("ps-0", "echo 'SCAR_REDIS is wrong' >&2; exit 2", address_file=tmp_path / "address")
    supervisor.start(spec)
    with pytest.raises(
        ConfigError, match=r"ps-0 ended with exit code 2 .*: SCAR_REDIS is wrong. See .*ps-0.log"
    ):
        supervisor.await_started(["ps-0"], 60)


def test_a_fixed_address_survives_a_restart(supervisor: Supervisor, tmp_path: Path) -> None:
    script = (
        f'echo "${{SCAR_LISTEN:-127.0.0.1:$$}}" > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/address;'
        " sleep 60"
    )
    supervisor.start(shell("recovery-0", script, address_file=tmp_path / "address", fixed=True))
    supervisor.await_started(["recovery-0"], 60)
    first = supervisor.address("recovery-0")
    assert first == f"127.0.0.1:{look(supervisor, 'recovery-0').pid}"
    supervisor.restart("recovery-0")
    supervisor.await_started(["recovery-0"], 60)
    assert supervisor.address("recovery-0") == first


def test_unknown_and_double_names_are_refused(supervisor: Supervisor) -> None:
    with pytest.raises(ConfigError, match="no process 'ps-9'"):
        supervisor.signal("ps-9", signal.SIGKILL)
    supervisor.start(SLEEP)
    supervisor.await_started(["sleeper"], 60)
    with pytest.raises(ConfigError, match="sleeper runs already"):
        supervisor.start(SLEEP)


def test_every_change_is_announced(tmp_path: Path) -> None:
    seen: list[list[ProcessInfo]] = []
    supervisor = Supervisor(
        tmp_path, machine_variables(), respawn=False, changed=lambda: seen.append(supervisor.info())
    )
    supervisor.start(SLEEP)
    supervisor.await_started(["sleeper"], 60)
    supervisor.signal("sleeper", signal.SIGKILL)
    eventually(lambda: seen and seen[-1][0].state == "killed")
    supervisor.close()
    assert seen[0][0].state == "running"


def test_closing_ends_everything_even_grandchildren_and_twice(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, machine_variables())
    supervisor.start(shell("tree", f"sleep 60 & echo $! > {tmp_path}/child; wait"))
    eventually(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    supervisor.close()
    supervisor.close()
    child = int((tmp_path / "child").read_text())
    assert look(supervisor, "tree").code == -9
    eventually(lambda: gone(child))


HOLDER = """
import sys, time
from pathlib import Path
from scar_local.process_spec import Spec
from scar_local.processes import Supervisor
from scar_local.specs import machine_variables
supervisor = Supervisor(Path(sys.argv[1]), machine_variables())
ready = [Path(sys.argv[1], name) for name in ("program.ready", "module.ready")]
script = f"echo here > {ready[0]}; exec sleep 60"
supervisor.start(Spec("program", ("program", "sh", "-c", script), address_file=ready[0]))
supervisor.start(Spec("module", ("module", "scar_local_sleeper", str(ready[1])), address_file=ready[1]))
supervisor.await_started(["program", "module"], 60)
supervisor.signal("program", 19)
print(*(info.pid for info in supervisor.info()), flush=True)
ENDING
"""


@pytest.mark.parametrize(
    "ending", ["import os; os.kill(os.getpid(), 9)", "raise RuntimeError('crash')", "sys.exit(0)"]
)
def test_children_die_with_their_parent_however_it_ends(tmp_path: Path, ending: str) -> None:
    (tmp_path / "scar_local_sleeper.py").write_text(
        "import sys, time\nopen(sys.argv[1], 'w').write('here')\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    program = HOLDER.replace("ENDING", ending)
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2, ended.stderr
    try:
        for pid in pids:
            eventually(lambda pid=pid: gone(pid))
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_program_that_is_not_there_is_an_end(supervisor: Supervisor) -> None:
    supervisor.start(Spec("ghost", ("program", "no-such-program"), worker=True))
    assert supervisor.wait(["ghost"], 60)["ghost"] in (1, NOT_STARTED)


def test_what_a_worker_printed_goes_when_another_takes_its_name(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    printed = tmp_path / "worker-0.out"
    spec = shell("worker-0", f"echo one >> {printed}; echo two", worker=True, output=printed)
    for _ in range(2):
        supervisor.start(spec)
        assert supervisor.wait(["worker-0"], 60) == {"worker-0": 0}
        assert (printed.read_text(), (tmp_path / "worker-0.log").read_text()) == ("one\n", "two\n")
