"""Reading checkpoints from a store that no service serves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import scar_cli.checkpoints as checkpoints
from scar.blocks import BlockState
from scar.errors import ConfigError, JobNotFound, ScarError
from scar.tables import Init, Job, Table, normal, sgd
from scar.v1.types_pb2 import Epoch
from scar.wire.codec import job_to_proto
from scar_cli import export, verify
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import DirectTarget
from scar_cli.output import OutputFormat
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.store import open_store
from scar_runtime.store.layout import numbered, object_key
from scar_runtime.store.pins import Pins
from scar_runtime.store.records import create_record

GIVEN = np.arange(6, dtype=np.float64)
JOB = Job(
    "mnist",
    seed=5,
    tables=[
        Table("w", (10, 3), rule=sgd(0.1), init=normal()),
        Table("g", 6, dtype="float64", init=Init("given", key="init/g")),
    ],
)


def saved(url: str, round_number: int, ids: list[int], value: float) -> ObjectRef:
    """One object with these blocks of w, all elements ``value``."""
    group = BlockState("w", np.array(ids, dtype=np.uint32), round_number, {"worker-0@aa": 3}, "ps-0@bb")
    payload = BlockPayload(np.full(3 * len(ids), value, np.float32), {}, np.ones(len(ids), np.int64))
    encoded = EncodedObject(JOB, [(group, payload)])
    key = object_key(1, "ps-0@bb", round_number)
    open_store(url).under("mnist").put_pieces(key, encoded.pieces())
    return object_ref(key, encoded, [group], "ps-0@bb", 1, round_number)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Two manifests: blocks 0 to 3 of w, then 3 and 4; the rest is at x(0)."""
    url = f"file://{tmp_path / 'store'}"
    store = open_store(url).under("mnist")
    create_record(store, "job", job_to_proto(JOB))
    create_record(store, numbered("epochs", 1), Epoch(number=1, job="mnist"))
    store.put("init/g", GIVEN.tobytes())
    first, second = saved(url, 1, [0, 1, 2, 3], 1.0), saved(url, 2, [3, 4], 2.0)
    head = {"job": "mnist", "epoch": 1, "selection": "priority", "created": 1.8e9}
    create_manifest(store, Manifest(number=1, round=1, clock=1, objects=(first,), **head))
    create_manifest(store, Manifest(number=2, parent=1, round=2, clock=2, objects=(first, second), **head))
    return url


def output_of(capsys: pytest.CaptureFixture[str], call: Callable[[], None]) -> str:
    call()
    return capsys.readouterr().out


def test_the_listing(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = checkpoints.open_job(ClusterRef(), "", url)
    lines = output_of(capsys, lambda: checkpoints.list_manifests(job, OutputFormat.text)).splitlines()
    assert [line.split()[:6] for line in lines[1:]] == [
        ["1", "1", "1", "1", "priority", "1"],
        ["2", "2", "2", "1", "priority", "2"],
    ]
    data = json.loads(output_of(capsys, lambda: checkpoints.list_manifests(job, OutputFormat.json)))
    assert [row["manifest"] for row in data["manifests"]] == [1, 2]


def test_a_damaged_manifest_is_listed_as_such(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(url).under("mnist")
    store.put(numbered("manifests", 2), store.get(numbered("manifests", 2)).replace(b"priority", b"prioritY"))
    job = checkpoints.open_job(ClusterRef(), "mnist", url)
    assert (
        "damaged"
        in output_of(capsys, lambda: checkpoints.list_manifests(job, OutputFormat.text)).splitlines()[2]
    )
    # the newest that is whole
    assert "manifest 1" in output_of(capsys, lambda: checkpoints.show_manifest(job, 0, OutputFormat.text))


def test_the_objects_of_a_manifest(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = checkpoints.open_job(ClusterRef(), "", url)
    shown = output_of(capsys, lambda: checkpoints.show_manifest(job, 2, OutputFormat.text))
    assert "5 of 16 blocks saved, 11 still at x(0)" in shown
    data = json.loads(output_of(capsys, lambda: checkpoints.show_manifest(job, 0, OutputFormat.json)))
    assert (data["live"], data["initial"], data["manifest"]["number"]) == ([3, 2], 11, 2)


def test_a_whole_store_is_all_good(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = checkpoints.open_job(ClusterRef(), "", url)
    assert "all good: manifests 1 to 2, 2 objects, 6 blocks" in output_of(
        capsys, lambda: verify.verify_checkpoints(job, 0, OutputFormat.text)
    )


def flip_last_byte(url: str, key: str) -> None:
    store = open_store(url).under("mnist")
    raw = bytearray(store.get(key))
    raw[-1] ^= 1
    store.put(key, bytes(raw))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda url: flip_last_byte(url, object_key(1, "ps-0@bb", 2)), "block 3 of table w is damaged"),
        (lambda url: flip_last_byte(url, numbered("manifests", 1)), "manifests/00000001"),
        (lambda url: flip_last_byte(url, numbered("epochs", 1)), "epochs/00000001"),
        (
            lambda url: open_store(url).under("mnist").delete(object_key(1, "ps-0@bb", 1)),
            "objects/e00000001-ps-0@bb-r00000001",
        ),
    ],
)
def test_every_damage_is_found(
    url: str, damage: Callable[[str], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(url)
    with pytest.raises(SystemExit) as end:
        verify.verify_checkpoints(checkpoints.open_job(ClusterRef(), "", url), 0, OutputFormat.text)
    assert end.value.code == 1
    assert words in capsys.readouterr().out


def test_a_broken_chain_is_found(url: str) -> None:
    store = open_store(url).under("mnist")
    create_manifest(store, Manifest(number=3, parent=1, job="other"))
    found = verify.check_manifests(checkpoints.open_job(ClusterRef(), "", url), [3])
    assert found.problems == ["manifest 3 continues 1, not 2", "manifest 3 belongs to job 'other'"]


def test_an_export_has_every_block(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "model.safetensors"
    export.export_tables(checkpoints.open_job(ClusterRef(), "", url), 0, file)
    tables = load_file(file)
    expected = JOB.table("w").initial(5, np.arange(10, dtype=np.uint32)).reshape(10, 3)
    expected[[0, 1, 2]], expected[[3, 4]] = 1.0, 2.0
    np.testing.assert_array_equal(tables["w"], expected)
    np.testing.assert_array_equal(tables["g"], GIVEN)
    assert "manifest 2, clock 2" in capsys.readouterr().out
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.parametrize(("number", "kept"), [(0, {1, 2}), (1, {1})])
def test_what_is_read_for_long_is_pinned(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kept: set[int]
) -> None:
    job, found = checkpoints.open_job(ClusterRef(), "", url), list[set[int]]()
    pins = Pins(job.store, lambda: 0.0)
    for module, name in ((export, "read_blocks"), (verify, "verify_object")):
        read = getattr(module, name)

        def seen(*arguments: object, read: Callable[..., object] = read) -> object:
            found.append(pins.manifests())
            return read(*arguments)

        monkeypatch.setattr(module, name, seen)
    export.export_tables(job, number, tmp_path / "model.safetensors")
    verify.verify_checkpoints(job, number, OutputFormat.json)
    assert len(found) > 1
    assert all(one == kept for one in found)
    assert job.store.list("pins/") == []


def test_an_export_of_an_older_manifest(url: str, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    export.export_tables(checkpoints.open_job(ClusterRef(), "", url), 1, file)
    assert (load_file(file)["w"][3] == 1.0).all()


def attempt(call: Callable[[], object]) -> ScarError:
    with pytest.raises(ScarError) as caught:
        call()
    return caught.value


def test_what_is_not_there_is_said_with_what_is(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = checkpoints.open_job(ClusterRef(), "", url)
    assert "has no manifest 9. The store has 1 to 2" in str(attempt(lambda: job.running(9)))
    assert isinstance(attempt(lambda: verify.verify_checkpoints(job, 9, OutputFormat.text)), ConfigError)
    assert "no cluster 'local' has ever run" in str(attempt(lambda: checkpoints.open_job(ClusterRef())))
    unknown = attempt(lambda: checkpoints.open_job(ClusterRef(), "cifar", url))
    assert isinstance(unknown, JobNotFound)
    assert "It has mnist" in str(unknown)
    create_record(open_store(url).under("other"), "job", job_to_proto(JOB))
    assert "Choose one by --job: mnist, other" in str(
        attempt(lambda: checkpoints.open_job(ClusterRef(), "", url))
    )
    empty = f"file://{tmp_path / 'empty'}"
    assert isinstance(attempt(lambda: checkpoints.open_job(ClusterRef(), "", empty)), JobNotFound)


def test_an_export_of_a_clock_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'last' is no clock"):
        export.export_running(DirectTarget("127.0.0.1:1"), "last", tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())
