"""Batches of a loader, with what the model pulls for the next one on its way while this one is worked on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Any

from scar.torch.batch_ids import Inputs
from scar.torch.pulled_model import PulledModel


def prefetch(loader: Iterable[Any], optimizer: PulledModel) -> Iterator[Any]:
    """The batches of ``loader``, one for each clock; under SSP and ASP with the pull of the next one begun.

        for clock, (ids, y) in zip(worker.clocks(limit=1000), scar.torch.prefetch(loader, optimizer)):

    Parameters and rows come as of a clock before, as these consistencies allow: what SSP promises for the
    clock in which they are used holds. Under BSP nothing is pulled before its clock. A batch is a tensor, or
    a tuple, list or mapping of some, which the model is called with as they come; the first two are pulled
    when they are looked up.
    """
    places: Mapping[int | str, int | str] = {}
    for batch, following in pairwise(chain(loader, [None])):
        if following is not None:
            parts = _parts_of(following)
            optimizer.pull_ahead({at: parts[name] for at, name in places.items() if name in parts})
        yield batch
        places = optimizer.find_places(_parts_of(batch))


def _parts_of(batch: Any) -> Inputs:
    if isinstance(batch, Mapping):
        return batch
    return dict(enumerate(batch if isinstance(batch, tuple | list) else (batch,)))
