"""What may change when a job is resumed, on the command line and in its record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scar
from scar.errors import ConfigError, JobExists, UnknownTable
from scar.wire.codec import job_to_proto
from scar_cli.job_settings import apply_settings
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_registry import JobRegistry
from scar_runtime.store.job_records import read_job_spec, read_revisions
from tests.framework.recovery import MemoryStore


def make_job(**options: Any) -> scar.Job:
    tables = [
        scar.Table("w", (8, 2), rule=scar.sgd(0.2), init=scar.given(np.ones((8, 2), np.float32))),
        scar.Table("b.x", 4, rule=scar.adam(0.1)),
    ]
    return scar.Job("test", **{"tables": tables, "workers": 2, **options})


def with_rules(w: scar.Rule, b: scar.Rule) -> list[scar.Table]:
    job = make_job()
    job.tables[0].rule, job.tables[1].rule = w, b
    return list(job.tables)


@pytest.fixture
def registry() -> JobRegistry:
    found = JobRegistry(MemoryStore(), "scar")
    found.declare_job(make_job(), GivenArrays({"w": np.ones(16, np.float32).tobytes()}), resume=False)
    return found


SETTINGS = {
    "lr": {"tables": with_rules(scar.sgd(0.01), scar.adam(0.1))},
    "schedule": {"tables": with_rules(scar.sgd(0.2, schedule=scar.schedules.cosine(9)), scar.adam(0.1))},
    "decay": {"tables": with_rules(scar.sgd(0.2, weight_decay=0.1), scar.adam(0.1))},
    "checkpoint": {"checkpoint": scar.Checkpoint(fraction=0.5, period=3)},
    "consistency": {"consistency": "ssp", "staleness": 2},
    "workers": {"workers": 5, "shards": 3},
}


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_setting_changes_and_the_record_says_so(registry: JobRegistry, options: dict[str, Any]) -> None:
    asked = make_job(**options)
    changes = registry.find_changes(asked, resume=True)
    assert changes
    revised = registry.revise_job(asked)
    assert registry.find_changes(asked, resume=True) == ""
    store = registry._store.under("test")
    assert read_job_spec(store) == job_to_proto(revised)
    assert [(one.number, one.changes) for one in read_revisions(store)] == [(1, changes)]
    assert (
        revised.tables[0].init.key
        == registry.declare_job(asked, GivenArrays(), resume=True).tables[0].init.key
        != ""
    )
    registry.revise_job(asked)
    assert len(read_revisions(store)) == 1, "nothing has changed since"


def test_changes_are_named() -> None:
    found = JobRegistry(MemoryStore(), "scar")
    found.declare_job(make_job(), GivenArrays({"w": np.ones(16, np.float32).tobytes()}), resume=False)
    asked = make_job(workers=5, tables=with_rules(scar.sgd(0.01), scar.adam(0.1)))
    assert found.find_changes(asked, resume=True) == "workers: 2 -> 5, w.rule.lr: 0.2 -> 0.01"
    assert found.find_changes(asked, resume=False) == ""


FIXED = {
    "kind": ({"tables": with_rules(scar.adagrad(0.2), scar.adam(0.1))}, "w.rule.kind: sgd -> adagrad"),
    "slot": ({"tables": with_rules(scar.momentum(0.2), scar.adam(0.1))}, "w.rule"),
    "shape": ({"tables": [scar.Table("w", (9, 2)), make_job().tables[1]]}, "w.shape"),
    "tables": ({"tables": [make_job().tables[0]]}, "tables"),
    "recovery": ({"recovery": "sync-chain"}, "recovery: partial -> sync-chain"),
    "seed": ({"seed": 9}, "seed: 0 -> 9"),
}


@pytest.mark.parametrize(("options", "named"), FIXED.values(), ids=FIXED.keys())
def test_what_a_job_is_made_of_stays(registry: JobRegistry, options: dict[str, Any], named: str) -> None:
    asked = make_job(workers=7, **options)
    for ask in (
        lambda: registry.find_changes(asked, True),
        lambda: registry.declare_job(asked, GivenArrays(), True),
    ):
        with pytest.raises(JobExists, match=named) as refused:
            ask()
        assert "workers" not in refused.value.message, "that may change"
        assert "At resume may change: numbers" in refused.value.next_step


def test_a_number_that_decides_on_a_slot_stays(registry: JobRegistry) -> None:
    known = scar.Job("rms", [scar.Table("w", 4, rule=scar.rmsprop(0.1))])
    registry.declare_job(known, GivenArrays(), resume=False)
    asked = scar.Job("rms", [scar.Table("w", 4, rule=scar.rmsprop(0.1, momentum=0.9))])
    with pytest.raises(JobExists, match="momentum"):
        registry.revise_job(asked)


def test_settings_of_the_command_line() -> None:
    job = apply_settings(
        make_job(),
        [
            "lr=0.5",
            "table.b.x.lr=0.01",
            "beta1=0.8",
            "checkpoint.period=9",
            "checkpoint.fraction=0.25",
            "workers=3",
        ],
    )
    assert [dict(table.rule.parameters)["lr"] for table in job.tables] == [0.5, 0.01]
    assert job.tables[1].rule.parameters["beta1"] == 0.8
    assert (job.checkpoint.period, job.checkpoint.fraction, job.workers) == (9, 0.25, 3)
    assert make_job().tables[0].rule.parameters["lr"] == 0.2
    ssp = apply_settings(make_job(), ["staleness=2", "consistency=ssp"])
    assert (ssp.consistency, ssp.staleness) == ("ssp", 2)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("lr", "is no name=value"),
        ("lr=high", "'high' is no number"),
        ("rate=0.1", "no update rule has 'rate'"),
        ("table.w.beta1=0.1", "no update rule of table w has 'beta1'"),
        ("checkpoint.often=3", "a checkpoint has no 'often'"),
        ("consistency=exact", "consistency 'exact' is unknown"),
    ],
)
def test_a_setting_that_is_none(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        apply_settings(make_job(), [setting])
    with pytest.raises(UnknownTable):
        apply_settings(make_job(), ["table.v.lr=1"])
