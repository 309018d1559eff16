"""When every shard serves the newest epoch."""

from __future__ import annotations

import numpy as np

from scar.placement import Epoch, Member, Role
from scar_recovery.core.epoch_delivery import DeliveryProgress

PS_0, PS_1 = (Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in range(2))


def epoch(number: int, *shards: Member) -> Epoch:
    return Epoch(number, "leader", "job", shards, (), {"w": np.zeros(4, np.uint16)})


def test_an_epoch_is_served_when_every_shard_of_it_has_everything() -> None:
    progress = DeliveryProgress()
    assert progress.shard_loaded(PS_0.key, 1, 3) is None
    progress.publish(epoch(1, PS_0, PS_1))
    assert progress.shard_loaded(PS_0.key, 1, 3) is None
    assert progress.shard_loaded(PS_1.key, 1, 2) == 3


def test_what_was_loaded_of_an_epoch_says_nothing_of_the_next() -> None:
    progress = DeliveryProgress()
    progress.publish(epoch(1, PS_0, PS_1))
    progress.shard_loaded(PS_0.key, 1, 3)
    progress.publish(epoch(2, PS_0, PS_1))
    assert progress.shard_loaded(PS_0.key, 1, 3) is None
    assert progress.shard_loaded(PS_1.key, 2, 2) is None
    assert progress.shard_loaded(PS_0.key, 2, 3) == 3


def test_a_shard_that_left_is_told_and_nobody_twice() -> None:
    progress = DeliveryProgress()
    assert progress.publish(epoch(1, PS_0)) == [PS_0]
    assert progress.publish(epoch(2, PS_1)) == [PS_1]
    progress.shard_told(PS_0.key)
    assert progress.publish(epoch(3, PS_1)) == []
    progress.shard_told(PS_1.key)
    assert progress.publish(epoch(4)) == [PS_1]
