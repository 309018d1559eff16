"""What a killed shard pod of a release costs: seeded kills while a large model trains, until the last block is served again.

python -m benchmarks.kube_recovery --namespace scar [--kills 50] [--megabytes 100] [--kind kill|delete|freeze] [--seed 1]

Needs a kubeconfig and a release of the chart with at least 2 shards and no training. ``kill`` is SIGKILL to the process, and
its pod deleted; ``delete`` is ``kubectl delete pod --grace-period=0 --force``, after which Kubernetes still grants two seconds;
``freeze`` is SIGSTOP, until its blocks are served by others.
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
from scar.training import load_job
from scar.transport import CHECKPOINT, Deadline, Link, retry
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from scar_kube.release import Release
from scar_kube.training import Training, Work
from scar_kube.where import Where
from scar_runtime.status import ClusterStatus, Observer

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
    epoch = worker._client.view.epoch  # no user needs to know where blocks are; this is about the shards that stay
    index = next((i for i, shard in enumerate(epoch.shards) if shard.name.endswith(f"-{{worker.rank}}")), -1)
    found = np.flatnonzero(epoch.owners["w"] == index)
    return found if len(found) >= 8 else known

def train(worker):
    """Everything once, so that every block has to come from the store; then a few blocks of one shard in every clock.

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
class Kill:
    """Seconds. ``detect``, then ``wait``, ``commit`` and ``load``: by the ledger, from the last sign of life; ``served``: from
    the order to kill until all blocks were seen served from here. ``pace``: clocks a second from the kill until then, as a part
    of the calm pace, of the workers that train blocks of the other shards.
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
    parser = argparse.ArgumentParser(description="Seconds to detect and recover killed shard pods of a release.")
    for name in ("context", "namespace", "release"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=100, help="that one shard holds and loses")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds without work in each clock of a worker")
    parser.add_argument("--kind", choices=("kill", "delete", "freeze"), default="kill")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which pods are killed")
    options = parser.parse_args(arguments)
    with Release.find(Where(options.context, options.namespace, options.release)) as release:
        bench = Bench(release, options.megabytes, options.pause, options.kind, random.Random(options.seed))
        seen = bench.run(options.kills)
    _report(seen, options.kind)
    return 0


class Bench:
    def __init__(self, release: Release, megabytes: float, pause: float, kind: str, draw: random.Random) -> None:
        self._release, self._pause, self._kind, self._draw = release, pause, kind, draw
        self._shards = release.shards()
        self._megabytes = megabytes
        self._calm: dict[str, float] = {}  # worker -> clocks a second

    def run(self, kills: int) -> list[Kill]:
        name = f"recovery-{time.time_ns()}"
        rows = 256 * round(self._megabytes * 1e6 * self._shards / 4 / 64 / 256)
        with tempfile.TemporaryDirectory() as folder, self._release.observer() as observer:
            file = Path(folder) / "large.py"
            file.write_text(MODEL.format(name=name, rows=rows, shards=self._shards, pause=self._pause))
            training = Training(self._release, Work(load_job(str(file))[0], file))
            training.begin(False)
            try:
                self._prepare(observer)
                return [self._strike(observer, number) for number in range(1, kills + 1)]
            finally:
                training.end()

    def _prepare(self, observer: Observer) -> None:
        """Every block is in the store, and the pace of a quiet time is known."""
        _until(observer, lambda status: status.clock > 1, "training to begin")
        with closing(Link(self._release.dialer().to("checkpoint"), "checkpoint", CHECKPOINT)) as link:
            trigger = checkpoint_pb2_grpc.CheckpointStub(link.channel).Trigger
            everything = checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0)
            retry(lambda _: link.call(trigger, everything, SECONDS), Deadline(SECONDS), "everything to be saved")
        _until(observer, lambda status: min(_clocks(status).values(), default=0) > 2, "all workers to train")
        begin, first = time.monotonic(), _clocks(observer.read())
        time.sleep(CALM)
        last, seconds = _clocks(observer.read()), time.monotonic() - begin
        self._calm = {name: (last[name] - clock) / seconds for name, clock in first.items()}

    def _strike(self, observer: Observer, number: int) -> Kill:
        status = _until(observer, self._whole, "all shards to hold their part")
        failures, first = len(status.failures), _clocks(status)
        pod = f"{self._release.fullname}-ps-{self._draw.randrange(self._shards)}"
        held = sum(table.bytes for table in status.shards[pod].tables)
        begin = time.monotonic()
        self._kill(pod)
        status = _until(observer, lambda now: _repaired(now, failures), "the recovery")
        served = time.monotonic() - begin
        last, number_of = _clocks(status), pod.rpartition("-")[2]
        others = [name for name in self._calm if name in first and name in last and not name.endswith(f"-{number_of}")]
        pace = statistics.mean((last[name] - first[name]) / served / self._calm[name] for name in others)
        if self._kind == "freeze":
            self._signal(pod, "CONT")  # it hears that it is fenced, and comes back as a new one
        record = status.failures[failures]
        parts = (record.detect_seconds, record.wait_seconds, record.commit_seconds, record.load_seconds)
        made = Kill(pod, held / 1e6, *(max(0.0, part) for part in parts), served, pace)
        shown = {key: value if isinstance(value, str) else round(value, 3) for key, value in asdict(made).items()}
        SCREEN.print(f"{number}: {json.dumps(shown)}", soft_wrap=True)
        return made

    def _kill(self, pod: str) -> None:
        api, namespace = self._release.api, self._release.namespace
        if self._kind != "delete":
            self._signal(pod, {"kill": "KILL", "freeze": "STOP"}[self._kind])
        if self._kind != "freeze":
            api.ask("delete a pod", api.core.delete_namespaced_pod, pod, namespace, grace_period_seconds=0)

    def _signal(self, pod: str, name: str) -> None:
        self._release.api.execute(self._release.namespace, pod, "ps", ["sh", "-c", f"kill -{name} -1"])

    def _whole(self, status: ClusterStatus) -> bool:
        held = [sum(table.blocks for table in shard.tables) for shard in status.shards.values()]
        settled = not status.loading and not any(table.unsettled for s in status.shards.values() for table in s.tables)
        return settled and len(held) == self._shards and min(held) > 0.9 * max(held)


def _repaired(status: ClusterStatus, before: int) -> bool:
    return len(status.failures) > before and status.failures[before].load_seconds > 0 and not status.loading


def _clocks(status: ClusterStatus) -> dict[str, int]:
    """Worker -> clocks finished."""
    return {name: worker.clock for name, worker in status.workers.items()}


def _until(observer: Observer, condition: Callable[[ClusterStatus], bool], what: str) -> ClusterStatus:
    deadline = time.monotonic() + SECONDS
    while not condition(status := observer.read()):
        if time.monotonic() > deadline:
            raise DeadlineExceeded(f"waited {SECONDS:g} s in vain for {what}", "; ".join(status.problems))
        time.sleep(PAUSE)
    return status


def _report(seen: Sequence[Kill], kind: str) -> None:
    totals, quantiles = sorted(kill.total for kill in seen), _quantiles([kill.total for kill in seen])
    served = _quantiles([kill.served for kill in seen])
    pace = statistics.median(kill.pace for kill in seen)
    SCREEN.print(f"{len(seen)} x {kind}: detect + recover {json.dumps(quantiles)} s; survivors' pace {pace:.0%} in the median")
    SCREEN.print(f"from the order to kill until seen served {json.dumps(served)} s")
    for low, count in histogram(totals):
        SCREEN.print(f"{low:6.2f} s  {'#' * round(BARS * count / len(seen))} {count}")
    path = Path(f"build/bench/kube-recovery-{kind}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"quantiles": quantiles, "served": served, "kills": [asdict(kill) for kill in seen]}, indent=1) + "\n"
    )


def histogram(values: Sequence[float], step: float = 0.25) -> list[tuple[float, int]]:
    """(lower end, how many) of every step up to the largest value."""
    last = int(max(values) / step)
    counts = [sum(int(value / step) == number for value in values) for number in range(last + 1)]
    return [(number * step, count) for number, count in enumerate(counts)]


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{percent}": round(ordered[min(len(ordered) - 1, percent * len(ordered) // 100)], 3) for percent in (50, 90, 99)}


if __name__ == "__main__":
    raise SystemExit(main())
