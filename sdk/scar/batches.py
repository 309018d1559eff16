"""Which examples a worker works on in a clock: shuffled batches, dealt over the workers of the moment.

sampler = scar.BatchSampler(worker, len(data), batch=64)
for clock in worker.clocks(limit=10 * sampler.batches):  # ten epochs
    mine = data[sampler.indices(clock)]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scar.errors import ConfigError
from scar.training import Worker

Indices = NDArray[np.int64]


class BatchSampler:
    """Deals ``examples`` in batches of at most ``batch``, one in each step, over the workers of the moment.

    ``batches``: of an epoch (a pass over the data); their sizes differ by one at most. All of it follows from
    ``seed`` and the number of the step, so a worker that comes back, or a job that is resumed, goes on where
    the clocks are. docs/torch.md says what a change of workers costs.
    """

    def __init__(
        self, worker: Worker, examples: int, batch: int, *, seed: int = 0, shuffle: bool = True
    ) -> None:
        if not 1 <= batch <= examples:
            raise ConfigError(f"a batch of {batch} of {examples} examples", "Choose from 1 to all of them")
        self._worker = worker
        self._examples = examples
        self._seed = seed
        self._shuffle = shuffle
        self._order: tuple[int, Indices] | None = None  # of the epoch that was asked for last
        self.batches = -(-examples // batch)

    def epoch(self, step: int) -> int:
        """In which pass over the data this step is, from 0."""
        return step // self.batches

    def batch(self, step: int) -> Indices:
        """The examples of this step, of all workers together."""
        epoch, place = divmod(step, self.batches)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._draw_order(epoch)
        start, stop = (number * self._examples // self.batches for number in (place, place + 1))
        return self._order[1][start:stop]

    def indices(self, step: int) -> Indices:
        """This worker's share of them, by :meth:`Worker.data_slice`. ``step``: the open clock, or, where a
        recovery rolls back, the step of :meth:`Worker.load_state`.
        """
        whole = self.batch(step)
        return whole[self._worker.data_slice(len(whole))]

    def _draw_order(self, epoch: int) -> Indices:
        if not self._shuffle:
            return np.arange(self._examples)
        return np.random.default_rng([self._seed, epoch]).permutation(self._examples)
