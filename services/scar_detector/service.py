"""Wiring of the failure detector."""

from __future__ import annotations

import grpc
from pydantic import Field

from scar.errors import ConfigError
from scar.v1 import detector_pb2, detector_pb2_grpc
from scar_detector.detector import Policy
from scar_detector.monitor import Monitor
from scar_detector.reporter import Reporter
from scar_detector.servicer import DetectorServicer
from scar_runtime.app import App, Service
from scar_runtime.config import ServiceSettings, variable

NAME = detector_pb2.DESCRIPTOR.services_by_name["Detector"].full_name


class DetectorSettings(ServiceSettings):
    """What the detector can be told beyond the standard settings."""

    phi_threshold: float = Field(
        8.0, ge=1, le=100, description="Suspicion at which a silent member is probed; 8 errs once in 10^8"
    )
    phi_floor: float = Field(
        0.05,
        ge=0.001,
        le=10,
        description="Least deviation of heartbeat intervals in seconds; suspicion comes after 0.1 + 5.6 times this",
    )
    patience_seconds: float = Field(
        1.5, ge=0.5, le=600, description="Silence in seconds that is suspicious even while intervals are unknown"
    )


def build(app: App) -> Service:
    settings = app.settings
    assert isinstance(settings, DetectorSettings)
    if not settings.recovery:
        raise ConfigError(f"{variable('recovery')} is empty", "Set it to the host:port of the recovery coordinator")
    policy = Policy(
        threshold=settings.phi_threshold,
        floor=settings.phi_floor,
        patience=settings.patience_seconds,
        remember=max(5.0, 2 * settings.lease_seconds),
    )
    reporter = Reporter(settings.recovery, app.stopping)
    monitor = Monitor(app.member.key, app.beats, reporter, policy, app.spawn)

    def register(server: grpc.Server) -> None:
        detector_pb2_grpc.add_DetectorServicer_to_server(DetectorServicer(monitor), server)

    def start() -> None:
        app.spawn("read", lambda: monitor.read(app.stopping))
        app.spawn("decide", lambda: monitor.decide(app.stopping, app.heart.beat))

    return Service(register, (NAME,), start, monitor.close, monitor.looked.is_set)
