"""`scar jobs plot`: the picture shows what the store has of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from scar.errors import ConfigError, JobNotFound
from scar.tables import Job, Table
from scar.v1.recovery_pb2 import FailureRecord
from scar.wire.codec import job_to_proto
from scar_cli.cluster_ref import ClusterRef
from scar_cli.run_plot import draw_run, failure_words, plot_job
from scar_console.stored_runs import read_run
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store, open_store
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.history_log import HistoryLog
from scar_runtime.store.records import create_record

LOSSES = {clock: 100.0 / (1 + clock) ** 2 for clock in range(40)}
KILL = FailureRecord(
    number=1, members=["ps-1@a", "ps-2@b"], epoch=2, clock=17, lost_blocks=5, total_blocks=10, delta_norm=0.25
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """One job that has trained, and one of which nobody has heard a loss."""
    url = f"file://{tmp_path / 'store'}"
    for name in ("mlr", "silent"):
        create_record(open_store(url).under(name), "job", job_to_proto(Job(name, [Table("w", 4)])))
    history = ProgressHistory()
    history.add_losses(LOSSES)
    history.metrics.add_metrics({clock: {"accuracy": clock / 40} for clock in LOSSES})
    write_history(open_store(url).under("mlr"), history)
    FailureLog(open_store(url).under("mlr")).write(KILL, "a")
    return url


def write_history(store: Store, history: ProgressHistory) -> None:
    HistoryLog(store).write(history, "0123456789ab")


def test_losses_metrics_and_failures_are_where_they_were(url: str) -> None:
    figure = draw_run("mlr", read_run(open_store(url), "mlr"))
    loss, accuracy = figure.axes
    curve, kill = loss.get_lines()
    assert dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True)) == LOSSES
    assert list(kill.get_xdata()) == [17, 17]
    assert loss.get_yscale() == "log"
    assert loss.get_title() == "mlr\nclock 17: ps-1, ps-2 died, 5 of 10 blocks put back, ‖δ‖ 0.25"
    curve, kill = accuracy.get_lines()
    assert list(curve.get_ydata()) == [clock / 40 for clock in LOSSES]
    assert list(kill.get_xdata()) == [17, 17]
    assert (accuracy.get_ylabel(), accuracy.get_xlabel()) == ("accuracy", "clock")


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_the_same_run_is_the_same_picture(url: str, tmp_path: Path, form: str) -> None:
    made = []
    for number in range(2):
        file = tmp_path / f"{number}.{form}"
        plot_job(ClusterRef(), "mlr", url, file)
        made.append(file.read_bytes())
    assert len(made[0]) > 1000
    assert made[0] == made[1] or form == "pdf"


def test_a_worker_that_dies_takes_no_block_along() -> None:
    assert failure_words(FailureRecord(members=["worker-0@a"], clock=3, delta_norm=-1)) == (
        "clock 3: worker-0 died"
    )


def test_where_nobody_died_it_says_what_was_wrong() -> None:
    diverged = FailureRecord(clock=9, rollback="the loss of clock 8 is no number", delta_norm=-1)
    assert failure_words(diverged) == "clock 9: the loss of clock 8 is no number"
    damaged = FailureRecord(
        clock=9, damage=["objects/x is cut"], lost_blocks=2, total_blocks=8, delta_norm=-1
    )
    assert failure_words(damaged) == "clock 9: objects/x is cut, 2 of 8 blocks put back"


def test_what_cannot_be_drawn_is_said(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no picture") as refused:
        plot_job(ClusterRef(), "mlr", url, tmp_path / "mlr.txt")
    assert ".svg" in refused.value.next_step
    with pytest.raises(ConfigError, match="no loss of job 'silent'"):
        plot_job(ClusterRef(), "silent", url, tmp_path / "a.png")
    with pytest.raises(JobNotFound):
        plot_job(ClusterRef(), "other", url, tmp_path / "a.png")
    assert not list(tmp_path.glob("*.png"))
