"""Nobody speaks for a member of another role than his certificate's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from scar.errors import NotServing, PermissionDenied
from scar.placement import Member, Role
from scar.v1 import detector_pb2, recovery_pb2, types_pb2
from scar.wire import codec
from scar.wire.certificates import ROLES
from scar.wire.credentials import SUBJECT_NAMES
from scar_detector.servicer import DetectorServicer
from scar_recovery.servicer import RecoveryServicer
from scar_runtime.process.claims import ClaimCheck


class StandbyMonitor:
    """Takes no heartbeat."""

    def accept_beat(self, *_beat: object) -> None:
        raise NotServing("standby")


class CertifiedCall:
    """A call's context: who calls, by certificate; "": without TLS."""

    def __init__(self, role: str) -> None:
        self.role = role

    def auth_context(self) -> dict[str, list[bytes]]:
        return {SUBJECT_NAMES: [f"{self.role}.one.scar".encode()]} if self.role else {}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


RECOVERY = RecoveryServicer(lambda: None, ClaimCheck())  # on standby: whoever is believed is turned away
DETECTOR = DetectorServicer(StandbyMonitor(), ClaimCheck())  # type: ignore[arg-type]
SPEAKING: dict[str, Callable[[types_pb2.Member, Any], object]] = {
    "Join": lambda who, call: RECOVERY.Join(recovery_pb2.JoinRequest(member=who), call),
    "Leave": lambda who, call: RECOVERY.Leave(recovery_pb2.LeaveRequest(member=who), call),
    "Renew": lambda who, call: RECOVERY.Renew(recovery_pb2.RenewRequest(member=who), call),
    "ReportReroute": lambda who, call: RECOVERY.ReportReroute(recovery_pb2.RerouteReport(worker=who), call),
    "Beat": lambda who, call: DETECTOR.Beat(detector_pb2.BeatRequest(member=who), call),
}


@pytest.mark.parametrize(("method", "role", "certificate"), [*product(SPEAKING, Role, [*ROLES, ""])])
def test_a_member_is_of_its_callers_role(method: str, role: Role, certificate: str) -> None:
    member = codec.member_to_proto(Member(role, "some-0", "a" * 12, "127.0.0.1:7070"))
    believed = certificate in ("", role.label)
    with pytest.raises(NotServing if believed else PermissionDenied) as refused:
        SPEAKING[method](member, CertifiedCall(certificate))
    if not believed:
        assert f"the role {certificate} may not speak for some-0" in refused.value.message
