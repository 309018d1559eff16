"""Sweeps change one decision at a time, and the limit of a budget is the best schedule's."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import budget as budget_of
from experiments import fig8, recovery_trials, sweep
from experiments.simulation import copy_state, initial_state
from experiments.workloads import Factorisation, TrainingRun
from scar.models import mf
from scar_compare.experiment import ExperimentOptions
from scar_compare.statistics import reduction_estimate


def test_each_sweep_changes_one_decision() -> None:
    batches = sweep.plan_batches(ExperimentOptions(panels=("lda-reuters",), trials=20, seed=4))
    assert len(batches) == 2 * (len(sweep.CHANGES) - 1), (
        "two trajectories of ten trials each; LDA has no weights"
    )
    trials = {batch.panel: batch.work.args[0] for batch in batches}
    chosen = trials["lda-reuters, as chosen"]
    assert {case.lost for case in chosen.cases if case.name != fig8.FULL} == {0.5}
    assert trials["lda-reuters, early"].mean == 0.25 != chosen.mean
    assert trials["lda-reuters, pending"].pending != chosen.pending
    periods = {name: one.cases[0].checkpoint.period for name, one in trials.items()}
    assert periods["lda-reuters, C = 32"] == 32 != periods["lda-reuters, horizon 30"] == 8


def test_only_factorisations_have_weights_to_leave_out() -> None:
    batches = {
        batch.panel: batch.work.args[0]
        for batch in sweep.plan_batches(ExperimentOptions(panels=("mf-movielens",), trials=10))
    }
    plain, chosen = batches["mf-movielens, unweighted"], batches["mf-movielens, as chosen"]
    assert (plain.unweighted, chosen.unweighted) == (True, False)


def test_a_sweep_reports_savings_of_every_change() -> None:
    names = [
        fig8.case_name(selection, fraction, 0.5) for selection in fig8.SELECTIONS for fraction in (1.0, 0.125)
    ]
    records = [
        {
            "panel": f"mlr-mnist, {change}",
            "trial": n,
            "costs": dict.fromkeys(names, 1.0 + n) | {"full": 4.0 + n},
        }
        for change in ("as chosen", "C = 16")
        for n in range(5)
    ]
    report = sweep.make_report(ExperimentOptions(), records)
    assert [row[:3] for row in report.rows[1:]] == [
        ["mlr-mnist", "as chosen", "5"],
        ["mlr-mnist", "C = 16", "5"],
    ]
    expected = reduction_estimate([1.0 + n for n in range(5)], [4.0 + n for n in range(5)]).document
    assert report.summary["panels"]["mlr-mnist"]["C = 16"]["reductions"]["priority 1/8"] == expected


def best(costs: np.ndarray, budget: float) -> float:
    """What it costs to lose everything under the schedule that suits these costs best."""
    return budget_of.cost_of(budget_of.save_periods(np.sqrt(costs), budget), costs)


def test_blocks_that_matter_alike_leave_nothing_to_choose() -> None:
    """Saved in turn: each every C iterations, so that it is (C - 1) / 2 old."""
    assert best(np.full(800, 1 / 800), 100) == pytest.approx(3.5)


def test_few_that_matter_are_saved_each_time() -> None:
    assert best(np.concatenate([np.full(50, 1 / 50), np.zeros(750)]), 100) == 0
    assert best(np.concatenate([np.full(90, 1 / 90), np.full(710, 1e-9)]), 100) < 0.01


def test_no_other_schedule_of_the_budget_is_better() -> None:
    random = np.random.default_rng(3)
    costs = random.lognormal(0, 4, 400)
    least = best(costs, 50)
    for _ in range(200):
        periods = np.maximum(1, random.lognormal(0, 1, 400) / costs ** random.uniform(0, 1))
        # scaled to the budget; longer where that makes one shorter than an iteration
        periods *= (1 / periods).sum() / 50
        periods = np.maximum(1, periods)
        if (1 / periods).sum() <= 50:
            assert budget_of.cost_of(periods, costs) >= least * (1 - 1e-9)


def test_the_limit_counts_what_is_lost() -> None:
    records = [
        {"panel": "mlr-mnist", "trial": n, "best": 1.75, "distance": 3.5, "half": 0.1}
        for n in range(8, 60, 4)
    ]
    limits = budget_of.make_report(ExperimentOptions(lost=(0.25, 1.0)), records).summary["panels"][
        "mlr-mnist"
    ]["limits"]
    assert limits["0.25"] == pytest.approx({"distance": 0.75, "best": 0.875})
    assert limits["1"] == pytest.approx({"distance": 0.0, "best": 0.5})


def test_users_cost_nothing_and_what_items_cost_grows_with_their_age() -> None:
    """Users are solved for from the items before anybody reads them; items move steadily, so all of them
    cost about 1.
    """
    random = np.random.default_rng(5)
    users, items = random.integers(0, 60, 3000), random.integers(0, 200, 3000)
    tastes = random.normal(size=(60, 5)), random.normal(size=(200, 5))
    ratings = (tastes[0][users] * tastes[1][items]).sum(axis=1) + random.normal(size=3000)
    known = mf.Ratings(users.astype(np.int32), items.astype(np.int32), ratings.astype(np.float32), (60, 200))
    model, trials = (
        Factorisation(known, factors=8),
        recovery_trials.TrajectoryTrials("mf-made-up", 1, (), 1, 0, (), horizon=30),
    )
    job, criterion = recovery_trials.prepare_job(model, trials)
    run, past = TrainingRun(initial_state(job)), []
    for _ in range(16):
        past.append(copy_state(run.state))
        model.advance_runs([run])
    _, costs = budget_of.costs_of(model, criterion, run, past[-budget_of.BACK])
    assert costs[:60].sum() == 0
    assert costs[60:].sum() == pytest.approx(1, abs=0.4)
