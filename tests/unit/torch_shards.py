"""Shards of one process, and workers of them, for tests of :mod:`scar.torch`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

import scar
from scar._client.push_requests import pack_tables
from scar.bfloat16 import lengthen_values, nearest_short
from scar_ps.core.block_store import BlockStore
from scar_ps.core.update_rules import apply_push


class Shards:
    """Tables of a job; a clock is one step on the sum of what was pushed. ``last_pushed``: ids, by table."""

    def __init__(self, job: scar.Job) -> None:
        self.job = job
        self.stores = {table.name: BlockStore(table, every(table)) for table in job.tables}
        for table in job.tables:
            self.stores[table.name].values[:] = table.initial(0, every(table), table.init.array)
        self.pushed: dict[str, np.ndarray] = {}
        self.rows: dict[str, np.ndarray] = {}  # which blocks something was pushed for
        self.last_pushed: dict[str, list[int]] = {}
        self.clock = 0

    def close_clock(self) -> None:
        for name, values in self.pushed.items():
            at = np.flatnonzero(self.rows[name])
            packed = self.stores[name].layout.gather(values.reshape(-1), at)
            rule = self.job.table(name).rule.at_clock(self.clock)
            apply_push(self.stores[name], at, packed, lambda: None, rule)
        self.last_pushed = {name: np.flatnonzero(rows).tolist() for name, rows in self.rows.items()}
        self.pushed, self.rows, self.clock = {}, {}, self.clock + 1


def every(table: scar.Table) -> np.ndarray:
    return np.arange(table.blocks, dtype=np.uint32)


class Member:
    """What a worker is to :class:`scar.torch.Optimizer`. ``pulls``: names, or a table with its ids;
    ``calls``: how many pulls were made.

    ``short``: tables of the last push that travel as bfloat16; ``pulled_short``: of the last pull.
    """

    def __init__(self, shards: Shards, rank: int, world_size: int) -> None:
        self._shards, self.job = shards, shards.job
        self.is_leader, self.world_size = rank == 0, world_size
        self.pulls: list[Any] = []
        self.calls = 0
        self.epoch = 1
        self.ahead: list[int] = []  # of pulls in the background: for which clock after the open one
        self.short: set[str] = set()
        self.pulled_short: set[str] = set()

    @property
    def clock_number(self) -> int:
        return self._shards.clock

    def pull(self, names: Any, rows: Any = None, bfloat16: Collection[str] = ()) -> Any:
        self.pulled_short = set(bfloat16)
        if isinstance(names, str):
            self.calls += 1
            self.pulls.append((names, rows.tolist()))
            return self._values(names)[rows]
        asked = rows or {}
        self.calls += 1
        self.pulls += [[name for name in names if name not in asked]] if len(names) > len(asked) else []
        self.pulls += [(name, some.tolist()) for name, some in asked.items()]
        found = {name: self._values(name, name in bfloat16) for name in names}
        return {name: values[asked[name]] if name in asked else values for name, values in found.items()}

    def pull_async(
        self, names: Any, rows: Any, bfloat16: Collection[str] = (), ahead: int = 0
    ) -> Future[Any]:
        future: Future[Any] = Future()
        found = self.pull(names, rows, bfloat16)
        future.set_result(
            found.copy() if isinstance(names, str) else {name: one.copy() for name, one in found.items()}
        )
        self.ahead.append(ahead)
        return future

    def _values(self, name: str, short: bool = False) -> np.ndarray:
        values = self._shards.stores[name].values.reshape(self.job.table(name).shape)
        if short:
            values = lengthen_values(nearest_short(values))
        values.flags.writeable = False  # as a pull is
        return values

    def push(
        self,
        arrays: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray] | None = None,
        bfloat16: Collection[str] = (),
    ) -> None:
        packed = pack_tables(
            self.job, arrays, None, None, bfloat16, rows
        )  # rounds, and refuses what it refuses
        self.short = {name for name, one in packed.items() if one.short}
        for name, values in arrays.items():
            table = self.job.table(name)
            some = (rows or {}).get(name)
            if name in self.short:
                values = packed[name].values.reshape(table.shape)
            whole = values if some is None else np.zeros(table.shape, table.dtype)
            if some is not None:
                np.add.at(whole, some, values)
            assert whole.shape == table.shape
            before = 0 if table.rule.kind == "assign" else self._shards.pushed.get(name, 0)
            self._shards.pushed[name] = before + whole
            touched = self._shards.rows.setdefault(name, np.zeros(table.blocks, bool))
            touched[slice(None) if some is None else some] = True
