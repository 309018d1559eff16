"""What an epoch of the largest jobs costs; benchmarks/placement.py shows it for other sizes."""

from __future__ import annotations

from benchmarks.placement import first_intent, make_job, make_shards, measure_placement
from scar.placement import Epoch
from scar.tables import MAX_BLOCKS
from scar.wire.codec import MAX_MESSAGE_BYTES
from scar.wire.epoch_messages import epoch_to_proto
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch


def test_the_largest_job_has_epochs_that_fit_into_one_message() -> None:
    """Else it could be started, and no worker would ever hear of it."""
    epoch = draft_epoch(first_intent(make_job(MAX_BLOCKS), make_shards(1000)), NothingSaved())
    size = epoch_to_proto(epoch).ByteSize()
    assert size < MAX_MESSAGE_BYTES // 4


def test_costs_are_of_what_moved() -> None:
    first, second = (measure_placement(40_000, 4, died) for died in (0, 1))
    assert 4 * 5000 < first.message < 4 * 5000 + 1000, "3 bits a block for its owner, and one that it moved"
    assert 3 * 5000 < second.message < 3 * 5000 + 1000, "2 bits for three owners, and one"
    assert second.record > second.message


def test_a_shard_is_found_by_its_key() -> None:
    shards = make_shards(3)
    epoch = Epoch(1, "author", "job", shards, (), {})
    assert [epoch.shard_index(member.key) for member in shards] == [0, 1, 2]
    assert epoch.shard_index("ps-0@nobody") == -1
