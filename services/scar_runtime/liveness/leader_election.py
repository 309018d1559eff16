"""Who leads among the processes of one coordinator: stand by, lead, stand by again, until the process stops.

A lease in Redis keeps two of them from doing the same work; without Redis everybody acts, and the store
decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from scar.errors import ConfigError, ScarError, UnsafeStore
from scar.wire.timing import TIMING
from scar_runtime.liveness.leader_lease import LeaderLease
from scar_runtime.process.app import App
from scar_runtime.store import Store, open_store
from scar_runtime.store.base import scratch_key
from scar_runtime.store.signatures import read_key

PAUSE = TIMING.look_every  # seconds between attempts to lead
OBSTACLE_PAUSE = 1.0  # seconds between two looks for what keeps this process from leading
STORE_PAUSE = 0.2  # seconds between attempts to reach the store

LeaderSession = TypeVar("LeaderSession")
IsStopping = Callable[[], bool]


class LeaderElection(Generic[LeaderSession]):
    """One process of a coordinator: it stands by, leads, and stands by again until the process stops.

    ``open_session`` makes a session over the checked store, or None when there is nothing to lead yet; it may
    say why in ``problem``. ``run_session`` leads until ``IsStopping`` says so or the session is over, and
    returns the incarnation of the rival who ended it, or "". ``find_obstacle``: why this process may not lead
    as things are, in words, or ""; it is asked until there is none.

    ``session``: None on standby. ``can_lead``: the store was found safe, and there is no obstacle.
    ``problem``: why there is no session, in words.
    """

    def __init__(
        self,
        app: App,
        role: str,
        ttl: float,
        open_session: Callable[[Store], LeaderSession | None],
        run_session: Callable[[LeaderSession, IsStopping], str],
        find_obstacle: Callable[[], str] = lambda: "",
    ) -> None:
        self._app = app
        self._role = role
        self._ttl = ttl
        self._open_session = open_session
        self._run_session = run_session
        self._find_obstacle = find_obstacle
        self._lease = LeaderLease(app.heartbeats, role, app.incarnation, ttl)
        self._replaced = threading.Event()  # somebody else holds the lease
        self.session: LeaderSession | None = None
        self.can_lead = False
        self.problem = "it starts"

    def start(self) -> None:
        self._app.spawn("leadership", self.run)
        self._app.spawn("lease", self.renew_lease)

    @property
    def holds_lease(self) -> bool:
        """Calls should come here: it can tell what it waits for, if it waits."""
        return self._lease.is_held

    def run(self) -> None:
        """Lead whenever the lease is ours.

        Raises :class:`scar.errors.UnsafeStore`, and :class:`scar.errors.ConfigError` for an invalid store.
        """
        store = self._check_store()
        self._await_no_obstacle()
        self.can_lead = store is not None
        while store is not None and not self._app.stopping.is_set():
            self._app.liveness.record_progress()
            session = self._open_session(store) if self._try_lease() else None
            if session is not None:
                self._lead_session(session)
            self._app.stopping.wait(PAUSE)

    def renew_lease(self) -> None:
        """Renew the lease while leading; notice when it has gone to somebody else."""
        while not self._app.stopping.wait(self._ttl / 4):
            if self.session is not None and not self._try_lease():
                self._replaced.set()

    def _check_store(self) -> Store | None:
        """Open the store, and wait while it is away or full. One that is unsafe stays so. None: the process
        stops.
        """
        left_behind = ""
        while not self._app.stopping.is_set():
            self._app.liveness.record_progress()
            try:
                store = open_store(self._app.settings.store, read_key(self._app.settings.store_key))
                if left_behind:  # else a store that lets nobody delete would get another one each time
                    store.delete(left_behind)
                left_behind = scratch_key()
                store.probe(left_behind)
            except (UnsafeStore, ConfigError):
                raise
            except ScarError as error:
                self.problem = str(error)
                self._app.log.warning("store.unavailable", extra={"reason": str(error)})
                self._app.stopping.wait(STORE_PAUSE)
                continue
            return store
        return None

    def _await_no_obstacle(self) -> None:
        while not self._app.stopping.is_set():
            self._app.liveness.record_progress()
            obstacle = self._find_obstacle()
            if not obstacle:
                return
            if obstacle != self.problem:
                self._app.log.warning("leadership.obstacle", extra={"reason": obstacle})
            self.problem = obstacle
            self._app.stopping.wait(OBSTACLE_PAUSE)

    def _try_lease(self) -> bool:
        leads = self._lease.try_acquire()
        self.problem = "" if leads else f"another {self._role} coordinator leads"
        return leads

    def _lead_session(self, session: LeaderSession) -> None:
        self._replaced.clear()
        self.session = session
        self._app.log.info("leadership.taken")
        rival = self._run_session(session, lambda: self._app.stopping.is_set() or self._replaced.is_set())
        self.session = None
        if rival:
            self._lease.step_back()
        self._app.log.info("leadership.ended", extra={"rival": rival or "none"})
