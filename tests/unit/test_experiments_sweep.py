"""Sweeps change one decision at a time, and the limit of a budget is the best schedule's."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import budget, fig8, sweep
from experiments.runner import Options
from experiments.statistics import reduction


def test_each_sweep_changes_one_decision() -> None:
    batches = sweep.batches(Options(panels=("lda-reuters",), trials=20, seed=4))
    assert len(batches) == 2 * (len(sweep.CHANGES) - 1), "two trajectories of ten trials each; LDA has no weights"
    trials = {batch.panel: batch.work.args[0] for batch in batches}
    chosen = trials["lda-reuters, as chosen"]
    assert {case.lost for case in chosen.cases if case.name != fig8.FULL} == {0.5}
    assert trials["lda-reuters, early"].mean == 0.25 != chosen.mean
    assert trials["lda-reuters, pending"].pending != chosen.pending
    periods = {name: one.cases[0].checkpoint.period for name, one in trials.items()}
    assert periods["lda-reuters, C = 32"] == 32 != periods["lda-reuters, horizon 30"] == 8


def test_only_factorisations_have_weights_to_leave_out() -> None:
    batches = {batch.panel: batch.work.args[0] for batch in sweep.batches(Options(panels=("mf-movielens",), trials=10))}
    plain, chosen = batches["mf-movielens, unweighted"], batches["mf-movielens, as chosen"]
    assert (plain.unweighted, chosen.unweighted) == (True, False)


def test_a_sweep_reports_savings_of_every_change() -> None:
    names = [fig8.case_name(selection, fraction, 0.5) for selection in fig8.SELECTIONS for fraction in (1.0, 0.125)]
    records = [
        {"panel": f"mlr-mnist, {change}", "trial": n, "costs": dict.fromkeys(names, 1.0 + n) | {"full": 4.0 + n}}
        for change in ("as chosen", "C = 16")
        for n in range(5)
    ]
    report = sweep.report(Options(), records)
    assert [row[:3] for row in report.rows[1:]] == [["mlr-mnist", "as chosen", "5"], ["mlr-mnist", "C = 16", "5"]]
    expected = reduction([1.0 + n for n in range(5)], [4.0 + n for n in range(5)]).document
    assert report.summary["panels"]["mlr-mnist"]["C = 16"]["reductions"]["priority 1/8"] == expected


def test_rows_that_move_alike_leave_nothing_to_choose() -> None:
    """Saved in turn: each every C iterations, so that it is (C - 1) / 2 old."""
    assert budget.best_age(np.ones(800), 100) == pytest.approx(3.5)


def test_few_movers_are_saved_each_time() -> None:
    speed = np.concatenate([np.full(50, 1.0), np.zeros(750)])
    assert budget.best_age(speed, 100) == 0
    assert budget.best_age(np.concatenate([np.full(90, 1.0), np.full(710, 1e-3)]), 100) < 0.01


def test_no_other_schedule_of_the_budget_is_better() -> None:
    random = np.random.default_rng(3)
    speed = random.lognormal(0, 2, 400)
    best = budget.best_age(speed, 50)
    for _ in range(200):
        periods = np.maximum(1, random.lognormal(0, 1, 400) / speed ** random.uniform(0, 2))
        periods *= (1 / periods).sum() / 50  # scaled to the budget; longer where that makes one shorter than an iteration
        periods = np.maximum(1, periods)
        if (1 / periods).sum() <= 50:
            assert np.average((periods - 1) / 2, weights=speed**2) >= best - 1e-9


def test_the_limit_counts_what_is_lost() -> None:
    records = [{"panel": "mlr-mnist", "trial": n, "age": 1.75, "half": 0.1} for n in range(1, 60)]
    limits = budget.report(Options(lost=(0.25, 1.0)), records).summary["panels"]["mlr-mnist"]["limits"]
    assert limits == {"0.25": pytest.approx(0.875), "1": pytest.approx(0.5)}
