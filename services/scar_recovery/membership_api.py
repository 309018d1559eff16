"""What members, the detector and Kubernetes tell the leader about who is there."""

from __future__ import annotations

import logging
from dataclasses import replace

from scar.errors import LivenessUnavailable, PermissionDenied, ProtocolMismatch, ScarError
from scar.member_secrets import SECRET_BYTES, check_secret, hash_secret
from scar.placement import Member
from scar.version import OLDEST_PROTOCOL, PROTOCOL
from scar_recovery.core.events import FailureReport, MemberFailed, MemberLeft
from scar_recovery.core.membership import COORDINATORS
from scar_recovery.core.pod_evidence import PodFinding
from scar_recovery.leader_state import LeaderState
from scar_recovery.shard_client import GrpcShardClient
from scar_runtime.liveness.heartbeat_store import HeartbeatStore

_log = logging.getLogger(__name__)


def check_protocol(member: Member, protocol: int) -> None:
    """Whoever speaks another protocol gets no part in the job: it would misread epochs, or be misread."""
    if OLDEST_PROTOCOL <= protocol <= PROTOCOL:
        return
    if protocol > PROTOCOL:
        next_step = "Upgrade the recovery coordinator; the member asks again until then"
    else:
        next_step = f"Upgrade {member.name} to the version of the coordinators"
    raise ProtocolMismatch(
        f"{member.key} speaks protocol {protocol}, this recovery coordinator {OLDEST_PROTOCOL} to {PROTOCOL}",
        next_step,
    )


class MembershipApi:
    """``shards``: to ask whether somebody is really dead, or wants to be taken in."""

    def __init__(self, state: LeaderState, shards: GrpcShardClient) -> None:
        self._state = state
        self._shards = shards

    def join(self, member: Member, secret: bytes, protocol: int) -> int:
        """Number of the newest epoch; 0: none. The first secret of an incarnation is the one that counts.

        Raises :class:`scar.errors.Fenced`, :class:`PermissionDenied`, :class:`ProtocolMismatch`.
        """
        check_protocol(member, protocol)
        if len(secret) != SECRET_BYTES:
            raise PermissionDenied(
                f"{member.key} joins without a secret of {SECRET_BYTES} bytes",
                "Its version is too old for this recovery coordinator: upgrade it",
            )
        self.check_secret(member, secret)
        return self._state.admit_member(replace(member, secret_hash=hash_secret(secret)))

    def check_secret(self, member: Member, secret: bytes) -> None:
        """Raises :class:`PermissionDenied` when this is not who joined as that member."""
        check_secret(member, self._state.secret_hash(member), secret)

    def leave(self, member: Member, finished: bool) -> tuple[int, int]:
        """(newest epoch, blocks that the member still owns in it; for a worker 1 while it is part of it)."""
        self._state.post(MemberLeft(member, finished))
        return self._state.remaining_share(member)

    def report_failure(self, report: FailureReport) -> int:
        """Number of the newest epoch."""
        self._state.post(MemberFailed(report))
        return self._state.epoch_number

    def report_pod(self, finding: PodFinding) -> bool:
        """Kubernetes says that this member may be dead. Whether it is; then it is repaired as if proved.

        A refused connection alone proves nothing, since a network policy may reject; that its pod is gone is
        the other witness.
        """
        member = finding.member
        if member.role in COORDINATORS or self._shards.read_incarnation(member) == member.incarnation:
            return False
        if not finding.proof and not self._shards.refuses_connection(member):
            return False
        evidence = f"Kubernetes: {finding.evidence}"
        self.report_failure(FailureReport(member, proved=True, detect_seconds=finding.age, evidence=evidence))
        return True

    def review_shards(self) -> None:
        """Ask again which shards have to go."""
        self._state.review_shards()

    def all_members(self) -> list[Member]:
        return self._state.all_members()

    def recall_from_heartbeats(self, heartbeats: HeartbeatStore) -> None:
        """Take in members that announced themselves to a former leader and are in no epoch; but none that
        it has refused, and that sends heartbeats all the same.
        """
        try:
            beating = [beat.member for beat in heartbeats.read_heartbeats().values()]
        except LivenessUnavailable:
            return
        known = {member.key for member in self._state.all_members()}
        for member in beating:
            if member.key not in known:
                self._recall_member(member)

    def _recall_member(self, member: Member) -> None:
        try:
            if member.role not in COORDINATORS:
                protocol = self._shards.candidate_protocol(member)
                if protocol is None:
                    return
                check_protocol(member, protocol)
            self._state.admit_member(member)
        except ScarError as error:
            _log.info("member.not_recalled", extra={"key": member.key, "reason": error.message})
