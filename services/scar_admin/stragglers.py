"""Which workers hold the others up, by what their time goes to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from scar.v1.worker_pb2 import TimeSplit, WorkerStatus

SLOWER = 1.5  # times what the others need for a clock
NOTICEABLE = 0.001  # seconds in a clock; less is the machine's noise


def find_stragglers(workers: Mapping[str, WorkerStatus]) -> frozenset[str]:
    """Names of those that train and need far longer for a clock than the others' median, waits left out: in
    BSP every worker's clock takes as long as the slowest one's.
    """
    own = {name: _own_seconds(one.per_clock) for name, one in workers.items() if one.state == "training"}
    own = {name: seconds for name, seconds in own.items() if seconds > 0}
    return frozenset(name for name, seconds in own.items() if _is_far_behind(name, seconds, own))


def _is_far_behind(name: str, seconds: float, own: Mapping[str, float]) -> bool:
    others = [other for key, other in own.items() if key != name]
    if not others:
        return False
    usual = median(others)
    return seconds > SLOWER * usual and seconds - usual > NOTICEABLE


def _own_seconds(split: TimeSplit) -> float:
    return split.pull + split.compute + split.push
