"""Wiring of the failure detector."""

from __future__ import annotations

import grpc
from pydantic import Field

from scar.errors import ConfigError
from scar.v1 import detector_pb2, detector_pb2_grpc
from scar.wire.timing import TIMING
from scar_detector.core.policy import DetectorPolicy
from scar_detector.monitor import Monitor
from scar_detector.reporter import DeathReporter
from scar_detector.servicer import DetectorServicer
from scar_runtime.process.app import App, Service
from scar_runtime.process.claims import ClaimCheck
from scar_runtime.process.config import RedisSettings, variable

NAME = detector_pb2.DESCRIPTOR.services_by_name["Detector"].full_name


class DetectorSettings(RedisSettings):
    """What the detector can be told beyond the standard settings."""

    phi_threshold: float = Field(
        DetectorPolicy.threshold,
        ge=1,
        le=100,
        description="Suspicion at which a silent member is probed; 8 errs once in 10^8",
    )
    phi_floor: float = Field(
        TIMING.deviation,
        ge=0.001,
        le=10,
        description=(
            "Least deviation of heartbeat intervals in seconds; suspicion comes after"
            f" {TIMING.heartbeat:g} + 5.6 times this"
        ),
    )
    patience_seconds: float = Field(
        TIMING.patience,
        ge=0.5,
        le=600,
        description="Silence in seconds that is suspicious even while intervals are unknown",
    )


def _policy(settings: DetectorSettings) -> DetectorPolicy:
    return DetectorPolicy(
        threshold=settings.phi_threshold,
        floor=settings.phi_floor,
        patience=settings.patience_seconds,
        remember=TIMING.remember(settings.lease_seconds),
    )


def build(app: App) -> Service:
    settings = app.settings
    assert isinstance(settings, DetectorSettings)
    if not settings.recovery:
        raise ConfigError(
            f"{variable('recovery')} is empty", "Set it to the host:port of the recovery coordinator"
        )
    policy = _policy(settings)
    claims = ClaimCheck(any_address=settings.peer_addresses == "any")
    reporter = DeathReporter(settings.recovery)
    monitor = Monitor(app.member.key, app.heartbeats, reporter, policy, app.spawn)

    def register(server: grpc.Server) -> None:
        detector_pb2_grpc.add_DetectorServicer_to_server(DetectorServicer(monitor, claims), server)

    def start() -> None:
        app.spawn("read", lambda: monitor.read_heartbeats(app.stopping))
        app.spawn("decide", lambda: monitor.run(app.stopping, app.liveness.record_progress))

    return Service(
        register,
        (NAME,),
        start,
        monitor.close,
        monitor.has_read.is_set,
        stories=lambda: [monitor.story()],
    )
