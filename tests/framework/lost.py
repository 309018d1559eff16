"""Lost pushes for tests: the same range for all blocks."""

from __future__ import annotations

import numpy as np

from scar.lost_ranges import LostRanges
from scar.v1.recovery_pb2 import LostPushes
from scar.wire.lost_pushes import pack_losses


def loss(table: str, ids: list[int], after: int, upto: int) -> LostRanges:
    return LostRanges(table, np.array(ids, np.uint32), np.full(len(ids), after), np.full(len(ids), upto))


def lost(table: str, ids: list[int], after: int, upto: int) -> LostPushes:
    return pack_losses(loss(table, ids, after, upto))
