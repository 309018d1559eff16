"""The virtual clock of seed 003's experiment: what each family restores, and that nothing but the family
differs.
"""

from __future__ import annotations

import numpy as np
import pytest

from experiments.through_failure import comparison, recovery_modes, virtual_training
from experiments.through_failure.recovery_modes import RecoveryMode
from scar import paper_datasets
from scar_compare.experiment import ExperimentOptions

SMALL = 40  # images


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random images, runs of 100 gradients, kills at 20 and 60."""
    draw = np.random.default_rng(0)
    data = paper_datasets.Labelled(
        draw.normal(size=(SMALL, 784)).astype(np.float32), draw.integers(0, 10, SMALL)
    )
    for name, value in {
        "TICKS": 100,
        "SEEN": 2,
        "EVERY": 20 * 0.48,
        "KILLS": (20 * 0.48, 60 * 0.48),
        "SHIFT": 0.0,
        "RETURN": 9.6,
    }.items():
        monkeypatch.setattr(virtual_training, name, value)
    monkeypatch.setattr(virtual_training, "BATCH", 2)
    monkeypatch.setattr(virtual_training, "_training_data", lambda: data)
    monkeypatch.setattr(recovery_modes, "PERIOD", 7)


def outcomes(*chosen: RecoveryMode, kills: int = 1, lost: float = 1.0) -> dict[str, dict[str, object]]:
    record = next(virtual_training.run_trials(virtual_training.FailurePlan(chosen, kills, lost), 1, [0]))
    return record["modes"]  # type: ignore[no-any-return]


def mode(name: str) -> RecoveryMode:
    return next(one for one in recovery_modes.MODES if one.name == name)


def test_before_the_kill_only_the_family_differs() -> None:
    found = outcomes(*recovery_modes.MODES)
    first = {name: one["loss"][0] for name, one in found.items()}  # type: ignore[index]
    assert len(set(first.values())) == 1
    for family in (
        ("async-checkpoint", "async-chain", "stateless", "async-partial"),
        ("sync-checkpoint", "sync-partial"),
    ):
        assert len({found[name]["failures"][0]["loss_before"] for name in family}) == 1  # type: ignore[index]


def test_what_a_family_restores() -> None:
    found = {name: one["failures"][0] for name, one in outcomes(*recovery_modes.MODES).items()}  # type: ignore[index]
    assert found["sync-chain"]["loss_after"] == found["sync-checkpoint"]["loss_after"]
    assert found["async-chain"]["seconds"] < found["async-checkpoint"]["seconds"]
    assert found["stateless"]["backlog"] == 20
    assert found["async-partial"]["delta"] > 0


def test_stateful_workers_stand_still_and_stateless_ones_do_not() -> None:
    found = outcomes(mode("async-checkpoint"), mode("async-chain"), mode("stateless"))
    assert found["stateless"]["busy"] == 1.0
    assert found["async-checkpoint"]["busy"] == pytest.approx(0.8)
    assert (
        found["async-checkpoint"]["gradients"]
        < found["async-chain"]["gradients"]
        < found["stateless"]["gradients"]
    )  # type: ignore[operator]


def test_the_published_flaw_forgets_everything_at_the_first_of_two_kills() -> None:
    flawed, restored = (
        outcomes(one, kills=2)["async-checkpoint"]
        for one in (recovery_modes.FLAWED[0], mode("async-checkpoint"))
    )
    first, second = ([failure["delta"] for failure in one["failures"]] for one in (flawed, restored))  # type: ignore[attr-defined]
    assert first[0] > 5 * second[0]
    assert 5 * first[1] < first[0], "after the last kill the published code restores, too"


def test_a_quarter_of_the_blocks_costs_less() -> None:
    whole, part = (
        outcomes(mode("async-chain"), lost=lost)["async-chain"]["failures"][0]["delta"]
        for lost in (1.0, 0.25)
    )  # type: ignore[index]
    assert 0 < part < whole


def test_a_report_names_the_winners() -> None:
    options = ExperimentOptions(trials=1)
    records = [
        {"panel": batch.panel, **record}
        for batch in comparison.plan_batches(options)
        for record in batch.work(batch.trials)
    ]
    report = comparison.make_report(options, records)
    panel = report.summary["panels"]["one-kill"]
    assert panel["seeds"] == 1
    assert panel["winners"]["CPU busy"] == ["stateless"]
    assert "async-partial" in panel["modes"]
    assert len(report.figure.panels) == 8
