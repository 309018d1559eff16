"""What failures cost a training: trials of figures 7 and 8, which share what comes before the failure.

For each trial one failure iteration is drawn, then every *case* (a policy of saving, a way of recovering, a lost fraction)
strikes at it, and the training goes on from each perturbed state until its loss reaches a criterion, which is taken from the
undisturbed run. The iteration cost is how many more iterations that takes than without a failure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from experiments.panels import workload
from experiments.records import Record
from experiments.simulation import Loss, Saver, duplicate, initial, perturbation
from experiments.workloads import Run, Workload
from scar.errors import ConfigError
from scar.tables import Checkpoint, Job

PATIENCE = 4  # horizons after which a run that has not come back is given up
CONTROL = "control"
GAIN_OF_RANDOM = 0.97  # a random training fluctuates, near its end by more than it gains; docs/experiments.md


@dataclass(frozen=True)
class Case:
    """One way to save, to fail and to recover."""

    name: str
    checkpoint: Checkpoint
    recovery: str
    lost: float


@dataclass(frozen=True)
class Trials:
    """``numbers``: trials of one trajectory, which ``trajectory`` numbers.

    ``horizon``: undisturbed iterations whose gain sets the criterion. ``mean``: of the geometric failure iteration, as a share
    of the iterations that the undisturbed run needs. ``gain``: the share of the horizon's gain that counts as converged; None:
    what suits the model. ``pending``: a failure finds the round that is due at that moment not done yet.
    ``unweighted``: distances are compared without the weights of the model's tables.
    """

    panel: str
    thin: int
    cases: tuple[Case, ...]
    seed: int
    trajectory: int
    numbers: tuple[int, ...]
    horizon: int = 60
    mean: float = 0.5
    gain: float | None = None
    pending: bool = False
    unweighted: bool = False


@dataclass(frozen=True)
class Criterion:
    """``epsilon``: the loss that counts as converged; ``losses``: of the undisturbed run until it has."""

    epsilon: float
    losses: tuple[float, ...]

    @property
    def undisturbed(self) -> int:
        """Iterations of the undisturbed run."""
        return len(self.losses)

    def left(self, clock: int) -> float:
        """Iterations that the undisturbed run needs after ``clock`` of them."""
        return passage(self.losses[clock:], self.epsilon)


def carry_out(trials: Trials) -> Iterator[Record]:
    """One record a trial: costs and perturbations of every case."""
    model = workload(trials.panel, trials.thin)
    job, criterion = prepared(model, trials)
    failures = {number: failure_iteration(trials, number, criterion.undisturbed) for number in trials.numbers}
    savers_of = sorted({(case.checkpoint, case.recovery) for case in trials.cases}, key=repr)
    trunk = Run(initial(job), stream=job.seed)
    savers = {key: Saver(replace(job, checkpoint=key[0], recovery=key[1]), trunk.state) for key in savers_of}
    ahead = _Ahead(model, criterion, PATIENCE * trials.horizon)
    ahead.pass_by(trunk)
    for clock in range(1, max(failures.values()) + 1):
        model.advance([trunk])
        ahead.pass_by(trunk)
        struck = [number for number, at in failures.items() if at == clock]
        if not trials.pending:
            _save(savers.values(), clock)
        for number in struck:
            ahead.add(number, *_struck(trials, number, trunk, savers))
        if trials.pending:
            _save(savers.values(), clock)
        yield from ahead.finished(model.together)
    yield from ahead.finished(0)


def _save(savers: Iterable[Saver], clock: int) -> None:
    for saver in savers:
        saver.after(clock)


def prepared(model: Workload, trials: Trials) -> tuple[Job, Criterion]:
    """The job of this trajectory, whose seed makes x(0) and is the stream of its random numbers; and when it has converged."""
    job = replace(model.job, seed=seed_of(trials, "trajectory", trials.trajectory))
    if trials.unweighted:
        job = replace(job, tables=tuple(table.unweighted for table in job.tables))
    run = Run(initial(job), stream=job.seed)
    losses = np.array([model.advance([run])[0] for _ in range(trials.horizon)])
    gain = trials.gain or (GAIN_OF_RANDOM if model.random else 1.0)
    epsilon = float(losses[-1] + (1 - gain) * (losses[0] - losses[-1]))
    undisturbed = int(np.flatnonzero(losses <= epsilon)[0]) + 1
    if undisturbed < 2:
        raise ConfigError(f"{trials.panel} has converged after one iteration", "Choose a larger gain or a longer horizon")
    return job, Criterion(epsilon, tuple(losses[:undisturbed].tolist()))


def failure_iteration(trials: Trials, number: int, undisturbed: int) -> int:
    """Geometric, as in the paper, and before the training is over."""
    random = np.random.default_rng(seed_of(trials, "failure", number))
    at = undisturbed
    while at >= undisturbed:
        at = int(random.geometric(min(1.0, 1 / (trials.mean * undisturbed))))
    return at


def _struck(
    trials: Trials, number: int, trunk: Run, savers: Mapping[tuple[Checkpoint, str], Saver]
) -> tuple[dict[str, Run], dict[str, float]]:
    """Every case strikes now: the runs that go on from it, and the sizes of the perturbations.

    Cases that lose the same fraction lose the same blocks, so that only the policy differs between them.
    """
    runs, norms = {}, {}
    stream = seed_of(trials, "stream", number)
    runs[CONTROL] = Run(duplicate(trunk.state), trunk.clock, stream)
    for case in trials.cases:
        random = np.random.default_rng([seed_of(trials, "lost", number), round(case.lost * 1e9)])
        saver = savers[case.checkpoint, case.recovery]
        state = saver.recover(Loss(case.lost).draw(saver.job, random))
        norms[case.name] = perturbation(trunk.state, state)
        runs[case.name] = Run(state, trunk.clock, stream)
    return runs, norms


@dataclass(eq=False)
class _Way:
    """A run on its way, and its losses since the failure."""

    digest: bytes
    run: Run
    losses: list[float] = field(default_factory=list)


def passage(losses: Sequence[float], epsilon: float) -> float:
    """Iterations until the loss is ``epsilon``, in between two iterations by interpolation.

    In whole iterations the smallest perturbation would cost as much as one of a whole iteration. A run that was given up
    has used all its iterations.
    """
    if losses[-1] > epsilon or len(losses) == 1:
        return float(len(losses))
    return len(losses) - (epsilon - losses[-1]) / (losses[-2] - losses[-1])


class _Ahead:
    """Runs on their way to the criterion. Equal states are run once; many are advanced together where that is faster.

    Where iterations draw no random numbers, a state that the undisturbed run has passed by is not run at all: full recovery
    and the control cost nothing then.
    """

    def __init__(self, model: Workload, criterion: Criterion, patience: int) -> None:
        self._model, self._criterion, self._patience = model, criterion, patience
        self._trials: dict[int, tuple[int, dict[str, bytes], dict[str, float]]] = {}
        self._waiting: dict[bytes, Run] = {}
        self._remaining: dict[bytes, float] = {}

    def pass_by(self, trunk: Run) -> None:
        """The undisturbed run is here: how many iterations it still needs is known."""
        if not self._model.random:
            self._remaining[self._digest(trunk)] = self._criterion.left(trunk.clock)

    def add(self, number: int, runs: Mapping[str, Run], norms: dict[str, float]) -> None:
        digests = {name: self._digest(run) for name, run in runs.items()}
        self._trials[number] = runs[CONTROL].clock, digests, norms
        for name, digest in digests.items():
            if digest not in self._remaining:
                self._waiting.setdefault(digest, runs[name])

    def _digest(self, run: Run) -> bytes:
        """Equal for states from which the training goes on in the same way."""
        found = hashlib.blake2b(digest_size=16)
        if self._model.random:
            found.update(f"{run.stream} {run.clock}".encode())
        for store in run.state.values():
            for array in (store.values, *store.slots.values(), store.steps):
                found.update(array.data.cast("B"))
        return found.digest()

    def finished(self, least: int) -> Iterator[Record]:
        """Run what is waiting, if it is at least ``least`` runs, and report every trial."""
        if len(self._waiting) < least:
            return
        self._run(list(self._waiting.items()))
        self._waiting = {}
        for number, (clock, digests, norms) in self._trials.items():
            yield self._record(number, clock, {name: self._remaining[digest] for name, digest in digests.items()}, norms)
        self._trials = {}

    def _run(self, queue: list[tuple[bytes, Run]]) -> None:
        active: list[_Way] = []
        while queue or active:
            while queue and len(active) < self._model.together:
                active.append(_Way(*queue.pop()))
            for way, loss in zip(active, self._model.advance([way.run for way in active]), strict=True):
                way.losses.append(loss)
            for way in active:
                if way.losses[-1] <= self._criterion.epsilon or len(way.losses) >= self._patience:
                    self._remaining[way.digest] = passage(way.losses, self._criterion.epsilon)
            active = [way for way in active if way.digest not in self._remaining]

    def _record(self, number: int, clock: int, remaining: Mapping[str, float], norms: Mapping[str, float]) -> Record:
        return {
            "trial": number,
            "failed": clock,
            "undisturbed": self._criterion.undisturbed,
            "costs": {name: remaining[name] - remaining[CONTROL] for name in norms},
            "norms": dict(norms),
            "given_up": sorted(name for name in norms if remaining[name] >= self._patience),
        }


def iterations_until(model: Workload, run: Run, epsilon: float, patience: int) -> int:
    """Iterations until the loss is at most ``epsilon``; no more than ``patience``."""
    for done in range(1, patience + 1):
        if model.advance([run])[0] <= epsilon:
            return done
    return patience


def seed_of(trials: Trials, what: str, number: int) -> int:
    """Independent numbers for every purpose, the same whatever else is run beside."""
    text = f"{trials.seed} {trials.panel} {what} {number}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest())
