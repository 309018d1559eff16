"""What a user declares: tables, their blocks, update rules, initial values; and the job that holds them.

import scar

job = scar.Job("mnist", tables=[
    scar.Table("w", (785, 10), rule=scar.sgd(lr=1e-5)),  # a block per row
    scar.Table("embedding", (1_000_000, 64), rule=scar.adagrad(lr=0.1), blocks=scar.rows(16)),
    scar.Table("conv1", (32, 1, 3, 3), rule=scar.adam(), blocks=scar.layer(), init=scar.normal(0, 0.1)),
])
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar.block_cuts import Blocks as Blocks
from scar.block_cuts import layer as layer
from scar.block_cuts import layer_shards as layer_shards
from scar.block_cuts import ragged as ragged
from scar.block_cuts import rows as rows
from scar.blocks import Array, Ids, Layout, RowNames
from scar.checkpoints import Checkpoint as Checkpoint
from scar.errors import ConfigError, ShapeMismatch, UnknownTable, use_one_of
from scar.given_rows import given_rows as given_rows
from scar.given_rows import place_rows
from scar.initial_values import GivenRows, draw_values
from scar.initial_values import Init as Init
from scar.initial_values import constant as constant
from scar.initial_values import given as given
from scar.initial_values import normal as normal
from scar.initial_values import uniform as uniform
from scar.initial_values import zeros as zeros
from scar.keyed_rows import INDEX_BYTES, KEY_TYPE, KeyPolicy, block_of_images, cut_capacity
from scar.keyed_rows import keys as keys
from scar.strategies import (
    AUTO,
    Strategy,
    StrategyChoice,
    check_choice,
    check_pull_slots,
    check_selection,
    find_strategy,
)
from scar.table_checks import KEYED, KEYED_ADVICE, check_job_name, ensure_table_valid, parse_dtype
from scar.table_checks import MAX_BLOCKS as MAX_BLOCKS
from scar.table_checks import MAX_ROWS as MAX_ROWS
from scar.update_rules import Rule as Rule
from scar.update_rules import adagrad as adagrad
from scar.update_rules import adam as adam
from scar.update_rules import adamw as adamw
from scar.update_rules import add as add
from scar.update_rules import assign as assign
from scar.update_rules import momentum as momentum
from scar.update_rules import rmsprop as rmsprop
from scar.update_rules import sgd as sgd
from scar.worker_strategies import WorkerStrategy, find_worker_strategy


class Table:
    """A named parameter array (shape in elements), cut into blocks along its first axis.

    ``norm``: what ||x - saved|| of a block is. ``weights``, one for each block: by how much that is
    multiplied before blocks are chosen for a round, so that unlike blocks can be compared (seed 000 scales
    the norm of LDA for this reason). The square root of how many examples a block meets is a good choice.

    ``keys``: rows are named by keys, "int64" or what :func:`scar.keys` makes, and come into being when they
    are pushed to first: ``dim`` elements each, ``capacity`` rows at most (docs/scale.md).

    Raises :class:`ConfigError` for an invalid name, dtype, shape, blocks or weights.
    """

    def __init__(
        self,
        name: str,
        shape: int | Sequence[int] | None = None,
        *,
        dtype: str = "float32",
        rule: Rule | None = None,
        init: Init | None = None,
        blocks: Blocks | None = None,
        norm: str = "l2",
        weights: ArrayLike | None = None,
        allow_nonfinite: bool = False,
        keys: str | KeyPolicy | None = None,
        dim: int | None = None,
        capacity: int | None = None,
    ) -> None:
        self.name = name
        self.keys = KeyPolicy() if keys == KEY_TYPE else keys if isinstance(keys, KeyPolicy) else None
        if self.keys is not None and shape is None and dim is not None and capacity is not None:
            count, each = cut_capacity(max(1, capacity))
            shape = (count * each, int(dim))
            blocks = rows(each)
        elif dim is not None or capacity is not None or shape is None or (keys and self.keys is None):
            raise ConfigError(f"table {name} has neither a shape nor all of {KEYED}", KEYED_ADVICE)
        axes = (shape,) if isinstance(shape, int) else shape
        self.shape: tuple[int, ...] = tuple(map(int, axes))
        self.dtype = parse_dtype(name, dtype)
        self.dtype_name = self.dtype.name  # numpy makes it anew each time
        self.rule = rule or add()
        self.init = init or zeros()
        self.cut = blocks or rows(1)
        self.norm = norm
        self.weights: NDArray[np.float32] | None = (
            None if weights is None else np.asarray(weights, np.float32)
        )
        self.allow_nonfinite = allow_nonfinite
        self.finite_only = self.dtype.kind == "f" and not allow_nonfinite
        ensure_table_valid(self)

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        """int64[blocks + 1]: first-axis row at which each block starts, and the end."""
        n = self.shape[0]
        if self.cut.offsets:
            return np.asarray(self.cut.offsets, dtype=np.int64)
        if self.cut.pieces > 0:
            return np.linspace(0, n, min(self.cut.pieces, n) + 1).astype(np.int64)
        return np.append(np.arange(0, n, self.cut.rows, dtype=np.int64), n)

    @cached_property
    def layout(self) -> Layout:
        """All blocks of the table, in elements."""
        return Layout(np.diff(self.row_offsets) * self.row_elements)

    @property
    def slots(self) -> tuple[str, ...]:
        """What is kept beside the values: the rule's slots, and of a table with keys their index."""
        return self.rule.slots if self.keys is None else (*self.rule.slots, *self.keys.slots)

    def slot_width(self, slot: str) -> int:
        """Elements of a slot for each row."""
        if self.keys is not None and slot in self.keys.slots:
            return INDEX_BYTES // self.dtype.itemsize  # bits, not numbers
        return 1 if slot in self.rule.row_slots else self.row_elements

    def slot_layout(self, slot: str, rows: Layout | None = None) -> Layout:
        """All blocks of a slot, in its elements. ``rows``: of blocks with so many rows instead."""
        counts = self.row_counts if rows is None else rows
        width = self.slot_width(slot)
        if counts.width:
            return Layout.even(len(counts), counts.width * width)
        return counts if width == 1 else Layout(counts.sizes * width)

    @property
    def block_bytes(self) -> NDArray[np.int64]:
        """int64[blocks]: of values and slots of each block."""
        layouts = [self.layout, *map(self.slot_layout, self.slots)]
        sizes: NDArray[np.int64] = np.sum([layout.sizes for layout in layouts], axis=0)
        return sizes * self.dtype.itemsize

    @cached_property
    def row_counts(self) -> Layout:
        """All blocks of the table, in rows of the first axis."""
        return Layout(np.diff(self.row_offsets))

    @cached_property
    def stored(self) -> Table:
        """Of a table with keys: its rows as :func:`scar.keyed_rows.pack_stored` has them."""
        width = self.row_elements + 2 * INDEX_BYTES // self.dtype.itemsize
        shape = (self.shape[0], width)
        return Table(self.name, shape, dtype=self.dtype_name, blocks=self.cut, allow_nonfinite=True)

    @property
    def has_row_blocks(self) -> bool:
        """Every block is a row."""
        return self.blocks == self.shape[0]

    def find_blocks(self, rows: RowNames) -> Ids:
        """The block of each of these rows, or images of keys."""
        if self.keys is not None:
            return block_of_images(rows.astype(np.uint64, copy=False), self.blocks)
        if self.cut.offsets or self.cut.pieces:
            return (np.searchsorted(self.row_offsets, rows, side="right") - 1).astype(np.uint32)
        return (rows if self.cut.rows == 1 else rows // self.cut.rows).astype(np.uint32, copy=False)

    @property
    def blocks(self) -> int:
        if self.cut.offsets:
            return len(self.cut.offsets) - 1
        rows = self.shape[0]
        return min(self.cut.pieces, rows) if self.cut.pieces > 0 else -(-rows // self.cut.rows)

    @property
    def unweighted(self) -> Table:
        """The same table, all blocks with the same weight."""
        other = copy(self)
        other.weights = None
        return other

    @property
    def row_elements(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize

    def initial_slots(self, ids: Ids, given: Array | GivenRows | None = None) -> Mapping[str, Array]:
        """The slots of these blocks (ascending ids) that do not begin at 0, packed: keys of given rows."""
        return place_rows(self, given, ids)[1] if isinstance(given, GivenRows) else {}

    def initial(self, seed: int, ids: Ids, given: Array | GivenRows | None = None) -> Array:
        """x(0) of these blocks (ascending ids), packed.

        The same on every machine and for every number of shards. ``given``: the flat array behind
        ``init=given(...)``, whole table. Of a table with keys: ``given`` rows, or none.
        """
        if self.keys is not None:
            if isinstance(given, GivenRows):
                return place_rows(self, given, ids)[0]
            return np.zeros(int(self.layout.sizes[ids].sum()), self.dtype)
        if self.init.kind == "given":
            if not isinstance(given, np.ndarray) or given.size != self.elements:
                raise ShapeMismatch(
                    f"table {self.name}: the given initial array is missing or has the wrong size"
                )
            return self.layout.gather(given.reshape(-1).astype(self.dtype, copy=False), ids.astype(np.int64))
        if self.init.kind in ("zeros", "constant"):
            return np.full(int(self.layout.sizes[ids].sum()), self.init.low, dtype=self.dtype)
        return draw_values(self.init, self.name, self.layout, self.dtype, seed, ids)


@dataclass(frozen=True)
class Job:
    """Everything that is needed to compute x(0). ``consistency``: "bsp", "ssp" (``staleness`` clocks), "asp".

    ``recovery``: the strategy, a name of :data:`scar.strategies.STRATEGIES` (`docs/strategies.md`); "partial"
    puts back only what died. ``replicas``: other shards that keep a copy of every block, 0: as the strategy
    has it; ``replica_period``: updates between two copies.
    ``worker_recovery``: what a worker's death means, a name of
    :data:`scar.worker_strategies.WORKER_STRATEGIES`; "ignr": the others go on. ``share``: whether they take
    over its share of the data ("takeover") or leave it alone ("drop"). ``sources``: of lost blocks,
    "checkpoint" or "workers": what a living worker pulled last comes before what was saved. ``replicate``:
    "all", or with workers as sources "missing": what workers could not give back. ``pull_slots``: so many
    workers, the first by name, pull optimizer slots with every whole table, to give them back, too (BSP).
    "auto" as ``recovery``:
    ``choice`` has what was chosen; ``server_mtbf``: seconds between two deaths of a server; 0: not known.
    """

    name: str
    tables: Sequence[Table]
    seed: int = 0
    consistency: str = "bsp"
    staleness: int = 0
    shards: int = 2
    workers: int = 1
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    recovery: str = "partial"
    replicas: int = 0
    replica_period: int = 1
    worker_recovery: str = "ignr"
    share: str = "takeover"
    sources: str = "checkpoint"
    server_mtbf: float = 0.0
    choice: StrategyChoice | None = None
    replicate: str = "all"
    pull_slots: int = 0

    def __post_init__(self) -> None:
        check_job_name(self.name)
        names = [table.name for table in self.tables]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"job {self.name}: table names must be unique and at least one, not {names}")
        if self.blocks > MAX_BLOCKS:
            raise ConfigError(
                f"job {self.name} has {self.blocks} blocks, more than {MAX_BLOCKS}",
                "Use larger blocks: scar.rows(n)",
            )
        if self.consistency not in ("bsp", "ssp", "asp"):
            raise ConfigError(
                f"consistency {self.consistency!r} is unknown",
                use_one_of(self.consistency, ("bsp", "ssp", "asp")),
            )
        if not 1 <= self.shards < 65535 or self.workers < 1 or self.staleness < 0:
            raise ConfigError(
                f"job {self.name}: shards must be 1 to 65534, workers at least 1, staleness at least 0"
            )
        check_choice(self.recovery, self.choice, self.replicas, self.sources, self.server_mtbf)
        rolls_back = self.strategy.name if self.strategy.rollback else ""
        rewinds = self.worker_recovery if self.worker_strategy.rollback else ""
        check_selection(rolls_back, rewinds, self.checkpoint.selection)
        keyed = [table.name for table in self.tables if table.keys is not None]
        if keyed and self.strategy.asks_workers:
            raise ConfigError(
                f"sources='workers' gives back whole tables, and table {keyed[0]} has keys",
                "Leave sources alone: rows of keys come back from the running checkpoint",
            )
        check_pull_slots(self.pull_slots, self.strategy, self.consistency)
        self.strategy.ensure_valid(self.shards, self.consistency == "asp" and self.checkpoint.saves_changes)

    @cached_property
    def strategy(self) -> Strategy:
        """How it survives the loss of a shard. Raises :class:`ConfigError` for an invalid description."""
        named = (self.choice or StrategyChoice()) if self.recovery == AUTO else self
        strategy = find_strategy(named.recovery).with_replicas(named.replicas, self.replica_period)
        rewinds = self.worker_strategy.rollback
        return strategy.with_sources(named.sources, self.replicate, rewinds)

    @cached_property
    def heals_by_clock(self) -> bool:
        """What comes back from memory is the state of a clock, and what was lost since is sent again: BSP,
        where workers or replicas have all that is acknowledged.
        """
        return self.consistency == "bsp" and (self.strategy.asks_workers or self.strategy.exact)

    @cached_property
    def heals_by_watermark(self) -> bool:
        """Copies of workers are sources, and no clock says what they contain: SSP and ASP."""
        return self.strategy.asks_workers and self.consistency != "bsp"

    @cached_property
    def worker_strategy(self) -> WorkerStrategy:
        """How it survives the loss of a worker. Raises :class:`ConfigError` for an invalid description."""
        return find_worker_strategy(self.worker_recovery, self.share)

    def table(self, name: str) -> Table:
        for table in self.tables:
            if table.name == name:
                return table
        names = [table.name for table in self.tables]
        raise UnknownTable(f"job {self.name} has no table {name!r}", use_one_of(name, names))

    @property
    def blocks(self) -> int:
        return sum(table.blocks for table in self.tables)

    @cached_property
    def bases(self) -> dict[str, int]:
        """Global id of block 0 of each table: global ids count blocks over the tables in order."""
        ends = np.cumsum([0] + [table.blocks for table in self.tables])
        return {table.name: int(base) for table, base in zip(self.tables, ends[:-1], strict=True)}

    @property
    def slack(self) -> int:
        """Clocks that a worker may run ahead of what it has seen closed: 0 for BSP, s for SSP, unbounded
        (2**62) for ASP.
        """
        return {"bsp": 0, "ssp": self.staleness, "asp": 1 << 62}[self.consistency]
