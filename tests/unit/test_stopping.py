"""When training ends before its limit, and which model is kept."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scar
from scar.errors import ConfigError, CorruptCheckpoint, Diverged
from scar.losses import MAX_METRICS, LossPoint
from scar.snapshots import MOST_AHEAD, ClockChoice, Snapshot
from scar.stopping import StopRules


def point(clock: int, loss: float = 1.0, **metrics: float) -> LossPoint:
    return LossPoint(clock, loss, metrics=tuple(sorted(metrics.items())))


def rules(stopping: scar.EarlyStopping, **options: object) -> StopRules:
    return StopRules(None, stopping, "ignore", "bsp")


def test_it_asks_for_the_end_after_patience_evaluations_without_progress():
    rule = scar.EarlyStopping("val_loss", patience=2)
    judge = rules(rule)
    for clock, value in ((0, 3.0), (5, 2.0), (10, 2.5)):
        assert not judge.judge(point(clock, val_loss=value))
        assert not judge.judge(point(clock, val_loss=value))  # heard again: it counts once
        assert not judge.judge(point(clock + 1))  # nobody has evaluated
        assert not judge.asks_to_stop
    assert not judge.judge(point(15, val_loss=2.0))
    assert judge.asks_to_stop
    assert (rule.best, rule.best_clock) == (2.0, 5)
    assert judge.judge(point(16, early_stopping=1.0))


def test_a_sum_of_two_evaluations_does_not_count():
    rule = scar.EarlyStopping("accuracy", patience=1, mode="max")
    rule.observe(point(0, accuracy=0.5, evaluations=1))
    rule.observe(point(5, accuracy=1.1, evaluations=2))
    assert (rule.best, rule.waited) == (0.5, 0)


def test_nan_is_worse_than_any_number():
    rule = scar.EarlyStopping(patience=2)
    rule.observe(point(0, math.nan))
    rule.observe(point(1, 5.0))
    rule.observe(point(2, math.nan))
    assert (rule.best, rule.best_clock, rule.waited) == (5.0, 1, 1)


@given(
    values=st.lists(st.floats(0, 10), min_size=1, max_size=30),
    since=st.integers(0, 29),
    patience=st.integers(1, 5),
    mode=st.sampled_from(["min", "max"]),
)
def test_who_has_come_later_never_asks_for_the_end_before_the_others(values, since, patience, mode):
    first, later = (scar.EarlyStopping(patience=patience, mode=mode) for _ in range(2))
    for clock, value in enumerate(values):
        first.observe(point(clock, value))
        if clock >= since:
            later.observe(point(clock, value))
        if first.is_over:
            return
        assert not later.is_over


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_ends_the_training_where_it_was_asked_for(loss):
    with pytest.raises(Diverged, match="the loss of clock 7 is"):
        StopRules(None, None, "stop", "bsp").find_divergence(point(7, loss), 0)
    assert StopRules(None, None, "ignore", "bsp").find_divergence(point(7, loss), 0) == (-1, "")


def test_a_loss_of_a_model_that_went_back_says_nothing():
    judge = StopRules(None, None, "restore", "bsp")
    assert judge.find_divergence(point(7, math.nan), 0) == (7, "the loss of clock 7 is nan")
    assert judge.find_divergence(point(7, math.nan), 8) == (-1, "")
    assert judge.find_divergence(point(8, 1.0), 8) == (-1, "")


def diverging(clocks: int = 3, on_nan: str = "restore") -> StopRules:
    return StopRules(None, None, on_nan, "bsp", divergence=scar.Divergence(2.0, clocks=clocks))


def test_a_loss_that_stays_too_high_is_a_divergence_since_its_first_clock():
    judge = diverging()
    losses = (5.0, 1.0, 2.5, 2.5, 1.9, 2.1, 2.1, 2.1, 2.1)  # twice 1.0 is not above it
    found = [judge.find_divergence(point(clock, loss), 0) for clock, loss in enumerate(losses)]
    assert found[7] == (5, "the loss is above 2 since clock 5")
    assert [one for index, one in enumerate(found) if index != 7] == [(-1, "")] * 8
    stops = diverging(2, "stop")
    for clock, loss in enumerate((1.0, 3.0)):
        stops.find_divergence(point(clock, loss), 0)
    with pytest.raises(Diverged, match="since clock 1"):
        stops.find_divergence(point(2, 3.0), 0)


def test_a_rollback_ends_a_run_of_high_losses():
    judge = diverging()
    for clock, loss in enumerate((1.0, 3.0, 3.0)):
        assert judge.find_divergence(point(clock, loss), 0) == (-1, "")
    for clock in (6, 7):
        assert judge.find_divergence(point(clock, 3.0), 6) == (-1, ""), "another worker had it rolled back"
        assert judge.find_divergence(point(clock, 3.0), 6) == (-1, ""), "heard again, it counts once"
    assert judge.find_divergence(point(8, 3.0), 6)[0] == 6


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="on_nan"):
        StopRules(None, None, "restor", "bsp")
    with pytest.raises(ConfigError, match="not asp"):
        StopRules(None, scar.EarlyStopping(), "stop", "asp")
    with pytest.raises(ConfigError, match="mode"):
        scar.EarlyStopping(mode="best")
    with pytest.raises(ConfigError, match="without on_nan"):
        StopRules(None, None, "ignore", "bsp", divergence=scar.Divergence())
    for factor, clocks in ((1.0, 5), (math.nan, 5), (2.0, 0)):
        with pytest.raises(ConfigError, match="factor must be above 1"):
            scar.Divergence(factor, clocks=clocks)
    for wrong in ({"patience": 0}, {"min_delta": -1}, {"min_delta": math.nan}):
        with pytest.raises(ConfigError, match="patience must be"):
            scar.EarlyStopping(**wrong)


def snapshot(clock: int, value: float, job: str = "digits") -> Snapshot:
    return Snapshot(job, clock, 1, {"w": np.full(3, value, np.float32)})


def kept(file: Path) -> tuple[int, float]:
    with np.load(file) as arrays:
        assert (arrays["w"] == np.float32(arrays["scar.value"])).all()
        return int(arrays["scar.clock"]), float(arrays["scar.value"])


def offer(file: Path, clock: int, value: float, started: int = 0, rule: scar.EarlyStopping | None = None):
    rule = rule or scar.EarlyStopping("val_loss", keep_best=file)
    assert rule.keep_best is not None
    return rule.keep_best.offer(rule, value, snapshot(clock, value), started)


def test_the_best_model_is_kept(tmp_path):
    file = tmp_path / "best.npz"
    rule = scar.EarlyStopping("val_loss", keep_best=file)
    assert [offer(file, clock, value, rule=rule) for clock, value in ((5, 2.0), (10, 3.0), (15, 1.0))] == [
        True,
        False,
        True,
    ]
    assert kept(file) == (15, 1.0)
    assert not offer(file, 20, 1.5, started=18)  # a worker that has come later
    assert offer(file, 20, 0.5, started=18)
    assert offer(file, 0, 9.0)  # another run
    assert kept(file) == (0, 9.0)
    snapshot(3, 0.1, job="other").save(file, {"scar.value": 0.1})
    assert offer(file, 20, 5.0, started=18)
    assert [path.name for path in tmp_path.iterdir()] == ["best.npz"]


def test_a_file_that_is_none_of_ours_is_not_overwritten(tmp_path):
    file = tmp_path / "best.npz"
    file.write_text("my notes")
    with pytest.raises(CorruptCheckpoint, match="Move it away"):
        offer(file, 20, 1.0, started=18)
    assert file.read_text() == "my notes"


def test_the_end_is_told_however_many_metrics_there_are():
    many = {f"m{number}": 1.0 for number in range(100)}
    told = dict(point(0, early_stopping=1.0, evaluations=1.0, **many).told_metrics)
    assert len(told) == MAX_METRICS
    assert (told["early_stopping"], told["evaluations"]) == (1.0, 1.0)
    assert point(0, a=2.0).told_metrics == (("a", 2.0),)


def test_a_snapshot_is_asked_for_further_ahead_when_it_was_missed():
    choice = ClockChoice()
    asked = []
    for _ in range(9):
        asked.append(choice.next_clock(10) - 10)
        choice.note_passed()
    assert asked == [0, 1, 2, 4, 8, 16, 32, MOST_AHEAD, MOST_AHEAD]
    choice.note_silence()
    assert choice.next_clock(10) == 10
    assert ClockChoice(7).next_clock(10) == 7
