"""Wiring: the session of a recovery coordinator that leads, and what watches Kubernetes for it."""

from __future__ import annotations

from collections.abc import Callable

from scar.event_log import StorySource
from scar.placement import Member
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar_recovery.config import RecoverySettings
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.leader_session import RecoverySession
from scar_recovery.older_members import OlderMembers
from scar_recovery.pod_monitor import PodMonitor
from scar_recovery.servicer import RecoveryServicer
from scar_runtime.liveness.leader_election import LeaderElection
from scar_runtime.process.app import App, Service
from scar_runtime.process.claims import ClaimCheck
from scar_runtime.store import Store

ROLE = "recovery"
SERVICE = recovery_pb2.DESCRIPTOR.services_by_name["Recovery"].full_name


def make_election(
    app: App, must_leave: Callable[[Member], bool] = lambda _member: False
) -> LeaderElection[RecoverySession]:
    """``must_leave``: see :class:`RecoverySession`."""
    configured = app.settings
    assert isinstance(configured, RecoverySettings)
    settings = PlannerSettings(
        lease=configured.lease_seconds,
        rebalance=configured.rebalance,
        move_bytes=configured.move_bytes,
        traffic_seconds=configured.traffic_seconds,
        traffic_bytes=configured.traffic_bytes,
        flush=configured.flush_seconds,
        flush_bytes=configured.flush_bytes,
        offers=configured.offer_seconds,
    )

    def begin(store: Store) -> RecoverySession:
        return RecoverySession(app, settings, store, must_leave)

    older = OlderMembers(app.heartbeats)
    seconds = configured.leader_seconds
    return LeaderElection(app, ROLE, seconds, begin, RecoverySession.run, older.find_obstacle)


def build(app: App) -> Service:
    assert isinstance(app.settings, RecoverySettings)
    pods = PodMonitor(app.settings, lambda: election.session)
    election = make_election(app, pods.must_leave)
    claims = ClaimCheck(any_address=app.settings.peer_addresses == "any")
    servicer = RecoveryServicer(lambda: election.session, claims)

    def start() -> None:
        pods.start(app)
        election.start()

    def stories() -> list[StorySource]:
        session = election.session
        return [session.story()] if session is not None else []

    return Service(
        register=lambda server: recovery_pb2_grpc.add_RecoveryServicer_to_server(servicer, server),
        service_names=(SERVICE,),
        start=start,
        stop=lambda: None,
        stories=stories,
        ready=lambda: election.holds_lease,
        settled=lambda: election.can_lead,
    )
