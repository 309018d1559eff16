"""Wiring of a shard: its parts, its threads, how it joins and how it leaves."""

from __future__ import annotations

import logging
import math
import time
from functools import partial
from threading import Event, Lock

import grpc

from scar.errors import Fenced
from scar.event_log import StorySource
from scar.losses import LossPoint
from scar.v1 import ps_pb2_grpc
from scar_ps import metrics
from scar_ps.apply_thread import ApplyThread, CarryOut
from scar_ps.config import PsSettings
from scar_ps.core.actions import (
    AnnounceEpoch,
    CheckStore,
    EndService,
    JoinCluster,
    ReportAbandonedRound,
    StartLoad,
)
from scar_ps.core.shard import Shard
from scar_ps.epoch_sync import EpochSync
from scar_ps.loader import Loader
from scar_ps.membership_thread import MembershipThread
from scar_ps.replica_sender import ReplicaSender
from scar_ps.round_runner import RoundRunner
from scar_ps.servicer import CONTROL_SERVICE, DATA_SERVICE, ControlServicer, DataServicer
from scar_ps.wire.push_decoder import PushStaging
from scar_ps.wire.shared_memory_pool import SharedMemoryPool
from scar_runtime.process.app import App, Service
from scar_runtime.process.server import make_direct_server
from scar_runtime.store import await_store
from scar_runtime.store.signatures import read_key

_log = logging.getLogger(__name__)

STORE_SECONDS = 60.0  # to wait at start for a store that cannot be opened


class ShardService:
    """One shard process."""

    def __init__(self, app: App, settings: PsSettings) -> None:
        store = await_store(settings.store, STORE_SECONDS, app.stopping, read_key(settings.store_key))
        self._app = app
        self._settings = settings
        self._stopped = Event()  # after the drain: ends the apply thread
        self._shard = Shard(app.member, app.liveness.record_progress, Lock)
        self.state = self._shard.state
        self._loader = Loader(self.state, store, settings.load_threads, app.fail)
        self._apply_thread = ApplyThread(self._shard.handle, app.liveness, app.fail)
        self._epochs = EpochSync(self.state, self._apply_thread, store)
        self._rounds = RoundRunner(self.state, self._apply_thread, store)
        self._staging = PushStaging(settings.staged_bytes, lambda: self.state.bsp_buffer.bytes)
        self._sender = ReplicaSender(self.state, self._apply_thread)
        self._shared = SharedMemoryPool(settings.shared_memory)
        self.direct = make_direct_server(
            app.requests, settings.direct_calls, settings.listen, settings.direct_port
        )
        self._membership = MembershipThread(
            self.state, settings.recovery, app.secret, self._apply_thread, self._epochs, self._shared
        )
        self._apply_thread.carry_out = self._carry_out()
        metrics.CHECKPOINT_AGE.set_function(lambda: self._shard.saved_age(time.monotonic()))
        metrics.BLOCKS.set_function(lambda: sum(len(store) for store in self.state.view.tables.values()))
        metrics.CLOCK.set_function(lambda: self.state.clock)
        metrics.LOSS.set_function(lambda: _value(self.state.barrier.last_loss))
        metrics.LOSS_CLOCK.set_function(lambda: _clock(self.state.barrier.last_loss))

    def _carry_out(self) -> CarryOut:
        return {
            StartLoad: lambda action: self._loader.start_load(action, self._apply_thread),
            AnnounceEpoch: self._announce_epoch,
            EndService: self._end_service,
            JoinCluster: self._membership.request,
            CheckStore: self._membership.request,
            ReportAbandonedRound: _log_abandoned,
        }

    def register(self, server: grpc.Server) -> None:
        data = DataServicer(self.state, self._apply_thread, self._staging, self._shared)
        control = ControlServicer(
            self.state, self._apply_thread, self._epochs, self._rounds, self._shared, self.direct.offer_port
        )
        for one in (server, self.direct):
            data.register(one)
            ps_pb2_grpc.add_ShardControlServicer_to_server(control, one)

    def start(self) -> None:
        self._app.spawn("apply", partial(self._apply_thread.run, self._stopped))
        self._app.spawn("membership", partial(self._membership.run, self._stopped))
        self._app.spawn("shipper", partial(self._sender.run, self._stopped))

    def ready(self) -> bool:
        """All blocks of the newest epoch are there."""
        view = self.state.view
        return view.epoch > 0 and not any(
            store.blocked and (store.loading > 0).any() for store in view.tables.values()
        )

    def settled(self) -> bool:
        """Ready, or known to the recovery coordinator before there is a job."""
        return self.ready() or (self._membership.is_idle and self.state.view.epoch == 0)

    def stop(self) -> None:
        """Hand the blocks over while still serving, then end."""
        if self.state.view.epoch and not self.state.dismissed:
            self._membership.leave(time.monotonic() + self._settings.leave_seconds)
        self._loader.close()
        self._stopped.set()
        self._membership.close()

    # --- what the shard wants done
    # ----------------------------------------------------------------------------------

    def _announce_epoch(self, action: AnnounceEpoch) -> None:
        self._app.liveness.epoch = action.number
        if action.cause:
            about = {"cause": action.cause, "blocks": action.blocks, "loading": action.loading}
            _log.info("epoch.adopted", extra=about)

    def _end_service(self, action: EndService) -> None:
        if not self._app.stopping.is_set():  # one that leaves on request is dismissed as a matter of course
            self._app.fail(Fenced(action.reason))


def _value(point: LossPoint | None) -> float:
    return math.nan if point is None else point.loss


def _clock(point: LossPoint | None) -> float:
    return -1 if point is None else point.clock


def _log_abandoned(action: ReportAbandonedRound) -> None:
    _log.warning("round.let_go", extra={"round": action.number, "seconds": action.seconds})


def build(app: App) -> Service:
    """The service of this process. ``app.settings`` are :class:`PsSettings`."""
    if not isinstance(app.settings, PsSettings):
        raise TypeError("a shard needs PsSettings")
    service = ShardService(app, app.settings)
    names = (DATA_SERVICE, CONTROL_SERVICE)
    return Service(
        service.register,
        names,
        service.start,
        service.stop,
        service.ready,
        settled=service.settled,
        stories=lambda: [StorySource("shard", service.state.story, time.monotonic)],
        direct=service.direct,
    )
