"""What a user declares: tables, their blocks, update rules, initial values; and the job that holds them.

import scar

job = scar.Job("mnist", tables=[
    scar.Table("w", (785, 10), rule=scar.sgd(lr=1e-5)),                       # a block per row
    scar.Table("embedding", (1_000_000, 64), rule=scar.adagrad(lr=0.1), blocks=scar.rows(16)),
    scar.Table("conv1", (32, 1, 3, 3), rule=scar.adam(), blocks=scar.layer(), init=scar.normal(0, 0.1)),
])
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar.blocks import Array, Ids, Layout
from scar.checkpoints import Checkpoint as Checkpoint
from scar.errors import ConfigError, ShapeMismatch, UnknownTable
from scar.strategies import Strategy, find_strategy
from scar.worker_strategies import WorkerStrategy, find_worker_strategy

DTYPES = ("float32", "float64", "int32", "int64")
NORMS = ("l2", "l1", "tv", "histogram")  # the last: for tables of categories, see scar_ps.distances
INITIALISERS = ("zeros", "constant", "uniform", "normal", "given")
PAGE_ELEMENTS = 1 << 16  # initial values are made in pages of about this many elements
MAX_BLOCKS = 1 << 27  # per table; descriptions come over the wire, so sizes are checked before anything is allocated
MAX_ELEMENTS = 1 << 40


@dataclass(frozen=True)
class Rule:
    """What a shard does with pushed values; ``slots`` are extra arrays of the table's shape that live and die with a block."""

    kind: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    SLOTS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "assign": (),
        "add": (),
        "sgd": (),
        "momentum": ("velocity",),
        "adagrad": ("squares",),
        "adam": ("first", "second"),
    }
    NEEDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "assign": (),
        "add": (),
        "sgd": ("lr",),
        "momentum": ("lr", "momentum"),
        "adagrad": ("lr", "eps"),
        "adam": ("lr", "beta1", "beta2", "eps"),
    }

    def __post_init__(self) -> None:
        if self.kind not in self.SLOTS:
            raise ConfigError(f"rule {self.kind!r} is unknown", f"Use one of {', '.join(self.SLOTS)}")
        missing = [name for name in self.NEEDS[self.kind] if name not in self.parameters]
        if missing:
            raise ConfigError(f"rule {self.kind} lacks {', '.join(missing)}", f"Make it by scar.{self.kind}(...)")

    @property
    def slots(self) -> tuple[str, ...]:
        return self.SLOTS[self.kind]


def assign() -> Rule:
    """x <- pushed. With several workers the last in rank order wins."""
    return Rule("assign")


def add() -> Rule:
    """x <- x + pushed."""
    return Rule("add")


def sgd(lr: float) -> Rule:
    """x <- x - lr * g, where g is the sum of what the workers pushed for the clock."""
    return Rule("sgd", {"lr": lr})


def momentum(lr: float, momentum: float = 0.9) -> Rule:
    """v <- momentum * v + g; x <- x - lr * v."""
    return Rule("momentum", {"lr": lr, "momentum": momentum})


def adagrad(lr: float, eps: float = 1e-8) -> Rule:
    """s <- s + g^2; x <- x - lr * g / (sqrt(s) + eps)."""
    return Rule("adagrad", {"lr": lr, "eps": eps})


def adam(lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Rule:
    """Adam with bias correction by a step count per block."""
    return Rule("adam", {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps})


@dataclass(frozen=True)
class Init:
    """x(0). ``given`` arrays are uploaded when the job starts; all others can be made again anywhere."""

    kind: str = "zeros"
    low: float = 0.0
    high: float = 0.0
    array: Array | None = field(default=None, compare=False, repr=False)
    key: str = ""

    def __post_init__(self) -> None:
        if self.kind not in INITIALISERS:
            raise ConfigError(f"initialiser {self.kind!r} is unknown", f"Use one of {', '.join(INITIALISERS)}")


def zeros() -> Init:
    """All zero."""
    return Init()


def constant(value: float) -> Init:
    """The same value everywhere."""
    return Init("constant", value)


def uniform(low: float = 0.0, high: float = 1.0) -> Init:
    """Drawn evenly from [low, high)."""
    return Init("uniform", low, high)


def normal(mean: float = 0.0, deviation: float = 1.0) -> Init:
    """Drawn from the normal distribution."""
    return Init("normal", mean, deviation)


def given(array: ArrayLike) -> Init:
    """This array, of the table's shape; it is uploaded when the job starts."""
    return Init("given", array=np.asarray(array))


@dataclass(frozen=True)
class Blocks:
    """How a table is cut along its first axis. Exactly one of the fields is set."""

    rows: int = 0
    pieces: int = 0
    offsets: tuple[int, ...] = ()


def rows(count: int = 1) -> Blocks:
    """Groups of ``count`` rows; the last may be shorter."""
    return Blocks(rows=count)


def layer() -> Blocks:
    """The whole table is one block."""
    return Blocks(pieces=1)


def layer_shards(pieces: int) -> Blocks:
    """The first axis cut evenly into ``pieces`` (seed 000, appendix C, by-shard)."""
    return Blocks(pieces=pieces)


def ragged(offsets: Sequence[int]) -> Blocks:
    """Block ``i`` is rows ``offsets[i]`` to ``offsets[i + 1]``."""
    return Blocks(offsets=tuple(int(value) for value in offsets))


class Table:
    """A named parameter array (shape in elements), cut into blocks along its first axis.

    ``norm``: what ||x - saved|| of a block is. ``weights``, one for each block: by how much that is multiplied before blocks
    are chosen for a round, so that unlike blocks can be compared (seed 000 scales the norm of LDA for this reason). The square
    root of how many examples a block meets is a good choice.

    Raises :class:`ConfigError` for a name, dtype, shape, blocks or weights that cannot be.
    """

    def __init__(
        self,
        name: str,
        shape: int | Sequence[int],
        *,
        dtype: str = "float32",
        rule: Rule | None = None,
        init: Init | None = None,
        blocks: Blocks | None = None,
        norm: str = "l2",
        weights: ArrayLike | None = None,
        allow_nonfinite: bool = False,
    ) -> None:
        self.name = name
        self.shape: tuple[int, ...] = (int(shape),) if isinstance(shape, int) else tuple(int(axis) for axis in shape)
        self.dtype = _dtype(name, dtype)
        self.rule = rule or add()
        self.init = init or zeros()
        self.cut = blocks or rows(1)
        self.norm = norm
        self.weights: NDArray[np.float32] | None = None if weights is None else np.asarray(weights, np.float32)
        self.allow_nonfinite = allow_nonfinite
        self._check()

    def _check(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", self.name):
            raise ConfigError(f"table name {self.name!r} is not valid", "Use 1 to 64 letters, digits, '_', '.', '-'")
        if not self.shape or min(self.shape) < 1:
            raise ConfigError(f"table {self.name}: shape {self.shape} has no elements", "Every axis needs at least 1")
        if self.elements > MAX_ELEMENTS:
            raise ConfigError(f"table {self.name}: shape {self.shape} has more than {MAX_ELEMENTS} elements")
        if self.norm not in NORMS:
            raise ConfigError(f"table {self.name}: norm {self.norm!r} is unknown", f"Use one of {', '.join(NORMS)}")
        if self.rule.kind not in ("assign", "add") and self.dtype.kind != "f":
            raise ConfigError(f"table {self.name}: rule {self.rule.kind} needs a float dtype", "Use a float dtype, or rule add")
        if self.norm == "histogram" and self.dtype != np.int32:
            raise ConfigError(f"table {self.name}: norm histogram is for categories, not {self.dtype}", "Use dtype int32")
        row = self.row_offsets
        if len(row) < 2 or row[0] != 0 or row[-1] != self.shape[0] or (np.diff(row) < 1).any():
            raise ConfigError(f"table {self.name}: block offsets must grow from 0 to {self.shape[0]}")
        if self.weights is not None and not (self.weights.shape == (self.blocks,) and _positive(self.weights)):
            raise ConfigError(f"table {self.name}: weights must be {self.blocks} positive numbers, one for each block")
        array = self.init.array
        if array is not None and array.shape != self.shape:
            raise ConfigError(f"table {self.name}: given array has shape {array.shape}, the table {self.shape}")

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        """int64[blocks + 1]: first-axis row at which each block starts, and the end."""
        n = self.shape[0]
        if self.cut.offsets:
            return np.asarray(self.cut.offsets, dtype=np.int64)
        if self.cut.pieces > 0:
            return np.linspace(0, n, min(self.cut.pieces, n) + 1).astype(np.int64)
        if self.cut.rows < 1:
            raise ConfigError(f"table {self.name}: rows per block must be at least 1")
        if n // self.cut.rows >= MAX_BLOCKS:
            raise ConfigError(f"table {self.name} has more than {MAX_BLOCKS} blocks", "Use larger blocks: scar.rows(n)")
        return np.append(np.arange(0, n, self.cut.rows, dtype=np.int64), n)

    @cached_property
    def layout(self) -> Layout:
        """All blocks of the table, in elements."""
        return Layout(np.diff(self.row_offsets) * self.row_elements)

    @property
    def blocks(self) -> int:
        return len(self.row_offsets) - 1

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

    def initial(self, seed: int, ids: Ids, given: Array | None = None) -> Array:
        """x(0) of these blocks (ascending ids), packed. The same on every machine and for every number of shards.

        ``given``: the flat array behind ``init=given(...)``, whole table.
        """
        if self.init.kind == "given":
            if given is None or given.size != self.elements:
                raise ShapeMismatch(f"table {self.name}: the given initial array is missing or has the wrong size")
            return self.layout.gather(given.reshape(-1).astype(self.dtype, copy=False), ids.astype(np.int64))
        total = int(self.layout.sizes[ids].sum())
        if self.init.kind in ("zeros", "constant"):
            return np.full(total, self.init.low, dtype=self.dtype)
        return self._drawn(seed, ids, total)

    def _drawn(self, seed: int, ids: Ids, total: int) -> Array:
        """Random values, page by page: a page is a fixed run of blocks with a Philox key of its own."""
        per_page = max(1, PAGE_ELEMENTS * self.blocks // self.elements)
        out = np.empty(total, dtype=self.dtype)
        cuts = np.searchsorted(ids, np.arange(0, self.blocks + per_page, per_page))
        written = 0
        for page in np.flatnonzero(np.diff(cuts)):
            first, last = int(page) * per_page, min((int(page) + 1) * per_page, self.blocks)
            run = Layout(self.layout.sizes[first:last])
            wanted = ids[cuts[page] : cuts[page + 1]].astype(np.int64) - first
            mine = run.gather(self._page(seed, int(page), run.elements), wanted)
            out[written : written + len(mine)] = mine
            written += len(mine)
        return out

    def _page(self, seed: int, page: int, elements: int) -> Array:
        key = np.array([seed & 0xFFFFFFFFFFFFFFFF, zlib.crc32(self.name.encode())], dtype=np.uint64)
        draw = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, page]))
        if self.init.kind == "uniform":
            return draw.uniform(self.init.low, self.init.high, elements).astype(self.dtype)
        return draw.normal(self.init.low, self.init.high, elements).astype(self.dtype)


def _positive(weights: NDArray[np.float32]) -> bool:
    return bool((np.isfinite(weights) & (weights > 0)).all())


def _dtype(table: str, name: str) -> np.dtype[np.generic]:
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"table {table}: dtype {name!r} is unknown", f"Use one of {', '.join(DTYPES)}") from error
    if dtype.name not in DTYPES or not dtype.isnative:
        raise ConfigError(f"table {table}: dtype {name!r} is not supported", f"Use one of {', '.join(DTYPES)}")
    return dtype


@dataclass(frozen=True)
class Job:
    """Everything that is needed to make x(0) again. ``consistency``: "bsp", "ssp" (with ``staleness`` clocks) or "asp".

    ``recovery``: the strategy, a name of :data:`scar.strategies.STRATEGIES` (`docs/strategies.md`); "partial" puts back only
    what died. ``replicas``: other shards that keep a copy of every block, 0: as the strategy has it; ``replica_period``:
    updates between two copies.

    ``worker_recovery``: what a worker's death means, a name of :data:`scar.worker_strategies.WORKER_STRATEGIES`; "ignr": the
    others go on. ``share``: whether they take over its share of the data ("takeover") or leave it alone ("drop").
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

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", self.name):
            raise ConfigError(f"job name {self.name!r} is not valid", "Use 1 to 63 lower-case letters, digits and '-'")
        names = [table.name for table in self.tables]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"job {self.name}: table names must be unique and at least one, not {names}")
        if self.consistency not in ("bsp", "ssp", "asp"):
            raise ConfigError(f"consistency {self.consistency!r} is unknown", "Use bsp, ssp or asp")
        if not 1 <= self.shards < 65535 or self.workers < 1 or self.staleness < 0:
            raise ConfigError(f"job {self.name}: shards must be 1 to 65534, workers at least 1, staleness at least 0")
        if (self.strategy.rollback or self.worker_strategy.rollback) and self.checkpoint.selection != "full":
            name = f"recovery {self.recovery}" if self.strategy.rollback else f"worker_recovery {self.worker_recovery}"
            raise ConfigError(f"{name} needs full checkpoints", "Set checkpoint=scar.Checkpoint(selection='full', period=n)")
        self.strategy.check(self.shards, self.consistency == "asp" and self.checkpoint.saves_changes)

    @cached_property
    def strategy(self) -> Strategy:
        """How it survives the loss of a shard. Raises :class:`ConfigError` for a description that cannot be."""
        return find_strategy(self.recovery).with_replicas(self.replicas, self.replica_period)

    @cached_property
    def worker_strategy(self) -> WorkerStrategy:
        """How it survives the loss of a worker. Raises :class:`ConfigError` for a description that cannot be."""
        return find_worker_strategy(self.worker_recovery, self.share)

    def table(self, name: str) -> Table:
        for table in self.tables:
            if table.name == name:
                return table
        raise UnknownTable(f"job {self.name} has no table {name!r}")

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
        """Clocks that a worker may run ahead of what it has seen closed: 0 for BSP, s for SSP, unbounded (2**62) for ASP."""
        return {"bsp": 0, "ssp": self.staleness, "asp": 1 << 62}[self.consistency]
