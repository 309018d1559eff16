"""How benchmarks measure: medians of pairs, and a ratio that always means speed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import measure, replica_bytes, yardsticks
from benchmarks.measure import Pair
from benchmarks.run import main, report_table


def test_ratio_is_speed_for_rates_and_for_times() -> None:
    times = Pair(ours=2.0, yardstick=1.0)
    fast = measure.rate_row("r", 4.0, times, "GB/s", "x")
    assert (fast.ours, fast.yardstick, fast.ratio) == (2.0, 4.0, 0.5)
    slow = measure.duration_row("d", times, "ms", "x", "note")
    assert (slow.ours, slow.yardstick, slow.ratio, slow.note) == (2000.0, 1000.0, 0.5, "note")


def test_pairs_alternate_and_the_median_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    durations = iter([9.0, 1.0, 2.0, 5.0, 3.0, 3.0])
    monkeypatch.setattr(measure, "time_action", lambda action: (action(), next(durations))[1])
    pair = measure.time_pairs(lambda: order.append("ours"), lambda: order.append("yard"), repeat=3)
    assert pair == Pair(3.0, 3.0)
    assert order == ["ours", "yard"] * (measure.WARM_UPS + 3)


def test_the_plain_socket_moves_all_bytes() -> None:
    up, down = np.full(300_000, 7, dtype=np.uint8), np.zeros(200_000, dtype=np.uint8)
    with yardsticks.tcp_peer() as peer:
        peer.exchange(up, down)
        peer.exchange(up[:10], down[:0])
    assert (down == 7).all()


def test_copy_and_one_pass_do_their_work() -> None:
    yardsticks.copy_memory(1000)()
    assert yardsticks.one_pass(np.ones(4), np.full(4, 2.0))() == [4.0, 8.0]


def test_an_unknown_benchmark_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["nonsense"])
    assert error.value.code == 2
    assert "no such benchmark: nonsense" in capsys.readouterr().err


def test_the_table_has_a_line_for_each_row() -> None:
    rows = [measure.rate_row("r", 1.0, Pair(1.0, 1.0), "GB/s", "x")]
    assert report_table({"one": rows * 2, "two": rows}, {}).row_count == 3


@pytest.mark.parametrize(
    ("number", "least", "most"),
    [
        *[(0, 0.0, 0.0), (1, 1.0, 1.0), (2, 1.0, 1.0), (3, 0.85, 0.97), (4, 0.5, 0.8), (5, 1.0, 1.0)],
        *[(6, 0.0, 0.0), (7, 0.0, 0.0), (9, 1.0, 1.0), (10, 1.0, 1.0)],
    ],
)
def test_bytes_of_replicas_are_counted_beside_a_full_chain(number: int, least: float, most: float) -> None:
    case = replica_bytes.CASES[number]
    chain, missing = (
        replica_bytes.count_bytes(case, one) for one in (replica_bytes.CHAIN, replica_bytes.MISSING)
    )
    touched = replica_bytes.TOUCHED if "1/20" in case.name else replica_bytes.ROWS
    assert chain >= 4 * replica_bytes.WIDTH * touched, "all that has changed, in each clock"
    assert least <= missing / chain <= most


@pytest.mark.parametrize(("number", "slots"), [(0, 0), (1, 1), (2, 2)])
def test_bytes_of_slots_that_a_worker_pulls_are_counted(number: int, slots: int) -> None:
    counted = replica_bytes.count_slots(replica_bytes.CASES[number])
    values = 4 * replica_bytes.WIDTH * replica_bytes.ROWS
    assert counted is not None
    assert slots * values <= counted <= slots * 1.05 * values
    assert replica_bytes.count_slots(replica_bytes.CASES[3]) is None
