"""Plans of records do not change when code is renamed: a record that was made once can always be read."""

from __future__ import annotations

import hashlib

import pytest

pytest.importorskip("scipy")

from experiments import suite
from scar_compare.comparison import StrategyComparison
from scar_compare.experiment import ExperimentOptions
from scar_compare.trial_plans import describe_work, panel_plans, recorded_as

EXPERIMENTS = {one.NAME: one for one in (*suite.EXPERIMENTS, StrategyComparison())}
PLANS = {  # digests
    "fig3": "340e6808097d",
    "fig5": "f8544be7660e",
    "fig6": "77acaf6b875a",
    "fig7": "f03e7b75b3df",
    "fig8": "9cae0ac5bed2",
    "fig9": "37e97c693b47",
    "real": "0835396c2e7c",
    "sources": "eb41b6ca8fae",
    "sweep": "a552104af79e",
    "budget": "da87de28b222",
    "calibration": "9f1714bd2c49",
    "simulate": "2ecdfb5c859e",
    "which-strategy": "08583db1b691",
    "through-failure": "3a020474dd81",
    "compare": "b345c63edffd",
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_plans_are_what_they_were(name: str) -> None:
    experiment = EXPERIMENTS[name]
    found = hashlib.blake2b(digest_size=6)
    for options in (ExperimentOptions(), ExperimentOptions(quick=True, seed=7, pending=True, lost=(0.3,))):
        plans = panel_plans(options, experiment.plan_batches(options))
        found.update(repr(sorted(plans.items())).encode())
    assert found.hexdigest() == PLANS[name], "if the records mean something else now, write the new one here"


def test_a_renamed_function_keeps_its_name_in_plans() -> None:
    @recorded_as("old_name")
    def new_name() -> None: ...

    assert describe_work(new_name) == "old_name"
    assert describe_work(len) == "len"
