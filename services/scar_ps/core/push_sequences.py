"""Which push was the last of each worker, and which the values contain: what makes a push apply once.

Nothing here is per block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scar.errors import OutOfOrder
from scar_ps.core.requests import Sender


class PushSequences:
    """Last seq of each worker incarnation, and the last push of each that the values contain."""

    def __init__(self) -> None:
        self.watermark: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def is_duplicate(self, sender: Sender, seq: int) -> bool:
        """True when this seq was taken before. Raises :class:`OutOfOrder` when one before it is missing."""
        last = self._last.get(sender.key, 0)
        if seq > last + 1:
            raise OutOfOrder(f"push {seq} of {sender.key} came after push {last}")
        return seq <= last

    def record_push(self, sender: Sender, seq: int) -> None:
        self._last[sender.key] = seq

    def raise_watermark(self, worker: str, push_id: int) -> None:
        self.watermark[worker] = max(self.watermark.get(worker, 0), push_id)

    def keep_workers(self, workers: Iterable[str]) -> None:
        """Forget worker incarnations that are not among these keys: they never come back."""
        alive = set(workers)
        self._last = {key: seq for key, seq in self._last.items() if key in alive}
        self.watermark = {key: push for key, push in self.watermark.items() if key in alive}


def merge_watermarks(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The larger push id of each worker."""
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in {**one, **other}}
