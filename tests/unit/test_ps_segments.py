"""A flat array in pieces looks like the whole one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar_ps.core.segments import Segments


@given(st.lists(st.integers(1, 7), max_size=6), st.data())
def test_every_slice_is_that_of_the_whole(sizes, data):
    whole = np.arange(sum(sizes), dtype=np.float64)
    segments = Segments(np.split(whole, np.cumsum(sizes)[:-1]) if sizes else [], whole.dtype)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert segments[start:stop].tolist() == whole[start:stop].tolist()
    assert (len(segments), segments.nbytes) == (len(whole), whole.nbytes)
    assert np.asarray(segments).tolist() == whole.tolist()


def test_a_slice_within_one_piece_is_no_copy():
    piece = np.arange(8.0)
    segments = Segments([np.arange(3.0), piece], piece.dtype)
    assert np.shares_memory(segments[4:7], piece)
    assert not np.shares_memory(segments[2:7], piece)
    with pytest.raises(ValueError, match="copy"):
        np.array(segments, copy=False)
