"""What the page knows of the store: the newest manifest, read once; a store that is away changes nothing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from scar.errors import StoreError
from scar.tables import Job, Table
from scar.v1 import checkpoint_pb2
from scar.v1.recovery_pb2 import HistorySample
from scar.wire.codec import job_to_proto
from scar.wire.epoch_messages import epoch_to_proto
from scar_admin.status import ClusterStatus
from scar_console.block_map import NEVER
from scar_console.map_reader import BlockMapReader
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store, open_store
from scar_runtime.store.history_log import HistoryLog
from tests.unit.test_console_blocks import epoch_of
from tests.unit.test_running import JOB, save

FIRST = [1, 1, *[NEVER] * 10, *[NEVER] * 4, 1]  # of the blocks of both tables
SECOND = [1, 2, *[NEVER] * 10, *[NEVER] * 4, 1]


class OpenedStores:
    """``opened``: how often somebody asked for the store."""

    def __init__(self, folder: Path) -> None:
        self.url = f"file://{folder}"
        self.opened = 0
        self.away = False

    def open(self) -> Store:
        self.opened += 1
        if self.away:
            raise StoreError("the store is away")
        return open_store(self.url)


@pytest.fixture
def stores(tmp_path: Path) -> OpenedStores:
    return OpenedStores(tmp_path)


def status(manifest: int, job: Job = JOB) -> ClusterStatus:
    return ClusterStatus(
        job=job_to_proto(job),
        epoch=epoch_to_proto(epoch_of(job)),
        checkpoint=checkpoint_pb2.CheckpointStatus(manifest=manifest),
    )


def test_each_manifest_is_read_once(stores: OpenedStores) -> None:
    saved = BlockMapReader(stores.open)
    assert saved.read(status(0)) is None
    assert stores.opened == 0, "nothing is saved yet"
    job = stores.open().under("job")
    save(job, 1, {"a": [0, 1], "b": [4]})
    drawn = saved.read(status(1))
    assert drawn is not None
    assert (drawn.job, drawn.manifest, list(drawn.cells)) == ("job", 1, FIRST)
    assert saved.read(status(1)) is None
    save(job, 2, {"a": [1]})
    drawn = saved.read(status(2))
    assert drawn is not None
    assert (drawn.manifest, list(drawn.cells)) == (2, SECOND)
    assert stores.opened == 2


def test_a_new_epoch_deals_the_same_blocks_to_other_shards(stores: OpenedStores) -> None:
    save(stores.open().under("job"), 1, {"a": [0], "b": []})
    saved = BlockMapReader(stores.open)
    before = saved.read(status(1))
    alone = replace(epoch_of(JOB), number=2, shards=epoch_of(JOB).shards[:1])
    for owners in alone.owners.values():
        owners[:] = 0
    after = saved.read(replace(status(1), epoch=epoch_to_proto(alone)))
    assert before is not None
    assert after is not None
    assert set(before.oldest) == {"ps-0", "ps-1", "ps-2"}
    assert after.oldest == {"ps-0": NEVER}


def test_a_store_that_is_away_is_asked_again(stores: OpenedStores, tmp_path: Path) -> None:
    save(stores.open().under("job"), 1, {"a": [0, 1], "b": [4]})
    stores.away = True
    saved = BlockMapReader(stores.open)
    assert saved.read(status(1)) is None
    stores.away = False
    assert saved.read(status(1)) is not None
    shutil.rmtree(tmp_path / "job" / "objects")
    save(stores.open().under("job"), 2, {"a": [1]})  # of the first one nothing is left
    assert saved.read(status(2)) is not None, "its header is known"


def test_a_job_that_is_declared_anew_is_not_taken_for_the_old_one(stores: OpenedStores) -> None:
    saved = BlockMapReader(stores.open)
    save(stores.open().under("job"), 1, {"a": [0, 1], "b": [4]})
    assert saved.read(status(1)) is not None
    other = Job("job", [Table("c", 3)])
    assert saved.read(status(1, other)) is None, "what is stored is not of these tables"
    drawn = saved.read(status(1))
    assert drawn is not None
    assert list(drawn.cells) == FIRST


def test_where_the_store_cannot_be_reached_there_is_no_map() -> None:
    assert BlockMapReader(lambda: None).read(status(1)) is None


def test_how_a_run_went_before_is_told_once_when_the_store_can_be_read(stores: OpenedStores) -> None:
    reader = BlockMapReader(stores.open)
    history = ProgressHistory()
    history.add_losses({3: 0.5})
    history.add_samples([HistorySample(time=7.0, clock=4)])
    stores.away = True
    assert reader.read_history(status(1)) is None
    stores.away = False
    HistoryLog(open_store(stores.url).under(JOB.name)).write(history, "a")
    told = reader.read_history(status(1))
    assert told is not None
    assert (told.curve.points_from(), [one.clock for one in told.samples]) == ([(3, 0.5)], [4])
    assert reader.read_history(status(1)) is None
