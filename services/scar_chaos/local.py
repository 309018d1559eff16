"""Chaos on this machine: signals to the processes of a :class:`scar_local.LocalCluster`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scar.tables import Job
from scar_chaos import workload
from scar_chaos.schedule import Kinds
from scar_local import LocalCluster
from scar_runtime.status import ClusterStatus
from scar_runtime.store import Store, open_store

SLICE = 0.1  # seconds that a slow process runs, and then does not
TRAIN = Path(workload.__file__)
_ANY = ("kill", "kill", "freeze", "blink", "slow", "outage")
KINDS: Kinds = {
    "ps": (*_ANY, "leave"),
    **dict.fromkeys(("worker", "recovery", "checkpoint", "detector"), _ANY),
    "redis": ("kill", "outage", "freeze"),
    "store": ("outage",),
}
LEASE = {"SCAR_LEASE_SECONDS": "1"}  # faults last longer than that


class LocalTarget:
    """A cluster of its own in ``folder``, whose workers run ``train``. ``settings``: of :class:`LocalCluster`."""

    kinds: Kinds = KINDS
    listen, host = "127.0.0.1:0", "127.0.0.1"

    def __init__(self, folder: Path, train: Path = TRAIN, **settings: Any) -> None:
        self.folder, self._train = folder, train
        self._settings = {"respawn_delay": 0.3, "store": f"file://{folder / 'store'}", **settings}
        self._cluster: LocalCluster | None = None
        self._slowed: dict[str, threading.Event] = {}
        self._signals: dict[str, Callable[[str], object]] = {
            "kill": lambda name: self.local.kill(name),
            "outage": lambda name: self.local.kill(name, respawn=False),
            "leave": lambda name: self.local.kill(name, signal.SIGTERM),
            "freeze": lambda name: self.local.pause(name),
            "blink": lambda name: self.local.pause(name),
            "slow": self._slow,
        }

    # --- life ----------------------------------------------------------------------------------------------------------------

    def begin(self, job: Job, environment: Mapping[str, str], resume: bool = False) -> None:
        (self.folder / "disk").mkdir(parents=True, exist_ok=True)
        if not self.disk.is_symlink():
            self.disk.symlink_to("disk")  # so that a fault can take the store away in one step
        settings = {"shards": job.shards, "environment": {**LEASE, **environment}, **self._settings}
        self._cluster = LocalCluster(self.folder / "cluster", **settings)
        self.local.start()
        self.local.start_job(job, resume=resume)
        self.local.start_workers(self._train, job.workers)

    def end(self) -> None:
        """The whole cluster, at once."""
        if self._cluster is not None:
            self._cluster.stop(checkpoint=False)

    @property
    def local(self) -> LocalCluster:
        if self._cluster is None:
            raise RuntimeError("begin() was not called")
        return self._cluster

    # --- looking -------------------------------------------------------------------------------------------------------------

    @property
    def recovery(self) -> str:
        return self.local.recovery_address

    def member(self, name: str) -> str:
        return name

    def status(self) -> ClusterStatus:
        return self.local.status()

    def store(self) -> Store:
        return open_store(self.local.store_url)

    def unwell(self) -> list[str]:
        return [f"{process.name} is {process.state}" for process in self.local.processes() if process.state != "running"]

    def state(self, name: str) -> str:
        """Of the process: "running", "paused", "killed", ..."""
        return next((process.state for process in self.local.processes() if process.name == name), "unknown")

    # --- faults --------------------------------------------------------------------------------------------------------------

    def inject(self, kind: str, name: str) -> None:
        if name == "store":
            return self.take_away()
        process, may = self._process(name), ("running", "paused") if kind in ("kill", "outage") else ("running",)
        if self.state(process) in may:
            self._signals[kind](process)
        return None

    def heal(self, kind: str, name: str) -> None:
        process = self._process(name)
        if name == "store":
            self.bring_back()
        elif kind == "slow" and process in self._slowed:
            self._slowed.pop(process).set()
        elif kind == "outage" and self.state(process) in ("killed", "exited"):
            self.local.restart(process)
        elif kind in ("freeze", "blink") and self.state(process) == "paused":
            self.local.resume(process)

    def take_away(self) -> None:
        """The disk is gone: in one step a file stands where the link to the folder was, so that nobody can make a new one."""
        draft = self.disk.with_suffix(".draft")
        draft.touch()
        draft.replace(self.disk)

    def bring_back(self) -> None:
        """The link is there again. Does nothing when it is."""
        draft = self.disk.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        draft.symlink_to("disk")
        draft.replace(self.disk)

    @property
    def disk(self) -> Path:
        return self.folder / "store"

    def _process(self, name: str) -> str:
        """Coordinators have a number here, too: there is one of each."""
        return name if self.state(name) != "unknown" else f"{name}-0"

    def _slow(self, name: str) -> None:
        over = self._slowed.setdefault(name, threading.Event())

        def alternate() -> None:
            while not over.wait(SLICE) and self.state(name) == "running":
                self.local.pause(name)
                over.wait(SLICE)
                if self.state(name) == "paused":
                    self.local.resume(name)

        threading.Thread(target=alternate, name=f"slow-{name}", daemon=True).start()
