"""What coordinator and shards tell each other about a round's selection; both directions in one place."""

from __future__ import annotations

import numpy as np

from scar.errors import InvalidRequest
from scar.v1 import ps_pb2
from scar_runtime.checkpoint.selection import RoundSelection
from scar_runtime.checkpoint.top_keys import DIGITS, KeyCounts, KeyRange


def write_selection(selection: RoundSelection, request: ps_pb2.SaveRequest) -> None:
    """Put it into a request."""
    request.selection = selection.selection
    request.threshold = selection.threshold
    request.first = selection.first
    request.count = selection.count
    request.seed = selection.seed


def read_selection(request: ps_pb2.SaveRequest) -> RoundSelection:
    """What a request says."""
    return RoundSelection(
        request.selection,
        threshold=request.threshold,
        first=request.first,
        count=request.count,
        seed=request.seed,
    )


def range_from_proto(request: ps_pb2.CountRequest) -> KeyRange:
    """Raises :class:`InvalidRequest` for what is no range of keys."""
    if request.depth >= len(DIGITS) or request.prefix >> sum(DIGITS[: request.depth]):
        raise InvalidRequest(f"no key begins with {request.prefix} in {request.depth} digits")
    return KeyRange(request.depth, request.prefix)


def counts_to_proto(counts: KeyCounts) -> ps_pb2.KeyCounts:
    digits = np.flatnonzero(counts)
    return ps_pb2.KeyCounts(digits=digits.tolist(), counts=counts[digits].tolist())


def counts_from_proto(message: ps_pb2.KeyCounts, within: KeyRange, blocks: int) -> KeyCounts:
    """int64[within.size]. ``blocks``: of the job. Raises :class:`InvalidRequest` for what no shard could have
    counted.
    """
    digits = np.array(message.digits, np.int64)
    counts = np.array(message.counts, np.uint64)
    ascending = len(digits) == len(counts) and bool((np.diff(digits) > 0).all())
    if not ascending or (len(digits) and digits[-1] >= within.size):
        raise InvalidRequest(f"{len(counts)} counts of keys for {len(digits)} of {within.size} digits")
    if (counts > blocks).any() or int(counts.sum()) > blocks:
        raise InvalidRequest(f"more keys than the {blocks} blocks of the job")
    found = np.zeros(within.size, np.int64)
    found[digits] = counts.astype(np.int64)
    return found
