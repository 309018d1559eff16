"""Tables on the wire, as a job describes them: arrays of them are compressed, and sizes checked when read."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping

import numpy as np

from scar.blocks import Array
from scar.errors import InvalidRequest, TooLarge
from scar.given_rows import pack_rows
from scar.keyed_rows import KeyPolicy
from scar.rule_expressions import MAX_ASSIGNMENTS, MAX_SLOTS, RuleProgram
from scar.schedules import MAX_PHASES, Phase, RateSchedule
from scar.tables import Blocks, Init, Job, Rule, Table
from scar.v1 import types_pb2

MAX_MESSAGE_BYTES = 64 << 20
INITIAL_PART_BYTES = 16 << 20  # of a given array, in the store; the last part may have fewer


def initial_key(table: str, raw: bytes) -> str:
    """Where the store of a job has the initial array that the user gave for this table, or a part of it.

    The job's record names it, so what the record's signature vouches for holds for the array as well.
    """
    return f"init/{table}@{hashlib.sha256(raw).hexdigest()}"


def part_count(size: int) -> int:
    """In how many parts a given array of so many bytes lies in the store."""
    return max(1, -(-size // INITIAL_PART_BYTES))


def job_arrays(job: Job) -> Mapping[str, memoryview]:
    """Initial arrays and rows that the user gave: table -> raw little-endian bytes, of arrays in their memory
    where it is laid out so.
    """
    found = {}
    for table in job.tables:
        if table.init.array is not None:
            array = np.ascontiguousarray(table.init.array, table.dtype)
            found[table.name] = array.reshape(-1).view(np.uint8).data
        elif table.init.rows is not None:
            found[table.name] = memoryview(pack_rows(table.init.rows, table.dtype))
    return found


def table_to_proto(table: Table) -> types_pb2.TableSpec:
    offsets = table.row_offsets if table.cut.offsets or table.cut.pieces else None
    return types_pb2.TableSpec(
        name=table.name,
        dtype=table.dtype.name,
        shape=table.shape,
        offsets=b"" if offsets is None else zlib.compress(offsets.astype("<i8").tobytes()),
        rows_per_block=table.cut.rows,
        rule=_rule_to_proto(table.rule),
        init=_init_to_proto(table.init),
        norm=table.norm,
        weights=b"" if table.weights is None else zlib.compress(table.weights.astype("<f4").tobytes()),
        allow_nonfinite=table.allow_nonfinite,
        keys=_keys_to_proto(table.keys),
    )


def _init_to_proto(init: Init) -> types_pb2.Initializer:
    return types_pb2.Initializer(
        kind=init.kind,
        low=init.low,
        high=init.high,
        key=init.key,
        others=init.others,
        more_keys=init.more_keys,
    )


def _init_from_proto(message: types_pb2.Initializer) -> Init:
    return Init(
        message.kind,
        message.low,
        message.high,
        key=message.key,
        others=message.others,
        more_keys=tuple(message.more_keys),
    )


def _keys_to_proto(policy: KeyPolicy | None) -> types_pb2.KeyPolicy | None:
    if policy is None:
        return None
    return types_pb2.KeyPolicy(admit_after=policy.admit_after, evict=policy.evict, max_age=policy.max_age)


def table_from_proto(message: types_pb2.TableSpec) -> Table:
    cut = Blocks(rows=message.rows_per_block)
    if message.offsets:
        cut = Blocks(offsets=_unpack_offsets(message.offsets))
    keys = message.keys
    return Table(
        message.name,
        tuple(message.shape),
        dtype=message.dtype,
        rule=_rule_from_proto(message.rule),
        init=_init_from_proto(message.init),
        blocks=cut,
        norm=message.norm,
        weights=_unpack_array(message.weights, "<f4", "weights of blocks") if message.weights else None,
        allow_nonfinite=message.allow_nonfinite,
        keys=KeyPolicy(keys.admit_after, keys.evict, keys.max_age) if message.HasField("keys") else None,
    )


def _rule_to_proto(rule: Rule) -> types_pb2.Rule:
    phases = rule.schedule.phases if rule.schedule else ()
    schedule = [
        types_pb2.SchedulePhase(start=phase.start, kind=phase.kind, parameters=dict(phase.parameters))
        for phase in phases
    ]
    program = rule.program
    expressions = program.assignments if program else ()
    return types_pb2.Rule(
        kind=rule.kind,
        parameters=dict(rule.parameters),
        schedule=schedule,
        expressions=[types_pb2.RuleExpression(name=name, text=text) for name, text in expressions],
        slots=program.slots if program else (),
    )


def _rule_from_proto(message: types_pb2.Rule) -> Rule:
    listed = message.schedule[: MAX_PHASES + 1]  # enough to be refused, whatever came
    phases = tuple(Phase(one.start, one.kind, dict(one.parameters)) for one in listed)
    expressions = tuple((one.name, one.text) for one in message.expressions[: MAX_ASSIGNMENTS + 1])
    slots = tuple(message.slots[: MAX_SLOTS + 1])
    program = RuleProgram(expressions, slots) if expressions or slots else None
    return Rule(message.kind, dict(message.parameters), RateSchedule(phases) if phases else None, program)


def _unpack_offsets(packed: bytes) -> tuple[int, ...]:
    return tuple(int(value) for value in _unpack_array(packed, "<i8", "block offsets"))


def _unpack_array(packed: bytes, dtype: str, what: str) -> Array:
    unpack = zlib.decompressobj()
    try:
        raw = unpack.decompress(packed, MAX_MESSAGE_BYTES)
    except zlib.error as error:
        raise InvalidRequest(f"{what} are malformed") from error
    if unpack.unconsumed_tail or len(raw) % np.dtype(dtype).itemsize:
        raise TooLarge(f"{what} are too many or malformed")
    return np.frombuffer(raw, dtype=dtype)
