"""How a job survives the loss of a shard: names, facts, and what cannot be combined. docs/strategies.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scar.errors import ConfigError
from scar.strategies import STRATEGIES, rolls_back
from scar.tables import Checkpoint, Job, Table
from scar.v1 import types_pb2
from scar.wire.codec import job_from_proto, job_to_proto
from scar.worker_strategies import WORKER_STRATEGIES

FULL = Checkpoint("full", period=5)


def job(recovery: str = "partial", **options: object) -> Job:
    strategy, chosen = STRATEGIES[recovery], dict[str, object]()
    if strategy.rollback:
        chosen = {"checkpoint": FULL}
    if strategy.stores:
        chosen = {"checkpoint": Checkpoint(fraction=1.0), "consistency": "asp"}
    return Job("test", [Table("w", (6, 2))], recovery=recovery, **(chosen | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_survives_the_wire(name: str) -> None:
    declared = job(name, replica_period=3)
    arrived = job_from_proto(job_to_proto(declared))
    assert arrived == replace(declared, tables=arrived.tables)
    assert arrived.strategy == declared.strategy


def test_a_description_of_before_replicas_is_still_the_same_job() -> None:
    message = job_to_proto(job())
    old = types_pb2.JobSpec()
    old.CopyFrom(message)
    old.replica_period = 0
    assert job_to_proto(job_from_proto(old)) == message


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="recovery 'chain' is unknown") as caught:
        Job("test", [Table("w", 3)], recovery="chain")
    assert all(name in str(caught.value) for name in STRATEGIES)


@pytest.mark.parametrize("name", [name for name, strategy in STRATEGIES.items() if strategy.rollback])
def test_what_rolls_back_needs_full_checkpoints_and_no_replicas(name: str) -> None:
    with pytest.raises(ConfigError, match="needs full checkpoints"):
        Job("test", [Table("w", 3)], recovery=name)
    with pytest.raises(ConfigError, match="replicas are of no use"):
        job(name, replicas=1)


@pytest.mark.parametrize(
    "options",
    [{"consistency": "bsp"}, {"checkpoint": Checkpoint(fraction=0.5)}, {"checkpoint": FULL}, {"replicas": 1}],
)
def test_what_keeps_its_state_in_the_store_needs_rounds_that_save_what_changes(
    options: dict[str, object],
) -> None:
    assert job("stateless").strategy.exact
    with pytest.raises(ConfigError):
        job("stateless", **options)


@pytest.mark.parametrize(
    ("recovery", "options", "replicas", "exact"),
    [
        ("partial", {}, 0, False),
        ("partial", {"replicas": 1}, 1, False),
        ("sync-chain", {}, 1, True),
        ("sync-chain", {"replica_period": 5}, 1, False),
        ("sync-chain", {"replicas": 2, "shards": 3}, 2, True),
        ("async-chain", {}, 1, False),
    ],
)
def test_replicas(recovery: str, options: dict[str, object], replicas: int, exact: bool) -> None:
    strategy = job(recovery, **options).strategy
    assert (strategy.replicas, strategy.exact) == (replicas, exact)
    assert strategy.period == options.get("replica_period", 1)


@pytest.mark.parametrize(
    "options",
    [{"replicas": 2}, {"replicas": -1}, {"replica_period": 0}, {"recovery": "sync-chain", "shards": 1}],
)
def test_replicas_that_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        job(**options)  # type: ignore[arg-type]


def test_workers_as_sources_go_with_partial_recovery_alone() -> None:
    for consistency, replays in (("bsp", True), ("ssp", False), ("asp", False)):
        asked = job("partial", sources="workers", consistency=consistency)
        assert asked.strategy.asks_workers
        assert asked.heals_by_clock is replays
    assert not job("partial").strategy.asks_workers
    for options in (
        {"replicas": 1},
        {"recovery": "full", "checkpoint": FULL},
        {"recovery": "sync-chain"},
        {"worker_recovery": "ckpt", "checkpoint": FULL},
    ):
        with pytest.raises(ConfigError, match="sources 'workers' is for"):
            job(**({"recovery": "partial"} | options), sources="workers")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown"):
        job("partial", sources="worker")


def test_replicas_of_what_is_missing_go_with_workers_as_sources_alone() -> None:
    strategy = job("partial", sources="workers", replicas=1, replicate="missing").strategy
    assert (strategy.missing, strategy.lag, strategy.kept_clocks) == (True, 1, 2)
    assert job("partial", sources="workers").strategy.kept_clocks == 1
    assert job("partial", replicas=1).strategy.kept_clocks == 0
    for options in ({}, {"replicas": 0}, {"replicas": 2}, {"replica_period": 2}, {"sources": "checkpoint"}):
        given = {"sources": "workers", "shards": 4} | options
        with pytest.raises(ConfigError, match="replicate 'missing' is for one replica"):
            job("partial", **({"replicas": 0} | given), replicate="missing")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown"):
        job("partial", replicate="some")


def test_slots_are_pulled_where_they_can_be_given_back() -> None:
    slots = job("partial", sources="workers", pull_slots=1)
    assert job_from_proto(job_to_proto(slots)).pull_slots == 1
    for options in (
        {"sources": "checkpoint"},
        {"consistency": "asp"},
        {"replicas": 1, "replicate": "missing"},
    ):
        given = {"recovery": "partial", "sources": "workers"} | options
        with pytest.raises(ConfigError, match="pull_slots is for consistency bsp"):
            job(**given, pull_slots=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="number of workers, not -1"):
        job("partial", sources="workers", pull_slots=-1)


def test_what_a_ledger_s_strategy_takes_back() -> None:
    """Names of both kinds stand in a record: of what answers the loss of shards, and of workers."""
    assert [name for name in STRATEGIES if rolls_back(name)] == [
        "full",
        "sync-checkpoint",
        "async-checkpoint",
    ]
    assert [name for name in WORKER_STRATEGIES if rolls_back(name)] == ["ckpt"]
    assert not STRATEGIES.keys() & WORKER_STRATEGIES.keys()
    assert not rolls_back("of a later version")
