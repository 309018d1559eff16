"""How each system is started on this machine, and how its processes are killed and come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.kills.task import SPEC_VARIABLE, KillSpec
from scar_local import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
RESPAWN_SECONDS = 0.1  # of SCAR's supervisor; torchrun looks as often
LOOK_SECONDS = 0.02
# Else a restarted rank may read the address of the dead one and refuse or hang (pytorch#135712; torch 2.13).
FRESH_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

Kill = Callable[[], object]


@dataclass(frozen=True)
class TrainingSystem:
    """``victim``: whom a run kills. ``respawner``: who starts it again."""

    name: str
    settings: str
    victim: str
    respawner: str
    start: Callable[[KillSpec, str, str], Iterator[Kill]]
    strategy: str = "partial"

    @contextmanager
    def running(self, spec: KillSpec, python: str) -> Iterator[Kill]:
        """Start it in ``spec.folder``; what it gives kills the victim. ``python``: that of torchft."""
        spec = replace(spec, strategy=self.strategy)
        spec.write_file()
        yield from self.start(spec, self.victim, python)


def _environment(spec: KillSpec) -> dict[str, str]:
    return {SPEC_VARIABLE: str(spec.path / "spec.json"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _start_scar(spec: KillSpec, victim: str, _python: str) -> Iterator[Kill]:
    from benchmarks.kills import scar_training

    cluster = LocalCluster(
        spec.path / "home",
        shards=scar_training.SHARDS,
        respawn_delay=RESPAWN_SECONDS,
        environment=_environment(spec),
    )
    with cluster:
        cluster.start_job(scar_training.build_job(spec))
        cluster.start_workers(Path(scar_training.__file__), scar_training.WORKERS)
        yield lambda: cluster.kill(victim)


class KeptProcess:
    """A process that the harness starts again as soon as it sees that it was killed."""

    def __init__(self, command: list[str], spec: KillSpec, **environment: str) -> None:
        self._command = command
        self._output = spec.path / f"output-{id(self)}.log"
        self._log = self._output.open("ab")
        self._environment = {**os.environ, **_environment(spec), **environment}
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, env=self._environment, stdout=self._log, stderr=self._log
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._start()

    def close(self) -> None:
        """Raises :class:`RuntimeError` when it has failed by itself: then the figures are not of one kill."""
        code = self._process.poll()
        self._end()
        if code:
            tail = self._output.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self._command[1:5]} ended with code {code}, killed by nobody:\n{tail}")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _start_single(spec: KillSpec, _victim: str, _python: str) -> Iterator[Kill]:
    process = KeptProcess([sys.executable, "-m", "benchmarks.kills.peer_ddp"], spec)
    try:
        yield process.kill
    finally:
        process.close()


def _start_ddp(spec: KillSpec, _victim: str, _python: str) -> Iterator[Kill]:
    options = ["--standalone", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=1000"]
    module = ["-m", "benchmarks.kills.peer_ddp"]
    process = KeptProcess(
        [sys.executable, "-m", "torch.distributed.run", *options, *module], spec, **FRESH_STORE
    )
    try:
        yield lambda: os.kill(newest_pid(spec.path, 1), signal.SIGKILL)
    finally:
        process.close()


def newest_pid(folder: Path, slot: int) -> int:
    """The process that has last written steps as ``slot``."""
    newest = max(folder.glob(f"{slot}.*.steps"), key=lambda file: file.stat().st_mtime_ns)
    return int(newest.name.split(".")[1])


@dataclass(frozen=True)
class TorchftSettings:
    """``heartbeat``: milliseconds until the lighthouse gives a replica up. ``timeout``: seconds of calls."""

    heartbeat: int
    timeout: float

    def start(self, spec: KillSpec, _victim: str, python: str) -> Iterator[Kill]:
        module = [python, "-m", "benchmarks.kills.peer_torchft"]
        lighthouse = subprocess.Popen(
            [*module, "lighthouse", str(self.heartbeat)],
            cwd=ROOT,
            env={**os.environ, **_environment(spec)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        replicas: list[KeptProcess] = []
        try:
            assert lighthouse.stdout is not None
            address = lighthouse.stdout.readline().strip()
            for number in ("0", "1"):
                replicas.append(KeptProcess([*module, "replica", number, address, str(self.timeout)], spec))
            yield replicas[1].kill
        finally:
            lighthouse.kill()
            lighthouse.wait()
            for replica in replicas:
                replica.close()


SYSTEMS = {
    system.name: system
    for system in (
        TrainingSystem("scar-worker", "partial", "worker-1", "its supervisor", _start_scar),
        TrainingSystem("scar-shard", "partial", "ps-1", "its supervisor", _start_scar),
        TrainingSystem("scar-chain-shard", "sync-chain", "ps-1", "its supervisor", _start_scar, "sync-chain"),
        TrainingSystem("ddp", "torchrun's defaults", "rank 1", "torchrun, all ranks", _start_ddp),
        TrainingSystem(
            "torchft", "heartbeat 1 s, timeouts 5 s", "replica 1", "harness", TorchftSettings(1000, 5).start
        ),
        TrainingSystem(
            "torchft-default",
            "heartbeat 5 s, timeouts 60 s",
            "replica 1",
            "harness",
            TorchftSettings(5000, 60).start,
        ),
        TrainingSystem("single", "one process", "the process", "harness", _start_single),
    )
}


def await_step(folder: Path, step: int, timeout: float) -> None:
    """Until a process says that ``step`` steps are complete. Raises :class:`TimeoutError`."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if max((last_step(file) for file in folder.glob("*.steps")), default=0) >= step:
            return
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"step {step} was not reached within {timeout:g} s; read the logs in {folder}")


def last_step(file: Path) -> int:
    """The newest whole line of a log; 0: none."""
    whole = file.read_text().rpartition("\n")[0]
    return int(whole.rpartition("\n")[2].partition(" ")[0]) if whole else 0


def await_file(file: Path, timeout: float) -> None:
    """Until it is there. Raises :class:`TimeoutError`."""
    deadline = time.monotonic() + timeout
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file.name} was not written within {timeout:g} s; read the logs beside it")
        time.sleep(LOOK_SECONDS)
