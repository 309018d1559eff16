"""The life of a service process, in order, and the only place that knows about signals and exit codes.

Start: settings, logs, bind, build, server, threads, ready, health SERVING. Stop: health NOT_SERVING, the
service drains, the lease is given up, watchers and server end, exit code. A second signal exits at once.

    raise SystemExit(main(PsSettings, Role.SHARD, build))

Exit codes: 0 done or stopped on request, 1 a failure or a bug, 2 wrong settings, 3 fenced (start again as a
new incarnation).
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from scar.errors import ConfigError, DeadlineExceeded, Fenced, LivenessUnavailable, UnsafeStore
from scar.event_log import StorySource
from scar.member_secrets import hash_secret, new_secret
from scar.placement import Member, Role
from scar.v1 import member_pb2, member_pb2_grpc
from scar.wire.credentials import bind_server
from scar.wire.timing import TIMING
from scar.wire.tracing import start_tracing, stop_tracing
from scar.wire.transport import LEADER_CONNECTION_MS
from scar_runtime.liveness.heartbeat_sender import HeartbeatSender, await_redis
from scar_runtime.liveness.heartbeat_store import HeartbeatStore
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.liveness.redis_url import open_heartbeats
from scar_runtime.process import logs, metrics
from scar_runtime.process.addresses import advertised_address
from scar_runtime.process.config import ServiceSettings, Settings, load_settings, variable
from scar_runtime.process.credentials import take_credentials
from scar_runtime.process.direct_server import DirectServer
from scar_runtime.process.health_board import HealthBoard, probe_threads
from scar_runtime.process.member_servicer import MemberServicer
from scar_runtime.process.memory import keep_freed
from scar_runtime.process.request_streams import RequestStreams
from scar_runtime.process.server import bind_port, make_health_server, make_server, show_services
from scar_runtime.process.signals import on_stop

COORDINATORS = (Role.CHECKPOINT, Role.RECOVERY, Role.DETECTOR)
GRACE_SECONDS = 2.0  # for calls in flight, after the service has drained
EXIT_SECONDS = 5.0  # a process that should end is made to end after this
REDIS_SECONDS = 5.0  # to wait for Redis at start, for roles that cannot do without
READY_SECONDS = TIMING.look_every  # between looks at the service's readiness, while it is not ready
STEADY_SECONDS = round(3 * TIMING.look_every, 3)  # the same, while it is
DEAD_IDLE_SECONDS = TIMING.restart_after
NEED_REDIS = frozenset({Role.CHECKPOINT, Role.RECOVERY, Role.DETECTOR})

MEMBER_SERVICE = member_pb2.DESCRIPTOR.services_by_name["MemberService"].full_name


@dataclass
class Service:
    """What a service's ``build`` returns."""

    register: Callable[[grpc.Server], None]  # add servicers
    service_names: tuple[str, ...]  # full names, for health and reflection
    start: Callable[[], None]  # start threads; the server listens already
    stop: Callable[[], None]  # drain; health is NOT_SERVING already, the server still answers
    ready: Callable[[], bool]  # health is SERVING while this is true: requests should come here
    # runs in the main thread; the process ends when it returns
    main: Callable[[threading.Event], None] | None = None
    # health "readiness": nothing is left to wait for; None: the same as ready
    settled: Callable[[], bool] | None = None
    # of the cores that run now, for `scar doctor --story`
    stories: Callable[[], Sequence[StorySource]] = tuple
    direct: DirectServer | None = None  # ends with the server


class App:
    """One process of one service. ``member`` has its address from the start, because the port is taken
    before ``build``. ``secret``: proves that who calls is this member.
    """

    def __init__(self, settings: ServiceSettings, role: Role) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.incarnation = secrets.token_hex(6)
        self.secret = new_secret()
        self.liveness = ProgressMonitor(settings.lease_seconds)
        self.log = logging.getLogger(f"scar_{role.label}")
        self.context = logs.Context(
            role.label, settings.name, self.incarnation, epoch=lambda: self.liveness.epoch
        )
        start_tracing(settings.traces, role.label, settings.name, self.incarnation)
        self.certificate = take_credentials(settings, role)
        self._heartbeats = open_heartbeats(settings)
        self.requests = RequestStreams()
        self._probes = probe_threads()
        self._server = make_server(
            connection_ms=LEADER_CONNECTION_MS if role in COORDINATORS else 0,
            requests=self.requests,
            probes=self._probes,
        )
        self._bound = bind_port(
            self._server, settings.listen, bind=partial(bind_server, insecure=settings.insecure)
        )
        address = advertised_address(settings.advertise, self._bound)
        lease = settings.lease_seconds if role is Role.SHARD else 0.0  # nobody else serves blocks
        self.member = Member(role, settings.name, self.incarnation, address, hash_secret(self.secret), lease)
        self._health_server: grpc.Server | None = None
        self._exit_code = 0
        self._resigned = threading.Event()
        self._stopped = False  # what is left of its threads Python ends wherever they are

    @property
    def heartbeats(self) -> HeartbeatStore:
        """Only for services whose settings say where Redis is."""
        assert self._heartbeats is not None, f"a {self.context.role} has no Redis"
        return self._heartbeats

    def spawn(self, name: str, target: Callable[[], None]) -> None:
        """Run ``target`` in a thread that is guarded: when it raises, the process exits. There are no
        half-dead services.
        """

        def guarded() -> None:
            try:
                target()
            except Exception as error:
                if not self._stopped:
                    self.fail(error)

        threading.Thread(target=guarded, name=name, daemon=True).start()

    def fail(self, error: BaseException) -> None:
        """Log the error and end the process with its exit code, without draining."""
        if self.stopping.is_set() and isinstance(error, Fenced):
            return  # expected: a member that has left is fenced, and its heartbeats may tell it of it first
        known = isinstance(error, ConfigError | Fenced | UnsafeStore)
        self.log.error("service.failed", exc_info=None if known else error, extra={"reason": str(error)})
        self._exit_code = self._exit_code or exit_code(error)
        self.liveness.give_up_lease()
        self.stopping.set()
        exit_later(self._exit_code)

    def serve(self, build: Callable[[App], Service]) -> int:
        """Everything from the bound port to the exit code."""
        settings = self.settings
        write_address(settings.address_file, self.member.address)
        self._check_redis()
        service = self._build_service(build)
        if service is None:
            return 0
        watchers = MemberServicer(self.member, self.liveness, service.stories)
        board = self._register_servicers(service, watchers)
        heartbeat_sender = HeartbeatSender(
            self.member,
            self.liveness,
            self._heartbeats,
            secret=self.secret,
            detector=settings.detector,
            recovery=settings.recovery,
        )
        self._server.start()
        self._serve_health(board)
        self._serve_metrics()
        self.log.info("service.started", extra={"address": self.member.address})
        try:
            service.start()
            self.spawn("heartbeat", lambda: heartbeat_sender.run(self._resigned))
            self.spawn("health", lambda: self._watch_health(service, board))
            (service.main or threading.Event.wait)(self.stopping)
        except BaseException as error:
            # a user's sys.exit, too: a process without its main thread would live on
            self.fail(error)
        self._stop_service(service, board, heartbeat_sender, watchers)
        return self._exit_code

    def _build_service(self, build: Callable[[App], Service]) -> Service | None:
        """None: it was told to stop while it waited for what it needs."""
        try:
            return build(self)
        except DeadlineExceeded:
            if self.stopping.is_set():
                return None
            raise

    def _stop_service(
        self,
        service: Service,
        board: HealthBoard,
        heartbeat_sender: HeartbeatSender,
        watchers: MemberServicer,
    ) -> None:
        self.stopping.set()
        board.close()
        if not self._exit_code:
            try:
                service.stop()
            except Exception as error:
                self.fail(error)
        # a closed port proves our death: from here on nothing may be acknowledged any more
        self.liveness.give_up_lease()
        self._resigned.set()
        heartbeat_sender.close()
        watchers.close()
        ended = self._server.stop(GRACE_SECONDS)
        if service.direct is not None:
            service.direct.stop(GRACE_SECONDS)
        ended.wait(GRACE_SECONDS + 1)
        if self._health_server is not None:
            self._health_server.stop(0)
        stop_tracing()
        self._stopped = True
        self.log.info("service.stopped", extra={"exit_code": self._exit_code})

    def _register_servicers(self, service: Service, watchers: MemberServicer) -> HealthBoard:
        service.register(self._server)
        member_pb2_grpc.add_MemberServiceServicer_to_server(watchers, self._server)
        names = (*service.service_names, MEMBER_SERVICE)
        board = HealthBoard(names, self._probes)
        board.register(self._server)
        show_services(self._server, names)
        return board

    def _watch_health(self, service: Service, board: HealthBoard) -> None:
        shard = self.member.role is Role.SHARD
        while True:
            alive = not shard or self.liveness.idle_seconds < DEAD_IDLE_SECONDS
            ready = service.ready()
            settled = service.settled() if service.settled is not None else ready
            board.show(ready=ready, settled=settled, alive=alive)
            board.drop_deaf()
            self.requests.end_silent()
            if self.certificate is not None:
                self.certificate.current()  # of no use: told now, not when somebody connects
            if self.stopping.wait(STEADY_SECONDS if ready and settled else READY_SECONDS):
                return

    def _check_redis(self) -> None:
        if self.member.role not in NEED_REDIS:
            if self._heartbeats is None:
                return
            try:
                self.heartbeats.ping()
            except LivenessUnavailable as error:
                self.log.warning("redis.unavailable", extra={"reason": str(error)})
            return
        try:
            await_redis(self.heartbeats, REDIS_SECONDS)
        except LivenessUnavailable as error:
            raise ConfigError(
                error.message, f"Start Redis there, or set {variable('redis')} to a Redis that runs"
            ) from error

    def _serve_health(self, board: HealthBoard) -> None:
        if self.settings.health_port < 0:
            return
        self._health_server = make_health_server(board)
        host = self._bound.rpartition(":")[0]
        listen = f"{host}:{self.settings.health_port}"
        # a kubelet has no certificate
        address = bind_port(
            self._health_server, listen, "health_port", lambda server, at: int(server.add_insecure_port(at))
        )
        self._health_server.start()
        self.log.info("health.started", extra={"address": address})

    def _serve_metrics(self) -> None:
        metrics.describe_process(
            self.context.role,
            self.member.name,
            lambda: self.liveness.idle_seconds,
            lambda: self.liveness.epoch,
        )
        if self.certificate is not None:
            metrics.describe_certificate(self.certificate)
        if self.settings.metrics_port >= 0:
            host = self._bound.rpartition(":")[0].strip("[]")
            port = metrics.serve_metrics(host, self.settings.metrics_port)
            self.log.info("metrics.started", extra={"address": f"{host}:{port}"})


def main(
    cls: type[Settings], role: Role, build: Callable[[App], Service], argv: Sequence[str] | None = None
) -> int:
    """A whole service process: its settings, then :func:`run`."""
    try:
        settings = load_settings(cls, argv)
    except ConfigError as error:
        return _refuse_start(error)
    return run(settings, role, build)


def run(settings: ServiceSettings, role: Role, build: Callable[[App], Service]) -> int:
    """Run one service until it is told to stop or its work is done. The exit code; what was wrong goes to
    standard error.
    """
    keep_freed()
    try:
        app = App(settings, role)
        logs.configure_logging(settings.log_format, settings.log_level, app.context)
        on_stop(app.stopping.set)
        code = app.serve(build)
    except (ConfigError, UnsafeStore) as error:
        code = _refuse_start(error)
    except Exception as error:
        logging.getLogger(__name__).exception("service.failed", extra={"reason": str(error)})
        code = exit_code(error)
    exit_later(code)
    return code


def exit_code(error: BaseException) -> int:
    if isinstance(error, ConfigError | UnsafeStore):
        return 2
    return 3 if isinstance(error, Fenced) else 1


def exit_later(code: int) -> None:
    """End the process for certain: a call that ignores its cancellation, or a user's code, must not keep
    it.
    """
    timer = threading.Timer(EXIT_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()


def write_address(file: str, address: str) -> None:
    """Tell whoever started this process where it listens; a reader sees all of it or nothing."""
    if not file:
        return
    path = Path(file)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(address)
        draft.replace(path)
    except OSError as error:
        raise ConfigError(
            f"cannot write {file}: {error}", f"Set {variable('address_file')} to a writable place"
        ) from None


def _refuse_start(error: ConfigError | UnsafeStore) -> int:
    sys.stderr.write(f"error: {error}\n")
    return exit_code(error)
