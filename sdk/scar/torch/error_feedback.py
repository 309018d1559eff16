"""What rounding takes from a push of a worker, added to its next one."""

from __future__ import annotations

import numpy as np

from scar.bfloat16 import round_to_bfloat16
from scar.blocks import Array


class ErrorFeedback:
    """By table, float32. The sum of all pushes so lacks no more than the last rounding took.

    It is the worker's own: one that is started again begins with nothing.
    """

    def __init__(self) -> None:
        self._lost: dict[str, Array] = {}

    def add_lost(self, wanted: dict[str, Array]) -> dict[str, Array]:
        """What to push, not rounded."""
        return {
            name: np.add(values, self._lost[name]) if name in self._lost else values
            for name, values in wanted.items()
        }

    def note_pushed(self, pushed: dict[str, Array]) -> None:
        """These were taken, and rounded."""
        self._lost |= {
            name: np.subtract(values, round_to_bfloat16(values)) for name, values in pushed.items()
        }
