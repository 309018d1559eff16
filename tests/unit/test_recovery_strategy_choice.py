"""What a job with recovery "auto" gets, by what is known when it starts, and that its record says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scar.errors import ConfigError, JobExists
from scar.strategies import CHOICES, StrategyChoice
from scar.tables import Checkpoint, Job, Table, adam, sgd
from scar.v1.recovery_pb2 import FailureRecord, HistorySample
from scar.v1.types_pb2 import JobSpec
from scar.wire.codec import job_from_proto, job_to_proto
from scar_recovery.core.strategy_choice import CLOCK, NETWORK, STALL, RunFacts, choose_strategy
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.job_registry import JobRegistry
from scar_recovery.strategy_facts import gather_facts, measure_store
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.history_log import HistoryLog
from scar_runtime.store.layout import JOB
from scar_runtime.store.records import get_record
from tests.framework.recovery import MemoryStore

MB = 1 << 20
FAST = RunFacts(store=1e9, clock=1.0)


def job(megabytes: int = 4, slots: bool = True, **options: object) -> Job:
    rule = adam() if slots else sgd(0.1)
    table = Table("w", (megabytes * 64, 4096), rule=rule)  # 4096 float32: 16 KiB a row
    return Job("test", [table], recovery="auto", **{"shards": 4, **options})  # type: ignore[arg-type]


def chosen(asked: Job, facts: RunFacts = FAST) -> str:
    """The name of the choice."""
    found = choose_strategy(asked, facts)
    return next(name for name, one in CHOICES.items() if one == replace(found, reason=""))


def test_workers_have_what_tables_without_slots_lose() -> None:
    for consistency in ("bsp", "ssp", "asp"):
        assert chosen(job(slots=False, consistency=consistency)) == "partial from workers"
        assert "from workers" not in choose_strategy(job(consistency=consistency), FAST).reason


def test_a_model_of_servers_that_die_often_is_copied_to_a_neighbour() -> None:
    asked = job(160, consistency="ssp", server_mtbf=2000.0)
    assert chosen(asked, replace(FAST, clock=20.0)) == "partial with a replica"
    assert chosen(replace(asked, server_mtbf=1e9), replace(FAST, clock=20.0)) == "partial"


def test_who_can_wait_for_the_copy_does() -> None:
    asked = job(1, consistency="ssp", server_mtbf=600.0)
    assert chosen(asked, replace(FAST, clock=20.0)) == "sync-chain"


def test_nothing_is_copied_that_takes_longer_than_what_failures_take() -> None:
    asked = job(20_000, consistency="ssp", server_mtbf=1e6)
    assert chosen(asked, replace(FAST, clock=1.0)) == "partial"


def test_only_what_the_job_allows_is_chosen() -> None:
    alone = job(consistency="ssp", shards=1, server_mtbf=60.0)
    assert chosen(alone, replace(FAST, clock=20.0)) == "partial"
    eager = job(consistency="asp", checkpoint=Checkpoint(fraction=1.0), server_mtbf=60.0)
    assert "stateless" in choose_strategy(eager, FAST).reason
    assert "stateless" not in choose_strategy(job(), FAST).reason
    whole = job(consistency="ssp", checkpoint=Checkpoint("full"))
    assert "full" in choose_strategy(whole, FAST).reason


def test_the_costs_are_those_of_the_table() -> None:
    """4 servers with 3 MiB each, one of which dies every 1,000 s; clocks of 2 s, all saved in 8."""
    asked = job(4, consistency="ssp", server_mtbf=4_000.0)
    part = 3 * MB
    facts = RunFacts(store=100e6, clock=2.0)
    partial = STALL * part / 8 / 2 + (8 * 2 / 2 / 4 + part / 100e6) / 1000
    replica = STALL * part * (1 + 1 / 8) / 2 + 2 / 4 / 1000
    chain = (STALL * part * (1 + 1 / 8) + part / NETWORK) / 2
    reason = choose_strategy(asked, facts).reason
    for name, share in (("partial with a replica", replica), ("partial", partial), ("sync-chain", chain)):
        assert f"{name} adds {share:.2%}" in reason or f"{name} {share:.2%}" in reason


def test_the_reason_says_what_was_measured_and_what_was_assumed() -> None:
    first = choose_strategy(job(), RunFacts(store=2e8)).reason
    assert "200 MB/s (measured)" in first
    assert f"clocks of {CLOCK:g} s (assumed)" in first
    assert "every 3,600 s (assumed)" in first
    later = choose_strategy(job(), RunFacts(store=2e8, clock=0.5, deaths=1, seconds=1100.0)).reason
    assert "every 4,000 s (deaths in 1,100 s: 1)" in later
    assert "clocks of 0.5 s" in later
    assert "every 86,400 s (given)" in choose_strategy(job(server_mtbf=86400.0), FAST).reason


def test_the_choice_is_in_the_job_s_record_and_no_part_of_what_was_declared() -> None:
    store = MemoryStore()
    jobs = JobRegistry(store, "scar")
    declared = jobs.declare_job(job(slots=False), GivenArrays(), resume=False)
    started = jobs.choose_strategy(declared)
    assert started.strategy.asks_workers
    assert job_from_proto(get_record(store.under("test"), JOB, JobSpec)).choice == started.choice
    asked_once_more = jobs.declare_job(job(slots=False), GivenArrays(), resume=False)
    assert asked_once_more.choice == started.choice
    assert jobs.declare_job(job(slots=False), GivenArrays(), resume=True).choice == started.choice
    with pytest.raises(JobExists, match="recovery: auto -> partial"):
        jobs.declare_job(replace(job(slots=False), recovery="partial"), GivenArrays(), resume=True)
    named = Job("other", [Table("w", 8)])
    assert jobs.choose_strategy(named) is named


def test_a_resumed_job_is_chosen_for_by_how_it_went() -> None:
    store = MemoryStore()
    history = ProgressHistory()
    history.add_samples(HistorySample(time=10.0 * at, clock=5 * at) for at in range(6))
    history.add_samples([HistorySample(time=9000.0, clock=30)])  # nobody trained meanwhile
    HistoryLog(store.under("test")).write(history, "a")
    failures = FailureLog(store.under("test"))
    for number, blocks in ((1, 4), (2, 0)):  # a server, and a worker
        failures.write(FailureRecord(number=number, lost_blocks=blocks), "a")
    facts = gather_facts(store, "test")
    assert (facts.clock, facts.deaths, facts.seconds) == (2.0, 1, 50.0)
    assert facts.store > 0


def test_measuring_leaves_nothing_behind() -> None:
    store = MemoryStore()
    assert measure_store(store) > 0
    assert store.objects == {}


def test_who_leaves_the_choice_names_no_part_of_it() -> None:
    with pytest.raises(ConfigError, match="chooses replicas"):
        job(replicas=1)
    with pytest.raises(ConfigError, match="chooses replicas"):
        job(sources="workers")
    with pytest.raises(ConfigError, match="is named"):
        Job("test", [Table("w", 8)], choice=StrategyChoice())
    with pytest.raises(ConfigError, match="server_mtbf"):
        job(server_mtbf=-1.0)


def test_a_choice_survives_the_wire() -> None:
    sent = replace(job(server_mtbf=5.0), choice=StrategyChoice("partial", 1, reason="because"))
    arrived = job_from_proto(job_to_proto(sent))
    assert (arrived.choice, arrived.server_mtbf, arrived.strategy) == (sent.choice, 5.0, sent.strategy)
