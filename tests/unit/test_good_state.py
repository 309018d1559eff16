"""What a job that has diverged can go back to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.errors import Diverged
from scar.tables import Job, Table
from scar_runtime.checkpoint.good_state import newest_good
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.store.layout import manifest_key
from tests.framework.recovery import MemoryStore

JOB = Job("test", [Table("a", (8, 2)), Table("free", 4, allow_nonfinite=True)])


class Saved:
    """Manifests 1, 2, ...; each saves one block of table a (``table``) more, at ``clock``."""

    def __init__(self, job: Job = JOB) -> None:
        self.store = MemoryStore().under("test")
        self.headers = HeaderCache(self.store, job)
        self._refs: list[object] = []

    def save(self, block: int, clock: int, value: float = 1.0, full: bool = False, table: str = "a") -> None:
        number = len(self._refs) + 1
        spec = JOB.table(table)
        group = BlockState(table, np.array([block], np.uint32), clock, {"worker-0@1": clock}, "ps-0@1")
        elements = spec.layout.sizes[block]
        payload = BlockPayload(np.full(elements, value, np.float32), {}, np.zeros(1, np.int64))
        encoded = EncodedObject(JOB, [(group, payload)])
        key = f"objects/e00000001-ps-0@000000000001-r{number:08d}"
        self.store.put_pieces(key, encoded.pieces())
        self._refs.append(object_ref(key, encoded, [group], "ps-0@1", 1, number))
        manifest = Manifest(
            number, number - 1, "test", round=number, clock=clock, full=full, objects=tuple(self._refs)
        )
        create_manifest(self.store, manifest)

    def newest_good(self, below: int, full: bool = False) -> int:
        return newest_good(self.headers, below, full)


def test_no_block_of_it_is_of_the_bad_clock_or_a_later_one() -> None:
    saved = Saved()
    for block, clock in ((0, 3), (1, 5), (2, 6), (0, 8)):
        saved.save(block, clock)
    assert [saved.newest_good(below) for below in (9, 8, 7, 6, 5, 4)] == [4, 3, 3, 2, 1, 1]
    assert saved.newest_good(3) == 0, "nothing was collected: before them all is x(0)"


def test_under_ssp_blocks_of_earlier_clocks_may_have_what_spoilt_the_loss() -> None:
    """A worker that is ahead by the staleness has pushed into them, and who hears of it may be ahead, too."""
    saved = Saved(replace(JOB, consistency="ssp", staleness=1))
    for block, clock in ((0, 36), (1, 37), (2, 38), (3, 40)):
        saved.save(block, clock)
    assert [saved.newest_good(below) for below in (42, 41, 40, 39)] == [3, 2, 1, 0]
    assert saved.newest_good(2) == 0, "x(0), not an error"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_with_a_value_that_is_no_number_is_passed_over(value: float) -> None:
    saved = Saved()
    saved.save(0, 3)
    saved.save(1, 4, value)
    saved.save(2, 5)
    assert saved.newest_good(9) == 1, "the third has the block of the second"
    saved.save(1, 6)
    assert saved.newest_good(9) == 4, "it was saved again"


def test_a_table_that_allows_it_may_have_such_values() -> None:
    saved = Saved()
    saved.save(0, 3, math.nan, table="free")
    assert saved.newest_good(9) == 1


def test_one_that_cannot_be_read_is_passed_over_and_so_is_one_that_is_not_consistent() -> None:
    saved = Saved()
    saved.save(0, 3, full=True)
    saved.save(1, 4)
    saved.save(2, 5)
    assert saved.newest_good(9, full=True) == 1
    saved.store.put(manifest_key(3), b"damaged")
    assert saved.newest_good(9) == 2


def test_nothing_is_of_before() -> None:
    saved = Saved()
    saved.save(0, 3)
    saved.save(0, 4)
    saved.store.delete(manifest_key(1))
    with pytest.raises(Diverged, match="nothing that was saved before clock 4 is kept"):
        saved.newest_good(4)
    with pytest.raises(Diverged, match="before clock 0"):
        Saved().newest_good(0)
    assert Saved().newest_good(1) == 0
