"""Who leads: two coordinators over one store, with a lease and without."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from scar.errors import LivenessUnavailable
from scar.placement import Member, Role
from scar.v1 import types_pb2
from scar_recovery.config import RecoverySettings
from scar_recovery.service import Leadership
from scar_runtime.liveness import Beat
from scar_runtime.records import get_record
from scar_runtime.store import open_store
from tests.component.recovery_scene import Process, wait_for
from tests.framework.recovery import make_job

SECONDS = 10.0


@dataclass
class Lease:
    """The lease of both coordinators. ``down``: Redis does not answer."""

    holder: str = ""
    down: bool = False

    def lead(self, role: str, incarnation: str, ttl: float) -> bool:
        self._check()
        self.holder = self.holder or incarnation
        return self.holder == incarnation

    def read(self) -> dict[str, Beat]:
        self._check()
        return {}

    def publish_epoch(self, number: int) -> None:
        self._check()

    def _check(self) -> None:
        if self.down:
            raise LivenessUnavailable("no Redis")


def coordinator(number: int, folder: Path, lease: Lease) -> tuple[Process, Leadership]:
    """Running in threads."""
    settings = RecoverySettings(name=f"recovery-{number}", store=f"file://{folder}", lease_seconds=0.5, leader_seconds=0.5)
    process = Process(Member(Role.RECOVERY, settings.name, f"{number:012x}", "host:1"), settings, lease)
    leadership = Leadership(process, settings)  # type: ignore[arg-type]
    for target in (leadership.run, leadership.keep_lease):
        threading.Thread(target=target, daemon=True).start()
    return process, leadership


def test_standby_takes_over_with_the_lease(tmp_path: Path) -> None:
    lease = Lease()
    first, one = coordinator(1, tmp_path, lease)
    wait_for(lambda: one.ready)
    second, two = coordinator(2, tmp_path, lease)
    time.sleep(0.3)
    assert two.term is None
    assert not two.ready
    lease.holder = second.incarnation  # the first was paused for too long
    wait_for(lambda: two.ready and one.term is None)
    lease.holder = first.incarnation
    wait_for(lambda: one.ready and two.term is None)
    first.stopping.set()
    second.stopping.set()


def test_without_redis_the_store_decides(tmp_path: Path) -> None:
    lease = Lease(down=True)
    first, one = coordinator(1, tmp_path, lease)
    second, two = coordinator(2, tmp_path, lease)
    wait_for(lambda: one.ready and two.ready)
    assert one.term is not None
    assert two.term is not None
    one.term.start_job(make_job(1), {}, resume=False)
    shards = [Member(Role.SHARD, "ps-0", f"{life:012x}", "127.0.0.1:1") for life in (7, 8)]
    one.term.join(shards[0])
    wait_for(lambda: one.term is not None and one.term.number == 1)
    two.term.start_job(make_job(1), {}, resume=True)  # takes over by an epoch of its own
    wait_for(lambda: two.term is not None and two.term.number == 2)
    former = one.term
    former.join(shards[1])  # wants to create epoch 2, too: it loses and steps down
    wait_for(lambda: one.term is not former)
    store = open_store(f"file://{tmp_path}").under("test")
    assert get_record(store, "epochs/00000002", types_pb2.Epoch).author == second.incarnation
    first.stopping.set()
    second.stopping.set()
