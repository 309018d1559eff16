"""Whole simulated trainings: the same again, what each fault costs, and who is never slower than whom."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from experiments.simulate.faults import YEAR, FaultClock, Faults, NodeFault, fault_clocks
from experiments.simulate.platform import GB, MB, TABLE_2, TABLE_3, TB, NodeCluster, Platform, TrainingLoad
from experiments.simulate.rework import Rework, measured_rework
from experiments.simulate.scenario import (
    CKPT,
    IGNR,
    PS,
    SCAR,
    SCAR_IGNR,
    STRATEGIES,
    Rounds,
    Scenario,
    SimulatedStrategy,
    WorkerCheckpoint,
    baseline_seconds,
    young_interval,
)
from experiments.simulate.simulated_run import RunOutcome, SimulatedRun, simulate_run
from scar.errors import ConfigError
from scar_compare.statistics import mean_estimate

QUARTER = Rework((0.01, 1.0), ((0.25,), (2.0,)))
USUAL = Scenario(rework=QUARTER)
OFTEN = replace(USUAL, faults=Faults(YEAR / 4, YEAR / 4, YEAR / 4))
EXACT = 1e-9

small = st.builds(
    NodeCluster,
    st.integers(1, 5),
    st.floats(1e7, 1e9),
    st.floats(0, 0.01),
    st.floats(1e7, 1e10),
    st.floats(0, 0.01),
)
platforms = st.builds(Platform, st.integers(1, 4), small, small, small)
trainings = st.builds(
    TrainingLoad, st.integers(1, 12), st.floats(1, 100), st.floats(1e6, 1e9), st.floats(0, 200)
)


class Script:
    """Faults at given seconds."""

    def __init__(self, *strikes: NodeFault) -> None:
        self.strikes = list(strikes)

    def take_due(self, until: float) -> list[NodeFault]:
        found = [one for one in self.strikes if one.second < until]
        self.strikes = [one for one in self.strikes if one.second >= until]
        return found


def scripted(
    strategy: SimulatedStrategy,
    scenario: Scenario = USUAL,
    workers: Sequence[NodeFault] = (),
    servers: Sequence[NodeFault] = (),
    links: Sequence[NodeFault] = (),
) -> RunOutcome:
    return SimulatedRun(scenario, strategy, (Script(*workers), Script(*servers), Script(*links))).run_to_end()


def many(scenario: Scenario, strategy: SimulatedStrategy, runs: int, seed: int = 1) -> list[RunOutcome]:
    return [simulate_run(scenario, strategy, seed, number) for number in range(runs)]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
def test_the_same_seed_gives_the_same_run(strategy: SimulatedStrategy) -> None:
    assert simulate_run(OFTEN, strategy, 5, 3) == simulate_run(OFTEN, strategy, 5, 3)
    assert simulate_run(OFTEN, strategy, 5, 3) != simulate_run(OFTEN, strategy, 6, 3)


def test_another_process_finds_the_same() -> None:
    program = (
        "from experiments.simulate.simulated_run import simulate_run;"
        "from experiments.simulate.scenario import *;"
        "from experiments.simulate.faults import *;"
        "often = Scenario(faults=Faults(YEAR / 4, YEAR / 4, YEAR / 4));"
        "print([repr(simulate_run(often, one, 5, 3).seconds) for one in STRATEGIES])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for number in ("1", "2")
    }
    assert len(answers) == 1


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
def test_faults_of_servers_and_links_change_nothing_when_they_never_come(strategy: SimulatedStrategy) -> None:
    only_workers = replace(USUAL, faults=Faults(workers=YEAR / 4))
    rare = replace(USUAL, faults=Faults(workers=YEAR / 4, servers=1e300, links=1e300, repair_seconds=1.0))
    assert many(rare, strategy, 3) == many(only_workers, strategy, 3)


def test_faults_of_workers_stay_when_servers_fail_too() -> None:
    alone, beside = (
        fault_clocks(Faults(YEAR, servers), TABLE_2, 3, 4)[0].take_due(30_000)
        for servers in (float("inf"), YEAR)
    )
    assert alone == beside
    assert len(alone) > 3


@settings(max_examples=60)
@given(platforms, trainings, st.floats(0.1, 100), st.integers(0, 10_000))
def test_ignoring_is_never_slower_than_doing_again(
    platform: Platform, training: TrainingLoad, faults: float, seed: int
) -> None:
    expected = platform.worker_nodes * training.compute_seconds * training.iterations
    scenario = Scenario(
        platform, training, Faults(max(expected / faults, platform.worker_nodes * training.compute_seconds))
    )
    ignored, again = simulate_run(scenario, IGNR, seed), simulate_run(scenario, PS, seed)
    assume(again.finished)
    assert ignored.seconds <= again.seconds * (1 + EXACT)
    assert ignored.seconds <= baseline_seconds(scenario) * (1 + EXACT)


def test_checkpoints_cost_in_proportion_to_their_size_and_the_bandwidth() -> None:
    never = replace(USUAL, faults=Faults(float("inf")))

    def added(size: float, bandwidth: float) -> float:
        scenario = replace(never, platform=TABLE_2.with_storage(bandwidth), checkpoint=WorkerCheckpoint(size))
        return simulate_run(scenario, CKPT).seconds - baseline_seconds(scenario)

    base = added(1 * GB, 0.5 * TB)
    assert base == pytest.approx(49 * 20 * 1.05 / 0.97, rel=0.001), (
        "after every fourth iteration but the last"
    )
    for factor in (2, 4, 8):
        assert added(factor * GB, 0.5 * TB) == pytest.approx(factor * base, rel=0.001)
        assert added(1 * GB, 0.5 * TB / factor) == pytest.approx(factor * base, rel=0.001)


@pytest.mark.parametrize(
    ("platform", "strategy"), [(TABLE_2, PS), (TABLE_2, IGNR), (TABLE_2, CKPT), (TABLE_3, PS)]
)
def test_workers_fail_as_often_as_their_mtbf_says(platform: Platform, strategy: SimulatedStrategy) -> None:
    found = many(replace(USUAL, platform=platform), strategy, 200)
    exposed = np.mean([one.seconds for one in found]) * platform.worker_nodes
    faults = [one.worker_faults for one in found]
    expected = exposed / (3 * YEAR)
    assert np.mean(faults) == pytest.approx(expected, abs=4 * np.sqrt(expected / len(found)))
    assert np.var(faults) == pytest.approx(expected, rel=4 * np.sqrt(2 / len(found))), "as a Poisson process"


def test_the_papers_faults() -> None:
    """Table 4: 3.1 for PS and IGNR, 3.655 for CKPT with 4 GB at 0.5 TB/s."""
    for strategy, published in ((PS, 3.1), (IGNR, 3.1), (CKPT, 3.655)):
        few = mean_estimate([one.worker_faults for one in many(USUAL, strategy, 30)])
        assert few.low < published < few.high, strategy.name
    assert np.mean([one.worker_faults for one in many(USUAL, PS, 400)]) == pytest.approx(3.1, rel=0.05)
    assert np.mean([one.worker_faults for one in many(USUAL, CKPT, 400)]) == pytest.approx(3.655, rel=0.05)


def test_the_papers_order_of_strategies() -> None:
    seconds = {one.name: [run.seconds for run in many(USUAL, one, 30)] for one in (CKPT, PS, IGNR)}
    assert np.mean(seconds["ignr"]) < np.mean(seconds["ps"]) < 1.01 * np.mean(seconds["ignr"])
    assert np.mean(seconds["ps"]) < np.mean(seconds["ckpt"])
    assert np.std(seconds["ignr"]) < np.std(seconds["ps"]) < np.std(seconds["ckpt"])


def test_ignoring_shortens_an_iteration_that_the_servers_limit() -> None:
    narrow = replace(USUAL, platform=replace(TABLE_2, servers=replace(TABLE_2.servers, backbone=5 * GB)))
    found = scripted(IGNR, narrow, workers=[NodeFault(1.0, number, 0.5, 0.0) for number in range(100)])
    assert found.seconds < baseline_seconds(narrow) - 1
    assert found.missing == 100


def test_what_doing_again_costs() -> None:
    found = scripted(PS, workers=[NodeFault(1000.0, 4711, 0.4, 0.0)])
    alone = 1 * GB / (0.97 * 125 * MB) + 13.01 * 1.55e-3  # one worker on its own link
    late = 40 + 5 + alone + 100 + alone
    assert found.seconds == pytest.approx(baseline_seconds(USUAL) + late - USUAL.times.pushed)
    assert (found.worker_faults, found.missing, found.redone) == (1, 0, 0)


def test_what_going_back_costs() -> None:
    times = USUAL.times
    # in the eleventh iteration; the newest checkpoint holds eight
    second = 10.5 * times.iteration + 2 * times.checkpoint
    found = scripted(CKPT, workers=[NodeFault(second, 1, 0.25, 0.0)])
    lost = 2 * times.iteration + 25 + 5 + times.checkpoint
    assert found.seconds == pytest.approx(baseline_seconds(USUAL) + 49 * times.checkpoint + lost)
    assert found.redone == pytest.approx(2.25)


def test_what_a_server_costs() -> None:
    strike = [NodeFault(10.5 * USUAL.times.iteration, 1, 0.25, 0.5)]
    full, partial = scripted(PS, servers=strike), scripted(SCAR, servers=strike)
    back = 2 * USUAL.times.iteration + 25 + 5 + USUAL.times.model + USUAL.times.pull
    assert full.seconds == pytest.approx(baseline_seconds(USUAL) + back)
    assert (full.redone, full.rework) == (pytest.approx(2.25), 0)
    stalls = 200 * USUAL.rounds.stall * 1 * GB / 100 / 8
    assert partial.seconds == pytest.approx(baseline_seconds(USUAL) + 0.25 * USUAL.times.iteration + stalls)
    assert (partial.redone, partial.rework) == (0, 0.25)


def test_a_server_that_is_back_late_holds_up_the_pushes() -> None:
    slow = replace(
        USUAL,
        training=replace(USUAL.training, start_seconds=60.0),
        rounds=Rounds(stall=0.0),
        rework=Rework((1.0,), ((0.0,),)),
    )
    found = scripted(SCAR, slow, servers=[NodeFault(1.0, 1, 0.9, 0.0)])
    assert found.seconds == pytest.approx(baseline_seconds(slow) + 90 + 60 + slow.times.part - 100)


def test_who_waits_for_a_backbone() -> None:
    begin = USUAL.times.iteration + 50
    outage = [NodeFault(begin, 7 + 1, 0.0, 0.0)]  # from the middle of the second computation, for 600 s
    waits, goes_on = scripted(PS, links=outage), scripted(IGNR, links=outage)
    assert waits.seconds == pytest.approx(baseline_seconds(USUAL) + 550)
    assert goes_on.seconds == pytest.approx(baseline_seconds(USUAL))
    assert (waits.missing, goes_on.missing) == (0, 500), (
        "100 workers, the four iterations whose transfers it meets, and the next"
    )
    for strategy in (PS, IGNR, SCAR_IGNR):
        everybody = scripted(
            strategy, replace(USUAL, rounds=Rounds(stall=0.0)), links=[NodeFault(begin, 0, 0.0, 0.0)]
        )
        assert everybody.seconds == pytest.approx(baseline_seconds(USUAL) + 550), "the servers' own backbone"


def test_a_backup_that_comes_late_misses_the_next_iteration_too() -> None:
    slow = replace(USUAL, training=replace(USUAL.training, start_seconds=60.0))
    assert [
        scripted(IGNR, slow, workers=[NodeFault(1.0, 5, place, 0.0)]).missing for place in (0.5, 0.7)
    ] == [
        1,
        2,
    ]
    assert scripted(IGNR, slow, workers=[NodeFault(1.0, 5, 0.7, 0.0)]).seconds == pytest.approx(
        baseline_seconds(slow)
    )


def test_scar_saves_what_a_rollback_costs() -> None:
    servers = replace(OFTEN, faults=Faults(float("inf"), YEAR / 12))
    full, partial = (np.mean([one.seconds for one in many(servers, strategy, 30)]) for strategy in (PS, SCAR))
    assert partial - baseline_seconds(servers) < 0.2 * (full - baseline_seconds(servers))


def test_a_training_that_never_ends_is_given_up() -> None:
    hopeless = replace(USUAL, faults=Faults(YEAR / 100), checkpoint=WorkerCheckpoint(4 * GB, 20))
    found = simulate_run(hopeless, CKPT)
    assert not found.finished
    assert found.seconds == pytest.approx(20 * baseline_seconds(hopeless), rel=0.01)


def test_ten_thousand_nodes_two_hundred_iterations_thirty_runs_within_two_minutes() -> None:
    began = time.process_time()
    for strategy in STRATEGIES:
        many(OFTEN, strategy, 30)
    assert time.process_time() - began < 120


def test_youngs_interval() -> None:
    best = sorted(
        (np.mean([one.seconds for one in many(_every(n), CKPT, 60)]), n)
        for n in (1, 2, 4, young_interval(USUAL), 20, 40)
    )
    assert best[0][1] == young_interval(USUAL)
    assert young_interval(replace(USUAL, faults=Faults(float("inf")))) == USUAL.training.iterations


def _every(iterations: int) -> Scenario:
    return replace(USUAL, checkpoint=WorkerCheckpoint(4 * GB, iterations))


def test_costs_of_recovery_are_drawn_from_trials() -> None:
    rework = Rework((0.1, 0.5), ((1.0, 2.0, 3.0), (4.0, 4.0, 8.0)))
    assert [rework.cost_of(0.1, luck) for luck in (0.0, 0.5, 1.0)] == [1, 2, 3]
    assert rework.cost_of(0.3, 0.5) == pytest.approx(3), "between two fractions"
    assert rework.cost_of(0.05, 0.5) == pytest.approx(1), "and towards nothing lost"
    assert rework.cost_of(0.0, 0.9) == 0
    with pytest.raises(ConfigError, match="no cost of recovery was measured"):
        measured_rework("mlr-nowhere")


def test_intervals_of_a_clock_are_exponential() -> None:
    strikes = FaultClock(1000.0, 10, 1, 0, "workers").take_due(500_000)
    gaps = np.diff([0.0, *(one.second for one in strikes)])
    assert gaps.mean() == pytest.approx(100, rel=0.05)
    assert gaps.std() == pytest.approx(100, rel=0.05)
    assert {one.number for one in strikes} == set(range(10))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Faults(workers=0.0), "Faults.workers"),
        (lambda: Faults(servers=float("nan")), "Faults.servers"),
        (lambda: Faults(repair_seconds=-1.0), "repair_seconds"),
        (lambda: WorkerCheckpoint(interval=0), "interval"),
        (lambda: Rounds(fraction=1.5), "fraction"),
        (lambda: Rework((0.5, 0.1), ((1.0,), (1.0,))), "fractions"),
        (lambda: replace(USUAL, faults=Faults(workers=1.0)), "longer mean times"),
    ],
)
def test_what_cannot_be_is_named(make: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()  # type: ignore[operator]
