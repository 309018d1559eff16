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
from scar.tables import Rule
from scar_ps.core.block_store import BlockStore

VERSION = 1  # of the functions and their arguments: another library is not used
LIBRARY = Path(__file__).with_name("librule_kernels.so")
_REALS: dict[str, Any] = {"float32": ctypes.c_float, "float64": ctypes.c_double}


def load_library(path: Path = LIBRARY) -> ctypes.CDLL | None:
    """None where it was not compiled, or is of another version or machine."""
    try:
        library = ctypes.CDLL(str(path))
        version = library.scar_rule_kernels()
    except (OSError, AttributeError):
        return None
    return library if version == VERSION else None


_library = load_library()


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
        arrays = [self.values[first * self.width :]]
        if self.slot is not None:
            arrays.append(self.slot[first * (1 if self.by_row else self.width) :])
        arrays.append(pushed)
        if self.by_row:
            arrays.append(np.mean(np.multiply(gradients, gradients), axis=1))
        limit = len(self.values) // self.width - first
        rows = None if isinstance(run, slice) else np.ascontiguousarray(run, np.int64)
        places = [_pointer(array) for array in arrays] + [None if rows is None else _pointer(rows)]
        sizes = map(ctypes.c_int64, (len(gradients), self.width, limit))
        if self.function(*places, *sizes, *self.numbers):
            raise IndexError(f"a row is not one of the {limit} of this store")


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
    numbers = tuple(real(rule.parameters[name]) for name in ("lr", "eps") if name in rule.parameters)
    slot = store.slots.get("squares")
    return RuleKernel(getattr(_library, function), store.values, slot, layout.width, numbers, by_row)


def _pointer(array: Array) -> Any:
    return ctypes.c_void_p(int(array.__array_interface__["data"][0]))
