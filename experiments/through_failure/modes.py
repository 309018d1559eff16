"""The families, and what each keeps to come back from. What recovers are the cores of the services, through `simulation.py`.

A *keeper* watches one training: it hears of every update, and says what the state is when the server is back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from experiments.simulation import Lost, Saver, State, duplicate, initial, nothing
from scar.tables import Checkpoint, Job

PERIOD = 50  # gradients between two checkpoints or copies, a tenth of a run, as in the paper
FRACTION = 0.125  # r of the priority rounds: as many bytes in PERIOD gradients as a checkpoint
CHAIN = 3  # servers that hold a copy, the first included
BACKLOG, SMALL_RATE = 25, 0.1  # more waiting gradients than this are one step, at a tenth of the learning rate
QUEUE = 1000  # gradients that may wait; the oldest are dropped


@dataclass(frozen=True)
class Mode:
    """``waits``: workers stand still without a server. ``takeover``: somebody else has the blocks and goes on at once."""

    name: str
    keeper: Callable[[Job, State], Keeper]
    synchronous: bool
    waits: bool = True
    takeover: bool = False


class Keeper:
    """What stays when nothing is kept: x(0). ``copies``: of the model in the memory of servers; ``written``: bytes, in all."""

    copies = 1

    def __init__(self, job: Job, state: State) -> None:
        self.job, self.state, self.written = job, state, 0
        self.model_bytes = sum(store.values.nbytes for store in state.values())

    def updated(self, gradients: int) -> None:
        """So many gradients are in the model now."""

    def restored(self, _lost: Lost) -> State:
        """The state after these blocks died, and the number of gradients in what came back."""
        return initial(self.job)


class Checkpoints(Keeper):
    """Rounds of ``job.checkpoint``; ``job.recovery`` says whether everything goes back or only what was lost."""

    copies = 2  # a shard keeps what it saved last

    def __init__(self, job: Job, state: State) -> None:
        super().__init__(job, state)
        self._saver = Saver(job, state)

    def updated(self, gradients: int) -> None:
        if gradients % self.job.checkpoint.every == 0:
            self.written += round(self.job.checkpoint.effective_fraction * self.model_bytes)
        self._saver.after(gradients)

    def restored(self, lost: Lost) -> State:
        return self._saver.recover(lost)


class Chain(Keeper):
    """A copy of everything on the next server every ``PERIOD`` gradients. ``late``: it is there one update later."""

    copies = CHAIN

    def __init__(self, job: Job, state: State, late: bool) -> None:
        super().__init__(job, state)
        self._late, self._copy = late, duplicate(state)
        self._coming: State | None = None

    def updated(self, gradients: int) -> None:
        if self._coming is not None:
            self._copy, self._coming = self._coming, None
        if gradients % PERIOD == 0:
            self.written += (CHAIN - 1) * self.model_bytes
            if self._late:
                self._coming = duplicate(self.state)
            else:
                self._copy = duplicate(self.state)

    def restored(self, lost: Lost) -> State:
        back = duplicate(self.state)
        for table, ids in lost.items():
            at = back[table].find(ids)
            back[table].install(at, self._copy[table].copy(at))
        return back


class Outside(Keeper):
    """Stateless servers: the model lives in a store in memory, and nothing of it dies with a server."""

    def updated(self, _gradients: int) -> None:
        self.written += self.model_bytes

    def restored(self, _lost: Lost) -> State:
        return duplicate(self.state)


class Forgetful(Checkpoints):
    """The published code: only the last of the planned kills is followed by a restore (``kill_times <= 0``)."""

    def __init__(self, job: Job, state: State, kills: int) -> None:
        super().__init__(job, state)
        self._kills = kills

    def restored(self, lost: Lost) -> State:
        self._kills -= 1
        if self._kills > 0:
            return initial(replace(self.job, seed=self.job.seed + 1))
        return super().restored(lost)


def full(job: Job, state: State) -> Keeper:
    return Checkpoints(_with_full(job), state)


def priority(job: Job, state: State) -> Keeper:
    return Checkpoints(replace(job, checkpoint=Checkpoint("priority", FRACTION, PERIOD), recovery="partial"), state)


def forgetful(job: Job, state: State) -> Keeper:
    return Forgetful(_with_full(job), state, kills=2)


def sync_chain(job: Job, state: State) -> Keeper:
    return Chain(job, state, late=False)


def async_chain(job: Job, state: State) -> Keeper:
    return Chain(job, state, late=True)


def _with_full(job: Job) -> Job:
    return replace(job, checkpoint=Checkpoint("full", 1.0, PERIOD), recovery="full")


MODES = (
    Mode("async-checkpoint", full, synchronous=False),
    Mode("async-chain", async_chain, synchronous=False, takeover=True),
    Mode("stateless", Outside, synchronous=False, waits=False),
    Mode("async-partial", priority, synchronous=False),
    Mode("sync-checkpoint", full, synchronous=True),
    Mode("sync-chain", sync_chain, synchronous=True, takeover=True),
    Mode("sync-partial", priority, synchronous=True),
)
UNDISTURBED = (Mode("async", Keeper, synchronous=False), Mode("sync", Keeper, synchronous=True))
FLAWED = (Mode("async-checkpoint", forgetful, synchronous=False), Mode("sync-checkpoint", forgetful, synchronous=True))


def install(state: State, restored: State) -> None:
    """Put it in place: whoever watches ``state`` watches its memory."""
    for name, store in restored.items():
        at = np.arange(len(store))
        state[name].install(at, store.copy(at))


def backlog(state: State, waiting: list[dict[str, np.ndarray]]) -> None:
    """The paper's way to apply what came while no server was there."""
    if len(waiting) <= BACKLOG:
        for gradients in waiting:
            apply(state, gradients)
    else:
        apply(state, {name: SMALL_RATE * np.sum([one[name] for one in waiting], axis=0) for name in waiting[0]})


def apply(state: State, gradients: dict[str, np.ndarray]) -> None:
    """One step by each table's rule."""
    for name, gradient in gradients.items():
        state[name].apply(None, np.ascontiguousarray(gradient, np.float32).reshape(-1), nothing)
