"""A round's selection in the message by which shards hear of it; both directions in one place."""

from __future__ import annotations

from scar.v1 import ps_pb2
from scar_runtime.checkpoint.selection import RoundSelection


def write_selection(selection: RoundSelection, request: ps_pb2.SaveRequest) -> None:
    """Put it into a request."""
    request.selection = selection.selection
    request.threshold = selection.threshold
    request.tie_before = selection.tie_before
    request.first = selection.first
    request.count = selection.count
    request.seed = selection.seed


def read_selection(request: ps_pb2.SaveRequest) -> RoundSelection:
    """What a request says."""
    return RoundSelection(
        request.selection,
        threshold=request.threshold,
        tie_before=request.tie_before,
        first=request.first,
        count=request.count,
        seed=request.seed,
    )
