"""A cluster that grows and shrinks under training loses nothing (benchmarks/resize.py has large tables)."""

from __future__ import annotations

from benchmarks.resize import measure_resizes


def test_every_push_is_in_the_values_of_a_cluster_that_grew_and_shrank() -> None:
    grown, shrunk = measure_resizes(200_000, [2, 4, 1])
    assert (grown.shards, shrunk.shards) == ((2, 4), (4, 1))
    assert grown.moved > 0
    assert shrunk.moved > 0
    for one in (grown, shrunk):
        assert (one.wrong, one.failures) == (0, 0)
