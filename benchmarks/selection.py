"""Bytes and time of an exact top r of all blocks, by three ways that find the same set.

- ``all``: every shard sends all ids and distances; the coordinator chooses. - ``TPUT`` (Cao and Wang 2004,
which seed 002 suggests): every shard sends its r largest. A block lies at one shard
  alone, so its value there is the whole value, and the first of TPUT's three phases is exact already.
- ``counts``: the search of :mod:`scar_runtime.checkpoint.top_keys`, by the messages that are sent.

    python -m benchmarks.selection
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.v1 import ps_pb2
from scar_runtime.checkpoint.selection_codec import counts_to_proto
from scar_runtime.checkpoint.top_keys import ID_BITS, ThresholdSearch, count_keys

Keys = NDArray[np.uint64]  # of one shard's blocks
ENTRY = 8  # bytes of an id and a distance
ROW = "{:>10} {:>10} {:>6}   {:>12} {:>12} {:>12}   {:>7} {:>9} {:>9} {:>9}"


@dataclass(frozen=True)
class Found:
    """``threshold``: keys from there on are chosen. ``sent``: bytes between shards and coordinator, both
    directions. ``asked``: questions to each shard.
    """

    threshold: int
    sent: int
    asked: int = 1


def send_all(shards: Sequence[Keys], count: int) -> Found:
    keys = np.concatenate(shards)
    return Found(_largest(keys, count), ENTRY * len(keys))


def tput(shards: Sequence[Keys], count: int) -> Found:
    tops = [np.partition(keys, len(keys) - count)[-count:] if count < len(keys) else keys for keys in shards]
    return Found(_largest(np.concatenate(tops), count), ENTRY * sum(map(len, tops)))


def search_counts(shards: Sequence[Keys], count: int) -> Found:
    state: ThresholdSearch | int = ThresholdSearch(count)
    sent = asked = 0
    while isinstance(state, ThresholdSearch):
        within = state.within
        question = ps_pb2.CountRequest(epoch=1, round=1, depth=within.depth, prefix=within.prefix)
        total = np.zeros(within.size, np.int64)
        for keys in shards:
            counts = count_keys(keys, within)
            sent += question.ByteSize() + ps_pb2.CountReply(counts=counts_to_proto(counts)).ByteSize()
            total += counts
        state = state.advance(total)
        asked += 1
    return Found(state, sent, asked)


def _largest(keys: Keys, count: int) -> int:
    return int(np.partition(keys, len(keys) - count)[-count])


def draw_keys(blocks: int, shards: int, seed: int = 1) -> list[Keys]:
    """Distances as of a training: over some orders of magnitude, dealt at random."""
    draw = np.random.default_rng(seed)
    distances = np.exp(draw.normal(-4, 2, blocks)).astype(np.float32)
    keys = distances.view(np.uint32).astype(np.uint64) << np.uint64(ID_BITS)
    keys += np.uint64((1 << ID_BITS) - 1) - np.arange(blocks, dtype=np.uint64)
    owner = draw.integers(shards, size=blocks)
    return [keys[owner == one] for one in range(shards)]


def _timed(
    way: Callable[[Sequence[Keys], int], Found], shards: Sequence[Keys], count: int
) -> tuple[Found, float]:
    began = time.perf_counter()
    found = way(shards, count)
    return found, time.perf_counter() - began


def main() -> int:
    say = sys.stdout.write
    say("Bytes of a round's selection, all shards together; seconds of one processor for all sides\n\n")
    names = ("all", "TPUT", "counts")
    say(ROW.format("blocks", "wanted", "shards", *names, "asked", *(f"{one} s" for one in names)) + "\n")
    for blocks in (10_000, 100_000, 1_000_000, 10_000_000):
        for wanted in (blocks // 8, 100):
            for number in (4, 16):
                shards = draw_keys(blocks, number)
                rows = [_timed(way, shards, wanted) for way in (send_all, tput, search_counts)]
                for found, _ in rows:
                    assert sum(np.count_nonzero(keys >= found.threshold) for keys in shards) == wanted
                sent = [f"{found.sent:,}" for found, _ in rows]
                seconds = [f"{took:.3f}" for _, took in rows]
                say(
                    ROW.format(f"{blocks:,}", f"{wanted:,}", number, *sent, rows[2][0].asked, *seconds) + "\n"
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
