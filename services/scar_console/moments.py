"""Which clock was open when, as viewers are sent it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from scar.v1.recovery_pb2 import HistorySample


def moments_document(
    samples: Sequence[HistorySample], known: Sequence[HistorySample] = ()
) -> dict[str, Any] | None:
    """Those after the ``from`` first ones, which are the same as the known; None: there are no others."""
    same = takewhile(lambda pair: pair[0] is pair[1], zip(samples, known, strict=False))
    begin = sum(1 for _ in same)
    if begin == len(samples) == len(known):
        return None
    fresh = samples[begin:]
    times = [round(one.time, 3) for one in fresh]
    return {"from": begin, "times": times, "clocks": [int(one.clock) for one in fresh]}
