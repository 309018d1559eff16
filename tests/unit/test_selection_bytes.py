"""The three ways of the benchmark choose the same blocks; counts are the fewest bytes where r is a share."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.selection import Found, Keys, draw_keys, search_counts, send_all, tput


def chosen(shards: list[Keys], found: Found) -> set[int]:
    return {int(key) for keys in shards for key in keys[keys >= found.threshold]}


@pytest.mark.parametrize("shards", [1, 4, 40])
@pytest.mark.parametrize("wanted", [1, 37, 1000, 8000])
def test_they_choose_the_same(shards: int, wanted: int) -> None:
    dealt = draw_keys(8000, shards, seed=wanted)
    whole = np.sort(np.concatenate(dealt))[::-1]
    expected = {int(key) for key in whole[:wanted]}
    for way in (send_all, tput, search_counts):
        assert chosen(dealt, way(dealt, wanted)) == expected


def test_counts_do_not_grow_with_the_blocks() -> None:
    small, large = (search_counts(draw_keys(blocks, 4), blocks // 8) for blocks in (10_000, 1_000_000))
    assert large.sent < 20 * small.sent
    assert large.sent < tput(draw_keys(1_000_000, 4), 125_000).sent / 100
