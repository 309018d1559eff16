"""What a client makes of epochs and answers, without a cluster: its connections, its first error, what a
pull still lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace as Made
from typing import Any

import numpy as np
import pytest

from scar._client.client import Client
from scar._client.cluster_view import ClusterView
from scar._client.core.clocks import WorkerClocks, oldest_clock
from scar._client.core.pull_buffer import PullBuffer
from scar._client.core.push_state import PushState
from scar._client.pulls import Puller, receive_tensors
from scar._client.worker_pulls import WorkerPulls
from scar.errors import DeadlineExceeded, Internal, NotServing, Unreachable
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Checkpoint, Job, Table
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.link_pool import LinkPool
from scar.wire.transport import ATTEMPT_SECONDS, Deadline

JOB = Job("pulls", [Table("w", 4), Table("v", 2)], shards=2)
SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}", "127.0.0.1:1") for number in range(2))
OWNERS = {"w": np.array([0, 0, 1, 1], np.uint16), "v": np.array([0, 1], np.uint16)}
FIRST = Epoch(1, "r", "pulls", SHARDS, (), OWNERS)


def answer(table: str, values: list[float]) -> Iterator[Chunk]:
    header = ps_pb2.TensorHeader(table=table, dtype="float32")
    yield from codec.chunks(header, np.array(values, np.float32))


def test_a_stream_that_ends_before_every_table_came_is_no_answer() -> None:
    buffers: dict[Any, Any] = {("w", ""): np.zeros(2, np.float32), ("v", ""): np.zeros(1, np.float32)}
    receive_tensors(iter([*answer("w", [1, 2]), *answer("v", [3])]), buffers, "ps-0")
    with pytest.raises(Internal, match="ended its answer"):
        receive_tensors(answer("w", [1, 2]), buffers, "ps-0")


def whole(memory: np.ndarray, start: int, lasting: bool) -> Iterator[Chunk]:
    """Two values of table w, which lie there."""
    header = ps_pb2.TensorHeader(table="w", dtype="float32", bytes=8)
    yield Chunk(header, memory.data[start : start + 8], lasting=lasting)


def test_what_lasts_is_kept_where_it_lies_and_all_else_is_copied() -> None:
    memory = np.arange(6, dtype=np.float32).view(np.uint8)
    for lasting, start, shared in ((True, 8, True), (False, 8, False), (True, 6, False)):
        buffers: dict[Any, Any] = {("w", ""): np.zeros(2, np.float32)}
        receive_tensors(whole(memory, start, lasting), buffers, "ps-0")
        assert buffers["w", ""].tobytes() == memory[start : start + 8].tobytes()
        assert np.shares_memory(buffers["w", ""], memory) == shared
    fixed = memory.copy()
    fixed.flags.writeable = False  # a user may write to what was pulled
    receive_tensors(whole(fixed, 0, lasting=True), buffers, "ps-0")
    assert buffers["w", ""].flags.writeable


def test_connections_to_shards_that_left_are_closed_and_the_others_kept() -> None:
    view = ClusterView(JOB)
    view.follow_epoch(FIRST)
    stays, goes = view.links.find(SHARDS[0].key), view.links.find(SHARDS[1].key)
    assert stays is not None
    assert goes is not None
    everything = {name: np.zeros_like(owner) for name, owner in OWNERS.items()}
    view.follow_epoch(replace(FIRST, number=2, shards=SHARDS[:1], owners=everything))
    assert view.links.find(SHARDS[0].key) is stays
    assert view.links.find(SHARDS[1].key) is None
    with pytest.raises(Unreachable, match="the connection was closed"):
        goes.call(goes.control.Status, ps_pb2.ShardStatusRequest(), 1.0)
    view.close()


def test_the_first_error_is_the_one_that_is_told() -> None:
    view = ClusterView(JOB)
    view.fail(NotServing("the cause"))
    view.fail(Internal("a consequence"))
    with pytest.raises(NotServing, match="the cause"):
        view.check_failure()


class Link:
    """A shard that answers with ``value`` in every block; ``before``: what happens while it is asked for
    the first time.
    """

    target = "ps"

    def __init__(self, value: float, before: Any = None) -> None:
        self.value, self._before = value, before

    def pull(self, request: ps_pb2.PullRequest, _timeout: float, _size: int = 0) -> Iterator[Chunk]:
        before, self._before = self._before, None
        if before is not None:
            before()
        for blocks in request.tables:
            count = 2 if blocks.dense else len(codec.ids_from_bytes(blocks.block_ids))
            yield from answer(blocks.table, [self.value] * count)

    def close(self) -> None:
        """Nothing is open."""


def links(*shards: Link) -> LinkPool[Any]:
    pool: LinkPool[Any] = LinkPool()
    for member, shard in zip(SHARDS, shards, strict=True):
        pool.get(member.key, partial(lambda one: one, shard))
    return pool


def test_a_rollback_in_the_middle_of_a_pull_leaves_nothing_from_before() -> None:
    """Half of the values of one state and half of another are no state that ever was."""
    view = ClusterView(JOB)
    view.follow_epoch(FIRST)

    def roll_back() -> None:
        view.follow_epoch(replace(FIRST, number=2, rollback=True))
        view.links = links(Link(7.0), Link(7.0))

    view.links = links(Link(1.0, roll_back), Link(1.0))
    wanted, puller = PullBuffer(JOB.table("w")), Puller(view, None)
    puller.pull([wanted], 0, Deadline(10.0))
    puller.close()
    assert wanted.flat.tolist() == [7.0] * 4


@pytest.mark.parametrize(("pulled", "void"), [(3, False), (4, True), (5, True)])
def test_a_rollback_voids_the_open_clock_though_the_next_is_pulled(pulled: int, void: bool) -> None:
    clocks = WorkerClocks()
    clocks.known, clocks.pulled = 4, pulled
    clocks.roll_back()
    assert clocks.is_void(FIRST) == void


def test_a_request_that_is_lost_does_not_cost_the_whole_deadline() -> None:
    """A shard may be slow as well: each try that was too short is followed by a longer one."""
    given: list[float] = []

    class LossyLink(Link):
        def pull(self, request: ps_pb2.PullRequest, timeout: float, size: int = 0) -> Iterator[Chunk]:
            given.append(timeout)
            if len(given) < 4:
                raise DeadlineExceeded("nobody answered")
            yield from super().pull(request, timeout, size)

    view = ClusterView(JOB)
    view.links = links(LossyLink(1.0), Link(1.0))
    view.follow_epoch(FIRST)
    wanted, puller = PullBuffer(JOB.table("w")), Puller(view, None)
    puller.pull([wanted], 0, Deadline(30.0))
    puller.close()
    assert wanted.flat.tolist() == [1.0] * 4
    assert [round(seconds) for seconds in given[:3]] == [
        ATTEMPT_SECONDS,
        2 * ATTEMPT_SECONDS,
        4 * ATTEMPT_SECONDS,
    ]
    assert given[3] <= 30.0, "the deadline holds for all of them"


@pytest.mark.parametrize(("consistency", "staleness", "clock"), [("bsp", 0, 9), ("ssp", 2, 7), ("asp", 0, 0)])
def test_how_old_a_pulled_value_may_be(consistency: str, staleness: int, clock: int) -> None:
    job = replace(JOB, consistency=consistency, staleness=staleness)
    assert oldest_clock(job.slack, 9) == clock


def test_an_epoch_that_was_skipped_is_an_error_and_not_followed() -> None:
    """What moved in between is unknown, and with it what is to be sent again."""
    me = Member(Role.WORKER, "worker-0", "a" * 12)
    client = Client(JOB, me, Made(report_reroute=lambda *_: None), 1.0)  # type: ignore[arg-type]
    client.follow_epoch(replace(FIRST, workers=(me,)))
    with pytest.raises(Internal, match="epoch 3 follows 1"):
        client.follow_epoch(replace(FIRST, number=3, workers=(me,)))
    client.close()


class Script:
    """Stands in for a puller: what each pull does, in order; a number is every shard's answer."""

    def __init__(self, *steps: Any) -> None:
        self._steps = list(steps)

    def pull(self, wants: list[PullBuffer], oldest: int, deadline: Deadline, clock: int = 0) -> float:
        step = self._steps.pop(0)
        if step == "away":
            raise DeadlineExceeded("a shard is away")
        value, during = step if isinstance(step, tuple) else (step, lambda: None)
        during()
        for wanted in wants:
            wanted.fill_blocks(wanted.missing_blocks()[0], np.full(4, value, np.float32))
        return 0.0

    def close(self) -> None:
        """Nothing is held open."""


def remembering(*steps: Any) -> tuple[WorkerPulls, Any]:
    """Pulls of a worker that goes on without shards that are away, and how to follow an epoch."""
    everything = Checkpoint(selection="priority", fraction=1.0, period=1)
    job = Job(
        "pulls", [Table("w", 4)], shards=2, consistency="asp", recovery="stateless", checkpoint=everything
    )
    worker = Member(Role.WORKER, "worker-0", "0" * 12, "127.0.0.1:1")
    view = ClusterView(job)
    pulls = WorkerPulls(view, worker, PushState(job, worker.key), lambda: Deadline(5.0))
    pulls._puller = Script(*steps)  # type: ignore[assignment]

    def follow(number: int, *moved: BlockGroup) -> None:
        epoch = replace(FIRST, number=number, owners={"w": OWNERS["w"]}, moved=moved)
        view.follow_epoch(epoch)
        pulls.forget_restored(epoch)

    follow(1)
    return pulls, follow


def pulled(pulls: WorkerPulls) -> float:
    wanted = PullBuffer(pulls._job.tables[0])
    pulls.pull([wanted])
    return float(wanted.flat[0])


def test_a_pull_during_an_epoch_that_restores_nothing_is_remembered() -> None:
    """Else a worker that does without a shard goes back behind what it has seen."""
    steps = [1.0, (2.0, lambda: follow(2)), "away"]
    pulls, follow = remembering(*steps)
    assert [pulled(pulls) for _ in range(3)] == [1.0, 2.0, 2.0]
    pulls.close()


def test_a_pull_during_an_epoch_that_restores_blocks_is_not_remembered() -> None:
    group = BlockGroup("w", np.array([1], np.uint32), source=BlockSource.OBJECT)
    steps = [1.0, (2.0, lambda: follow(2, group)), "away", 3.0]
    pulls, follow = remembering(*steps)
    assert [pulled(pulls) for _ in range(3)] == [1.0, 2.0, 3.0]
    pulls.close()
