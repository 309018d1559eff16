"""What a killed shard pod of a release costs, from the kill until the last block is served again.

Seeded kills, while a large model trains.

python -m benchmarks.kube_recovery --namespace scar [--kills 50] [--megabytes 100] [--kind kill|delete|freeze]
[--seed 1]

Needs a kubeconfig and a release of the chart with at least 2 shards and no training. ``kill`` is SIGKILL to
the process, and its pod deleted; ``delete`` is ``kubectl delete pod --grace-period=0 --force``, after which
Kubernetes still grants two seconds; ``freeze`` is SIGSTOP, until its blocks are served by others.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from scar.errors import DeadlineExceeded
from scar.jobfile import load_job
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from scar.wire.transport import CHECKPOINT, Deadline, Link, retry
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus
from scar_kube.release import Release
from scar_kube.training import Training, Work
from scar_kube.where import Where

SECONDS = 120.0  # for anything that is waited for
PAUSE = 0.1  # between two looks, each of which asks every process of the release
CALM = 5.0  # seconds without kills, to know what is normal
BARS = 40  # width of the histogram
SCREEN = Console(highlight=False)
MODEL = '''
import time
import numpy as np
import scar

ROWS, COLUMNS, AT_ONCE = {rows}, 64, 256
table = scar.Table("w", (ROWS, COLUMNS), rule=scar.add(), blocks=scar.rows(AT_ONCE))
policy = scar.Checkpoint("priority", 0.125, 800)  # a round every ten seconds or so
job = scar.Job("{name}", [table], shards={shards}, workers={shards}, consistency="asp", checkpoint=policy)

def near(worker, known):
    """Blocks of the shard that has this worker's number; while there is none, those that it had."""
    # no user needs to know where blocks are; this is about the shards that stay
    epoch = worker._client.view.epoch
    index = next((i for i, shard in enumerate(epoch.shards) if shard.name.endswith(f"-{{worker.rank}}")), -1)
    found = np.flatnonzero(epoch.owners["w"] == index)
    return found if len(found) >= 8 else known

def train(worker):
    """Everything once, so that every block has to come from the store; then a few blocks of one shard.

    What is sent and fetched travels while the worker computes, as it does in a real training.
    """
    draw, blocks = np.random.default_rng(worker.rank), np.arange(ROWS // AT_ONCE)
    for clock in worker.clocks(limit=1 << 30):
        if clock == 0:
            if worker.rank == 0:
                worker.push("w", np.ones((ROWS, COLUMNS), np.float32))
            continue
        blocks = near(worker, blocks)
        ids = np.sort(draw.choice(blocks, 8, replace=False)).astype(np.uint32)
        values = worker.pull_async("w", ids=ids)
        worker.push("w", np.ones((8 * AT_ONCE, COLUMNS), np.float32), ids=ids)
        time.sleep({pause})  # what others compute in
        values.result()
'''


@dataclass(frozen=True)
class PodKill:
    """What one kill cost, in seconds.

    ``detect``, then ``wait``, ``commit`` and ``load``: by the ledger, from the last sign of life; ``served``:
    from the order to kill until all blocks were seen served from here. ``pace``: clocks a second from the
    kill until then, as a part of the calm pace, of the workers that train blocks of the other shards.
    """

    pod: str
    megabytes: float
    detect: float
    wait: float
    commit: float
    load: float
    served: float
    pace: float

    @property
    def total(self) -> float:
        return self.detect + self.wait + self.commit + self.load


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Seconds to detect and recover killed shard pods of a release."
    )
    for name in ("context", "namespace", "release"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=100, help="that one shard holds and loses")
    parser.add_argument(
        "--pause", type=float, default=0.5, help="seconds without work in each clock of a worker"
    )
    parser.add_argument("--kind", choices=("kill", "delete", "freeze"), default="kill")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which pods are killed")
    options = parser.parse_args(arguments)
    with Release.find(Where(options.context, options.namespace, options.release)) as release:
        bench = KillBench(
            release, options.megabytes, options.pause, options.kind, random.Random(options.seed)
        )
        seen = bench.run(options.kills)
    _write_report(seen, options.kind)
    return 0


class KillBench:
    """``pause``: seconds without work in each clock of a worker. ``kind``: "kill", "delete" or "freeze"."""

    def __init__(
        self, release: Release, megabytes: float, pause: float, kind: str, draw: random.Random
    ) -> None:
        self._release = release
        self._megabytes = megabytes
        self._pause = pause
        self._kind = kind
        self._draw = draw
        self._shards = release.shards()
        self._calm: dict[str, float] = {}  # worker -> clocks a second

    def run(self, kills: int) -> list[PodKill]:
        name = f"recovery-{time.time_ns()}"
        rows = 256 * round(self._megabytes * 1e6 * self._shards / 4 / 64 / 256)
        with tempfile.TemporaryDirectory() as folder, self._release.observer() as observer:
            file = Path(folder) / "large.py"
            file.write_text(MODEL.format(name=name, rows=rows, shards=self._shards, pause=self._pause))
            training = Training(self._release, Work(load_job(str(file))[0], file))
            training.begin(False)
            try:
                self._prepare(observer)
                return [self._kill_shard(observer, number) for number in range(1, kills + 1)]
            finally:
                training.end()

    def _prepare(self, observer: ClusterObserver) -> None:
        """Every block is in the store, and the pace of a quiet time is known."""
        _wait_until(observer, lambda status: status.clock > 1, "training to begin")
        with closing(Link(self._release.dialer().target_of("checkpoint"), "checkpoint", CHECKPOINT)) as link:
            trigger = checkpoint_pb2_grpc.CheckpointStub(link.channel).Trigger
            everything = checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0)
            retry(
                lambda _: link.call(trigger, everything, SECONDS), Deadline(SECONDS), "everything to be saved"
            )

        def all_train(status: ClusterStatus) -> bool:
            return min(_worker_clocks(status).values(), default=0) > 2

        _wait_until(observer, all_train, "all workers to train")
        begin = time.monotonic()
        first = _worker_clocks(observer.read())
        time.sleep(CALM)
        last = _worker_clocks(observer.read())
        seconds = time.monotonic() - begin
        self._calm = {name: (last[name] - clock) / seconds for name, clock in first.items()}

    def _kill_shard(self, observer: ClusterObserver, number: int) -> PodKill:
        before = _wait_until(observer, self._is_whole, "all shards to hold their part")
        failures = len(before.failures)
        shard = self._draw.randrange(self._shards)
        pod = f"{self._release.fullname}-ps-{shard}"
        begin = time.monotonic()
        self._kill(pod)
        after = _wait_until(observer, lambda now: _is_repaired(now, failures), "the recovery")
        served = time.monotonic() - begin
        if self._kind == "freeze":
            self._signal(pod, "CONT")  # it hears that it is fenced, and comes back as a new one
        record = after.failures[failures]
        kill = PodKill(
            pod,
            megabytes=sum(table.bytes for table in before.shards[pod].tables) / 1e6,
            detect=max(0.0, record.detect_seconds),
            wait=max(0.0, record.wait_seconds),
            commit=max(0.0, record.commit_seconds),
            load=max(0.0, record.load_seconds),
            served=served,
            pace=self._pace(before, after, served, shard),
        )
        _show_kill(number, kill)
        return kill

    def _pace(self, before: ClusterStatus, after: ClusterStatus, seconds: float, shard: int) -> float:
        """Of the workers of other shards, as a part of their calm pace."""
        first = _worker_clocks(before)
        last = _worker_clocks(after)
        others = [
            name for name in self._calm if name in first and name in last and not name.endswith(f"-{shard}")
        ]
        return statistics.mean((last[name] - first[name]) / seconds / self._calm[name] for name in others)

    def _kill(self, pod: str) -> None:
        api = self._release.api
        namespace = self._release.namespace
        if self._kind != "delete":
            self._signal(pod, {"kill": "KILL", "freeze": "STOP"}[self._kind])
        if self._kind != "freeze":
            api.ask("delete a pod", api.core.delete_namespaced_pod, pod, namespace, grace_period_seconds=0)

    def _signal(self, pod: str, name: str) -> None:
        self._release.api.execute(self._release.namespace, pod, "ps", ["sh", "-c", f"kill -{name} -1"])

    def _is_whole(self, status: ClusterStatus) -> bool:
        tables = [table for shard in status.shards.values() for table in shard.tables]
        held = [sum(table.blocks for table in shard.tables) for shard in status.shards.values()]
        settled = not status.loading and not any(table.unsettled for table in tables)
        return settled and len(held) == self._shards and min(held) > 0.9 * max(held)


def _show_kill(number: int, kill: PodKill) -> None:
    shown = {key: value if isinstance(value, str) else round(value, 3) for key, value in asdict(kill).items()}
    SCREEN.print(f"{number}: {json.dumps(shown)}", soft_wrap=True)


def _is_repaired(status: ClusterStatus, before: int) -> bool:
    return len(status.failures) > before and status.failures[before].load_seconds != 0 and not status.loading


def _worker_clocks(status: ClusterStatus) -> dict[str, int]:
    """Worker -> clocks finished."""
    return {name: worker.clock for name, worker in status.workers.items()}


def _wait_until(
    observer: ClusterObserver, condition: Callable[[ClusterStatus], bool], what: str
) -> ClusterStatus:
    deadline = time.monotonic() + SECONDS
    while not condition(status := observer.read()):
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"waited {SECONDS:g} s without result for {what}", "; ".join(status.problems)
            )
        time.sleep(PAUSE)
    return status


def _write_report(kills: Sequence[PodKill], kind: str) -> None:
    totals = [kill.total for kill in kills]
    quantiles = _quantiles(totals)
    served = _quantiles([kill.served for kill in kills])
    pace = statistics.median(kill.pace for kill in kills)
    SCREEN.print(
        f"{len(kills)} x {kind}: detect + recover {json.dumps(quantiles)} s;"
        f" survivors' pace {pace:.0%} in the median"
    )
    SCREEN.print(f"from the order to kill until seen served {json.dumps(served)} s")
    for low, count in histogram(totals):
        SCREEN.print(f"{low:6.2f} s  {'#' * round(BARS * count / len(kills))} {count}")
    report = {"quantiles": quantiles, "served": served, "kills": [asdict(kill) for kill in kills]}
    path = Path(f"build/bench/kube-recovery-{kind}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def histogram(values: Sequence[float], step: float = 0.25) -> list[tuple[float, int]]:
    """(lower end, how many) of every step up to the largest value."""
    last = int(max(values) / step)
    counts = [sum(int(value / step) == number for value in values) for number in range(last + 1)]
    return [(number * step, count) for number, count in enumerate(counts)]


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"p{percent}": round(ordered[min(len(ordered) - 1, percent * len(ordered) // 100)], 3)
        for percent in (50, 90, 99)
    }


if __name__ == "__main__":
    raise SystemExit(main())
