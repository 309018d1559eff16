"""Batches for torch's ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from torch.utils.data import Sampler

from scar.batches import BatchSampler
from scar.training import Worker


class DistributedSampler(Sampler[list[int]]):  # type: ignore[misc]
    """A worker's share of a batch for every clock from the open one on, without an end.

    loader = DataLoader(dataset, batch_sampler=scar.torch.DistributedSampler(worker, dataset, batch=64))
    for clock, (x, y) in zip(worker.clocks(limit=10 * loader.batch_sampler.batches), loader):

    Epochs follow one another, each in an order of its own. See :class:`scar.BatchSampler`, which deals.
    """

    def __init__(
        self, worker: Worker, dataset: Sized, batch: int, *, seed: int = 0, shuffle: bool = True
    ) -> None:
        self._worker = worker
        self._sampler = BatchSampler(worker, len(dataset), batch, seed=seed, shuffle=shuffle)
        self.batches = self._sampler.batches

    def __iter__(self) -> Iterator[list[int]]:
        step = self._worker.clock_number
        while True:
            yield self._sampler.indices(step).tolist()
            step = max(step + 1, self._worker.clock_number)  # a loader asks ahead; a rollback skips clocks
