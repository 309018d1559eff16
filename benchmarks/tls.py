"""What TLS costs, and what the token of a local cluster does: the same cluster with and without, in turns, at
an address by which other machines would call it.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import scar
from benchmarks import bare, yardsticks
from benchmarks.measure import WARM_UPS, BenchRow, Pair, duration_row, time_action, time_pairs
from benchmarks.training import AS_BETWEEN_MACHINES, NEVER, SECONDS, STEPS
from scar.wire.cluster_token import TOKEN_FILE
from scar.wire.credentials import INSECURE, use_certificate
from scar_local import LocalCluster
from scar_local.authority import create_authority, role_files
from scar_runtime.process.memory import keep_freed

DENSE = (262_144, 64)  # 64 MiB
ROWS = 200_000
TOUCHED = 20_000
CALLS = 200  # timed together

PULL = "pull of one row of 64"
PUSH = "push of one row of 64 and the end of the clock"
SPARSE = "push + AdaGrad + pull of 20,000 random rows of 64"
DENSE_STEP = "push + apply + pull of 64 MiB, as messages"
UNITS = {PULL: "us", PUSH: "us", SPARSE: "ms", DENSE_STEP: "ms"}


def measure_rows(repeat: int) -> list[BenchRow]:
    return [
        *_compare(_serve_calls, "token", "nothing", (PULL, PUSH), repeat),
        *_compare(_serve_calls, "tls", "token", (PULL, PUSH, SPARSE, DENSE_STEP), repeat),
        _bare_row(repeat),
    ]


def _bare_row(repeat: int) -> BenchRow:
    """What TLS costs gRPC alone: the same bytes without a cluster."""
    up = np.ones(bare.SIZE, dtype=np.uint8)
    down = np.ones(bare.SIZE, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        create_authority(Path(folder), bare.CLUSTER)
        with bare.grpc_peer(Path(folder)) as secured, bare.grpc_peer() as plain:
            times = time_pairs(lambda: secured.exchange(up, down), lambda: plain.exchange(up, down), repeat)
    return duration_row(f"{bare.STREAM}, TLS", times, "ms", "nothing")


def _compare(
    serve: Callable[[str, Connection], None], ours: str, against: str, names: Sequence[str], repeat: int
) -> list[BenchRow]:
    with ExitStack() as stack:
        pair = [stack.enter_context(_start_arm(serve, trust)) for trust in (ours, against)]
        times = {name: _time_in_turns(pair, name, repeat) for name in names}
    return [duration_row(f"{name}, {ours}", times[name], UNITS[name], against) for name in names]


def _time_in_turns(pair: Sequence[Connection], name: str, repeat: int) -> Pair:
    times: list[list[float]] = [[], []]
    for number in range(WARM_UPS + repeat):
        for arm, taken in zip(pair, times, strict=True):
            arm.send(name)
            seconds = arm.recv()
            if number >= WARM_UPS:
                taken.append(seconds)
    return Pair(statistics.median(times[0]), statistics.median(times[1]))


@contextmanager
def _start_arm(serve: Callable[[str, Connection], None], trust: str) -> Iterator[Connection]:
    """A process with a cluster of its own: who a process is, is one for all of its connections."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=serve, args=(trust, far))
    process.start()
    far.close()
    try:
        yield near
    finally:
        near.close()
        process.join()


def _serve_calls(trust: str, orders: Connection) -> None:
    """Takes names of what to measure, and answers with seconds, until the other end is closed."""
    keep_freed()
    tables = [
        scar.Table("w", DENSE, rule=scar.sgd(lr=0.1)),
        scar.Table("e", (ROWS, 64), rule=scar.adagrad(lr=0.1)),
    ]
    job = scar.Job("bench", tables=tables, shards=2, workers=1, consistency="asp", checkpoint=NEVER)
    address = {"SCAR_LISTEN": f"{yardsticks.own_address()}:0", INSECURE: "true"}
    environment = AS_BETWEEN_MACHINES | address | ({TOKEN_FILE: ""} if trust == "nothing" else {})
    with LocalCluster(shards=2, tls=trust == "tls", environment=environment) as cluster:
        _become(trust, cluster, "operator")
        cluster.start_job(job)
        cluster.until(
            lambda status: bool(status.checkpoint and status.checkpoint.leader), SECONDS, "a leader"
        )
        _become(trust, cluster, "worker")
        with scar.join(cluster.endpoints.recovery_address, "worker-0") as worker:
            actions = _worker_actions(worker)
            try:
                while True:
                    orders.send(actions[orders.recv()]())
            except EOFError:
                _become(trust, cluster, "operator")


def _become(trust: str, cluster: LocalCluster, role: str) -> None:
    """Connections that are made from now on are of this role; those that are there stay as they are."""
    if trust != "token":
        use_certificate(role_files(cluster.directory / "tls", role) if trust == "tls" else None)


def _worker_actions(worker: scar.Worker) -> dict[str, Callable[[], float]]:
    clocks = iter(worker.clocks(limit=STEPS))
    next(clocks)
    draw = np.random.default_rng(1)
    ids = np.sort(draw.choice(ROWS, TOUCHED, replace=False)).astype(np.uint32)
    sparse = draw.normal(size=(TOUCHED, 64)).astype(np.float32)
    dense = np.full(DENSE, 1e-6, dtype=np.float32)
    one = np.zeros(1, dtype=np.uint32)
    value = np.ones((1, 64), dtype=np.float32)

    def step(table: str, values: np.ndarray, rows: np.ndarray | None = None) -> None:
        worker.push(table, values, ids=rows)
        next(clocks)

    def push_and_pull(table: str, values: np.ndarray, rows: np.ndarray | None = None) -> None:
        step(table, values, rows)
        worker.pull(table, ids=rows)

    return {
        PULL: lambda: _time_calls(lambda: worker.pull("w", ids=one)),
        PUSH: lambda: _time_calls(lambda: step("w", value, one)),
        SPARSE: lambda: time_action(lambda: push_and_pull("e", sparse, ids)),
        DENSE_STEP: lambda: time_action(lambda: push_and_pull("w", dense)),
    }


def _time_calls(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS
