"""The checkpoint coordinator over real gRPC: rounds, shards that come and go, leadership of processes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from scar.v1 import checkpoint_pb2 as pb
from scar.v1 import checkpoint_pb2_grpc
from scar_runtime.checkpoint.running_checkpoint import load_newest
from tests.component.checkpoint_scene import BLOCKS, Scene, restored, scenes
from tests.component.processes import Processes, eventually, running_redis


@pytest.fixture
def scene_of(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    with scenes(tmp_path) as make:
        yield make


# --- rounds
# ----------------------------------------------------------------------------------------------------------


def test_rounds_follow_the_clocks_and_save_what_has_changed_most(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    stub = scene.lead()
    scene.train(1, slice(0, 3))  # blocks 0, 2, 4 and 1, 3, 5; a quarter of 20 blocks is 5
    manifest = scene.committed(1)
    assert (manifest.number, manifest.clock, manifest.epoch, manifest.selection, manifest.full) == (
        1,
        1,
        1,
        "priority",
        False,
    )
    assert restored(load_newest(scene.store, scene.job), scene.store)[:7] == [1, 1, 1, 1, 1, 0, 0]
    scene.train(2, slice(0, 1))
    scene.committed(2)
    assert restored(load_newest(scene.store, scene.job), scene.store)[:7] == [2, 2, 1, 1, 1, 1, 0]
    eventually(lambda: [shard.finished[-1][1] for shard in scene.shards] == [True, True])
    listed = {ref.key for ref in load_newest(scene.store, scene.job).manifest.objects}
    assert {key for shard in scene.shards for key in shard.kept} == listed
    status = stub.Status(pb.CheckpointStatusRequest(), timeout=20)
    assert (status.leader, status.manifest, status.clock, status.objects, status.problem) == (
        True,
        2,
        2,
        4,
        "",
    )
    assert 0 <= status.age < 60
    assert status.bytes == sum(ref.bytes for ref in load_newest(scene.store, scene.job).manifest.objects)
    assert [(one.manifest, one.blocks_saved, one.blocks_total, one.error) for one in status.recent] == [
        (1, 5, 20, ""),
        (2, 3, 20, ""),
    ]


def test_a_trigger_runs_a_round_now(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    stub = scene.lead()
    for shard in scene.shards:
        shard.values[:] = 7  # clock 0: no periodic round is due
    report = stub.Trigger(pb.TriggerRequest(selection="full"), timeout=40)
    assert (report.manifest, report.blocks_saved, list(report.missed), report.error) == (1, BLOCKS, [], "")
    running = load_newest(scene.store, scene.job)
    assert restored(running, scene.store) == [7.0] * BLOCKS
    assert running.manifest.full
    nothing = stub.Trigger(pb.TriggerRequest(), timeout=40)
    assert (nothing.manifest, nothing.error) == (0, "nothing has changed since it was saved")
    for bad in (
        pb.TriggerRequest(selection="best"),
        pb.TriggerRequest(fraction=1.5),
        pb.TriggerRequest(fraction=float("nan")),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            stub.Trigger(bad, timeout=20)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_new_leader_goes_on_from_the_newest_manifest(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    scene.lead()
    scene.train(1)
    scene.committed(1)
    scene.stop()
    stub = scene.lead(incarnation="d" * 12)
    scene.train(2)
    manifest = scene.committed(2)
    assert (manifest.number, manifest.parent, manifest.author) == (2, 1, "d" * 12)
    assert stub.Status(pb.CheckpointStatusRequest(), timeout=20).age < 60


def test_a_leader_that_took_the_former_job_for_the_present_one_gives_up_at_its_first_epoch(
    scene_of: Callable[..., Scene],
) -> None:
    scene = scene_of()
    stub = scene.lead()
    eventually(lambda: stub.Status(pb.CheckpointStatusRequest(), timeout=20).leader)
    scene.recovery.job = replace(scene.job, name="next")
    scene.recovery.announce(scene.shards)
    eventually(lambda: not stub.Status(pb.CheckpointStatusRequest(), timeout=20).leader)
    scene.train(9)
    with pytest.raises(grpc.RpcError):
        stub.Trigger(pb.TriggerRequest(), timeout=0.5)
    assert load_newest(scene.store, scene.job).manifest.clock < 9


# --- shards and epochs
# -----------------------------------------------------------------------------------------------


def test_a_dead_shard_misses_the_round(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    stub = scene.lead()
    eventually(lambda: stub.Status(pb.CheckpointStatusRequest(), timeout=20).leader)
    scene.shards[1].server.stop(0).wait()
    scene.train(1)
    scene.committed(1)
    eventually(
        lambda: (
            [one.missed[:] for one in stub.Status(pb.CheckpointStatusRequest(), timeout=20).recent]
            == [["ps-1"]]
        )
    )


def test_a_shard_that_leaves_in_mid_round_takes_its_object_with_it(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    scene.lead()
    one, two = scene.shards
    saving, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        saving.set()
        assert go_on.wait(60)

    one.before_save = hold
    scene.train(1)
    assert saving.wait(60)
    eventually(lambda: any(two.member.key in key for key in scene.store.list("objects/")))
    scene.recovery.announce([one])
    one.epoch = 1  # it answers the question of the old epoch
    time.sleep(0.2)
    go_on.set()
    manifest = scene.committed(1)
    assert {ref.owner for ref in manifest.objects} == {one.member.key}
    assert manifest.epoch == 2


def test_a_shard_that_hears_of_the_epoch_late_is_asked_again(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    scene.shards[1].epoch = 0
    scene.lead()
    scene.train(1)
    time.sleep(0.1)
    scene.shards[1].epoch = 1
    assert {ref.owner for ref in scene.committed(1).objects} == {shard.member.key for shard in scene.shards}


def test_an_object_that_cannot_be_read_is_not_named(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    one, two = scene.shards

    class Damaging:
        """The store as shard two sees it: what it puts arrives damaged."""

        def put(self, key: str, data: list[bytes]) -> None:
            damaged = bytearray(b"".join(data))
            damaged[30] ^= 1
            scene.store.put(key, bytes(damaged))

    two.store = Damaging()
    scene.lead()
    scene.train(1)
    manifest = scene.committed(1)
    assert {ref.owner for ref in manifest.objects} == {one.member.key}
    eventually(lambda: two.finished == [(1, False)])
    assert (two.cache == 0).all()


# --- processes
# -------------------------------------------------------------------------------------------------------


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.close()


def test_a_standby_takes_over_and_a_stop_request_ends_it(
    scene_of: Callable[..., Scene], processes: Processes, tmp_path: Path
) -> None:
    scene = scene_of()

    def start(name: str, redis: str) -> tuple[object, checkpoint_pb2_grpc.CheckpointStub]:
        variables = {
            "SCAR_REDIS": redis,
            "SCAR_STORE": scene.url,
            "SCAR_RECOVERY": scene.recovery.address,
            "SCAR_LEASE_SECONDS": "4",  # a busy machine takes no lease of this length from who is well
        }
        process = processes.start(name, "-m", "scar_checkpoint", **variables).serving("readiness")
        return process, checkpoint_pb2_grpc.CheckpointStub(scene.link(process.address).channel)

    with running_redis(tmp_path) as redis:
        one, first = start("checkpoint-0", redis)
        eventually(lambda: first.Status(pb.CheckpointStatusRequest(), timeout=20).leader)
        two, second = start("checkpoint-1", redis)
        scene.train(1)
        assert scene.committed(1).number == 1
        status = second.Status(pb.CheckpointStatusRequest(), timeout=20)
        assert (status.leader, status.problem) == (False, "another checkpoint coordinator leads")
        with pytest.raises(grpc.RpcError, match="does not lead"):
            second.Trigger(pb.TriggerRequest(), timeout=20)
        one.process.kill()
        scene.train(2)
        assert scene.committed(2).parent == 1
        eventually(lambda: second.Status(pb.CheckpointStatusRequest(), timeout=20).leader)
        two.process.send_signal(signal.SIGTERM)
        assert two.wait(60) == 0


def test_a_store_that_cannot_be_opened_ends_the_process_with_a_clear_line(
    processes: Processes, tmp_path: Path
) -> None:
    with running_redis(tmp_path) as redis:
        process = processes.start(
            "checkpoint-0", "-m", "scar_checkpoint", SCAR_REDIS=redis, SCAR_STORE="s3://Bad_Bucket"
        )
        assert process.wait(60) == 2
        assert "has no valid bucket name" in process.log
        assert "Traceback" not in process.log
