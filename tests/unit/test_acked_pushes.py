"""What a restored value lacks, when it is older than the one before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scar._client.core.rerouting import MOST_UNNOTED, AckedPushes
from tests.unit.ps_support import job


def test_an_older_copy_than_the_one_before_lacks_more() -> None:
    """The copy that an epoch named was damaged: what it contained is lost with it."""
    acked, ids = AckedPushes(job()), np.arange(3, dtype=np.uint32)
    acked.release_blocks("w", ids, 9)
    acked.report_losses("w", ids, 7)
    again = acked.report_losses("w", ids[:2], 4)
    assert [(loss.ids.tolist(), loss.ranges) for loss in again] == [([0, 1], [(4, 7)])]
    assert acked.report_losses("w", ids[:2], 4) == []
    (last,) = acked.report_losses("w", ids, 4)
    assert (last.ids.tolist(), last.ranges) == ([2], [(4, 7)])


def test_what_an_older_copy_lacks_and_is_kept_is_no_loss() -> None:
    """The value before contained it; it was kept since its source might fail, and is sent again."""
    acked = AckedPushes(job())
    ids = np.arange(2, dtype=np.uint32)
    acked.release_blocks("w", ids, 8)
    assert acked.report_losses("w", ids, 10) == []
    assert acked.report_losses("w", ids, 8) == []
    (loss,) = acked.report_losses("w", ids, 5)
    assert (loss.after.tolist(), loss.upto.tolist()) == ([5, 5], [8, 8])


RELEASED = st.lists(st.tuples(st.integers(1, 9), st.sets(st.integers(0, 5), min_size=1)), max_size=12)


@given(RELEASED)
def test_the_newest_push_of_a_block_counts_in_whatever_order_they_are_released(released) -> None:
    """Of several streams one may be behind the others."""
    acked, newest = AckedPushes(job()), np.zeros(6, np.int64)
    for push, blocks in released:
        acked.release_blocks("w", np.array(sorted(blocks), np.uint32), push)
        newest[sorted(blocks)] = np.maximum(newest[sorted(blocks)], push)
    found = np.zeros(6, np.int64)
    for loss in acked.report_losses("w", np.arange(6, dtype=np.uint32), 0):
        found[loss.ids] = loss.upto
    np.testing.assert_array_equal(found, newest)


def test_what_is_not_noted_yet_is_bounded() -> None:
    acked = AckedPushes(job())
    ids = np.arange(2, dtype=np.uint32)
    for push in range(1, 100):
        acked.release_blocks("w", ids, push)
        assert len(acked._unnoted) <= MOST_UNNOTED
    assert [loss.upto.tolist() for loss in acked.report_losses("w", ids, 98)] == [[99, 99]]
    assert acked._unnoted == []
