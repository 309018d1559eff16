"""A flat array in pieces looks like the whole one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar_ps.core.segments import Segments, find_pushed_rows


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


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 30), st.data())
def test_rows_in_even_pieces_are_found_where_they_lie(width, piece_rows, rows, data):
    whole = np.arange(rows * width, dtype=np.float64)
    piece = piece_rows * width
    segments = Segments(np.split(whole, range(piece, len(whole), piece)), whole.dtype)
    start = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(start + 1, rows))
    found = find_pushed_rows(segments, slice(start * width, stop * width), width)
    assert all(np.shares_memory(one, whole) for one in found.pieces)
    pieces = [np.pad(one, (0, found.piece_rows * width - len(one))) for one in found.pieces]
    shaped = np.concatenate(pieces).reshape(-1, width)[found.skipped :][: found.count]
    assert shaped.tolist() == whole.reshape(-1, width)[start:stop].tolist()
    squares = np.mean(shaped * shaped, axis=1)
    assert found.mean_squares(width).tolist() == squares.tolist()


@pytest.mark.parametrize("sizes", [(3, 4), (4, 2, 6), (6, 4, 6), (6, 6, 4, 6), (4, 8), (4, 4, 12)])
def test_rows_that_lie_in_two_pieces_are_put_together(sizes):
    whole = np.arange(sum(sizes), dtype=np.float64)
    segments = Segments(np.split(whole, np.cumsum(sizes)[:-1]), whole.dtype)
    assert segments.find_rows(slice(0, 4), 4) is None
    found = find_pushed_rows(segments, slice(0, 4), 4)
    assert (found.count, found.pieces[0].tolist()) == (1, whole[:4].tolist())
