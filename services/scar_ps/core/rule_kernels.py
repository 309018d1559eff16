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
from scar.compiled import load_library, pointer, sizes
from scar.parallel import count_parts
from scar.tables import Rule
from scar_ps.core.block_store import BlockStore

VERSION = 2  # of the functions and their arguments: another library is not used
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

    def apply(self, run: slice | Positions, pushed: Array) -> None:
        """One step on these rows, with ``pushed``, packed. Without Python's lock, so other threads go on."""
        first = run.start if isinstance(run, slice) else 0
        pushed = np.require(pushed, requirements=["A", "C"])
        gradients = pushed.reshape(-1, self.width)
        slot = None if self.slot is None else self.slot[first * (1 if self.by_row else self.width) :]
        means = np.mean(np.multiply(gradients, gradients), axis=1) if self.by_row else None
        rows = None if isinstance(run, slice) else np.ascontiguousarray(run, np.int64)
        arrays = [self.values[first * self.width :], slot, pushed, means, rows]
        places = [None if array is None else pointer(array) for array in arrays]
        limit = len(self.values) // self.width - first
        counts = sizes(len(gradients), self.width, limit, count_parts(self.passes * pushed.nbytes))
        if self.function(*places, *counts, *self.numbers):
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
