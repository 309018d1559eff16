"""A cluster in a simulated world: the only module of the simulation that knows the services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import scar
from scar.errors import DeadlineExceeded, ScarError, Temporary
from scar.placement import Member, Role
from scar.tables import Job
from scar.v1 import ps_pb2, ps_pb2_grpc, recovery_pb2, recovery_pb2_grpc, types_pb2
from scar.wire import codec
from scar.wire.transport import RECOVERY, Link
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.service import build as build_checkpoint
from scar_detector.service import DetectorSettings
from scar_detector.service import build as build_detector
from scar_ps.config import PsSettings
from scar_ps.service import build as build_shard
from scar_recovery.config import RecoverySettings
from scar_recovery.service import build as build_recovery
from scar_runtime.process.app import App, Service, exit_code
from scar_runtime.process.config import ServiceSettings
from scar_runtime.store import open_store
from scar_runtime.store.records import get_record, numbers
from scar_worker.config import WorkerSettings
from scar_worker.service import build as build_worker
from tests.simulation.redis_server import RedisServer
from tests.simulation.scheduler import Host, Task
from tests.simulation.world import World

CALL = 5.0  # seconds for a call of the operator's
RESTART = 1.0  # seconds after which a process that has ended is started again

Result = TypeVar("Result")


class Program(NamedTuple):
    """What a process runs. ``more``: settings that only this service has."""

    role: Role
    settings: type[ServiceSettings]
    build: Callable[[App], Service]
    more: dict[str, Any]


PROGRAMS = {
    "ps": Program(Role.SHARD, PsSettings, build_shard, {"shared_memory": False, "direct_calls": False}),
    "recovery": Program(Role.RECOVERY, RecoverySettings, build_recovery, {"traffic_seconds": 0.0}),
    "checkpoint": Program(Role.CHECKPOINT, CheckpointSettings, build_checkpoint, {}),
    "detector": Program(Role.DETECTOR, DetectorSettings, build_detector, {}),
    "worker": Program(Role.WORKER, WorkerSettings, build_worker, {}),
}
COORDINATORS = ("recovery", "checkpoint", "detector")


@dataclass(eq=False)
class Life:
    """One life of a process, for oracles to look into. ``service``: once it is built."""

    host: Host
    app: App
    service: Service | None = None


class Cluster:
    """A Redis and processes that share it: what :mod:`scar_local` starts. Members are named "ps-0"."""

    def __init__(
        self,
        world: World,
        name: str,
        *members: str,
        label: str = "scar",
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """``settings``: of members, beside those that all have."""
        self.world, self.name, self.label = world, name, label
        self.redis = f"redis-{name}"
        self.hosts: dict[str, Host] = {}
        self.members: dict[str, Member] = {}
        self.ends: list[tuple[str, int]] = []  # members that ended by themselves, and their exit codes
        self.apps: dict[str, App] = {}  # of the newest life of each member
        self.lives: list[Life] = []  # that ever were
        self.born: list[Callable[[Life], None]] = []  # who wants to know of each
        self.names = {kind: f"{kind}-{name}:5000" for kind in COORDINATORS}
        world.redis[self.redis] = RedisServer(world.scheduler.host(self.redis))
        for address in self.names.values():
            world.network.names[address] = []
        present = {member.partition("-")[0] for member in members}
        self._known = {kind: self.names[kind] for kind in COORDINATORS if kind in present}
        self._settings = {member: dict(told) for member, told in (settings or {}).items()}
        self._held: set[str] = set()  # that are not started again for now
        self._starts = 0  # of jobs
        for member in members:
            self.start(member)

    def start(self, member: str, **settings: Any) -> Host:
        """A new life of a process, on a host of its own. ``settings``: of this member, from now on."""
        scheduler, program = self.world.scheduler, PROGRAMS[member.partition("-")[0]]
        self._settings.setdefault(member, {}).update(settings)
        host = self.hosts[member] = scheduler.host(f"{self.name}/{member}")
        told = program.settings(
            name=member,
            listen=f"{host.address}:0",
            insecure=True,
            redis=f"redis://{self.redis}:6379/0",
            store=self.world.store_url,
            cluster=self.label,
            **self._known,
            **{**program.more, **self._settings[member]},
        )
        scheduler.spawn(host, "main", partial(self._serve, host, told, program))
        return host

    def _serve(self, host: Host, settings: ServiceSettings, program: Program) -> None:
        """A process from its start to its exit, which takes all of its threads along."""
        app = self.apps[settings.name] = App(settings, program.role)
        self.members[settings.name] = app.member
        replicas = self.world.network.names.get(self.names.get(settings.name.partition("-")[0], ""))
        if replicas is not None:
            replicas.append(app.member.address)
        code = self._exit_code(Life(host, app), program)
        self.world.scheduler.record(f"end {host.name} {code}")
        self.ends.append((settings.name, code))
        self.world.scheduler.crash(host)

    def _exit_code(self, life: Life, program: Program) -> int:
        def build(app: App) -> Service:
            life.service = program.build(app)
            self.lives.append(life)
            for told in self.born:
                told(life)
            return life.service

        try:
            return life.app.serve(build)
        except ScarError as error:  # as scar_runtime.process.app.run has it
            life.app.log.error("service.failed", extra={"reason": str(error)})
            return exit_code(error)

    def supervise(self, member: str) -> None:
        """From now on, start this process again whenever it has ended."""
        scheduler = self.world.scheduler

        def ended() -> None:
            scheduler.at(scheduler.now + RESTART, partial(self._restart, member))

        self.hosts[member].crashed.append(ended)

    def _restart(self, member: str) -> None:
        if member not in self._held and not self.hosts[member].alive:
            self.start(member)
            self.supervise(member)

    # --- what is done to its processes; outside of tasks, too ----------------------------------------------

    def crash(self, member: str) -> None:
        """As SIGKILL does."""
        self.world.scheduler.crash(self.hosts[member])

    def terminate(self, member: str) -> None:
        """As SIGTERM does."""
        host, app = self.hosts[member], self.apps.get(member)
        if host.alive and app is not None:
            self.world.scheduler.spawn(host, "signals", app.stopping.set)

    def hold_down(self, member: str) -> None:
        """Crash it, and do not start it again before :meth:`release`."""
        self._held.add(member)
        self.crash(member)

    def release(self, member: str) -> None:
        self._held.discard(member)
        self._restart(member)

    def scale_out(self, member: str) -> None:
        """It is one of the cluster from now on: a new one, or one that had to go."""
        self._held.discard(member)
        if member not in self.hosts:
            self.start(member)
            self.supervise(member)
        else:
            self._restart(member)

    def scale_in(self, member: str) -> None:
        """As SIGTERM does when nobody starts the process again."""
        self._held.add(member)
        self.terminate(member)

    def work(self, member: str, train: Callable[[scar.Worker], None]) -> None:
        """A worker on a host of its own. A training that fails is a failure of the run."""
        host = self.hosts[member] = self.world.scheduler.host(f"{self.name}/{member}")

        def body() -> None:
            worker = scar.join(self.names["recovery"], member, detector=self._known.get("detector", ""))
            train(worker)
            worker.close()

        self.world.scheduler.spawn(host, "main", body)

    def task(self, name: str, part: str) -> Task:
        """A task of a member, by the beginning of its thread's name."""
        return next(task for task in self.hosts[name].tasks.values() if task.name.startswith(part))

    # --- what the operator does; only tasks may ------------------------------------------------------------

    def ask(self, method: str, request: Any, timeout: float = CALL) -> Any:
        """A call to the recovery coordinator that leads. Raises :class:`ScarError`."""
        link = Link(self.names["recovery"], "recovery", RECOVERY)
        try:
            return link.call(getattr(recovery_pb2_grpc.RecoveryStub(link.channel), method), request, timeout)
        finally:
            link.close()

    def insist(self, method: str, request: Any, seconds: float = 60.0) -> Any:
        """The same, again while it is not known or nobody leads, as clients do."""
        end = self.world.scheduler.now + seconds
        while True:
            try:
                return self.ask(method, request)
            except (Temporary, DeadlineExceeded):
                if self.world.scheduler.now > end:
                    raise
            self.world.scheduler.sleep(0.1)

    def start_job(self, job: Job, **how: bool) -> None:
        self._starts += 1
        self.insist(
            "StartJob",
            recovery_pb2.StartJobRequest(
                job=codec.job_to_proto(job), request_id=f"{self.name}-{self._starts}", **how
            ),
        )

    def report_death(self, member: Member) -> None:
        report = recovery_pb2.FailureReport(
            member=codec.member_to_proto(member), proved=True, detect_seconds=0.5, evidence="the simulation"
        )
        self.insist("ReportFailure", report)

    def epochs(self, job: str) -> list[types_pb2.Epoch]:
        """As they are in the store."""
        store = open_store(self.world.store_url).under(job)
        return [
            get_record(store, f"epochs/{number:08d}", types_pb2.Epoch) for number in numbers(store, "epochs")
        ]

    def shard_status(self, member: Member) -> ps_pb2.ShardStatus | None:
        """None: it does not answer."""
        link = Link(member.address, member.name)
        try:
            found = link.call(
                ps_pb2_grpc.ShardControlStub(link.channel).Status, ps_pb2.ShardStatusRequest(), 1.0
            )
        except ScarError:
            return None
        finally:
            link.close()
        return found if found.member.incarnation == member.incarnation else None

    def serves(self, epoch: types_pb2.Epoch) -> bool:
        """Do all shards of this epoch serve all their blocks in it?"""
        found = [self.shard_status(codec.member_from_proto(member)) for member in epoch.shards]
        return all(
            one is not None and one.epoch == epoch.number and not sum(table.loading for table in one.tables)
            for one in found
        )

    def wait_for(self, what: Callable[[], Result], seconds: float, why: str) -> Result:
        """The first answer that is true. Raises AssertionError after so many seconds."""
        end = self.world.scheduler.now + seconds
        while self.world.scheduler.now < end:
            with suppress(ScarError):  # of the store
                if found := what():
                    return found
            self.world.scheduler.sleep(0.5)
        raise AssertionError(f"{why} did not happen within {seconds:g} s")
