"""Saved blocks rot: just these come back from an older copy, and the books say so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scar_runtime.checkpoint.objects import ObjectSection
from scar_runtime.checkpoint.running_checkpoint import load_newest
from tests.framework.cluster import Cluster, running


def rot(cluster: Cluster, owner: str) -> str:
    """Flip bits in every block of the newest object that holds the newest copy of a block of this shard;
    returns its key.
    """
    found = load_newest(cluster.store, cluster.job)
    epoch = cluster.read_epochs()[-1]
    index = next(i for i, member in enumerate(epoch.shards) if member.name == owner)
    owned = np.flatnonzero(epoch.owners["rows"] == index).astype(np.uint32)
    origin = [origin for origin in found.origins("rows", owned) if origin.index >= 0][-1]
    ref, header = found.objects[origin.index], found.headers[origin.index]
    path = Path(cluster.store.url.removeprefix("file://")) / cluster.job.name / ref.key
    data = bytearray(path.read_bytes())
    section: ObjectSection = header.sections[0]
    for at in range(section.start, len(data), 8):
        data[at] ^= 1
    path.write_bytes(data)
    return ref.key


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_a_damaged_object_costs_its_blocks_an_older_copy(tmp_path: Path, consistency: str) -> None:
    with running(tmp_path, shards=2, workers=2, consistency=consistency) as cluster:
        cluster.wait(
            lambda status: bool(status.checkpoint and status.checkpoint.manifest >= 4), "4 manifests"
        )
        before = cluster.incarnations()
        key = rot(cluster, "ps-1")
        cluster.local.kill("ps-1")
        cluster.wait_healed(before, ["ps-1"])
        damaged = [
            record for record in cluster.status().failures if any(key in text for text in record.damage)
        ]
        assert damaged, [list(record.damage) for record in cluster.status().failures]
        # one a report
        assert all(sum(record.sources.values()) == record.lost_blocks > 0 for record in damaged)
        cluster.wait_saved(cluster.status())
        cluster.verify()
