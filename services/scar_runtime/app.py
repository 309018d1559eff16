"""The life of a service process, in order, and the only place that knows about signals and exit codes.

Start: settings, logs, bind, build, server, threads, ready, health SERVING. Stop: health NOT_SERVING, the service drains, the
lease is given up, watchers and server end, exit code. A second signal exits at once.

    raise SystemExit(main(PsSettings, Role.SHARD, build))

Exit codes: 0 done or stopped on request, 1 a failure or a bug, 2 wrong settings, 3 fenced (start again as a new incarnation).
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from scar.errors import ConfigError, Fenced, LivenessUnavailable, UnsafeStore
from scar.placement import Member, Role
from scar.transport import LEADER_CONNECTION_MS
from scar.v1 import member_pb2, member_pb2_grpc
from scar_runtime import logs, metrics
from scar_runtime.config import ServiceSettings, Settings, load_settings, variable
from scar_runtime.heart import Heart
from scar_runtime.liveness import Beats
from scar_runtime.member import MemberServicer
from scar_runtime.memory import keep_freed
from scar_runtime.pulse import Pulse, await_redis
from scar_runtime.server import HealthBoard, bind, make_server
from scar_runtime.signals import on_stop

COORDINATORS = (Role.CHECKPOINT, Role.RECOVERY, Role.DETECTOR)
GRACE_SECONDS = 2.0  # for calls in flight, after the service has drained
EXIT_SECONDS = 5.0  # a process that should end is made to end after this
REDIS_SECONDS = 5.0  # to wait for Redis at start, for roles that cannot do without
READY_SECONDS = 0.1  # between looks at the service's readiness
DEAD_IDLE_SECONDS = 30.0  # a shard's working thread that has not moved for so long will not move again
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
    main: Callable[[threading.Event], None] | None = None  # runs in the main thread; the process ends when it returns
    settled: Callable[[], bool] | None = None  # health "readiness": nothing is left to wait for; None: the same as ready


class App:
    """One process of one service. ``member`` has its address from the start, because the port is taken before ``build``."""

    def __init__(self, settings: ServiceSettings, role: Role) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.incarnation = secrets.token_hex(6)
        self.heart = Heart(settings.lease_seconds)
        self.log = logging.getLogger(f"scar_{role.name.lower()}")
        self.context = logs.Context(role.name.lower(), settings.name, self.incarnation, epoch=lambda: self.heart.epoch)
        self.beats = Beats(settings.redis, settings.cluster)
        self._server = make_server(connection_ms=LEADER_CONNECTION_MS if role in COORDINATORS else 0)
        self._bound = bind(self._server, settings.listen)
        self.member = Member(role, settings.name, self.incarnation, _advertised(settings.advertise, self._bound))
        self._exit_code = 0
        self._resigned = threading.Event()

    def spawn(self, name: str, target: Callable[[], None]) -> None:
        """Run ``target`` in a thread that is guarded: when it raises, the process exits. There are no half-dead services."""

        def guarded() -> None:
            try:
                target()
            except Exception as error:
                self.fail(error)

        threading.Thread(target=guarded, name=name, daemon=True).start()

    def fail(self, error: BaseException) -> None:
        """Log the error and end the process with its exit code, without draining."""
        if self.stopping.is_set() and isinstance(error, Fenced):
            return  # expected: a member that has left is fenced, and its pulse may hear of it first
        known = isinstance(error, ConfigError | Fenced | UnsafeStore)
        self.log.error("service.failed", exc_info=None if known else error, extra={"reason": str(error)})
        self._exit_code = self._exit_code or exit_code(error)
        self.heart.resign()
        self.stopping.set()
        exit_later(self._exit_code)

    def serve(self, build: Callable[[App], Service]) -> int:
        """Everything from the bound port to the exit code."""
        settings = self.settings
        write_address(settings.address_file, self.member.address)
        self._check_redis()
        service = build(self)
        watchers = MemberServicer(self.member, self.heart)
        board = self._register(service, watchers)
        pulse = Pulse(self.member, self.heart, self.beats, detector=settings.detector, recovery=settings.recovery)
        self._server.start()
        self._serve_metrics()
        self.log.info("service.started", extra={"address": self.member.address})
        try:
            service.start()
            self.spawn("pulse", lambda: pulse.run(self._resigned))
            self.spawn("health", lambda: self._watch_health(service, board))
            (service.main or threading.Event.wait)(self.stopping)
        except Exception as error:
            self.fail(error)
        self._stop(service, board, pulse, watchers)
        return self._exit_code

    def _stop(self, service: Service, board: HealthBoard, pulse: Pulse, watchers: MemberServicer) -> None:
        self.stopping.set()
        board.close()
        if not self._exit_code:
            try:
                service.stop()
            except Exception as error:
                self.fail(error)
        self.heart.resign()  # a closed port proves our death: from here on nothing may be acknowledged any more
        self._resigned.set()
        pulse.close()
        watchers.close()
        self._server.stop(GRACE_SECONDS).wait(GRACE_SECONDS + 1)
        self.log.info("service.stopped", extra={"exit_code": self._exit_code})

    def _register(self, service: Service, watchers: MemberServicer) -> HealthBoard:
        service.register(self._server)
        member_pb2_grpc.add_MemberServiceServicer_to_server(watchers, self._server)
        return HealthBoard(self._server, (*service.service_names, MEMBER_SERVICE))

    def _watch_health(self, service: Service, board: HealthBoard) -> None:
        shard = self.member.role is Role.SHARD
        while True:
            alive = not shard or self.heart.idle < DEAD_IDLE_SECONDS
            board.show(ready=service.ready(), settled=(service.settled or service.ready)(), alive=alive)
            if self.stopping.wait(READY_SECONDS):
                return

    def _check_redis(self) -> None:
        if self.member.role not in NEED_REDIS:
            try:
                self.beats.ping()
            except LivenessUnavailable as error:
                self.log.warning("redis.unavailable", extra={"reason": str(error)})
            return
        try:
            await_redis(self.beats, REDIS_SECONDS)
        except LivenessUnavailable as error:
            raise ConfigError(error.message, f"Start Redis there, or set {variable('redis')} to a Redis that runs") from error

    def _serve_metrics(self) -> None:
        metrics.describe(self.context.role, self.member.name, lambda: self.heart.idle, lambda: self.heart.epoch)
        if self.settings.metrics_port >= 0:
            host = self._bound.rpartition(":")[0].strip("[]")
            port = metrics.serve(host, self.settings.metrics_port)
            self.log.info("metrics.started", extra={"address": f"{host}:{port}"})


def main(cls: type[Settings], role: Role, build: Callable[[App], Service], argv: Sequence[str] | None = None) -> int:
    """A whole service process: its settings, then :func:`run`."""
    try:
        settings = load_settings(cls, argv)
    except ConfigError as error:
        return _refuse(error)
    return run(settings, role, build)


def run(settings: ServiceSettings, role: Role, build: Callable[[App], Service]) -> int:
    """Run one service until it is told to stop or its work is done. The exit code; what was wrong goes to standard error."""
    keep_freed()
    try:
        app = App(settings, role)
        logs.configure(settings.log_format, settings.log_level, app.context)
        on_stop(app.stopping.set)
        code = app.serve(build)
    except (ConfigError, UnsafeStore) as error:
        code = _refuse(error)
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
    """End the process for certain: a call that ignores its cancellation, or a user's code, must not keep it."""
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
        raise ConfigError(f"cannot write {file}: {error}", f"Set {variable('address_file')} to a writable place") from None


def _advertised(advertise: str, bound: str) -> str:
    """What others dial. A wildcard is no address, so this host's own name stands in for it."""
    host, _, port = bound.rpartition(":")
    if advertise:
        return advertise if ":" in advertise.rpartition("]")[2] else f"{advertise}:{port}"
    return f"{socket.gethostname() if host in ('0.0.0.0', '[::]') else host}:{port}"


def _refuse(error: ConfigError | UnsafeStore) -> int:
    sys.stderr.write(f"error: {error}\n")
    return exit_code(error)
