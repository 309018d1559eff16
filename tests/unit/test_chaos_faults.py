"""Every kind of fault has a duration, is done somewhere, and stands in the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from scar.errors import ConfigError
from scar_chaos.core.fault_syntax import parse_faults
from scar_chaos.core.faults import DURATIONS, REPLACING, Fault
from scar_chaos.core.schedule import FaultKinds
from scar_chaos.targets import kubernetes, local

DOCS = Path(__file__).parents[2] / "docs" / "chaos.md"
OUTSIDE_THE_DRAW = {"node"}  # only where somebody gives the commands


def pairs(kinds: FaultKinds) -> set[tuple[str, str]]:
    return {(target, kind) for target, known in kinds.items() for kind in known}


def test_every_kind_is_done_somewhere() -> None:
    done = {kind for _, kind in pairs(local.KINDS) | pairs(kubernetes.KINDS)}
    assert done | OUTSIDE_THE_DRAW == set(DURATIONS)
    assert set(REPLACING) <= done


def test_every_kind_stands_in_the_documentation_with_where_it_is_done() -> None:
    table = DOCS.read_text().partition("## What breaks")[2].partition("Targets:")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    described = {kind: row for row in rows for kind in re.findall(r"`(\w+)`", row[0])}
    assert set(described) == set(DURATIONS)
    for kind, (_, here, there) in described.items():
        assert bool(here.strip()) == any(one == kind for _, one in pairs(local.PLAYED)), kind
        on_pods = kind in OUTSIDE_THE_DRAW or any(one == kind for _, one in pairs(kubernetes.KINDS))
        assert bool(there.strip()) == on_pods, kind


def test_a_cut_on_this_machine_is_played_by_name_and_never_drawn() -> None:
    """A seed of before means what it meant."""
    assert parse_faults("cut:ps-1", local.PLAYED)[0] == Fault(5, "cut", "ps-1")
    assert not any(kind == "cut" for _, kind in pairs(local.KINDS))
    assert pairs(local.KINDS) < pairs(local.PLAYED)
    with pytest.raises(ConfigError, match="'cut' cannot be done to store here"):
        parse_faults("cut:store", local.PLAYED)  # a folder is no network


class Processes:
    """A local cluster that notes what is done to its processes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.state = "running"

    def processes(self) -> list[Any]:
        names = ("ps-0", "worker-0", "recovery", "checkpoint", "detector", "redis")
        return [type("Process", (), {"name": name, "state": self.state, "component": name}) for name in names]

    def kill(self, *_: object, **__: object) -> None:
        self.calls.append("kill")
        self.state = "killed"

    def pause(self, _name: str) -> None:
        self.calls.append("pause")
        self.state = "paused"

    def resume(self, _name: str) -> None:
        self.calls.append("resume")
        self.state = "running"

    def restart(self, _name: str) -> None:
        self.calls.append("restart")
        self.state = "running"


@pytest.mark.parametrize(("target", "kind"), sorted(pairs(local.KINDS)))
def test_every_kind_is_done_to_a_process_or_has_an_action(tmp_path: Path, target: str, kind: str) -> None:
    made = local.LocalTarget(tmp_path)
    try:
        if (kind, target) in made._actions:
            return
        processes = Processes()
        made._cluster = processes  # type: ignore[assignment]
        name = f"{target}-0" if target in ("ps", "worker") else target
        made.inject(kind, name, 1.0)
        made.heal(kind, name)
        assert processes.calls or kind == "slow"
        healed = {"outage": "restart", "freeze": "resume", "blink": "resume", "depose": "resume"}
        assert processes.calls[-1:] == [healed[kind]] if kind in healed else True
    finally:
        made._proxy.close()


def test_a_process_is_not_broken_by_a_kind_that_has_no_signal(tmp_path: Path) -> None:
    made = local.LocalTarget(tmp_path)
    made._cluster = Processes()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="no signal does 'flood'"):
        made.inject("flood", "ps-0", 1.0)
    made._proxy.close()


def test_only_the_dead_must_be_replaced() -> None:
    assert Fault(1, "kill", "ps-0").replaces_target
    assert Fault(1, "leave", "worker-1").replaces_target
    assert not Fault(1, "freeze", "ps-0").replaces_target
    assert not Fault(1, "kill", "recovery").replaces_target
