"""Parts of one piece of work come back in their order, whoever did them, by as many threads as may."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from scar import parallel
from scar.parallel import LEAST_BYTES, MOST_THREADS, count_parts, count_threads, map_parts


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "count_threads", lambda: 3)


def test_small_work_is_one_part(processors: None) -> None:
    assert [count_parts(size) for size in (0, LEAST_BYTES - 1, LEAST_BYTES)] == [1, 1, 3]


def test_no_more_threads_than_help() -> None:
    assert 1 <= count_threads() <= MOST_THREADS


@pytest.mark.parametrize(
    ("told", "threads"),
    [("100000 100000", 1), ("50000 100000", 1), ("150000 100000", 2), ("max 100000", 4), ("1 0", 4), ("", 4)],
)
def test_a_container_has_as_many_as_its_limit(monkeypatch, tmp_path: Path, told: str, threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(parallel, "CPU_LIMIT", tmp_path / "cpu.max")
    (tmp_path / "cpu.max").write_text(f"{told}\n")
    assert count_threads.__wrapped__() == threads


def test_results_are_in_the_order_of_the_parts_and_at_once(processors: None) -> None:
    together = threading.Barrier(3, timeout=30)

    def double(number: int) -> int:
        together.wait()
        return 2 * number

    assert map_parts(double, range(6)) == [0, 2, 4, 6, 8, 10]


def test_one_part_needs_no_other_thread(processors: None) -> None:
    here = threading.current_thread()
    assert map_parts(lambda _: threading.current_thread() is here, [1]) == [True]
    assert map_parts(print, []) == []


def test_an_error_in_a_part_is_the_callers(processors: None) -> None:
    with pytest.raises(ZeroDivisionError):
        map_parts(lambda number: 1 // number, [2, 1, 0, 1])
