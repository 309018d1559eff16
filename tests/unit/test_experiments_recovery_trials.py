"""Trials on a toy training whose costs are known: gradient descent on a line per block, at one rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import scar
from experiments import fig7, fig8, recovery_trials
from experiments.convergence import passage_time
from experiments.recovery_trials import RecoveryCase, TrajectoryTrials, join_rows, run_trials
from experiments.simulation import no_progress
from experiments.workloads import TrainingRun
from scar.errors import ConfigError
from scar.tables import Checkpoint
from scar_compare.experiment import ExperimentOptions
from scar_ps.core.update_rules import apply_push

RATE = 0.8


class Line:
    """w <- 0.8 w from w = 1, one element a block; the loss is ||w||."""

    together, random = 4, False

    def __init__(self) -> None:
        self.job = scar.Job(
            "line",
            [scar.Table("w", (40,), dtype="float64", rule=scar.sgd(lr=1 - RATE), init=scar.constant(1.0))],
        )

    def advance_runs(self, runs: Sequence[TrainingRun]) -> list[float]:
        for run in runs:
            apply_push(run.state["w"], None, run.state["w"].values.copy(), no_progress)
            run.clock += 1
        return [float(np.linalg.norm(run.state["w"].values)) for run in runs]


@pytest.fixture(autouse=True)
def line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_trials, "load_workload", lambda panel, thin: Line())


def trials(*cases: RecoveryCase, numbers: tuple[int, ...] = tuple(range(12))) -> TrajectoryTrials:
    return TrajectoryTrials("line", 1, cases, 5, 0, numbers)


FULL = Checkpoint("full", 1.0, 8)


def test_full_recovery_costs_what_was_done_since_the_checkpoint() -> None:
    records = list(
        run_trials(trials(RecoveryCase("full", FULL, "full", 0.3), RecoveryCase("all", FULL, "partial", 1.0)))
    )
    assert sorted(record["trial"] for record in records) == list(range(12))
    for record in records:
        lost = record["failed"] % 8
        assert record["costs"] == {"full": pytest.approx(lost), "all": pytest.approx(lost)}
        assert 1 <= record["failed"] < record["undisturbed"] == 60
        assert record["given_up"] == []


def test_partial_recovery_costs_what_the_theory_says() -> None:
    """All blocks shrink alike, so the loss after losing a fraction p is known in closed form."""
    for record in run_trials(trials(RecoveryCase("half", FULL, "partial", 0.5))):
        since = record["failed"] % 8
        worse = np.sqrt(0.5 + 0.5 * RATE ** (-2 * since))
        assert record["costs"]["half"] == pytest.approx(np.log(worse) / np.log(1 / RATE), abs=0.03)
        assert record["norms"]["half"] == pytest.approx(
            np.sqrt(20) * (RATE ** (record["failed"] - since) - RATE ** record["failed"]), rel=1e-5
        )


def test_trials_do_not_depend_on_what_is_run_beside_them() -> None:
    half = RecoveryCase("half", Checkpoint("random", 0.25, 8), "partial", 0.5)
    alone = [record for number in (3, 7) for record in run_trials(trials(half, numbers=(number,)))]
    together = {
        record["trial"]: record
        for record in run_trials(trials(RecoveryCase("full", FULL, "full", 1.0), half))
    }
    for record in alone:
        other = together[record["trial"]]
        assert (record["failed"], record["costs"]["half"]) == (
            other["failed"],
            pytest.approx(other["costs"]["half"]),
        )


def test_a_run_that_never_comes_back_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_trials, "PATIENCE", 0.02)
    records = list(run_trials(trials(RecoveryCase("half", FULL, "partial", 0.5))))
    assert {tuple(record["given_up"]) for record in records if record["failed"] % 8} == {("half",)}


@pytest.mark.parametrize("full", [True, False])
def test_what_the_undisturbed_run_tells_need_not_be_run(monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    """Costs are the same when every run, the control among them, is trained to its end."""
    cases = [RecoveryCase("half", Checkpoint("priority", 0.125, 8), "partial", 0.5)]
    cases += [RecoveryCase("full", FULL, "full", 1.0)] if full else []
    short = list(run_trials(trials(*cases)))
    monkeypatch.setattr(recovery_trials._PendingRuns, "pass_by", lambda self, trunk: None)
    for one, other in zip(short, run_trials(trials(*cases)), strict=True):
        assert one["trial"] == other["trial"]
        assert one["costs"] == pytest.approx(other["costs"], abs=1e-9)


def test_a_failure_may_find_the_round_that_is_due_not_done() -> None:
    """The last checkpoint is then 1 to C iterations old, not 0 to C - 1."""
    for record in run_trials(replace(trials(RecoveryCase("full", FULL, "full", 1.0)), pending=True)):
        assert record["costs"]["full"] == pytest.approx((record["failed"] - 1) % 8 + 1)


def test_rows_of_one_block_are_lost_together() -> None:
    """Half of ten blocks of four rows, of values that were all 1 once and are 0.8^k now."""
    case = RecoveryCase("all", FULL, "partial", 0.5)
    many = list(run_trials(replace(trials(case), block_rows=4)))
    few = list(run_trials(replace(trials(case), block_rows=40)))
    for alike, other in zip(many, list(run_trials(trials(case))), strict=True):
        assert alike["norms"] == pytest.approx(other["norms"]), "as many rows are lost"
    assert {round(one["norms"]["all"], 6) == 0 for one in few} == {True, False}, "everything, or nothing"


def test_a_block_of_rows_has_the_weight_of_its_squared_distances() -> None:
    weights = [1.0, 2.0, 3.0, 4.0, 5.0]
    table = scar.Table("w", (5, 2), rule=scar.assign(), init=scar.constant(3), weights=weights, norm="l2")
    joined = join_rows(table, 2)
    assert (joined.blocks, joined.row_counts.sizes.tolist()) == (3, [2, 2, 1])
    assert joined.weights == pytest.approx([np.sqrt(2.5), np.sqrt(12.5), 5.0])
    assert (joined.rule, joined.init, joined.norm) == (table.rule, table.init, table.norm)
    assert join_rows(table.unweighted, 2).weights is None


def test_blocks_that_are_no_rows_are_not_joined() -> None:
    with pytest.raises(ConfigError, match="the blocks of table w are no rows"):
        join_rows(scar.Table("w", (9,), blocks=scar.ragged([0, 2, 3, 9])), 2)


def test_a_training_that_is_over_at_once_cannot_fail() -> None:
    with pytest.raises(ConfigError, match="converged after one iteration"):
        list(run_trials(replace(trials(RecoveryCase("full", FULL, "full", 1.0)), horizon=1)))


@pytest.mark.parametrize("experiment", [fig7, fig8])
def test_figures_report_what_was_measured(experiment) -> None:
    options = ExperimentOptions(trials=6, panels=("mlr-mnist",), lost=(0.5,))
    (batch,) = experiment.plan_batches(options)
    records = [{"panel": batch.panel, **record} for record in batch.work(batch.trials)]
    report = experiment.make_report(options, records)
    assert len({row[0] for row in report.rows[1:]}) == 1
    assert len(report.figure.panels) == 1
    found = report.summary["panels"]["mlr-mnist"]
    assert found["trials"] == 6
    assert found["given_up"] == 0


def test_other_fractions_and_periods_are_shown_as_asked_for() -> None:
    options = ExperimentOptions(
        trials=3, panels=("mlr-mnist",), lost=(0.6, 0.3), fractions=(0.2, 1.0), period=5, mean=0.3, horizon=30
    )
    (batch,) = fig8.plan_batches(options)
    records = [{"panel": batch.panel, **record} for record in batch.work(batch.trials)]
    report = fig8.make_report(options, records)
    assert {(case["lost"], case["fraction"]) for case in report.summary["panels"]["mlr-mnist"]["cases"]} == {
        (0.3, 1.0),
        (0.3, 0.2),
        (0.6, 1.0),
        (0.6, 0.2),
    }
    assert [panel.title for panel in report.figure.panels] == ["MLR, MNIST, lost 0.3", "MLR, MNIST, lost 0.6"]
    assert all(record["undisturbed"] == 30 for record in records)
    assert all(record["costs"]["full"] == pytest.approx(record["failed"] % 5) for record in records)


def test_panels_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError):
        fig7.plan_batches(ExperimentOptions(panels=("gan-mnist",)))


def test_a_passage_goes_over_iterations_without_a_loss() -> None:
    assert passage_time([0.9, 0.7, 0.5], 0.6) == pytest.approx(2.5)
    assert passage_time([0.9, float("nan"), 0.5], 0.6) == pytest.approx(2.5)
    assert passage_time([0.9, 0.5, float("nan")], 0.6) == pytest.approx(1.75)
    assert passage_time([float("nan"), 0.5], 0.6) == 2


def test_what_comes_after_a_passage_does_not_move_it() -> None:
    assert passage_time([0.9, 0.7, 0.5, 0.4, 0.35], 0.6) == pytest.approx(2.5)
    assert passage_time([0.9, 0.8], 0.6) == 2
