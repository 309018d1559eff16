"""Traces of a push, a round and a recovery, as a real OTLP receiver gets them from services that run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import scar
from scar.wire.cluster_token import TOKEN_FILE
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT
from tests.framework.otlp import OtlpReceiver, SeenSpan, receiving

pytestmark = pytest.mark.timeout(300)

SLACK = 0.1  # a call's span ends on a thread of its own
TRAIN = """
import time
import numpy as np

def train(worker):
    for clock in worker.clocks(limit=100_000):
        worker.pull("w")
        worker.push("w", np.ones((40, 1), np.float32))
        time.sleep(0.05)
"""


def names(trace: list[SeenSpan], member: str = "") -> list[str]:
    return [span.name for span in trace if not member or span.member == member]


def members(trace: list[SeenSpan]) -> set[str]:
    return {span.member for span in trace}


def is_whole(trace: list[SeenSpan]) -> bool:
    """One beginning, and every other span hangs from one that is there."""
    known = {span.span for span in trace}
    return [span for span in trace if span.parent not in known] == [span for span in trace if not span.parent]


def await_trace(
    receiver: OtlpReceiver, condition: Callable[[list[SeenSpan]], bool], what: str
) -> list[SeenSpan]:
    deadline = time.monotonic() + TIMEOUT
    while True:
        traces = receiver.traces()
        found = next((trace for trace in traces if is_whole(trace) and condition(trace)), None)
        if found is not None:
            return found
        shown = sorted({" ".join(names(trace))[:300] for trace in traces})
        assert time.monotonic() < deadline, f"no trace of {what} among:\n" + "\n".join(shown)
        time.sleep(0.5)


def is_push(trace: list[SeenSpan]) -> bool:
    """To two shards: each has a part."""
    return sorted(names(trace)) == [*["ShardData/PushSmall"] * 4, "push"]


def check_push(trace: list[SeenSpan], worker: str) -> None:
    """One trace from the worker over both shards."""
    whole = trace[0]
    assert (whole.name, whole.member) == ("push", worker)
    sent = [span for span in trace if span.parent == whole.span]
    applied = [span for span in trace if span.parent in {one.span for one in sent}]
    assert [span.member for span in sent] == [worker] * 2
    assert {span.member for span in applied} == {"ps-0", "ps-1"}
    assert all(whole.begin <= span.begin <= whole.end + SLACK for span in sent)
    assert whole.end >= max(span.end for span in sent) - SLACK


def is_round(trace: list[SeenSpan]) -> bool:
    """Each process hands in its own part, when it likes."""
    calls = names(trace, "checkpoint-0")
    return len(members(trace)) > 2 and all(
        calls.count(f"ShardControl/{method}") >= 2 for method in ("Distances", "Save", "Finish")
    )


def is_recovery(trace: list[SeenSpan]) -> bool:
    loaded = any(name.startswith("load ") for name in names(trace, "ps-0"))
    return loaded and {"ps-1 seen dead", "recovery"} <= set(names(trace))


@pytest.mark.parametrize("tls", [False, True])
def test_one_trace_spans_the_processes_of_a_push_a_round_and_a_recovery(tmp_path: Path, tls: bool) -> None:
    (tmp_path / "steady.py").write_text(TRAIN)
    table = scar.Table("w", (40, 1), rule=scar.add())
    job = scar.Job("traced", [table], shards=2, workers=1, checkpoint=scar.Checkpoint("priority", 0.5, 8))
    with receiving() as receiver:
        variables = {"SCAR_TRACES": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        with LocalCluster(tmp_path / "cluster", shards=2, environment=variables, tls=tls) as cluster:
            cluster.start_job(job)
            cluster.start_workers(str(tmp_path / "steady.py"), 1)
            cluster.until(lambda status: status.clock >= 12, TIMEOUT, "clocks")
            check_push(await_trace(receiver, is_push, "a push"), "worker-0")

            saved = await_trace(receiver, is_round, "a round")
            assert saved[0].name == "checkpoint round"
            assert members(saved) == {"checkpoint-0", "ps-0", "ps-1"}
            assert "commit manifest" in names(saved, "checkpoint-0")

            cluster.kill("ps-1")
            healed = await_trace(receiver, is_recovery, "a recovery")
            assert {"detector-0", "recovery-0", "ps-0"} <= members(healed)
            whole = next(span for span in healed if span.name == "recovery")
            seen = healed[0]
            assert (seen.name, seen.member) == ("ps-1 seen dead", "detector-0")
            planned = next(span for span in healed if span.name == "plan and commit")
            told = next(one for one in healed if one.name == "ShardControl/Adopt" and one.member == "ps-0")
            loads = [one for one in healed if one.name.startswith("load ")]
            assert {one.member for one in loads} == {"ps-0"}
            assert seen.begin < whole.begin <= planned.begin < planned.end <= told.begin
            assert told.begin <= min(one.begin for one in loads)
            assert max(one.end for one in loads) <= whole.end, "it ends when all is served again"


JOINS = """
import sys
import numpy as np
import scar

with scar.join(sys.argv[1], "mine-0", start_timeout=60) as worker:
    for clock in worker.clocks(limit=20):
        worker.pull("w")
        worker.push("w", np.ones((40, 1), np.float32))
"""


def test_a_worker_of_a_program_of_ones_own_is_in_the_traces_of_its_pushes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(JOINS)
    job = scar.Job("joined", [scar.Table("w", (40, 1), rule=scar.add())], shards=2, workers=1)
    with receiving() as receiver:
        variables = {"SCAR_TRACES": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        with LocalCluster(tmp_path / "cluster", shards=2, environment=variables) as cluster:
            cluster.start_job(job)
            command = [sys.executable, str(tmp_path / "mine.py"), cluster.endpoints.recovery_address]
            environment = {**os.environ, **variables, TOKEN_FILE: str(cluster.directory / "token")}
            environment["PYTHONPATH"] = os.pathsep.join(sys.path)
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
            assert done.returncode == 0, done.stderr
            check_push(await_trace(receiver, is_push, "a push"), "mine-0")
