"""A frozen process is woken, although who froze it has ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scar.errors import ConfigError
from scar_admin.status import ProcessInfo
from scar_cli.clusters import DirectTarget
from scar_cli.freeze import freeze_local

FREEZE = """
import sys
from scar_cli.freeze import freeze_local
from tests.unit.test_cli_freeze import OneProcess
print(freeze_local(OneProcess(int(sys.argv[1])), "ps-0", 0.5))
"""


class OneProcess(DirectTarget):
    def __init__(self, pid: int, state: str = "running") -> None:
        super().__init__("127.0.0.1:1")
        self._process = ProcessInfo("ps-0", pid, state, 0)

    def processes(self) -> tuple[ProcessInfo, ...]:
        return (self._process,)


def test_it_is_woken_after_its_freezer_has_ended() -> None:
    frozen = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        said = subprocess.run(
            [sys.executable, "-c", FREEZE, str(frozen.pid)], check=True, capture_output=True, text=True
        )
        assert said.stdout == f"ps-0 (pid {frozen.pid})\n"
        _, stopped = os.waitpid(frozen.pid, os.WUNTRACED | os.WCONTINUED)
        if not os.WIFCONTINUED(stopped):  # else it was woken before anybody looked
            assert os.WIFSTOPPED(stopped)
            assert os.WIFCONTINUED(os.waitpid(frozen.pid, os.WCONTINUED)[1])
    finally:
        frozen.kill()
        frozen.wait()


def test_what_does_not_run_is_not_frozen() -> None:
    with pytest.raises(ConfigError, match="there is no process 'ps-9'"):
        freeze_local(OneProcess(1), "ps-9", 1.0)
    with pytest.raises(ConfigError, match="ps-0 does not run"):
        freeze_local(OneProcess(1, "killed"), "ps-0", 1.0)
