"""How a table is cut into blocks along its first axis, as a user declares it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
