"""Wiring of a shard: its parts, its threads, how it joins and how it leaves."""

from __future__ import annotations

import logging
import time
from threading import Event

import grpc

from scar import codec
from scar.errors import Fenced, ScarError
from scar.transport import RECOVERY, Backoff, Link
from scar.v1 import ps_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar_ps import metrics
from scar_ps.borrowed import Borrowed
from scar_ps.config import PsSettings
from scar_ps.copies import Copies
from scar_ps.engine import Engine
from scar_ps.epochs import Epochs
from scar_ps.loader import Loader
from scar_ps.saver import Saver
from scar_ps.servicer import CONTROL_SERVICE, DATA_SERVICE, ControlServicer, DataServicer
from scar_ps.shard import Shard
from scar_ps.shipper import Shipper
from scar_ps.staging import Staging
from scar_runtime.app import App, Service
from scar_runtime.store import open_store

CALL_SECONDS = 2.0
WATCH_SECONDS = 0.2  # between looks at whether this shard is behind
LOOK_SECONDS = 10.0  # between looks at the store of a shard that has no reason to: its job may have ended without a word to it
JOIN_SECONDS = 2.0  # between announcements while no epoch has taken us in: a new coordinator knows only the epochs

_log = logging.getLogger(__name__)


class ShardService:
    """One shard process."""

    def __init__(self, app: App, settings: PsSettings) -> None:
        store = open_store(settings.store)
        self._app, self._settings = app, settings
        self._stopped = Event()  # after the drain: ends the apply thread
        self.shard = Shard(app.member, app.heart.beat)
        self._engine = Engine(app.heart, app.fail)
        self._loader = Loader(self.shard, self._engine, store, settings.load_threads, app.fail)
        self._epochs = Epochs(self.shard, self._engine, self._loader, store, app.heart, self._dismissed)
        self._saver = Saver(self.shard, self._engine, store)
        self._staging = Staging(settings.staged_bytes, lambda: self.shard.contributions.bytes)
        self._copies = Copies(self.shard)
        self._shipper = Shipper(self.shard, self._copies, self._engine)
        self._borrowed = Borrowed(settings.shared_memory)
        self._idle = False  # recovery has heard of this shard, and has no job for it
        self._recovery = Link(settings.recovery, "recovery", RECOVERY) if settings.recovery else None
        metrics.CHECKPOINT_AGE.set_function(lambda: self._saver.age)
        metrics.BLOCKS.set_function(lambda: sum(len(store) for store in self.shard.view.tables.values()))

    def register(self, server: grpc.Server) -> None:
        DataServicer(self.shard, self._engine, self._staging, self._copies, self._borrowed).register(server)
        control = ControlServicer(
            self.shard, self._engine, self._epochs, self._loader, self._saver, self._copies, self._shipper, self._borrowed
        )
        ps_pb2_grpc.add_ShardControlServicer_to_server(control, server)

    def start(self) -> None:
        self._app.spawn("apply", lambda: self._engine.run(self._stopped))
        self._app.spawn("membership", self._watch)
        self._app.spawn("shipper", lambda: self._shipper.run(self._stopped))

    def ready(self) -> bool:
        """All blocks of the newest epoch are there."""
        view = self.shard.view
        return view.epoch > 0 and not any(store.blocked and (store.loading > 0).any() for store in view.tables.values())

    def settled(self) -> bool:
        """Ready, or known to the recovery coordinator before there is a job."""
        return self.ready() or (self._idle and self.shard.view.epoch == 0)

    def stop(self) -> None:
        """Hand the blocks over while still serving, then end."""
        if self.shard.view.epoch and not self.shard.dismissed:
            self._leave(time.monotonic() + self._settings.leave_seconds)
        self._loader.close()
        self._stopped.set()
        if self._recovery is not None:
            self._recovery.close()

    def _dismissed(self, why: Fenced) -> None:
        if not self._app.stopping.is_set():  # one that leaves on request is dismissed as a matter of course
            self._app.fail(why)

    # --- membership --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        backoff, joined_until, problem = Backoff(first=0.1, most=JOIN_SECONDS), 0.0, ""
        looked = time.monotonic()
        while not self._stopped.wait(WATCH_SECONDS):
            try:
                self._saver.let_go()
                self._borrowed.forget()
                if self.shard.number == 0 and time.monotonic() >= joined_until:
                    self._join()
                    joined_until = time.monotonic() + JOIN_SECONDS
                elif self.shard.number and (self._behind or time.monotonic() > looked + LOOK_SECONDS):
                    looked = time.monotonic()
                    self._epochs.catch_up(CALL_SECONDS)
                backoff.reset()
                problem = ""
            except ScarError as error:
                if error.message != problem:
                    problem = error.message
                    _log.warning("membership.waiting", extra={"reason": str(error)})
                self._stopped.wait(backoff.next())

    @property
    def _behind(self) -> bool:
        return self.shard.heard > self.shard.number or not self._engine.leased

    def _join(self) -> None:
        if self._recovery is not None:
            stub = recovery_pb2_grpc.RecoveryStub(self._recovery.channel)
            request = recovery_pb2.JoinRequest(member=codec.member_to_proto(self._app.member))
            self._idle = self._recovery.call(stub.Join, request, CALL_SECONDS).epoch == 0

    def _leave(self, end: float) -> None:
        """Ask to go until no block is left here, or the time is over.

        A coordinator that has not read our epoch yet knows of no block of ours: its answer says nothing.
        """
        if self._recovery is None:
            return
        stub = recovery_pb2_grpc.RecoveryStub(self._recovery.channel)
        request = recovery_pb2.LeaveRequest(member=codec.member_to_proto(self._app.member))
        problem = ""
        while time.monotonic() < end and not self.shard.dismissed:
            try:
                reply = self._recovery.call(stub.Leave, request, min(CALL_SECONDS, max(0.01, end - time.monotonic())))
                if reply.remaining == 0 and reply.epoch >= self.shard.number:
                    return
            except ScarError as error:
                if error.message != problem:
                    problem = error.message
                    _log.warning("leave.waiting", extra={"reason": str(error)})
            time.sleep(WATCH_SECONDS)


def build(app: App) -> Service:
    """The service of this process. ``app.settings`` are :class:`PsSettings`."""
    if not isinstance(app.settings, PsSettings):
        raise TypeError("a shard needs PsSettings")
    service = ShardService(app, app.settings)
    names = (DATA_SERVICE, CONTROL_SERVICE)
    return Service(service.register, names, service.start, service.stop, service.ready, settled=service.settled)
