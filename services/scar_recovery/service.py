"""Wiring: who leads, and the threads that do.

A Redis lease keeps two coordinators from doing the same work; without Redis everybody acts, and the store decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from scar.errors import StoreUnavailable
from scar.placement import Member
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar_recovery.config import RecoverySettings
from scar_recovery.lookout import Lookout
from scar_recovery.planner import RETRY, Settings
from scar_recovery.servicer import RecoveryServicer
from scar_recovery.term import Term
from scar_runtime.app import App, Service
from scar_runtime.candidate import Candidate
from scar_runtime.store import open_store

ROLE = "recovery"
SERVICE = recovery_pb2.DESCRIPTOR.services_by_name["Recovery"].full_name


class Leadership:
    """Standby or leader. ``term`` is None on standby; ``goes``: see :class:`Term`."""

    def __init__(self, app: App, settings: RecoverySettings, goes: Callable[[Member], bool] = lambda _member: False) -> None:
        self._app, self._settings, self._goes = app, settings, goes
        self._store = open_store(settings.store)
        self._ttl = settings.leader_seconds
        self._replaced = threading.Event()  # somebody else holds the lease
        self._candidate = Candidate(app.beats, ROLE, app.incarnation, settings.leader_seconds)
        self.term: Term | None = None
        self.safe = False  # the store was found safe

    @property
    def ready(self) -> bool:
        return self.term is not None and self.term.opened

    def run(self) -> None:
        """Stand by, lead, stand by again, until the process stops. Raises :class:`scar.errors.UnsafeStore`."""
        self._check_store()
        while not self._app.stopping.is_set():
            self._app.heart.beat()
            if self._candidate.ask():
                self._lead()
            self._app.stopping.wait(RETRY / 2)

    def _check_store(self) -> None:
        while not self._app.stopping.is_set():
            self._app.heart.beat()
            try:
                self._store.probe()
                self.safe = True
                return
            except StoreUnavailable as error:
                self._app.log.warning("store.unavailable", extra={"reason": str(error)})
                self._app.stopping.wait(RETRY)

    def _lead(self) -> None:
        app, told = self._app, self._settings
        settings = Settings(told.lease_seconds, told.rebalance, told.move_bytes, told.flush_seconds)
        self._replaced.clear()
        self.term = Term(app, settings, self._store, self._goes)
        app.log.info("leadership.taken")
        rival = self.term.run(lambda: app.stopping.is_set() or self._replaced.is_set())
        self.term = None
        if rival:
            self._candidate.stand_back()
        app.log.info("leadership.ended", extra={"rival": rival or "none"})

    def keep_lease(self) -> None:
        """Renew the lease while leading; notice when it has gone to somebody else."""
        while not self._app.stopping.wait(self._ttl / 4):
            if self.term is not None and not self._candidate.ask():
                self._replaced.set()


def build(app: App) -> Service:
    settings = app.settings
    assert isinstance(settings, RecoverySettings)
    lookout = Lookout(settings, lambda: leadership.term)
    leadership = Leadership(app, settings, lookout.goes)

    def start() -> None:
        lookout.start(app)
        app.spawn("leadership", leadership.run)
        app.spawn("lease", leadership.keep_lease)

    return Service(
        register=lambda server: recovery_pb2_grpc.add_RecoveryServicer_to_server(
            RecoveryServicer(lambda: leadership.term), server
        ),
        service_names=(SERVICE,),
        start=start,
        stop=lambda: None,
        ready=lambda: leadership.term is not None,
        settled=lambda: leadership.safe,
    )
