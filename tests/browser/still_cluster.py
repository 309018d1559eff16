"""A cluster that is made up and stays as it is: its second failure is open. What its page is opened by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from playwright.sync_api import Browser, Page, expect

from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Job, Table
from scar.v1 import checkpoint_pb2, ps_pb2, recovery_pb2, worker_pb2
from scar.wire.codec import job_to_proto
from scar.wire.epoch_messages import epoch_to_proto
from scar_admin.log_text import LogText
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_runtime.store import Store, open_store
from tests.unit.test_console_page import SPLIT, STATUS, process, record, shard
from tests.unit.test_running import save

TIMEOUT = 60.0
HEALED = record(
    1,
    epoch=3,
    suspect_seconds=0.25,
    detect_seconds=0.5,
    wait_seconds=1.0,
    load_seconds=0.25,
    settle_seconds=0.125,
    return_seconds=8.5,
    delta_norm=0.75,
)
HOSTILE = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
LONG = "a-long-name-that-nobody-would-choose-but-a-program-might-well"


SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", "a" * 12) for number in range(2))
WORKER = Member(Role.WORKER, "worker-0", "a" * 12)
ROUND = checkpoint_pb2.RoundReport(
    round=9,
    manifest=12,
    clock=39,
    blocks_total=10,
    blocks_saved=4,
    bytes=77,
    select_seconds=0.25,
    copy_seconds=2.0,
    stall_seconds=0.5,
    commit_seconds=0.75,
    missed=["ps-1"],
)


class StillLogs:
    """One line more at each look, after these."""

    def __init__(self) -> None:
        self._said = [
            written("ps-0", "info", "shard.adopted", blocks=12),
            written("ps-0", "warning", "redis.unavailable"),
            written("recovery-0", "error", "service.failed", reason=HOSTILE),
            LogText("worker-0", HOSTILE),
            written("ps-10", "debug", "shard.asked"),
        ]

    def read(self) -> list[LogText]:
        said, self._said = self._said, [LogText("worker-0", "again")]
        return said


def written(name: str, level: str, event: str, **fields: object) -> LogText:
    """As a service writes it."""
    record = {
        "time": "2026-11-23T16:00:00.000+00:00",
        "level": level,
        "event": event,
        "member": name,
        **fields,
    }
    return LogText(name, json.dumps(record))


def busy_shard(name: str, blocks: int) -> ps_pb2.ShardStatus:
    """One that says what it sends and receives."""
    found = shard(name, blocks)
    found.traffic.CopyFrom(ps_pb2.Traffic(seconds=2.0, bytes=3 << 20))
    return found


class StillCluster:
    """Always the same. Its second failure is open."""

    can_break = ("kill", "freeze", "cut")
    cannot_break = ()

    def __init__(self, folder: Path) -> None:
        self.broken: list[tuple[str, str]] = []
        job = Job(LONG, tables=[Table("w", 10)])
        owners = np.array([0, 0, 0, *[1] * 7], np.uint16)
        self._epoch = Epoch(
            number=3, author="me", job=LONG, shards=SHARDS, workers=(WORKER,), owners={"w": owners}
        )
        self.status = replace(
            STATUS,
            job=job_to_proto(job),
            epoch=epoch_to_proto(self._epoch),
            shards={"ps-0": busy_shard("ps-0", 3), "ps-1": shard("ps-1", 7, clock=42)},
            workers={
                "worker-0": worker_pb2.WorkerStatus(
                    state="training", clock=41, seconds_per_clock=0.0125, waited=0.25, per_clock=SPLIT
                )
            },
            checkpoint=checkpoint_pb2.CheckpointStatus(
                leader=True, manifest=12, age=0.4, clock=39, bytes=99, objects=5, recent=[ROUND]
            ),
            recovery=recovery_pb2.RecoveryStatus(leader=True, epoch=3, store="file:///there"),
            failures=(HEALED, record(2)),
            losses={clock: 1 / (1 + clock) for clock in range(40)},
            metrics={clock: {"accuracy": clock / 40} for clock in range(0, 40, 5)},
        )
        self._url = f"file://{folder}"
        save(self.store().under(LONG), 1, {"w": [0, 1, 2]}, job=job)

    def move_blocks(self, sources: Mapping[BlockSource, Sequence[int]]) -> None:
        """With an epoch of its own, by where each comes from."""
        moved = tuple(
            BlockGroup(table="w", ids=np.array(ids, np.uint32), clock=30, watermark={}, source=source)
            for source, ids in sources.items()
        )
        epoch = replace(self._epoch, number=4, moved=moved)
        self.status = replace(self.status, epoch=epoch_to_proto(epoch))

    def observer(self) -> ClusterObserver:
        return cast(ClusterObserver, self)

    def __enter__(self) -> StillCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, since_clock: int = 0) -> ClusterStatus:
        return self.status

    def processes(self) -> tuple[ProcessInfo, ...]:
        return (process("ps-0"), process("ps-1", "killed"), process("worker-0"), process("recovery-0"))

    def ended(self) -> bool:
        return False

    def store(self) -> Store:
        return open_store(self._url)

    def logs(self) -> StillLogs:
        return StillLogs()

    def break_member(self, how: str, name: str) -> str:
        self.broken.append((how, name))
        return f"{name} done"


def opened(browser: Browser, url: str, scheme: str = "light", width: int = 1280) -> Page:
    page = browser.new_page(color_scheme=cast(Any, scheme), viewport={"width": width, "height": 800})
    page.set_default_timeout(1000 * TIMEOUT)
    page.goto(url)
    expect(page.locator(".flag")).to_have_count(2)
    return page
