"""The layout of the store: keys are what they have always been, since stores of older clusters have them."""

from __future__ import annotations

import hashlib

import pytest

from scar_runtime.store import layout


@pytest.mark.parametrize(
    ("key", "spelled"),
    [
        (layout.JOB, "job"),
        (layout.OWNER_BEAT, "owner-beat"),
        (layout.epoch_key(7), "epochs/00000007"),
        (layout.manifest_key(12), "manifests/00000012"),
        (layout.owner_key(1), "owners/00000001"),
        (layout.finished_key(7), "finished/00000007"),
        (layout.initial_key("w", b""), f"init/w@{hashlib.sha256().hexdigest()}"),
        (layout.object_key(7, "ps-0@ab", 12), "objects/e00000007-ps-0@ab-r00000012"),
        (layout.object_key(7, "ps-0@ab", 12, 1), "objects/e00000007-ps-0@ab-r00000012-1"),
        (layout.compact_key(12, "ab"), "objects/compact-00000012-ab"),
        (layout.failure_key(3, 2, "ab"), "ledger/00000003/00000002-ab"),
        (layout.lost_key(3, "worker-0@ab"), "ledger/00000003/lost-worker-0@ab"),
        (layout.lost_blocks_key(3, "ff"), "ledger/00000003/blocks-ff"),
        (layout.pin_key("ab"), "pins/ab"),
        (layout.numbered(layout.cluster_jobs("default"), 2), "_clusters/default/00000002"),
        (layout.epoch_key(123456789), "epochs/123456789"),
    ],
)
def test_keys_are_spelled_as_always(key: str, spelled: str) -> None:
    assert key == spelled


def test_what_a_key_says_is_read_again() -> None:
    assert layout.saved_round(layout.object_key(7, "ps-0@ab", 12, 1)) == 12
    assert layout.saved_round(layout.compact_key(12, "ab")) is None
    assert layout.compacted_manifest(layout.compact_key(12, "ab-cd")) == 12
    assert layout.compacted_manifest(layout.object_key(7, "ps-0@ab", 12)) is None
    assert layout.failure_version(layout.failure_key(3, 2, "ab")) == (3, 2)
    assert layout.failure_version(layout.lost_key(3, "worker-0@ab")) is None
    assert layout.kind_of(layout.manifest_key(1)) == "manifests"


def test_a_folder_is_not_the_beginning_of_another_one() -> None:
    assert layout.folder("epochs") == "epochs/"
    assert layout.lost_key(3, "worker-0").startswith(layout.lost_prefix(3))


def test_jobs_are_known_by_their_descriptions() -> None:
    keys = [
        "mnist/job",
        "mnist/epochs/00000001",
        "half/epochs/00000001",
        "_clusters/default/00000001",
        "a/b/job",
    ]
    assert layout.jobs_among(keys) == ["mnist"]
