"""What is concluded from runs on real clusters; the runs themselves are experiments."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("numba")

from experiments import fig9, real
from experiments.real import IterationClocks
from scar_compare.experiment import ExperimentOptions


def test_losses_of_whole_iterations() -> None:
    losses = [float(n) for n in range(13)]
    assert real._by_iteration(losses, IterationClocks(6, summed=True)) == [15.0, 51.0]
    assert real._by_iteration(losses, IterationClocks(2, summed=False)) == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]


def test_real_runs_never_share_the_machine() -> None:
    batches = real.plan_batches(ExperimentOptions(trials=2, panels=("mf-movielens",)))
    assert [(batch.panel, len(batch.trials), batch.alone) for batch in batches] == [
        ("mf-movielens simulated", 4, False),
        ("mf-movielens real", 1, True),
        ("mf-movielens simulated", 4, False),
        ("mf-movielens real", 1, True),
    ]
    assert [batch.trials for batch in batches] == [(0, 1, 2, 3), (0,), (4, 5, 6, 7), (1,)]
    seeds = {batch.work.args[0].trajectory for batch in batches if batch.alone}
    assert len(seeds) == 2, "another seed, so another placement"


@pytest.mark.parametrize(
    ("costs", "overlap"),
    [((2.0, 2.4, 2.2), "yes"), ((5.0, 5.1, 5.2), "no"), ((2.0,), "one run has no interval")],
)
def test_intervals_overlap_or_not(costs: tuple[float, ...], overlap: str) -> None:
    records = [
        {"panel": "mf-movielens real", "trial": n, "failed": 9, "cost": cost, "lost": 0.5}
        for n, cost in enumerate(costs)
    ]
    simulated = [
        {"panel": "mf-movielens simulated", "trial": n, "failed": 9, "cost": 2.0 + n / 10} for n in range(5)
    ]
    report = real.make_report(ExperimentOptions(panels=("mf-movielens",)), [*records, *simulated])
    assert report.summary["panels"]["mf-movielens"]["overlap"] == overlap


def test_likelihood_reached_sooner() -> None:
    def run(name: str, losses: list[float], pace: float) -> dict[str, object]:
        return {
            "panel": name,
            "trial": 0,
            "losses": losses,
            "seconds": [pace * n for n in range(len(losses))],
        }

    records = [
        run("SCAR", [9.0] * 7 + [7.0, 5.0, 4.0, 5.0], 1.0),
        run("traditional", [9.0] * 7 + [math.nan, 9.0, 7.0, 5.0], 1.5),
        {**run("rounds", [9.0] * 5, 1.0), "seconds": [0.0, 7.0, 8.01, 9.02, 10.03]},
        run("no rounds", [9.0] * 5, 1.0),
    ]
    report = fig9.make_report(ExperimentOptions(), records)
    assert report.summary["iterations_sooner"]["value"] == 2
    assert report.summary["seconds_sooner"]["value"] == 9 * 1.5 - 7
    assert report.summary["overhead"]["value"] == pytest.approx(0.01)
