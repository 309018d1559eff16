"""Chaos on this machine: signals to the processes of a local cluster, and damage to what they rely on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from scar.tables import Job
from scar_admin.status import ClusterStatus
from scar_chaos import workload
from scar_chaos.core.schedule import FaultKinds
from scar_chaos.targets.leadership import is_leader
from scar_chaos.targets.redis_proxy import AnswerMode, RedisProxy
from scar_chaos.targets.rival_cluster import RivalCluster
from scar_chaos.targets.store_disk import StoreDisk
from scar_local import LocalCluster
from scar_local.cuts import begin_cut, end_cut
from scar_local.specs import LED
from scar_runtime.store import Store, open_store

SLICE = 0.1  # seconds that a slow process runs, and then does not
ASK_SECONDS = 0.5  # for a coordinator to say whether it leads
TRAIN = Path(workload.__file__)
_ANY = ("kill", "kill", "freeze", "blink", "slow", "outage")
KINDS: FaultKinds = {
    "ps": (*_ANY, "leave"),
    "worker": _ANY,
    "detector": _ANY,
    **dict.fromkeys(LED, (*_ANY, "depose")),
    "redis": ("kill", "outage", "freeze", "late", "garble"),
    "store": ("outage", "full", "corrupt", "truncate", "garble"),
    "job": ("rival",),
}
# What is done where somebody names it. It is not drawn: seeds would mean something else from then on.
PLAYED: FaultKinds = {
    target: (*kinds, "cut") if target not in ("store", "job") else kinds for target, kinds in KINDS.items()
}
LEASE = {"SCAR_LEASE_SECONDS": "1"}  # faults last longer than that
PAUSES = ("freeze", "blink", "depose")


class _Action(NamedTuple):
    """How a fault of the store, Redis or the job is done, and undone."""

    inject: Callable[[], object]
    heal: Callable[[], object]


def _do_nothing() -> None:
    """What is damaged for good is not healed."""


class LocalTarget:
    """A cluster of its own in ``folder``, whose workers run ``train``.

    ``settings``: of :class:`LocalCluster`.
    """

    kinds: FaultKinds = KINDS
    listen = "127.0.0.1:0"
    host = "127.0.0.1"

    def __init__(self, folder: Path, train: Path = TRAIN, **settings: Any) -> None:
        self.folder = folder
        self._train = train
        self._settings = {"respawn_delay": 0.3, "store": f"file://{folder / 'store'}", **settings}
        self._disk = StoreDisk(folder)
        self._proxy = RedisProxy(self._redis_address)
        self._cluster: LocalCluster | None = None
        self._job: Job | None = None
        self._rival: RivalCluster | None = None
        self._struck: dict[tuple[str, str], str] = {}  # (kind, target) -> process
        self._slowed: dict[str, threading.Event] = {}
        self._violations: list[str] = []
        self._actions = self._make_actions()

    def _make_actions(self) -> dict[tuple[str, str], _Action]:
        """(kind, target) -> action; what is not here is done to a process."""
        disk = self._disk
        proxy = self._proxy
        late = partial(proxy.spoil_answers, AnswerMode.LATE)
        garbled = partial(proxy.spoil_answers, AnswerMode.GARBLED)
        return {
            ("outage", "store"): _Action(self.take_away, self.bring_back),
            ("full", "store"): _Action(self._fill_disk, disk.free_space),
            ("corrupt", "store"): _Action(partial(self._damage, disk.corrupt_objects), _do_nothing),
            ("truncate", "store"): _Action(partial(self._damage, disk.truncate_objects), _do_nothing),
            ("garble", "store"): _Action(partial(self._damage, disk.garble_records), disk.restore_records),
            ("late", "redis"): _Action(late, proxy.pass_answers),
            ("garble", "redis"): _Action(garbled, proxy.pass_answers),
            ("rival", "job"): _Action(self._start_rival, self._stop_rival),
        }

    # --- begin and end

    def begin(self, job: Job, environment: Mapping[str, str], resume: bool = False) -> None:
        self._disk.create_link()
        settings = {"shards": job.shards, "environment": {**LEASE, **environment}, **self._settings}
        self._job = job
        self._cluster = LocalCluster(self.folder / "cluster", redis_proxy=self._proxy.address, **settings)
        self.local.start()
        self.local.start_job(job, resume=resume)
        self.local.start_workers(self._train, job.workers)

    def end(self) -> None:
        """The whole cluster, at once."""
        if self._rival is not None:
            self._rival.stop()
        if self._cluster is not None:
            self._cluster.stop(checkpoint=False)
        self._proxy.close()

    @property
    def local(self) -> LocalCluster:
        if self._cluster is None:
            raise RuntimeError("begin() was not called")
        return self._cluster

    @property
    def job(self) -> Job:
        if self._job is None:
            raise RuntimeError("begin() was not called")
        return self._job

    def _redis_address(self) -> tuple[str, int]:
        parts = urlsplit(self.local.redis_url)
        return parts.hostname or "", parts.port or 6379

    # --- looking

    @property
    def recovery(self) -> str:
        return self.local.endpoints.recovery_address

    def member(self, name: str) -> str:
        return name

    def status(self) -> ClusterStatus:
        return self.local.status()

    def store(self) -> Store:
        return open_store(self.local.store_url)

    @property
    def damaged(self) -> frozenset[str]:
        return frozenset(self._disk.damaged)

    def observed_violations(self) -> list[str]:
        found = self._violations
        self._violations = []
        return found

    def unwell(self) -> list[str]:
        processes = self.local.processes()
        return [f"{process.name} is {process.state}" for process in processes if process.state != "running"]

    def process_state(self, name: str) -> str:
        """State of the process: "running", "paused", "killed", ...; "unknown": there is none."""
        return next((process.state for process in self.local.processes() if process.name == name), "unknown")

    # --- faults

    def inject(self, kind: str, name: str, seconds: float) -> None:
        if (kind, name) in self._actions:
            self._actions[kind, name].inject()
            return
        process = self._find_process(name)
        self._struck[kind, name] = process
        if self._can_signal(kind, process):
            self._signal(kind, process, seconds)

    def _can_signal(self, kind: str, process: str) -> bool:
        """A slow process stands still half of the time; a notice that comes then is read when it goes on."""
        state = self.process_state(process)
        is_notice = kind == "leave" and process in self._slowed
        stands_still = state == "paused" and (is_notice or kind in ("kill", "outage"))
        return state == "running" or stands_still

    def heal(self, kind: str, name: str) -> None:
        if (kind, name) in self._actions:
            self._actions[kind, name].heal()
            return
        process = self._struck.pop((kind, name), "")
        if kind == "cut" and process:
            end_cut(self.local.directory, process)
        elif kind == "slow" and process in self._slowed:
            self._slowed.pop(process).set()
        elif kind == "outage" and self.process_state(process) in ("killed", "exited"):
            self.local.restart(process)
        elif kind in PAUSES and self.process_state(process) == "paused":
            self.local.resume(process)

    def _signal(self, kind: str, process: str, seconds: float) -> None:
        if kind == "kill":
            self.local.kill(process)
        elif kind == "outage":
            self.local.kill(process, respawn=False)
        elif kind == "leave":
            self.local.kill(process, signal.SIGTERM)
        elif kind in PAUSES:
            self.local.pause(process)
        elif kind == "slow":
            self._slow_down(process)
        elif kind == "cut":
            begin_cut(self.local.directory, self.local.processes, process, seconds)
        else:
            raise ValueError(f"no signal does {kind!r} to a process")

    def take_away(self) -> None:
        """The store is gone."""
        self._disk.take_away()

    def bring_back(self) -> None:
        """Does nothing when it is there."""
        self._disk.bring_back()

    def _fill_disk(self) -> None:
        self._disk.fill_up([process.pid for process in self.local.processes() if process.alive])

    def _damage(self, damage: Callable[[Store, Job], None]) -> None:
        damage(self.store().under(self.job.name), self.job)

    def _start_rival(self) -> None:
        if self._rival is None:
            self._rival = RivalCluster(self.folder / "rival", self.local.store_url, self.job, LEASE)

    def _stop_rival(self) -> None:
        rival = self._rival
        self._rival = None
        if rival is None:
            return
        rival.stop()
        if rival.accepted:
            self._violations.append("a second cluster was given the job while this one trained it")

    def _find_process(self, name: str) -> str:
        """Of coordinators the one that leads."""
        if self.process_state(name) != "unknown":
            return name
        found = [process.name for process in self.local.processes() if process.component == name]
        if len(found) == 1:
            return found[0]
        for one in found:
            if is_leader(name, self.local.address(one), ASK_SECONDS):
                return one
        return f"{name}-0"

    def _slow_down(self, name: str) -> None:
        is_over = self._slowed.setdefault(name, threading.Event())

        def alternate() -> None:
            while not is_over.wait(SLICE) and self.process_state(name) == "running":
                self.local.pause(name)
                is_over.wait(SLICE)
                if self.process_state(name) == "paused":
                    self.local.resume(name)

        threading.Thread(target=alternate, name=f"slow-{name}", daemon=True).start()
