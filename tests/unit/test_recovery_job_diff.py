"""A job that cannot be resumed says in what it differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scar.errors import JobExists
from scar.schedules import exponential
from scar.tables import Checkpoint, Init, Job, Rule, Table, adagrad, momentum, normal, ragged, sgd
from scar.wire.codec import job_to_proto
from scar_recovery.codec import job_fields_from_proto
from scar_recovery.core.job_diff import describe_differences
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_registry import JobRegistry
from tests.framework.recovery import MemoryStore


def job(rule: Rule | None = None, init: Init | None = None, **changes: object) -> Job:
    made = Job("test", [Table("w", (8, 2), rule=rule or sgd(0.2), init=init), Table("b", 4)], shards=2)
    return replace(made, **changes)  # type: ignore[arg-type]


def differences_of(known: Job, asked: Job) -> str:
    before, after = (job_fields_from_proto(job_to_proto(one)) for one in (known, asked))
    return describe_differences(before, after)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (job(), ""),
        (job(sgd(0.1)), "w.rule.lr: 0.2 -> 0.1"),
        (
            job(sgd(0.2, schedule=exponential(0.5))),
            'w.rule.schedule: [] -> [\'kind: "exponential" parameters { key: "gamma" value: 0.5 }\']',
        ),
        (job(momentum(0.2, 0.9)), "w.rule.kind: sgd -> momentum, w.rule.momentum: - -> 0.9"),
        (job(init=normal(0, 0.5)), "w.init.kind: zeros -> normal, w.init.high: 0 -> 0.5"),
        (job(workers=3, share="drop"), "workers: 1 -> 3, share: takeover -> drop"),
        (job(checkpoint=Checkpoint(period=4)), "checkpoint.period: 8 -> 4"),
        (job(tables=[Table("w", (8, 2), rule=sgd(0.2))]), "tables: ['w', 'b'] -> ['w']"),
        (
            job(tables=[Table("b", 4), Table("w", (9, 2), rule=sgd(0.2))]),
            "tables: ['w', 'b'] -> ['b', 'w'], w.shape: [8, 2] -> [9, 2]",
        ),
    ],
)
def test_field_by_field(asked: Job, said: str) -> None:
    assert differences_of(job(), asked) == said


def test_arrays_differ_in_a_word() -> None:
    cut = job(tables=[Table("w", (8, 2), rule=sgd(0.2), blocks=ragged([0, 3, 8])), Table("b", 4)])
    said = differences_of(job(), cut)
    assert said.startswith("w.offsets: - -> [")
    assert len(said) < 100


def test_many_differences_are_counted() -> None:
    tables = [Table(f"t{number}", 4) for number in range(20)]
    other = [Table(f"t{number}", 5) for number in range(20)]
    said = differences_of(job(tables=tables), job(tables=other))
    assert said.endswith(", and 8 more")


def test_the_refusal_names_what_differs_and_what_to_do() -> None:
    jobs = JobRegistry(MemoryStore(), "scar")
    jobs.declare_job(job(), GivenArrays(), resume=False)
    with pytest.raises(JobExists, match=r"w\.rule\.kind: sgd -> adagrad") as caught:
        jobs.declare_job(job(adagrad(0.2)), GivenArrays(), resume=True)
    assert "scar jobs rm test" in caught.value.next_step
