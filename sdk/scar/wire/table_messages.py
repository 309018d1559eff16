"""Tables on the wire, as a job describes them: arrays of them are compressed, and sizes checked when read."""

from __future__ import annotations

import hashlib
import zlib

import numpy as np

from scar.blocks import Array
from scar.errors import InvalidRequest, TooLarge
from scar.keyed_rows import KeyPolicy
from scar.rule_expressions import MAX_ASSIGNMENTS, MAX_SLOTS, RuleProgram
from scar.schedules import MAX_PHASES, Phase, RateSchedule
from scar.tables import Blocks, Init, Rule, Table
from scar.v1 import types_pb2

MAX_MESSAGE_BYTES = 64 << 20


def initial_key(table: str, raw: bytes) -> str:
    """Where the store of a job has the initial array that the user gave for this table.

    The job's record names it, so what the record's signature vouches for holds for the array as well.
    """
    return f"init/{table}@{hashlib.sha256(raw).hexdigest()}"


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
        kind=init.kind, low=init.low, high=init.high, key=init.key, others=init.others
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
    init = message.init
    return Table(
        message.name,
        tuple(message.shape),
        dtype=message.dtype,
        rule=_rule_from_proto(message.rule),
        init=Init(init.kind, init.low, init.high, key=init.key, others=init.others),
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
