"""Messages survive the wire; whatever else comes over it raises nothing but a ScarError."""

from __future__ import annotations

import contextlib
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scar
from scar import errors, schedules
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.v1 import ps_pb2, types_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.epoch_messages import epoch_from_proto, epoch_to_proto

SEEDED = settings(max_examples=60, derandomize=True)

NAMES = st.text("abcxyz-0123456789", min_size=1, max_size=12)
IDS = st.lists(st.integers(0, 1000), unique=True, max_size=20).map(
    lambda ids: np.array(sorted(ids), np.uint32)
)
MEMBERS = st.builds(Member, st.sampled_from(Role), NAMES, st.just("0123456789ab"), st.just("host:1"))
WATERMARKS = st.dictionaries(NAMES, st.integers(0, 1 << 60), max_size=3)


@SEEDED
@given(st.binary(max_size=300), st.booleans(), st.integers(0, 1 << 40))
def test_chunk_round_trip_in_both_directions(data: bytes, with_header: bool, seq: int) -> None:
    """Ours reads protobuf's and protobuf reads ours."""
    header = ps_pb2.TensorHeader(table="w", dtype="float32", seq=seq, loss=1.5) if with_header else None
    ours = codec.encode_chunk(Chunk(header, data))
    theirs = ps_pb2.TensorChunk(header=header, data=data)
    assert ps_pb2.TensorChunk.FromString(ours) == theirs
    back = codec.decode_chunk(theirs.SerializeToString())
    assert (back.header, bytes(back.data)) == (header, data)


@pytest.mark.parametrize("elements", [0, 1, codec.CHUNK_BYTES // 4, codec.CHUNK_BYTES // 4 + 1])
def test_tensor_is_cut_into_chunks_of_bounded_size(elements: int) -> None:
    values = np.arange(elements, dtype=np.float32)
    sent = list(codec.chunks(ps_pb2.TensorHeader(table="w"), values))
    assert [chunk.header is not None for chunk in sent] == [True] + [False] * (len(sent) - 1)
    assert sent[0].header.bytes == values.nbytes
    assert max(len(codec.encode_chunk(chunk)) for chunk in sent) <= codec.CHUNK_BYTES + 64
    assert b"".join(bytes(chunk.data) for chunk in sent) == values.tobytes()


@SEEDED
@given(st.binary(max_size=200))
def test_random_bytes_are_no_chunk(wire: bytes) -> None:
    with contextlib.suppress(errors.ScarError):
        codec.decode_chunk(wire)


@SEEDED
@given(st.integers(0, 400), st.integers(0, 255))
def test_damaged_chunks(position: int, value: int) -> None:
    wire = bytearray(
        codec.encode_chunk(
            Chunk(ps_pb2.TensorHeader(table="w", block_ids=b"x" * 100, worker="w"), b"y" * 200)
        )
    )
    wire[position % len(wire)] = value
    for damaged in (bytes(wire), bytes(wire[: position % len(wire)])):
        with contextlib.suppress(errors.ScarError):
            codec.decode_chunk(damaged)


def test_a_chunk_beyond_the_limit_is_refused() -> None:
    with pytest.raises(errors.TooLarge):
        codec.decode_chunk(bytes(codec.MAX_CHUNK_BYTES + 1))


@SEEDED
@given(IDS)
def test_ids_round_trip(ids: np.ndarray) -> None:
    np.testing.assert_array_equal(codec.ids_from_bytes(codec.ids_to_bytes(ids), 1001), ids)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"abc", errors.InvalidRequest),
        (np.array([2, 1], "<u4").tobytes(), errors.InvalidRequest),
        (np.array([1, 1], "<u4").tobytes(), errors.InvalidRequest),
        (np.array([1, 9], "<u4").tobytes(), errors.BlockOutOfRange),
    ],
)
def test_bad_ids_are_refused(raw: bytes, kind: type[errors.ScarError]) -> None:
    with pytest.raises(kind):
        codec.ids_from_bytes(raw, 9)


@SEEDED
@given(MEMBERS)
def test_member_round_trip(member: Member) -> None:
    back = codec.member_from_proto(codec.member_to_proto(member))
    assert (back, back.address) == (member, member.address)


@pytest.mark.parametrize("lease", [0.0, 2.0, 60.0])
def test_a_members_lease_travels_with_it(lease: float) -> None:
    member = Member(Role.SHARD, "ps-0", "a", "host:1", lease_seconds=lease, named_calls=True)
    found = codec.member_from_proto(codec.member_to_proto(member))
    assert (found.lease_seconds, found.named_calls) == (lease, True)


@pytest.mark.parametrize("lease", [-1.0, 60.1, float("inf"), float("nan")])
def test_a_lease_that_would_keep_blocks_from_recovery_is_refused(lease: float) -> None:
    message = types_pb2.Member(role=types_pb2.ROLE_SHARD, name="ps-0", lease_seconds=lease)
    with pytest.raises(errors.InvalidRequest, match="60 are the most"):
        codec.member_from_proto(message)


GROUPS = st.builds(
    BlockGroup,
    st.just("w"),
    IDS,
    st.integers(0, 1 << 40),
    WATERMARKS,
    former_owner=NAMES,
    source=st.sampled_from(BlockSource),
    object_key=NAMES,
)


@SEEDED
@given(
    st.lists(MEMBERS, max_size=3),
    st.lists(GROUPS, max_size=3),
    st.lists(st.integers(0, 65535), max_size=9),
    st.booleans(),
    st.integers(1, 1 << 60),
)
def test_epoch_round_trip(
    members: list[Member], groups: list[BlockGroup], owners: list[int], rollback: bool, number: int
) -> None:
    table = {"w": np.array(owners, np.uint16)}
    epoch = Epoch(
        number, "author", "job", tuple(members), tuple(members), table, tuple(groups), ("a", "b"), rollback,
        3, 4, "x", 5, ("worker-0", "worker-1"), 6, 7, (8, 9), True,
    )  # fmt: skip
    wire = epoch_to_proto(epoch).SerializeToString()
    back = epoch_from_proto(types_pb2.Epoch.FromString(wire))
    np.testing.assert_array_equal(back.owners["w"], epoch.owners["w"])
    assert epoch_to_proto(back) == epoch_to_proto(epoch)
    assert (back.shards, back.fenced, back.rollback, back.failure) == (
        epoch.shards,
        epoch.fenced,
        rollback,
        5,
    )
    assert (back.manifest, back.clock, back.cause, back.seats, back.restart) == (3, 4, "x", epoch.seats, 6)
    assert (back.finished, back.restoring, back.resave) == (7, (8, 9), True)


SCHEDULE = schedules.sequence([schedules.linear(0.1, 1, 5), schedules.step(9, 0.5)], [5])

OWN_RULE = scar.rule(
    {"n": "n + g * g", "w": "w - lr * g / sqrt(n)"}, slots=["n"], project="w / maximum(norm(w), 1)", lr=0.1
)


def a_job() -> scar.Job:
    tables = [
        scar.Table("rows", (7, 2), rule=scar.adam(), blocks=scar.rows(2), weights=[1, 2, 3, 0.5]),
        scar.Table("ragged", (9,), dtype="int64", blocks=scar.ragged([0, 2, 9]), norm="tv"),
        scar.Table("own", (3, 2), rule=OWN_RULE),
        scar.Table("scheduled", 3, rule=scar.sgd(0.5, schedule=SCHEDULE)),
        scar.Table("pieces", (10, 4), dtype="float64", blocks=scar.layer_shards(3), init=scar.normal(0, 0.1)),
        scar.Table("given", (2, 2), init=scar.given([[1, 2], [3, 4]]), allow_nonfinite=True),
    ]
    return scar.Job("job", tables, 7, "ssp", 2, 3, 4, scar.Checkpoint("round", 0.5, 4, 2))


def test_job_round_trip() -> None:
    job = a_job()
    wire = codec.job_to_proto(job).SerializeToString()
    back = codec.job_from_proto(types_pb2.JobSpec.FromString(wire))
    assert codec.job_to_proto(back) == codec.job_to_proto(job)
    for one, other in zip(job.tables, back.tables, strict=True):
        np.testing.assert_array_equal(one.row_offsets, other.row_offsets)
        np.testing.assert_array_equal(one.weights, other.weights)
        assert one.rule == other.rule
    assert codec.job_arrays(job) == {"given": np.array([[1, 2], [3, 4]], "<f4").tobytes()}


def a_rule_with(phase: types_pb2.SchedulePhase) -> types_pb2.TableSpec:
    return types_pb2.TableSpec(rule=types_pb2.Rule(kind="sgd", parameters={"lr": 1}, schedule=[phase]))


def an_own_rule(text: str) -> types_pb2.TableSpec:
    expression = types_pb2.RuleExpression(name="w", text=text)
    return types_pb2.TableSpec(rule=types_pb2.Rule(kind="expression", expressions=[expression]))


DAMAGE = {
    "offsets that are not compressed": types_pb2.TableSpec(offsets=b"xx"),
    "offsets of half a number": types_pb2.TableSpec(offsets=zlib.compress(b"abc")),
    "an expression that calls what it must not": an_own_rule("open('x')"),
    "an expression that is too deep": an_own_rule("-" * 500 + "w"),
    "an expression that is too long": an_own_rule("w + " * 250 + "w"),
    "an expression with too large a number": an_own_rule("9" * 900),
    "a name that nobody gives": an_own_rule("w - rate"),
    "a built-in rule with expressions": types_pb2.TableSpec(
        rule=types_pb2.Rule(kind="add", expressions=[types_pb2.RuleExpression(name="w", text="w")])
    ),
    "a rule of one's own without expressions": types_pb2.TableSpec(rule=types_pb2.Rule(kind="expression")),
    "offsets that shrink": types_pb2.TableSpec(
        offsets=zlib.compress(np.array([0, 5, 2, 8], "<i8").tobytes())
    ),
    "offsets whose differences wrap": types_pb2.TableSpec(
        offsets=zlib.compress(np.array([0, 2**63 - 1, -2, 8], "<i8").tobytes())
    ),
    "weights of half a number": types_pb2.TableSpec(weights=zlib.compress(b"abc")),
    "weights of other blocks": types_pb2.TableSpec(weights=zlib.compress(np.ones(3, "<f4").tobytes())),
    "weights below zero": types_pb2.TableSpec(weights=zlib.compress(np.full(8, -1, "<f4").tobytes())),
    "weights that are no zlib": types_pb2.TableSpec(weights=b"abc"),
    "a bomb": types_pb2.TableSpec(offsets=zlib.compress(bytes(codec.MAX_MESSAGE_BYTES + 8))),
    "an unknown dtype": types_pb2.TableSpec(dtype="zzz"),
    "an empty dtype": types_pb2.TableSpec(dtype=" "),
    "a foreign byte order": types_pb2.TableSpec(dtype=">f4"),
    "a structured dtype": types_pb2.TableSpec(dtype="f4,f4"),
    "more elements than there can be": types_pb2.TableSpec(shape=[1 << 62]),
    "a product that overflows": types_pb2.TableSpec(shape=[1 << 40, 1 << 40]),
    "more blocks than there can be": types_pb2.TableSpec(shape=[1 << 39]),
    "no rows": types_pb2.TableSpec(shape=[-1]),
    "a rule without its rate": types_pb2.TableSpec(rule=types_pb2.Rule(kind="sgd")),
    "an unknown rule": types_pb2.TableSpec(rule=types_pb2.Rule(kind="hinge")),
    "a schedule from the middle": a_rule_with(types_pb2.SchedulePhase(start=3, kind="constant")),
    "a schedule that grows": a_rule_with(
        types_pb2.SchedulePhase(kind="exponential", parameters={"gamma": 1.01})
    ),
    "a schedule of no clocks": a_rule_with(
        types_pb2.SchedulePhase(kind="step", parameters={"gamma": 0.5, "clocks": 0})
    ),
    "a schedule of NaN": a_rule_with(
        types_pb2.SchedulePhase(kind="constant", parameters={"factor": float("nan")})
    ),
    "an unknown schedule": a_rule_with(types_pb2.SchedulePhase(kind="plateau")),
    "an unknown initialiser": types_pb2.TableSpec(init=types_pb2.Initializer(kind="magic")),
    "an unknown norm": types_pb2.TableSpec(norm="l3"),
    "a bad name": types_pb2.TableSpec(name="../etc"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_table_that_nobody_could_declare(name: str) -> None:
    message = codec.job_to_proto(scar.Job("job", [scar.Table("w", 8)]))
    for field, value in DAMAGE[name].ListFields():
        message.tables[0].ClearField(field.name)
        message.tables[0].MergeFrom(types_pb2.TableSpec(**{field.name: value}))
    with pytest.raises(errors.ScarError):
        codec.job_from_proto(message)


@SEEDED
@given(st.integers(0, 1 << 20), st.integers(0, 255))
def test_damaged_descriptions_and_epochs(position: int, value: int) -> None:
    epoch = Epoch(
        1, "a", "job", (Member(Role.SHARD, "ps-0", "0" * 12),), (), {"rows": np.zeros(4, np.uint16)}
    )
    group = BlockGroup(
        "rows",
        np.arange(3, dtype=np.uint32),
        former_owner="x",
        source=BlockSource.OBJECT,
        object_key="key",
        clock=1,
        watermark={"w@1": 2},
    )
    epoch = Epoch(1, "a", "job", epoch.shards, (), epoch.owners, (group,))
    for message, decode in (
        (codec.job_to_proto(a_job()), codec.job_from_proto),
        (epoch_to_proto(epoch), epoch_from_proto),
    ):
        wire = bytearray(message.SerializeToString())
        wire[position % len(wire)] = value
        try:
            damaged = type(message).FromString(bytes(wire))
        except Exception:
            continue  # protobuf itself refuses it, before it reaches the codec
        with contextlib.suppress(errors.ScarError):
            decode(damaged)


@pytest.mark.parametrize(
    "message",
    [
        types_pb2.Epoch(owners=[types_pb2.TableOwners(table="w", owners=b"123")]),
        types_pb2.Epoch(moved=[types_pb2.BlockGroup(table="w")]),
        types_pb2.Epoch(shards=[types_pb2.Member(name="ps-0")]),
    ],
)
def test_an_epoch_that_cannot_be(message: types_pb2.Epoch) -> None:
    with pytest.raises(errors.InvalidRequest):
        epoch_from_proto(message)
