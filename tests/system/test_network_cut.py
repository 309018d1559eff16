"""A process that is cut off from the network: it lives, hears nothing and is not heard until that is over."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scar_chaos.core.faults import Fault
from scar_chaos.inject import inject_faults
from scar_local.cuts import begin_cut, end_cut
from tests.component.test_cli import Shell
from tests.framework.cluster import Cluster, running
from tests.system.test_console import PATIENCE, is_settled, looks, page, press

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("cut")
    with running(folder, shards=3, workers=2, consistency="bsp") as cluster:
        yield cluster
        assert cluster.finish() == {"worker-0": 0, "worker-1": 0}
        cluster.check(cluster.read_values())


def cut_off(cluster: Cluster, name: str) -> None:
    begin_cut(cluster.local.directory, cluster.local.processes, name, 60.0)


def test_a_shard_is_replaced_while_it_lives_and_is_a_zombie_afterwards(cluster: Cluster) -> None:
    cluster.wait_clocks(3)
    before = cluster.incarnations()
    pid, failures = cluster.local.pid("ps-1"), len(cluster.read_ledger())
    epoch = cluster.status().number
    cut_off(cluster, "ps-1")
    cluster.wait(lambda status: status.number > epoch, "an epoch without the shard")
    cluster.wait_clocks(3)  # without it
    assert cluster.local.pid("ps-1") == pid
    assert cluster.disk.process_state("ps-1") == "cut"
    record = cluster.read_ledger()[failures]
    assert record.members == [f"ps-1@{before['ps-1']}"]
    assert not any("process" in word for word in record.evidence), record.evidence
    end_cut(cluster.local.directory, "ps-1")
    cluster.wait_healed(before, ["ps-1"])
    assert cluster.local.pid("ps-1") != pid  # it has heard that it was replaced, and began anew
    cluster.verify()


@pytest.mark.parametrize("name", ["worker-1", "recovery", "checkpoint", "detector", "redis"])
def test_heals(cluster: Cluster, name: str) -> None:
    cluster.wait_clocks(3)
    inject_faults(cluster, [Fault(0, "cut", name)])
    cluster.verify()


def test_the_button_cuts_off_where_shards_and_workers_have_supervisors_of_their_own(tmp_path: Path) -> None:
    def row(state: dict[str, Any]) -> dict[str, Any]:
        return next(one for one in state["shards"]["rows"] if one["name"] == "ps-1")

    shell = Shell(tmp_path)
    shell.run("up", "--shards", "3", "--detach")
    training = shell.start("train", "count.py", TEST_CLOCKS="1000000")
    try:
        with page(shell, "--interval", "0.1") as (host, token):
            states = (look["state"] for look in looks(host, token))
            before = next(state for state in states if state["clock"] > 10)
            assert before["can_break"] == ["kill", "freeze", "cut"]
            healed = None
            while healed is None:  # a machine that is busy enough misses nobody who is away for 5 s
                said = press(host, token, "cut", "ps-1")["done"]
                assert re.fullmatch(r"ps-1 \(pid \d+\) cut off for 5 s", said)
                next(state for state in states if row(state)["hindered"] == "cut off")
                for state in states:
                    if is_settled(state["failures"]):
                        healed = state
                    if healed or not (state["failures"] or row(state)["hindered"]):
                        break
            assert [one["members"] for one in healed["failures"]] == [["ps-1"]]
            next(state for state in states if row(state)["restarts"] == 1 and row(state)["blocks"])
            assert "cut off worker-0 (pid" in shell.run("cut", "worker-0", "--seconds", "1")
    finally:
        training.send_signal(signal.SIGINT)
        training.communicate(timeout=PATIENCE)
        shell.run("down")
