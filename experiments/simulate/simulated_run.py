"""One training from its first iteration to its last, with faults.

A fault of a node strikes the iteration in whose time it falls, at a random place of the computation. Where
nothing fails, an iteration takes as long as any other; where something does, its transfers are simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.simulate.faults import FaultSource, NodeFault, fault_clocks
from experiments.simulate.network import Outage, TransferPlan, TransferStep, exchange_seconds
from experiments.simulate.scenario import Scenario, SimulatedStrategy, baseline_seconds

PATIENCE = 20  # baselines after which a run is given up


@dataclass
class RunOutcome:
    """What a run took.

    ``redone``: iterations that a rollback took back; ``rework``: those that partial recoveries cost;
    ``missing``: gradients that the servers did without. ``finished`` is false when the run was given up.
    """

    seconds: float = 0.0
    worker_faults: int = 0
    server_faults: int = 0
    link_faults: int = 0
    redone: float = 0.0
    rework: float = 0.0
    missing: int = 0
    finished: bool = True


@dataclass(frozen=True)
class _Iteration:
    """One iteration.

    ``missing``: workers without a gradient in it; ``behind``: those that miss its pull, and so the next
    iteration.
    """

    seconds: float
    missing: frozenset[int] = frozenset()
    behind: frozenset[int] = frozenset()


def simulate_run(
    scenario: Scenario, strategy: SimulatedStrategy, seed: int = 1, number: int = 0
) -> RunOutcome:
    """Run ``number`` of ``seed``.

    Runs with the same two meet the same faults at the same times, whatever the strategy.
    """
    return SimulatedRun(
        scenario, strategy, fault_clocks(scenario.faults, scenario.platform, seed, number)
    ).run_to_end()


class SimulatedRun:
    def __init__(
        self,
        scenario: Scenario,
        strategy: SimulatedStrategy,
        faults: tuple[FaultSource, FaultSource, FaultSource],
    ) -> None:
        """``faults``: of workers, servers and backbones, as :func:`faults.clocks` gives them."""
        self._scenario = scenario
        self._strategy = strategy
        self._training = scenario.training
        self._times = scenario.times
        self._workers, self._servers, self._links = faults
        self._now = 0.0
        self._done = 0.0
        self._target = float(scenario.training.iterations)
        self._outages: list[Outage] = []  # in seconds of the run
        self._behind: frozenset[int] = frozenset()
        self._outcome = RunOutcome()

    def run_to_end(self) -> RunOutcome:
        limit = PATIENCE * baseline_seconds(self._scenario)
        while self._done < self._target and self._now < limit:
            self._run_iteration()
        self._outcome.seconds = self._now
        self._outcome.finished = self._done >= self._target
        return self._outcome

    def _run_iteration(self) -> None:
        # Recoveries cost fractions of iterations: the last one counts, and lasts, as much as it is needed.
        share = min(1.0, self._target - self._done)
        until = self._now + share * self._times.iteration
        workers = self._workers.take_due(until)
        servers = self._servers.take_due(until)
        self._outcome.worker_faults += len(workers)
        self._outcome.server_faults += len(servers)
        stopping = workers * (self._strategy.workers == "rollback") + servers * (
            self._strategy.servers == "rollback"
        )
        if stopping:
            self._roll_back(min(fault.place for fault in stopping))
        else:
            self._go_on(workers, servers, share)

    def _roll_back(self, place: float) -> None:
        """To the newest checkpoint; where none is, to the initial state, which is one.

        Backups start at the first fault.
        """
        everything = self._strategy.workers == "rollback"
        period = self._scenario.checkpoint.interval if everything else self._scenario.rounds.period
        load = self._times.checkpoint if everything else self._times.model + self._times.pull
        kept = self._done // period * period
        self._now += place * self._training.compute_seconds + self._training.start_seconds + load
        self._outcome.redone += self._done - kept + place
        self._done = kept
        self._behind = frozenset()

    def _go_on(self, workers: Sequence[NodeFault], servers: Sequence[NodeFault], share: float) -> None:
        if servers:
            lost = len({fault.number for fault in servers}) / self._scenario.platform.servers.nodes
            cost = self._scenario.rework.cost_of(lost, servers[0].luck)
            self._target += cost
            self._outcome.rework += cost
        iteration = self._disturbed_iteration(workers, servers)
        self._now += share * iteration.seconds
        self._done += share
        self._behind = iteration.behind
        self._outcome.missing += len(iteration.missing)
        self._outages = [outage for outage in self._outages if outage.end > self._now]
        self._save_state()

    def _save_state(self) -> None:
        if self._done >= self._target:
            return
        rounds = self._scenario.rounds
        checkpoint = self._scenario.checkpoint
        if self._strategy.workers == "rollback" and self._done % checkpoint.interval == 0:
            self._now += self._times.checkpoint
        every = max(1, round(rounds.fraction * rounds.period))
        if self._strategy.servers == "partial" and self._done % every == 0:
            copied = rounds.fraction * self._training.model_bytes / self._scenario.platform.servers.nodes
            self._now += rounds.stall * copied

    def _disturbed_iteration(self, workers: Sequence[NodeFault], servers: Sequence[NodeFault]) -> _Iteration:
        """The iteration, with the outages that begin in it; a longer one may meet another."""
        while True:
            quiet = not (workers or servers or self._outages or self._behind)
            found = _Iteration(self._times.iteration) if quiet else self._simulate_iteration(workers, servers)
            fallen = self._links.take_due(self._now + found.seconds)
            if not fallen:
                return found
            repair = self._scenario.faults.repair_seconds
            self._outcome.link_faults += len(fallen)
            self._outages += [Outage(one.number - 1, one.second, one.second + repair) for one in fallen]

    def _simulate_iteration(self, workers: Sequence[NodeFault], servers: Sequence[NodeFault]) -> _Iteration:
        compute = self._training.compute_seconds
        start = self._training.start_seconds
        # Servers that were lost have read their part again before anybody pulls or pushes.
        ready = max((fault.place * compute + start + self._times.part for fault in servers), default=0.0)
        back = {
            fault.number: fault.place * compute + start
            for fault in sorted(workers, key=lambda one: one.place)
        }
        push: TransferPlan = (TransferStep("push", self._training.model_bytes, compute, ready),)
        pull: TransferPlan = (TransferStep("pull", self._training.model_bytes),)
        outages = [Outage(one.cluster, one.begin - self._now, one.end - self._now) for one in self._outages]
        if self._strategy.workers == "ignore":
            return self._ignoring_iteration(back, push, pull, outages)
        again = {
            worker: (TransferStep("pull", self._training.model_bytes, 0.0, max(at, ready)), *push)
            for worker, at in back.items()
        }
        pushed = exchange_seconds(self._scenario.platform, push, again, outages)
        return _Iteration(
            pushed + exchange_seconds(self._scenario.platform, pull, {}, _shift_outages(outages, pushed))
        )

    def _ignoring_iteration(
        self, back: dict[int, float], push: TransferPlan, pull: TransferPlan, outages: Sequence[Outage]
    ) -> _Iteration:
        """The servers continue without the workers that failed or cannot be reached."""
        platform = self._scenario.platform
        compute = self._training.compute_seconds
        cut = {one.cluster for one in outages if one.begin < self._times.iteration and one.end > compute} - {
            -1
        }
        nodes = platform.workers.nodes
        apart = frozenset(
            worker for cluster in cut for worker in range(cluster * nodes, (cluster + 1) * nodes)
        )
        missing = apart | back.keys() | self._behind
        pushed = max(compute, exchange_seconds(platform, push, dict.fromkeys(missing, ()), outages))
        behind = apart | {worker for worker, at in back.items() if at > pushed}
        pulled = exchange_seconds(platform, pull, dict.fromkeys(behind, ()), _shift_outages(outages, pushed))
        return _Iteration(pushed + pulled, missing, behind)


def _shift_outages(outages: Sequence[Outage], seconds: float) -> list[Outage]:
    return [Outage(one.cluster, one.begin - seconds, one.end - seconds) for one in outages]
