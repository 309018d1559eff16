"""What each source of lost blocks saves, on a toy training, and what is reported of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("numba")

import scar
from experiments import recovery_trials, sources
from experiments.simulation import no_progress
from experiments.workloads import TrainingRun
from scar.update_rules import Rule
from scar_compare.experiment import ExperimentOptions
from scar_compare.records import TrialRecord
from scar_ps.core.update_rules import apply_push
from scar_runtime.failure_records import FailureRecord


class Bowl:
    """||w||^2 / 2 from w = 1, one element a block."""

    together, random = 4, False

    def __init__(self, rule: Rule) -> None:
        table = scar.Table("w", (40,), dtype="float64", rule=rule, init=scar.constant(1.0))
        self.job = scar.Job("bowl", [table])

    def advance_runs(self, runs: Sequence[TrainingRun]) -> list[float]:
        for run in runs:
            apply_push(run.state["w"], None, run.state["w"].values.copy(), no_progress)
            run.clock += 1
        return [float(np.linalg.norm(run.state["w"].values)) for run in runs]


def records_of(rule: Rule, monkeypatch: pytest.MonkeyPatch, panel: str, count: int = 6) -> list[TrialRecord]:
    monkeypatch.setattr(recovery_trials, "load_workload", lambda panel, thin: Bowl(rule))
    batch = sources.plan_batches(ExperimentOptions(trials=count, panels=(panel,)))[0]
    return [{"panel": panel, **record} for record in batch.work(batch.trials)]


def killed(number: int, cost: float) -> TrialRecord:
    return {
        "panel": "mlr-mnist killed",
        "trial": number,
        "failed": 9,
        "killed": 9.0,
        "lost": 0.5,
        "cost": cost,
        "sources": {"worker": 30, "object": 10},
        "lost_pushes": 0,
    }


def test_without_slots_workers_save_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for record in records_of(scar.sgd(lr=0.2), monkeypatch, "mlr-mnist"):
        costs = record["costs"]
        assert costs["x(0) lost=0.5"] > costs["checkpoint lost=0.5"] >= 0
        for source in (sources.WORKERS, sources.REPLICA, sources.OLD_SLOTS, sources.NO_SLOTS):
            assert costs[sources.case_name(source, 0.5)] == 0
            assert record["norms"][sources.case_name(source, 0.5)] == 0


def test_with_slots_workers_save_no_more_than_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    found = records_of(scar.adam(lr=0.05), monkeypatch, "cnn-bylayer-mnist")
    for record in found:
        costs, norms = record["costs"], record["norms"]
        for lost in sources.LOST:
            assert costs[f"workers lost={lost:g}"] == costs[f"checkpoint lost={lost:g}"]
            assert costs[f"workers and replica lost={lost:g}"] == 0
        assert norms["slots as saved lost=0.5"] == norms["slots reset lost=0.5"] == 0, "values are exact"
    assert any(record["costs"]["slots reset lost=0.5"] != 0 for record in found)


def test_the_report_has_a_table_for_each_lost_fraction_one_of_slots_and_one_of_kills(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panels = ("mlr-mnist", "cnn-bylayer-mnist")
    options = ExperimentOptions(trials=6, panels=panels)
    records = records_of(scar.sgd(lr=0.2), monkeypatch, panels[0])
    records += records_of(scar.adam(lr=0.05), monkeypatch, panels[1])
    report = sources.make_report(options, [*records, killed(0, 0.0), killed(1, 0.5)])
    tables = report.summary["panels"]
    assert list(tables) == ["lost-25", "lost-50", "lost-75", "slots", "killed"]
    half = tables["lost-50"]["modes"]
    assert half["mlr-mnist"]["trials"]["value"] == 6
    assert half["mlr-mnist"]["% saved: workers"] == {"value": 100, "low": 100, "high": 100}
    assert half["cnn-bylayer-mnist"]["% saved: workers and replica"]["value"] == 100
    assert "x(0)" in half["mlr-mnist"]
    assert "x(0)" not in tables["lost-25"]["modes"]["mlr-mnist"]
    assert list(tables["slots"]["modes"]) == ["cnn-bylayer-mnist"]
    real = tables["killed"]["modes"]["mlr-mnist"]
    assert (real["runs"]["value"], real["% of them from workers"]["value"]) == (2, 75)
    assert real["cost"]["value"] == 0.25
    assert [panel.title for panel in report.figure.panels] == ["MLR, MNIST", "CNN by layer, MNIST"]
    assert {len(row) for row in report.rows} == {4}


def test_clusters_take_what_workers_hold_first_and_never_share_the_machine() -> None:
    batches = sources.plan_batches(ExperimentOptions(trials=2, panels=("mf-movielens",)))
    assert [(batch.panel, batch.trials, batch.alone) for batch in batches] == [
        ("mf-movielens", (0, 1), False),
        ("mf-movielens killed", (0,), True),
        ("mf-movielens killed", (1,), True),
    ]
    trials = batches[1].work.args[0]
    job = scar.Job("job", [scar.Table("w", (4,))])
    plan = sources.real._cluster_plan(trials, 0, job, 3, sources.real.IterationClocks(2, summed=False))
    assert (plan.job.sources, plan.job.shards, plan.kill_at, len(plan.victims)) == ("workers", 4, 6, 2)


def test_sources_of_several_failures_are_added_up() -> None:
    failures = [FailureRecord(1, sources={"worker": 3}), FailureRecord(2, sources={"worker": 1, "object": 2})]
    assert sources.real.sum_sources(failures) == {"worker": 4, "object": 2}
