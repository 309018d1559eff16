"""More workers than calls may wait at a shard."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from scar.errors import Busy
from scar.placement import Member
from scar.v1 import ps_pb2
from scar.wire.transport import Deadline, retry
from tests.component.ps_scene import SECONDS, WORKER, Running, declared, first


def test_more_workers_than_may_wait_train_on(tmp_path: Path, monkeypatch):
    """Those who are refused try again, and find the clock closed or room among those who wait for it."""
    monkeypatch.setattr("scar_ps.core.shard.MAX_PARKED", 2)
    spec, clocks, refused = declared("bsp"), 5, list[Busy]()
    crew = [Member(WORKER.role, f"worker-{rank}", f"{rank:012x}") for rank in range(8)]
    shard = Running(0, f"file://{tmp_path}")
    shard.adopt(replace(first(spec, [shard]), workers=tuple(crew)), spec)

    def pulled(clock: int, timeout: float) -> None:
        try:
            shard.pull("w", clock=clock, timeout=timeout)
        except Busy as error:
            refused.append(error)
            raise

    def work(member: Member) -> None:
        while member == crew[-1] and not refused:
            shard.process.stopping.wait(0.01)  # the slowest: all others wait for its first clock
        for clock in range(clocks):
            retry(partial(pulled, clock), Deadline(SECONDS), f"clock {clock}")
            key = {"worker": member.name, "incarnation": member.incarnation}
            shard.call(shard.control.Clock, ps_pb2.ClockRequest(**key, epoch=1, finished=clock + 1))

    threads = [threading.Thread(target=work, args=(member,)) for member in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * SECONDS)
    assert shard.status().clock == clocks
    shard.stop()
