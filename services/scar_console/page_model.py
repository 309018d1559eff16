"""What the page shows of one look at a cluster, as JSON knows it. Pure.

Bounded whatever the size of the cluster: of members the unwell come first, of failures the newest stay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scar.v1.checkpoint_pb2 import CheckpointStatus, RoundReport
from scar.v1.recovery_pb2 import FailureRecord
from scar.v1.worker_pb2 import WorkerStatus
from scar_admin.iteration_costs import MeasuredCost
from scar_admin.status import DONE, HINDERED, ClusterStatus, ProcessInfo, health_word, traffic_rate
from scar_admin.stragglers import find_stragglers
from scar_admin.waits import Wait, waits

MAX_ROWS = 100  # shards, and workers
MAX_FAILURES = 100
MAX_ROUNDS = 10
MAX_WORDS = 20  # problems, and waits
WAIT_SECONDS = 1.0  # before which a wait is not worth a word: every clock waits for an instant
PHASES = ("suspect", "detect", "wait", "commit", "load", "settle", "return")
BREAKABLE = ("ps", "worker")  # components that the page may kill
WELL = ("alive", "running")

ProcessTable = Mapping[str, ProcessInfo]
Document = dict[str, Any]


@dataclass(frozen=True)
class SeenBefore:
    """What looks before tell: ``healed``: the clock at which each failure was first seen repaired, by its
    number; ``costs``: what each has cost, by its number; ``rates``: pushes a second by shard; ``oldest``:
    saved clock of the block of each shard that was saved the longest ago.
    """

    healed: Mapping[int, int] = field(default_factory=dict)
    costs: Mapping[int, MeasuredCost] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    oldest: Mapping[str, int] = field(default_factory=dict)


def page_model(status: ClusterStatus, processes: Sequence[ProcessInfo], before: SeenBefore) -> Document:
    """All but the curve and the block map."""
    known = {process.name: process for process in processes}
    found = waits(status)
    return {
        "job": _job_facts(status),
        "clock": status.clock,
        "loss": _finite(status.loss),
        "loss_clock": status.loss_clock,
        "loss_fraction": status.fraction,
        "epoch": status.number,
        "failure_count": len(status.failures),
        "failures": [failure_facts(record, before) for record in status.failures[-MAX_FAILURES:]],
        "shards": _bounded_rows(_shard_rows(status, known, before)),
        "workers": _bounded_rows(_worker_rows(status, known)),
        "services": _service_rows(status, known),
        "checkpoint": _checkpoint_facts(status),
        "store": status.store,
        "store_health": _store_facts(status),
        "redis": status.redis,
        "problems": list(status.problems[:MAX_WORDS]),
        "waits": [_wait_facts(wait) for wait in found if _is_worth_words(wait, status)][:MAX_WORDS],
    }


def is_repaired(record: FailureRecord) -> bool:
    """All blocks that it took are served again; or it took none."""
    return bool(record.epoch) and (record.load_seconds != 0 or not record.lost_blocks)


def failure_facts(record: FailureRecord, before: SeenBefore) -> Document:
    """One failure. ``phases``: seconds, as the ledger has them; -1: not known. ``healed_clock`` -1: not seen
    yet, or before anybody looked. ``cost``: in clocks, as `scar failures -o json` has it; None: losses are
    not known.
    """
    cost = before.costs.get(record.number)
    return {
        "number": record.number,
        "members": [key.partition("@")[0] for key in record.members[:MAX_WORDS]],
        "member_count": len(record.members),
        "evidence": [*dict.fromkeys(record.evidence)][:MAX_WORDS],
        "created": record.created,
        "strategy": record.strategy,
        "epoch": record.epoch,
        "manifest": record.manifest,
        "clock": record.clock,
        "healed_clock": before.healed.get(record.number, -1),
        "repaired": is_repaired(record),
        "lost_blocks": record.lost_blocks,
        "total_blocks": record.total_blocks,
        "sources": dict(sorted(record.sources.items())),
        "phases": {phase: getattr(record, f"{phase}_seconds") for phase in PHASES},
        "delta_norm": _finite(record.delta_norm),
        "delta_exact": record.delta_exact,
        "cost": cost.document if cost is not None else None,
        "lost_pushes": record.lost_pushes,
        "resent_pushes": record.resent_pushes,
        "waiting": [key.partition("@")[0] for key in record.waiting[:MAX_WORDS]],
        "waiting_count": len(record.waiting),
        "damage": list(record.damage[:MAX_WORDS]),
        "rollback": record.rollback,
        "restored_clock": record.restored_clock,
    }


def _job_facts(status: ClusterStatus) -> Document | None:
    if status.job is None:
        return None
    finished = status.finished
    return {
        "name": status.job.name,
        "consistency": status.job.consistency,
        "recovery": status.job.recovery,
        "choice": status.job.choice.reason or None,
        "blocks": status.blocks,
        "loading": status.loading,
        "finished_manifest": finished.manifest if finished is not None else 0,
        "revisions": [
            {"created": one.created, "changes": one.changes} for one in status.revisions[-MAX_WORDS:]
        ],
    }


def _shard_rows(status: ClusterStatus, processes: ProcessTable, before: SeenBefore) -> list[Document]:
    """Those of the epoch, and processes of others that are not part of it."""
    names = {member.name for member in status.epoch.shards} if status.epoch else set()
    names |= {name for name, process in processes.items() if process.component == "ps"}
    return [
        _shard_row(name, status, processes)
        | {"rate": before.rates.get(name, -1.0), "oldest": before.oldest.get(name)}
        for name in names
    ]


def _shard_row(name: str, status: ClusterStatus, processes: ProcessTable) -> Document:
    row = _member_row(name, status, processes)
    shard = status.shards.get(name)
    if shard is None:
        empty = {"clock": None, "blocks": 0, "copies": 0, "loading": 0, "bytes": 0}
        return row | empty | {"saved_age": -1.0, "traffic": -1}
    return row | {
        "clock": _open_clock(shard.clock),
        "blocks": sum(table.blocks for table in shard.tables),
        "copies": shard.replicas,
        "loading": sum(table.loading for table in shard.tables),
        "bytes": sum(table.bytes for table in shard.tables),
        "traffic": round(traffic_rate(shard)),
        "unsettled": sum(table.unsettled for table in shard.tables),
        "saved_age": shard.saved_age,
    }


def _worker_rows(status: ClusterStatus, processes: ProcessTable) -> list[Document]:
    names = {member.name for member in status.epoch.workers} if status.epoch else set()
    names |= {name for name, process in processes.items() if process.component == "worker"}
    slow = find_stragglers(status.workers)
    return [_worker_row(name, status, processes) | {"straggler": name in slow} for name in names]


def _worker_row(name: str, status: ClusterStatus, processes: ProcessTable) -> Document:
    """``split``: seconds of ``seconds_per_clock`` that went to pull, compute, push and wait."""
    row = _member_row(name, status, processes)
    worker = status.workers.get(name, WorkerStatus())
    split = worker.per_clock
    if not worker.state:
        return row | {"state": "", "clock": None, "seconds_per_clock": 0.0, "waited": 0.0, "split": [0.0] * 4}
    return row | {
        "state": worker.state,
        "clock": _open_clock(worker.clock),
        "seconds_per_clock": worker.seconds_per_clock,
        "waited": worker.waited,
        "split": [round(part, 6) for part in (split.pull, split.compute, split.push, split.wait)],
    }


def _service_rows(status: ClusterStatus, processes: ProcessTable) -> list[Document]:
    """Coordinators and what they need; ``leader`` None: it has none, or does not say."""
    leads = {
        "recovery": status.recovery.leader if status.recovery else None,
        "checkpoint": status.checkpoint.leader if status.checkpoint else None,
    }
    rows = [
        _member_row(name, status, processes) | {"leader": leads.get(process.component)}
        for name, process in processes.items()
        if process.component not in BREAKABLE
    ]
    return sorted(rows, key=_natural_order)[:MAX_ROWS]


def _member_row(name: str, status: ClusterStatus, processes: ProcessTable) -> Document:
    process = processes.get(name)
    return {
        "name": name,
        "health": health_word(name, status, process),
        "hindered": HINDERED.get(process.state, "") if process else "",
        "running": process is not None and process.alive,
        "restarts": process.restarts if process else 0,
    }


def _bounded_rows(rows: list[Document]) -> Document:
    """At most :data:`MAX_ROWS`, by name; when there are more, those that are not well are among them."""
    counts = {"total": len(rows), "well": sum(row["health"] in WELL for row in rows)}
    rows = sorted(rows, key=lambda row: (row["health"] in WELL, _natural_order(row)))
    return counts | {"rows": sorted(rows[:MAX_ROWS], key=_natural_order)}


def _natural_order(row: Document) -> list[tuple[int, str]]:
    """Of a row by its name: ps-2 before ps-10."""
    parts = re.findall(r"\d+|\D+", row["name"])
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _store_facts(status: ClusterStatus) -> Document | None:
    """None: the coordinator that asks the store says nothing."""
    if status.recovery is None or not status.recovery.HasField("store_health"):
        return None
    health = status.recovery.store_health
    return {"age": health.age, "seconds": health.seconds, "problem": health.problem}


def _checkpoint_facts(status: ClusterStatus) -> Document | None:
    saved = status.checkpoint
    if saved is None:
        return None
    return {
        "manifest": saved.manifest,
        "round": saved.round,
        "clock": saved.clock,
        "age": saved.age,
        "objects": saved.objects,
        "bytes": saved.bytes,
        "plan": _plan_facts(saved),
        "recent": _round_rows(saved.recent),
    }


def _plan_facts(saved: CheckpointStatus) -> Document | None:
    """Of rounds that the coordinator chooses; None: the job's own numbers hold."""
    if not saved.HasField("plan"):
        return None
    plan = saved.plan
    return {"fraction": plan.fraction, "every": plan.every, "reason": plan.reason}


def _round_rows(reports: Iterable[RoundReport]) -> list[Document]:
    """Newest first."""
    return [
        {
            "round": one.round,
            "manifest": one.manifest,
            "clock": one.clock,
            "blocks": one.blocks_saved,
            "blocks_total": one.blocks_total,
            "bytes": one.bytes,
            "select": one.select_seconds,
            "copy": one.stall_seconds,
            "commit": one.commit_seconds,
            "missed": list(one.missed[:MAX_WORDS]),
            "error": one.error,
        }
        for one in reversed(list(reports)[-MAX_ROUNDS:])
    ]


def _is_worth_words(wait: Wait, status: ClusterStatus) -> bool:
    """Problems are said already."""
    return wait.text not in status.problems and not 0 <= wait.seconds < WAIT_SECONDS


def _wait_facts(wait: Wait) -> Document:
    return {"text": wait.text, "seconds": wait.seconds, "next": wait.step}


def _open_clock(clock: int) -> int | None:
    """None: every worker has finished."""
    return None if clock >= DONE else clock


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
