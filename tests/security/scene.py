"""A cluster with TLS that trains, and those who attack it, by the certificates that they have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from scar.jobfile import load_job
from scar.placement import Member, Role
from scar.v1 import recovery_pb2
from scar.wire.certificates import TlsFiles
from scar.wire.codec import member_from_proto
from scar_local import LocalCluster
from scar_local.authority import CertificateAuthority, create_authority, renew_certificates, role_files
from tests.framework.cluster import assert_nothing_left

CLUSTER = "local"  # as its certificates call it
SECONDS = 60.0  # for what takes milliseconds on an idle machine
PATIENT = {"SCAR_LEASE_SECONDS": "30", "SCAR_METRICS_PORT": "-1"}  # a busy machine is nobody's death

TRAINING = """
import time
import numpy as np
import scar

job = scar.Job(
    "victim",
    tables=[
        scar.Table("w", (40, 4), rule=scar.add()),
        scar.Table("secret", (4, 8), rule=scar.add(), init=scar.constant(7.5)),
    ],
    shards=2,
    workers=2,
)


def train(worker):
    for _ in worker.clocks(limit=1_000_000):
        worker.pull("w")
        worker.push("w", np.ones((40, 4), np.float32))
        time.sleep(0.02)
"""


@dataclass(frozen=True)
class Intruder:
    """``files``: the certificate that it shows; None: none. ``encrypted``: it speaks TLS at all."""

    name: str
    authority: Path
    files: TlsFiles | None = None
    encrypted: bool = True

    def open(self, address: str, role: str) -> grpc.Channel:
        """A connection to a server of this role, whose name it knows."""
        if not self.encrypted:
            return grpc.insecure_channel(address)
        shown = (self.files.key.read_bytes(), self.files.cert.read_bytes()) if self.files else (None, None)
        credentials = grpc.ssl_channel_credentials(self.authority.read_bytes(), *shown)
        override = [("grpc.ssl_target_name_override", f"{role}.{CLUSTER}.scar")]
        return grpc.secure_channel(address, credentials, override)


class Victim:
    """The cluster under attack. ``members``: shards and workers by name."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.members = self._read_members()
        self._processes = self._read_processes()

    def addresses(self) -> dict[str, str]:
        """Of one server of each role."""
        members = self.members
        return {
            "recovery": self.cluster.address("recovery-0"),
            "detector": self.cluster.address("detector-0"),
            "checkpoint": self.cluster.address("checkpoint-0"),
            "shard": members["ps-0"].address,
            "worker": members["worker-0"].address,
        }

    def assert_undisturbed(self) -> None:
        """Training goes on, nobody was declared dead or restarted, and everybody is who he was."""
        before = self.clock()
        self.cluster.until(lambda status: (status.clock or 0) >= before + 3, SECONDS, "the clock to go on")
        failures = self.cluster.endpoints.recovery.ListFailures(
            recovery_pb2.ListFailuresRequest(), timeout=SECONDS
        )
        assert list(failures.failures) == []
        assert self._read_processes() == self._processes
        assert self._read_members() == self.members

    def clock(self) -> int:
        return self.cluster.status().clock or 0

    def _read_processes(self) -> dict[str, tuple[int, int]]:
        return {process.name: (process.pid, process.restarts) for process in self.cluster.processes()}

    def _read_members(self) -> dict[str, Member]:
        status = self.cluster.endpoints.recovery.Status(recovery_pb2.RecoveryStatusRequest(), timeout=SECONDS)
        known = [member_from_proto(member) for member in status.members]
        return {member.name: member for member in known if member.role in (Role.SHARD, Role.WORKER)}


@contextmanager
def trained(folder: Path) -> Iterator[Victim]:
    """A cluster whose two workers train until the block ends."""
    script = folder / "training.py"
    script.write_text(TRAINING)
    cluster = LocalCluster(folder / "cluster", shards=2, environment=PATIENT, tls=True)
    cluster.start()
    try:
        cluster.start_job(load_job(str(script))[0])
        cluster.start_workers(script, 2)
        cluster.until(lambda status: (status.clock or 0) >= 3, SECONDS, "training")
        yield Victim(cluster)
    finally:
        cluster.stop(checkpoint=False)
        assert_nothing_left(folder)


def make_intruders(folder: Path, certificates: Path) -> dict[str, Intruder]:
    """Everybody who has not the certificate that a call needs; ``certificates``: of the cluster."""
    authority = certificates / "ca.crt"
    for name in ("theirs", "expired"):
        (folder / name).mkdir()
    create_authority(folder / "theirs", CLUSTER)
    for name in ("ca.crt", "ca.key"):
        (folder / "expired" / name).write_bytes((certificates / name).read_bytes())
    renew_certificates(folder / "expired", days=-1)
    found = [
        Intruder("plaintext", authority, encrypted=False),
        Intruder("anonymous", authority),
        Intruder("stranger", authority, role_files(folder / "theirs", "recovery")),
        Intruder("expired", authority, role_files(folder / "expired", "recovery")),
        Intruder("neighbour", authority, _neighbour(folder / "next", certificates)),
        Intruder("worker", authority, role_files(certificates, "worker")),
        Intruder("reader", authority, role_files(certificates, "reader")),
        Intruder("shard", authority, role_files(certificates, "shard")),
    ]
    return {intruder.name: intruder for intruder in found}


def _neighbour(folder: Path, certificates: Path) -> TlsFiles:
    """A certificate of the same authority for the recovery coordinator of another cluster."""
    folder.mkdir()
    ours = CertificateAuthority.load(certificates)
    CertificateAuthority("other", ours.certificate, ours.key).issue_roles(folder, 1)
    return role_files(folder, "recovery")


def resident_mib(pid: int) -> int:
    """Memory of a process."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) >> 10
