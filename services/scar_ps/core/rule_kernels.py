"""SGD and AdaGrad in one pass over memory, in C: what embedding tables are mostly trained with.

``rule_kernels.c`` is compiled when SCAR is installed, if there is a compiler (docs/adr/023); else, and for
all other rules, :mod:`scar_ps.core.update_rules` does the same in numpy, bit for bit.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scar.blocks import Array, Layout, Positions
from scar.compiled import address_of, load_library, pointer, sizes
from scar.parallel import count_parts
from scar.tables import Rule
from scar_ps.core.block_store import BlockStore
from scar_ps.core.segments import PushedRows

VERSION = 3  # of the functions and their arguments: another library is not used
LIBRARY = Path(__file__).with_name("librule_kernels.so")
_REALS: dict[str, Any] = {"float32": ctypes.c_float, "float64": ctypes.c_double}

_library = load_library(LIBRARY, "scar_rule_kernels", VERSION)


@dataclass(frozen=True, eq=False, slots=True)
class RuleKernel:
    """A compiled step on a store. ``slot``: of the rule; None: it has none. ``by_row``: one for each row."""

    function: Any
    values: Array
    slot: Array | None
    width: int
    numbers: tuple[Any, ...]
    by_row: bool = False

    def apply(self, run: slice | Positions, pushed: PushedRows) -> None:
        """One step on these rows, with ``pushed``. Without Python's lock, so other threads go on."""
        first = run.start if isinstance(run, slice) else 0
        slot = None if self.slot is None else self.slot[first * (1 if self.by_row else self.width) :]
        means = pushed.mean_squares(self.width) if self.by_row else None
        rows = None if isinstance(run, slice) else np.ascontiguousarray(run, np.int64)
        arrays = [self.values[first * self.width :], slot, means, rows]
        places = [None if array is None else pointer(array) for array in arrays]
        pieces = [np.require(piece, requirements=["A", "C"]) for piece in pushed.pieces]
        gradients = (ctypes.c_void_p * len(pieces))(*map(address_of, pieces))
        limit = len(self.values) // self.width - first
        parts = count_parts(self.passes * pushed.count * self.width * self.values.itemsize)
        counts = sizes(pushed.count, self.width, limit, parts, pushed.piece_rows, pushed.skipped)
        if self.function(*places, gradients, *counts, *self.numbers):
            raise IndexError(f"a row is not one of the {limit} of this store")

    @property
    def passes(self) -> int:
        """How often as many bytes as are pushed are written."""
        return 1 if self.slot is None or self.by_row else 2


def find_kernel(store: BlockStore, rule: Rule, layout: Layout) -> RuleKernel | None:
    """For a step of ``rule`` on blocks or rows that lie as ``layout`` says; None: numpy has to do it."""
    real = _REALS.get(store.values.dtype.name)
    wants_more = rule.program is not None or rule.parameters.get("weight_decay")
    if _library is None or real is None or wants_more or not layout.width:
        return None
    if rule.kind not in ("sgd", "adagrad"):
        return None
    by_row = bool(rule.row_slots)
    function = f"scar_{rule.kind}{'_by_row' if by_row else ''}_{store.values.dtype.name}"
    numbers = tuple(real(rule.parameters.get(name, 0.0)) for name in ("lr", "eps"))
    slot = store.slots.get("squares")
    return RuleKernel(getattr(_library, function), store.values, slot, layout.width, numbers, by_row)
