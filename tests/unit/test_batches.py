"""Batches are dealt so that every example is worked on once in an epoch, whoever comes and goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scar
from scar.errors import ConfigError

EXAMPLES, BATCH = 103, 16


class Seat:
    """What a worker is to a sampler: a rank among so many, which may change."""

    def __init__(self, rank: int, world: int, clock: int = 0) -> None:
        self.rank, self.world, self.clock_number = rank, world, clock

    def data_slice(self, n: int) -> slice:
        return slice(self.rank * n // self.world, (self.rank + 1) * n // self.world)


def deal(step: int, world: int, **options: Any) -> list[np.ndarray]:
    samplers = [scar.BatchSampler(Seat(rank, world), EXAMPLES, BATCH, **options) for rank in range(world)]  # type: ignore[arg-type]
    return [sampler.indices(step) for sampler in samplers]


def test_an_epoch_has_every_example_once_though_workers_come_and_go() -> None:
    worlds = [2, 2, 3, 1, 1, 4, 2]
    orders = []
    for epoch in range(2):
        dealt = [deal(7 * epoch + place, world) for place, world in enumerate(worlds)]
        assert [len(shares) for shares in dealt] == worlds
        whole = np.concatenate([share for shares in dealt for share in shares])
        assert sorted(whole.tolist()) == list(range(EXAMPLES))
        orders.append(whole.tolist())
    assert orders[0] != orders[1] != list(range(EXAMPLES))
    sizes = [sum(map(len, deal(step, 3))) for step in range(7)]
    assert set(sizes) == {14, 15}


def test_a_sampler_that_is_made_again_goes_on_where_the_clocks_are() -> None:
    first = scar.BatchSampler(Seat(0, 2), EXAMPLES, BATCH)  # type: ignore[arg-type]
    assert (first.batches, first.epoch(6), first.epoch(7)) == (7, 0, 1)
    for step in (9, 3, 10):  # in any order: nothing is counted
        again = scar.BatchSampler(Seat(0, 2), EXAMPLES, BATCH)  # type: ignore[arg-type]
        np.testing.assert_array_equal(first.indices(step), again.indices(step))
        assert first.indices(step).tolist() != deal(step, 2, seed=1)[0].tolist()


def test_without_shuffling_the_order_is_that_of_the_data() -> None:
    assert np.concatenate([*deal(0, 2, shuffle=False), *deal(1, 3, shuffle=False)]).tolist() == list(
        range(29)
    )


@pytest.mark.parametrize("batch", [0, EXAMPLES + 1])
def test_a_batch_is_a_part_of_the_data(batch: int) -> None:
    with pytest.raises(ConfigError):
        scar.BatchSampler(Seat(0, 1), EXAMPLES, batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("processes", [0, 2])
def test_torchs_loader_gets_the_batches_of_the_open_clocks(processes: int) -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    import scar.torch

    torch.set_num_threads(1)
    data = TensorDataset(torch.arange(EXAMPLES))
    seat = Seat(1, 2, clock=5)
    sampler = scar.torch.DistributedSampler(seat, data, BATCH)  # type: ignore[arg-type]
    assert sampler.batches == 7
    loader = DataLoader(data, batch_sampler=sampler, num_workers=processes)
    for clock, (mine,) in zip(range(5, 12), loader, strict=False):
        assert mine.tolist() == deal(clock, 2)[1].tolist()
        seat.clock_number = clock + 1
    if not processes:
        batches = iter(loader)
        assert next(batches)[0].tolist() == deal(12, 2)[1].tolist()
        seat.rank, seat.world, seat.clock_number = 2, 3, 15  # a rollback has gone to clock 15
        assert next(batches)[0].tolist() == deal(15, 3)[2].tolist()
