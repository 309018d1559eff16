"""What the choice of a strategy hangs on: how fast the store is, and how the job went until now."""

from __future__ import annotations

import os
import time
from itertools import pairwise

from scar_recovery.core.strategy_choice import RunFacts
from scar_runtime.store import Store
from scar_runtime.store.base import scratch_key
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.history_log import HistoryLog

PROBE_BYTES = 4 << 20
GAP_SECONDS = 60.0  # between two looks, or four usual ones: after more nobody trained
LEAST_SECONDS = 1e-6


def gather_facts(root: Store, job: str) -> RunFacts:
    """``root``: of the store. Raises :class:`scar.errors.StoreError` and
    :class:`scar.errors.StoreUnavailable`.
    """
    store = root.under(job)
    history = HistoryLog(store).read()
    longest = max(GAP_SECONDS, 4 * history.spacing)
    seconds = 0.0
    clocks = 0
    for before, after in pairwise(history.samples):
        passed = after.time - before.time
        if passed <= longest and after.clock > before.clock:
            seconds += passed
            clocks += after.clock - before.clock
    deaths = sum(bool(record.lost_blocks) for record in FailureLog(store).read())
    return RunFacts(
        store=measure_store(root),
        clock=seconds / clocks if clocks else 0.0,
        deaths=deaths,
        seconds=seconds,
    )


def measure_store(store: Store) -> float:
    """Bytes a second, of an object that is written and read once."""
    key = scratch_key()
    data = os.urandom(PROBE_BYTES)
    began = time.monotonic()
    try:
        store.put(key, data)
        store.get(key)
        return 2 * PROBE_BYTES / max(time.monotonic() - began, LEAST_SECONDS)
    finally:
        store.delete(key)
