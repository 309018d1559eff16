"""How large the collections of a process are: every queue, list, set and map that its services can reach.

Sizes are summed by the class and the attribute that has the collection, so that they can be compared between
two moments: "BspBuffer._pushes", or "Monitor._watches[]._tasks" for those inside a collection.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from google.protobuf.message import Message

from scar.blocks import BlockState
from scar.placement import Epoch

SIZED = (dict, list, set, frozenset, tuple, deque, bytearray)
# Not walked into: they have no collections of the services, or are those of everybody.
LEAVES = (str, bytes, int, float, type, types.ModuleType, np.ndarray, np.generic, Message, Epoch, BlockState)
OURS = ("scar", "scar_", "concurrent.futures", "threading", "queue")
HOOK = "_invoke_excepthook"  # of a thread: processes share it
FIXED = (tuple, frozenset)  # walked into, but what never changes does not grow

Sizes = dict[str, int]


def collection_sizes(*roots: object) -> Sizes:
    """Of everything that can be reached from these."""
    sizes: Sizes = {}
    seen: set[int] = set()
    waiting = deque((type(root).__name__, root) for root in roots)
    while waiting:
        name, thing = waiting.popleft()
        if id(thing) in seen or isinstance(thing, LEAVES):
            continue
        seen.add(id(thing))
        if isinstance(thing, deque) and thing.maxlen is not None:
            continue  # it cannot grow without bound, and old events are in it
        if isinstance(thing, SIZED) and not isinstance(thing, FIXED):
            sizes[name] = sizes.get(name, 0) + len(thing)
        waiting.extend(_inside(name, thing))
    return sizes


def _inside(name: str, thing: Any) -> Iterator[tuple[str, object]]:
    """What it refers to, with names."""
    if isinstance(thing, Mapping):
        yield from ((f"{name}[]", item) for pair in list(thing.items()) for item in pair)
    elif isinstance(thing, SIZED):
        yield from ((f"{name}[]", item) for item in list(thing))
    elif isinstance(thing, types.MethodType):
        yield name, thing.__self__
    elif isinstance(thing, types.FunctionType):
        yield from ((name, item) for item in _closed_over(thing))
    elif isinstance(thing, partial):
        yield from ((name, item) for item in (thing.func, *thing.args, *thing.keywords.values()))
    elif _is_ours(thing):
        kind = type(thing).__name__
        yield from ((f"{kind}.{attribute}", item) for attribute, item in _attributes(thing))


def _closed_over(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not there yet
            continue


def _is_ours(thing: object) -> bool:
    module = type(thing).__module__
    return module.startswith(OURS) or type(thing).__name__ == "SimpleQueue"


def _attributes(thing: object) -> Iterable[tuple[str, object]]:
    yield from ((name, item) for name, item in list(getattr(thing, "__dict__", {}).items()) if name != HOOK)
    for kind in type(thing).__mro__:
        slots = getattr(kind, "__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if not slot.startswith("__") and hasattr(thing, slot):
                yield slot, getattr(thing, slot)


def grown(before: Sizes, after: Sizes, allowed: Mapping[str, int], slack: int) -> list[str]:
    """Collections that have more than ``slack`` items more than before. ``allowed``: how large others may
    get, by name.
    """
    found = []
    for name in sorted(after):
        was = before.get(name, 0)
        if after[name] > max(was + slack, allowed.get(name, 0)):
            found.append(f"{name} has grown from {was} to {after[name]} items")
    return found


BOUNDED = {  # how many items there may be, by design
    "Barrier.losses": 1 << 16,  # of the last clocks: scar_ps.core.barrier.LOSSES_KEPT
    "Barrier._parts": 80,  # scar_ps.core.barrier.PARTS_KEPT, and as far as workers are apart in these runs
    "Barrier._parts[]": 240,  # of each worker one
    "WorkerClocks.parts": 256,  # of the last clocks: scar._client.core.clocks.LOSSES_KEPT
    "EventRing._skipped": 100,  # one for each type of event
    "GarbageCollector._expiring": 400,  # manifests stay for 30 s, and a round takes a tenth of a second
    "GarbageCollector._known": 400,
    "HeaderCache._known": 1600,  # of the objects that they name
    "StoreMaintenance.restoring": 60,  # manifests of epochs of the last 120 s
    "RunningCheckpoint.objects": 400,  # compaction begins at scar_runtime...running_checkpoint.MANY
    "RunningCheckpoint.headers": 400,
    "ProgressHistory.samples": 513,  # scar_runtime.progress_history.MAX_SAMPLES, and a new one
    "LossCurve._intervals": 980,  # scar_runtime.loss_curve.MAX_INTERVALS; metric_curves: 8 of 60
    "LossCurve._intervals[]": 3920,  # of each four points
    "Ledger._heard[]": 64,  # of each shard the last epochs: scar_ps.core.core_state.ADOPTED_KEPT
    "Intervals._seen": 2000,  # of each member the last ones: scar_detector.core.phi
    "ResendBuffer._acked": 100,  # pushes of the open clock, which may have to be sent again
    "ShardPush.tables": 100,
    "tasks": 100,  # pools begin as many threads as there are calls at the same time
    "ThreadPoolExecutor._threads": 100,
    "Condition._waiters": 100,
    "SimpleQueue._waiters": 100,
}
BY_FAILURES = {  # one for each epoch or failure of the job, which the ledger is to remember
    "DirectoryStore._durable",  # the folder of each failure
    "EpochLog._epochs",  # up to 64 MiB
    "FailureLog._versions",
    "FailureLog._versions[]",
    "FailureRecord.sources",
    "Ledger._records",
    "Ledger._repaired_at",
    "Membership._removed",  # those who may never come back
    "Membership.secret_hashes",  # of each life that ever was: nobody may speak for it when it has gone
}
BY_MEMBERS = {  # one for each member whose heartbeat is in Redis: who is dead goes from there after a while
    "CoordinatorRegistry._counts",  # at the last look
    "Detector._members",
    "Monitor._counts",
    "WatchList._strangers",
    "WatchList._watches",
}
SLACK = 8  # items: what happens to be under way


class MemoryWatch:
    """Compares what a process has at rest with what it had at its first rest."""

    def __init__(self) -> None:
        self._first: dict[str, Sizes] = {}

    def look(self, process: str, sizes: Sizes, members: int = 0) -> list[str]:
        """``process``: one life of it; ``members``: whose heartbeats may be in Redis now."""
        compared = {name: size for name, size in sizes.items() if name not in BY_FAILURES}
        first = self._first.setdefault(process, compared)
        allowed = BOUNDED | dict.fromkeys(BY_MEMBERS, members + SLACK)
        return [f"{process}: {words}" for words in grown(first, compared, allowed, SLACK)]
