"""The checkpoint coordinator over real gRPC: with shards and a recovery coordinator that the test moves, and as real processes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from scar import codec
from scar.errors import CorruptCheckpoint, InvalidRequest, NotServing, StaleEpoch, StoreFull, StoreUnavailable
from scar.placement import Epoch, Member, Role
from scar.tables import Checkpoint, Job, Table, rows
from scar.transport import Link
from scar.v1 import checkpoint_pb2 as pb
from scar.v1 import checkpoint_pb2_grpc, ps_pb2, ps_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar_checkpoint import coordinator, term
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.servicer import CheckpointServicer
from scar_checkpoint.term import Term
from scar_runtime import running as running_module
from scar_runtime.objects import Group, Payload, encode_object, object_key, object_ref, read_blocks
from scar_runtime.records import create_record, numbered
from scar_runtime.running import MANIFESTS, RunningCheckpoint, load_newest, load_running, newest_manifest
from scar_runtime.selection import Decision, chosen
from scar_runtime.server import bind, make_server
from scar_runtime.store import Store, open_store
from tests.component.processes import Processes, eventually, running_redis

BLOCKS = 20


def job_with(selection: str = "priority", fraction: float = 0.25, period: int = 4, keep: int = 3) -> Job:
    return Job("job", [Table("w", (2 * BLOCKS,), blocks=rows(2))], checkpoint=Checkpoint(selection, fraction, period, keep))


class Shard(ps_pb2_grpc.ShardControlServicer):
    """Holds some blocks of table "w"; a block's value is its clock, set by the test. Keeps the rules of a round."""

    def __init__(self, number: int, job: Job, store: Store, ids: np.ndarray) -> None:
        self.job, self.store, self.ids = job, store, ids.astype(np.uint32)
        self.values, self.cache = np.zeros(len(ids), np.float32), np.zeros(len(ids), np.float32)
        self.clock, self.epoch, self.open_round = 0, 1, 0
        self.pending: np.ndarray | None = None
        self.finished: list[tuple[int, bool]] = []
        self.before_save: Callable[[], None] = lambda: None
        self.changed = threading.Condition()
        self.server = make_server(16)
        address = bind(self.server, "127.0.0.1:0")
        self.member = Member(Role.SHARD, f"ps-{number}", f"{number:012x}", address)
        ps_pb2_grpc.add_ShardControlServicer_to_server(self, self.server)
        self.server.start()

    def train(self, clock: int, blocks: slice = slice(None)) -> None:
        """Some blocks take the value of this clock, and it is open."""
        with self.changed:
            self.values[blocks], self.clock = clock, clock
            self.changed.notify_all()

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise (StaleEpoch("newer", epoch=self.epoch) if epoch < self.epoch else NotServing("this shard has not heard yet"))

    def Distances(self, request: ps_pb2.DistancesRequest, context: grpc.ServicerContext) -> ps_pb2.DistancesReply:
        with self.changed:
            self._check(request.epoch)
            while self.clock < request.min_clock:
                self.changed.wait(0.05)
                self._check(request.epoch)
                if not context.is_active():
                    return ps_pb2.DistancesReply()
            self._undo()
            self.open_round = request.round
            far = b"" if request.skip else np.abs(self.values - self.cache).astype("<f4").tobytes()
            table = ps_pb2.TableDistances(table="w", block_ids=codec.ids_to_bytes(self.ids), distances=far)
            return ps_pb2.DistancesReply(tables=[table], clock=self.clock)

    def Save(self, request: ps_pb2.SaveRequest, context: grpc.ServicerContext) -> ps_pb2.SaveReply:
        self.before_save()
        with self.changed:
            self._check(request.epoch)
            if request.round != self.open_round:
                raise InvalidRequest("no such round")
            decision = Decision(
                request.selection, request.threshold, request.tie_before, request.first, request.count, request.seed
            )
            mask = chosen(decision, self.job, "w", self.ids, np.abs(self.values - self.cache))
            self.pending, self.cache = self.cache.copy(), np.where(mask, self.values, self.cache)
            ids, values, clock = self.ids[mask], self.values[mask], self.clock
        reply = ps_pb2.SaveReply(copy_seconds=0.001)
        if len(ids):
            group = Group("w", ids, clock, {"worker-0@aa": clock}, self.member.key)
            encoded = encode_object(self.job, [(group, Payload(np.repeat(values, 2), {}, np.zeros(len(ids), np.int64)))])
            key = object_key(request.epoch, self.member.key, request.round)
            self.store.put(key, encoded.parts)
            reply.object.CopyFrom(object_ref(key, encoded, [group], self.member.key, request.epoch, request.round))
        return reply

    def Finish(self, request: ps_pb2.FinishRequest, context: grpc.ServicerContext) -> ps_pb2.FinishReply:
        with self.changed:
            self.finished.append((request.round, request.committed))
            if request.round == self.open_round:
                if request.committed:
                    self.pending = None
                self._undo()
        return ps_pb2.FinishReply()

    def _undo(self) -> None:
        if self.pending is not None:
            self.cache, self.pending = self.pending, None

    Clock = Settle = Adopt = Freeze = Receive = Status = lambda self, request, context: context.abort(
        grpc.StatusCode.UNIMPLEMENTED, ""
    )


class Recovery(recovery_pb2_grpc.RecoveryServicer):
    """Serves epochs that the test makes."""

    def __init__(self, job: Job) -> None:
        self.job, self.started = job, True
        self.epochs: list[Epoch] = []
        self.changed = threading.Condition()
        self.server = make_server(16)
        self.address = bind(self.server, "127.0.0.1:0")
        recovery_pb2_grpc.add_RecoveryServicer_to_server(self, self.server)
        self.server.start()

    def announce(self, shards: list[Shard], **rest: object) -> None:
        """The next epoch, known to these shards at once."""
        with self.changed:
            number = len(self.epochs) + 1
            for shard in shards:
                shard.epoch = number
            members = tuple(shard.member for shard in shards)
            owners = {"w": np.zeros(BLOCKS, np.uint16)}
            self.epochs.append(Epoch(number, "recovery", self.job.name, members, (), owners, **rest))
            self.changed.notify_all()

    def GetJob(self, request: recovery_pb2.GetJobRequest, context: grpc.ServicerContext) -> recovery_pb2.GetJobReply:
        return recovery_pb2.GetJobReply(started=self.started, job=codec.job_to_proto(self.job))

    def Join(self, request: recovery_pb2.JoinRequest, context: grpc.ServicerContext) -> recovery_pb2.JoinReply:
        return recovery_pb2.JoinReply()

    def GetEpochs(self, request: recovery_pb2.GetEpochsRequest, context: grpc.ServicerContext) -> recovery_pb2.GetEpochsReply:
        with self.changed:
            self.changed.wait_for(lambda: len(self.epochs) > request.after, min(request.wait, 0.3))
            found = self.epochs[request.after :] if request.after else self.epochs[-1:]
        return recovery_pb2.GetEpochsReply(epochs=[codec.epoch_to_proto(epoch) for epoch in found])


class Scene:
    """Two shards (even and odd blocks), recovery, and a coordinator that leads, all in this process."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.job, self.url = job, f"file://{folder}/store"
        self.store = open_store(self.url).under(job.name)
        self.recovery = Recovery(job)
        self.shards = [Shard(number, job, self.store, np.arange(number, BLOCKS, 2)) for number in range(2)]
        self.recovery.announce(self.shards)
        self._links: list[Link] = []
        self._servers: list[grpc.Server] = [self.recovery.server, *(shard.server for shard in self.shards)]
        self._stops: list[Callable[[], None]] = []

    def lead(self, store: Store | None = None, incarnation: str = "c" * 12) -> checkpoint_pb2_grpc.CheckpointStub:
        """Start a coordinator; returns a stub to it."""
        link = self.link(self.recovery.address)
        member = Member(Role.CHECKPOINT, "checkpoint-0", incarnation, "127.0.0.1:0")
        settings = CheckpointSettings(name="checkpoint-0", round_timeout_seconds=3.0, keep_seconds=0.0)
        leadership = Term(member, settings, self.job, store or self.store, link)
        stopping = threading.Event()
        thread = threading.Thread(target=leadership.run, args=(stopping.is_set, lambda epoch: None), daemon=True)
        thread.start()
        self._stops.append(lambda: (stopping.set(), thread.join(10))[0])
        server = make_server(8)
        address = bind(server, "127.0.0.1:0")
        checkpoint_pb2_grpc.add_CheckpointServicer_to_server(CheckpointServicer(lambda: leadership, lambda: ""), server)
        server.start()
        self._servers.append(server)
        return checkpoint_pb2_grpc.CheckpointStub(self.link(address).channel)

    def link(self, address: str) -> Link:
        self._links.append(Link(address, "peer"))
        return self._links[-1]

    def train(self, clock: int, blocks: slice = slice(None)) -> None:
        for shard in self.shards:
            shard.train(clock, blocks)

    def committed(self, number: int) -> pb.Manifest:
        """The manifest with at least this number, once it exists and the shards have heard."""
        eventually(lambda: load_newest(self.store, self.job).manifest.number >= number, what=f"manifest {number}")
        return load_newest(self.store, self.job).manifest

    def stop(self) -> None:
        for stop in self._stops:
            stop()
        self._stops = []

    def close(self) -> None:
        self.stop()
        for link in self._links:
            link.close()
        for server in self._servers:
            server.stop(0).wait()


@pytest.fixture
def scene_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scene]]:
    monkeypatch.setattr(coordinator, "BACKOFF", 0.1)
    monkeypatch.setattr(term, "KEEP_PERIOD", 0.1)
    scenes: list[Scene] = []

    def make(job: Job | None = None) -> Scene:
        scenes.append(Scene(tmp_path, job or job_with()))
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.close()


def restored(running: RunningCheckpoint, store: Store) -> list[float]:
    """The value of every block in the running checkpoint (x(0) is 0)."""
    values = np.zeros(BLOCKS)
    for origin in running.origins("w", np.arange(BLOCKS, dtype=np.uint32)):
        if origin.index >= 0:
            ref, header = running.objects[origin.index], running.headers[origin.index]
            values[origin.group.ids] = read_blocks(store, ref, header, running.job, "w", origin.group.ids).values[::2]
    return values.tolist()


# --- rounds ----------------------------------------------------------------------------------------------------------


def test_rounds_follow_the_clocks_and_save_what_has_changed_most(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    stub = scene.lead()
    scene.train(1, slice(0, 3))  # blocks 0, 2, 4 and 1, 3, 5; a quarter of 20 blocks is 5
    manifest = scene.committed(1)
    assert (manifest.number, manifest.clock, manifest.epoch, manifest.selection, manifest.full) == (1, 1, 1, "priority", False)
    assert restored(load_newest(scene.store, scene.job), scene.store)[:7] == [1, 1, 1, 1, 1, 0, 0]
    scene.train(2, slice(0, 1))
    scene.committed(2)
    assert restored(load_newest(scene.store, scene.job), scene.store)[:7] == [2, 2, 1, 1, 1, 1, 0]
    eventually(lambda: [shard.finished[-1][1] for shard in scene.shards] == [True, True])
    status = stub.Status(pb.CheckpointStatusRequest(), timeout=2)
    assert (status.leader, status.manifest, status.clock, status.objects, status.problem) == (True, 2, 2, 4, "")
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
    report = stub.Trigger(pb.TriggerRequest(selection="full"), timeout=10)
    assert (report.manifest, report.blocks_saved, list(report.missed), report.error) == (1, BLOCKS, [], "")
    running = load_newest(scene.store, scene.job)
    assert restored(running, scene.store) == [7.0] * BLOCKS
    assert running.manifest.full
    nothing = stub.Trigger(pb.TriggerRequest(), timeout=10)
    assert (nothing.manifest, nothing.error) == (0, "nothing has changed since it was saved")
    for bad in (pb.TriggerRequest(selection="best"), pb.TriggerRequest(fraction=1.5), pb.TriggerRequest(fraction=float("nan"))):
        with pytest.raises(grpc.RpcError) as caught:
            stub.Trigger(bad, timeout=5)
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
    assert stub.Status(pb.CheckpointStatusRequest(), timeout=2).age < 60


# --- shards and epochs -----------------------------------------------------------------------------------------------


def test_a_dead_shard_misses_the_round(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    stub = scene.lead()
    eventually(lambda: stub.Status(pb.CheckpointStatusRequest(), timeout=2).leader)
    scene.shards[1].server.stop(0).wait()
    scene.train(1)
    scene.committed(1)
    eventually(lambda: [one.missed[:] for one in stub.Status(pb.CheckpointStatusRequest(), timeout=2).recent] == [["ps-1"]])


def test_a_shard_that_leaves_in_mid_round_takes_its_object_with_it(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    scene.lead()
    one, two = scene.shards
    saving, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        saving.set()
        assert go_on.wait(10)

    one.before_save = hold
    scene.train(1)
    assert saving.wait(10)
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


# --- the store -------------------------------------------------------------------------------------------------------


class Flaky(Store):
    """A store that fails on demand, and runs ``before_create`` before each creation."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.url)
        self.store, self.error, self.before_create = store, None, lambda key: None
        self.after_create: Callable[[str], None] = lambda key: None

    def _use(self) -> Store:
        if self.error is not None:
            raise self.error
        return self.store

    def put(self, key, data):
        self._use().put(key, data)

    def create(self, key, data):
        self.before_create(key)
        self._use().create(key, data)
        self.after_create(key)

    def get(self, key):
        return self._use().get(key)

    def get_range(self, key, start, length):
        return self._use().get_range(key, start, length)

    def list(self, prefix=""):
        return self._use().list(prefix)

    def delete(self, key):
        self._use().delete(key)

    def under(self, prefix):
        return self._use().under(prefix)


def test_while_the_store_is_down_rounds_fail_say_so_and_resume(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    for shard in scene.shards:
        shard.store = flaky
    stub = scene.lead(flaky)
    scene.train(1)
    scene.committed(1)
    flaky.error = StoreUnavailable("the store does not answer")
    scene.train(2)
    status = lambda: stub.Status(pb.CheckpointStatusRequest(), timeout=2)  # noqa: E731
    eventually(lambda: "the store does not answer" in status().problem)
    old = status()
    assert old.manifest == 1
    eventually(lambda: status().age > old.age)
    assert all((shard.cache == 1).sum() >= 2 for shard in scene.shards)  # what was not committed is not in the cache
    flaky.error = StoreFull("the disk is full")
    eventually(lambda: "the disk is full" in status().problem)
    flaky.error = None
    scene.committed(2)
    eventually(lambda: status().problem == "")


def test_a_coordinator_that_starts_while_the_store_is_down_waits_for_it(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    flaky.error = StoreUnavailable("the store does not answer")
    stub = scene.lead(flaky)
    scene.train(1)
    eventually(lambda: "the store does not answer" in stub.Status(pb.CheckpointStatusRequest(), timeout=2).problem)
    flaky.error = None
    scene.committed(1)


def test_a_put_whose_answer_was_lost_is_recognised(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    written = threading.Event()

    def lose(key: str) -> None:
        if key.startswith("manifests/") and not written.is_set():
            written.set()
            raise StoreUnavailable("the answer was lost")

    flaky.after_create = lose
    stub = scene.lead(flaky)
    scene.train(1)
    assert written.wait(10)
    eventually(lambda: scene.store.list("manifests/") == [numbered(MANIFESTS, number) for number in (1, 2)])
    second = load_newest(scene.store, scene.job).manifest
    assert (second.parent, second.author) == (1, "c" * 12)
    eventually(lambda: stub.Status(pb.CheckpointStatusRequest(), timeout=2).problem == "")


def test_a_lost_race_goes_on_from_the_rivals_manifest(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    flaky = Flaky(scene.store)
    rival = pb.Manifest(number=1, job="job", author="rival", round=30, clock=1)

    def first(key: str) -> None:
        if key == numbered(MANIFESTS, 1) and not scene.store.list("manifests/"):
            create_record(scene.store, key, rival)

    flaky.before_create = first
    stub = scene.lead(flaky)
    scene.train(1)
    eventually(lambda: newest_manifest(scene.store) is not None)
    scene.train(2)
    manifest = scene.committed(2)
    assert (manifest.parent, manifest.author, manifest.round > 30) == (1, "c" * 12, True)
    errors = [one.error for one in stub.Status(pb.CheckpointStatusRequest(), timeout=2).recent]
    assert "another coordinator has committed manifest 1" in errors


# --- keeping the store small -----------------------------------------------------------------------------------------


def test_old_manifests_and_dead_objects_go_and_the_last_ones_stay_whole(
    scene_of: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "FEW", 2)
    scene = scene_of(job_with(fraction=0.5, period=2, keep=2))
    scene.lead()
    draw = np.random.default_rng(5)
    for clock in range(1, 25):
        for shard in scene.shards:
            shard.values[draw.permutation(len(shard.ids))[:4]] = clock
            shard.train(clock, slice(0, 1))
        scene.committed(clock)
    want = [numbered(MANIFESTS, number) for number in (23, 24)]
    eventually(lambda: scene.store.list("manifests/")[-2:] == want and len(scene.store.list("manifests/")) <= 3)
    eventually(lambda: any(shard.finished[-1] == (24, True) for shard in scene.shards))
    for number in (23, 24):
        restored(load_running(scene.store, scene.job, number), scene.store)
    cache = np.empty(BLOCKS)
    for shard in scene.shards:
        cache[shard.ids] = shard.cache
    assert restored(load_newest(scene.store, scene.job), scene.store) == cache.tolist()
    assert any("compact" in ref.key for ref in load_newest(scene.store, scene.job).manifest.objects)
    assert len(scene.store.list("objects/")) < 24


def test_a_manifest_that_an_epoch_restores_from_is_kept(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of(job_with(fraction=1.0, period=1, keep=1))
    scene.lead()
    scene.train(1)
    scene.committed(1)
    scene.recovery.announce(scene.shards, manifest=1)
    for clock in range(2, 7):
        scene.train(clock)
        scene.committed(clock)
    eventually(lambda: len(scene.store.list("manifests/")) == 2)
    assert scene.store.list("manifests/")[0] == numbered(MANIFESTS, 1)
    assert restored(load_running(scene.store, scene.job, 1), scene.store) == [1.0] * BLOCKS
    with pytest.raises((CorruptCheckpoint, Exception)):
        load_running(scene.store, scene.job, 2)


# --- processes -------------------------------------------------------------------------------------------------------


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
            "SCAR_LEASE_SECONDS": "1",
        }
        process = processes.start(name, "-m", "scar_checkpoint", **variables).serving()
        return process, checkpoint_pb2_grpc.CheckpointStub(scene.link(process.address).channel)

    with running_redis(tmp_path) as redis:
        one, first = start("checkpoint-0", redis)
        eventually(lambda: first.Status(pb.CheckpointStatusRequest(), timeout=2).leader)
        two, second = start("checkpoint-1", redis)
        scene.train(1)
        assert scene.committed(1).number == 1
        status = second.Status(pb.CheckpointStatusRequest(), timeout=2)
        assert (status.leader, status.problem) == (False, "another checkpoint coordinator leads")
        with pytest.raises(grpc.RpcError, match="does not lead"):
            second.Trigger(pb.TriggerRequest(), timeout=2)
        one.process.kill()
        scene.train(2)
        assert scene.committed(2).parent == 1
        assert second.Status(pb.CheckpointStatusRequest(), timeout=2).leader
        two.process.send_signal(signal.SIGTERM)
        assert two.wait() == 0


def test_a_store_that_cannot_be_opened_ends_the_process_with_a_clear_line(processes: Processes, tmp_path: Path) -> None:
    with running_redis(tmp_path) as redis:
        process = processes.start("checkpoint-0", "-m", "scar_checkpoint", SCAR_REDIS=redis, SCAR_STORE="s3://Bad_Bucket")
        assert process.wait() == 2
        assert "has no valid bucket name" in process.log
        assert "Traceback" not in process.log
