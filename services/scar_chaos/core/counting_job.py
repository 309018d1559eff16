"""The job of every chaos run, and numbers that no wrong sum can imitate.

Every push adds one large random amount to whole blocks, or to the first row of each pair. So a block whose
elements differ was torn, a second row that is not as it began was taken from elsewhere, and a block whose sum
is not what was written down lost an update or has one twice.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import scar
from scar.strategies import find_strategy, variant_options

PAIRS = "pairs"  # the table of which rows are pushed
SECOND = 7  # all elements of the second row of a pair, always
OFFSETS = (0, 1, 3, 4, 9, 10, 12, 20, 21, 22, 30)  # ragged blocks


def make_job(name: str = "counting", **options: Any) -> scar.Job:
    """A job with three kinds of tables: one block a row, two rows a block, ragged.

    ``options``: of :class:`scar.Job`; where workers pull slots, the values of the ragged table follow from
    one. ``slow`` and ``pace`` are for the workload: rank -> extra seconds that
    this worker takes for a clock, and seconds of a clock of everybody.
    """
    for workload_option in ("slow", "pace"):
        options.pop(workload_option, None)
    policy = options.pop("checkpoint", {"selection": "priority", "fraction": 0.5, "period": 8})
    ragged_rule = scar.rule({"total": "total + g", "w": "total"}, slots=["total"])
    if not options.get("pull_slots"):
        ragged_rule = scar.add()
    tables = (
        scar.Table("rows", (24, 3), dtype="int64", rule=scar.add()),
        scar.Table(
            PAIRS, (32, 2), dtype="int64", rule=scar.add(), blocks=scar.rows(2), init=scar.constant(SECOND)
        ),
        scar.Table("ragged", (30, 2), dtype="float64", rule=ragged_rule, blocks=scar.ragged(OFFSETS)),
    )
    make_policy = scar.Checkpoint.auto if "stall_share" in policy else scar.Checkpoint
    return scar.Job(name, tables=tables, checkpoint=make_policy(**policy), **options)


def strategy_options(name: str) -> dict[str, Any]:
    """Options of :func:`make_job` for a recovery strategy or a variant of one
    (:data:`scar.strategies.VARIANTS`), with what it needs.

    Raises :class:`scar.errors.ConfigError` for an unknown one.
    """
    chosen: dict[str, Any] = variant_options(name)
    strategy = find_strategy(chosen["recovery"])
    if strategy.rollback:
        chosen["checkpoint"] = {"selection": "full", "fraction": 1.0, "period": 8}
    if chosen.get("pull_slots"):
        chosen["consistency"] = "bsp"
    if strategy.stores:
        chosen |= {
            "consistency": "asp",
            "checkpoint": {"selection": "priority", "fraction": 1.0, "period": 1},
        }
    return chosen


def push_amount(worker: str, push: int) -> int:
    """What this push of this worker incarnation adds to every element: 1 to 2^32.

    Whoever reads the history can compute it.
    """
    digest = hashlib.blake2b(f"{worker}/{push}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") + 1


def pushed_elements(table: scar.Table) -> np.ndarray:
    """How many elements of each block pushes change."""
    if table.name == PAIRS:
        return np.full(table.blocks, table.row_elements)
    return table.layout.sizes


def per_block(table: scar.Table, array: np.ndarray) -> np.ndarray:
    """First element of every block; :func:`torn_blocks` says whether the others are as they should be."""
    first: np.ndarray = array.reshape(table.shape[0], -1)[table.row_offsets[:-1], 0]
    return first


def torn_blocks(table: scar.Table, array: np.ndarray) -> list[int]:
    """Blocks whose elements are not all equal; of a pair those of the first row, or the second changed."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if table.name == PAIRS:
        pairs = flat.reshape(table.blocks, 2, -1)
        wrong = (pairs[:, 0] != pairs[:, 0, :1]) | (pairs[:, 1] != SECOND)
        return np.flatnonzero(wrong.any(axis=1)).tolist()
    starts = table.layout.starts[:-1]
    differ = np.minimum.reduceat(flat, starts) != np.maximum.reduceat(flat, starts)
    return np.flatnonzero(differ).tolist()


def initial_values(job: scar.Job) -> dict[str, np.ndarray]:
    """x(0): one value per block of every table."""
    found = {}
    for table in job.tables:
        ids = np.arange(table.blocks, dtype=np.uint32)
        found[table.name] = per_block(table, table.initial(job.seed, ids).reshape(table.shape))
    return found
