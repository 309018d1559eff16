"""Changes of inputs that encoders have written: of bytes, of messages field by field, of JSON and of text.

Structure is kept where a decoder would refuse the rest at once: a message with one impossible field reaches
code that random bytes never reach.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from scar.wire.table_messages import MAX_MESSAGE_BYTES

EDGES = sorted(
    {0, 3, 10, 40, 2**53, 2**64 - 1, *(1 << bit for bit in (0, 1, 4, 16, 24, 31, 32, 62, 63))}
    | {(1 << bit) - 1 for bit in (7, 8, 16, 31, 32, 63)}
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 3e38, 1e308, float("nan"), float("inf"), float("-inf"))
WORDS = (
    *(
        "",
        "w",
        "r",
        "i",
        "values",
        "steps",
        "saved",
        "push",
        "slot:first",
        "slot:velocity",
        "../x",
        "\x00",
        "\n",
        "é",
    ),
    *(
        "float32",
        "float64",
        "int32",
        "int64",
        "object",
        "V8",
        ">f4",
        "float16",
        "bool",
        "worker-0",
        "ps-0@0123456789ab",
    ),
    *(
        "adam",
        "sgd",
        "l2",
        "given",
        "normal",
        "uniform",
        "partial",
        "full",
        "priority",
        "random",
        "bsp",
        "ssp",
        "asp",
    ),
    *("sync-chain", "ckpt", "stateless", "fuzz", "9" * 30, "9" * 5000, "²", "1e999", "-1", "a" * 300),
)
JSON_VALUES = (
    None,
    True,
    -1,
    0,
    0.5,
    1 << 70,
    float("nan"),
    float("inf"),
    "",
    "x",
    "9" * 30,
    [],
    {},
    [[]],
    {"a": "b"},
)
DEPTH = 3  # of messages in messages that are changed
BOMB = zlib.compress(bytes(2 * MAX_MESSAGE_BYTES))  # 130 KB
NESTED = 100_000  # brackets


class Mutator:
    """``rng`` decides everything: the same seed makes the same inputs."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    # --- bytes

    def mutate_bytes(self, data: bytes) -> bytes:
        """A few edits anywhere."""
        changed = bytearray(data)
        for _ in range(self.rng.choice((1, 1, 1, 2, 3, 6))):
            self._edit(changed, self.rng.randrange(len(changed) + 1))
        return bytes(changed)

    def _edit(self, data: bytearray, at: int) -> None:
        rng = self.rng
        match rng.randrange(8):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                start = rng.randrange(len(data) + 1)
                data[at:at] = data[start : start + rng.randrange(1, 33)]
            case 5:
                data[at : at + 1] = bytes([rng.choice((0xFF, 0x80, 0x7F, 0))]) * rng.randrange(1, 11)
            case 6:
                width = rng.choice((1, 2, 4, 8))
                data[at : at + width] = struct.pack("<Q", rng.choice(EDGES))[:width]
            case _:
                del data[at:]

    # --- messages

    def mutate_message(self, kind: type[Message], data: bytes) -> bytes:
        """Fields of a message, or its bytes."""
        message = kind()
        try:
            message.ParseFromString(data)
        except DecodeError:
            return self.mutate_bytes(data)
        if self.rng.random() < 0.3:
            return self.mutate_bytes(data)
        self.shake(message)
        return message.SerializeToString()

    def shake(self, message: Message, depth: int = 0) -> None:
        """Change about a quarter of the fields, at least one."""
        fields = message.DESCRIPTOR.fields
        chosen = [field for field in fields if self.rng.random() < 0.25]
        for field in chosen or self.rng.sample(list(fields), min(1, len(fields))):
            if field.is_repeated:
                self._shake_repeated(message, field, depth)
            elif field.message_type is not None:
                if depth < DEPTH:
                    self.shake(getattr(message, field.name), depth + 1)
            elif self.rng.random() < 0.1:
                message.ClearField(field.name)
            else:
                self._set(lambda value, name=field.name: setattr(message, name, value), field)

    def _shake_repeated(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        entries: Any = getattr(message, field.name)
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            value = kind.fields_by_name["value"]
            if value.message_type is None:
                self._set(lambda found: entries.__setitem__(self.rng.choice(WORDS), found), value)
            return
        if len(entries) and self.rng.random() < 0.3:
            del entries[self.rng.randrange(len(entries))]
        if kind is None:
            self._set(entries.append, field)
        elif depth < DEPTH:
            added = len(entries) < 6 and self.rng.random() < 0.3
            entry = entries.add() if added else self.rng.choice(list(entries)) if len(entries) else None
            if entry is not None:
                self.shake(entry, depth + 1)

    def _set(self, put: Callable[[object], object], field: FieldDescriptor) -> None:
        try:
            put(self._value(field))
        except (ValueError, TypeError):  # no such string or enum: nobody can send it
            return

    def _value(self, field: FieldDescriptor) -> object:
        kind = field.cpp_type
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return self.rng.choice(FLOATS)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return self.rng.random() < 0.5
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return (
                self.rng.choice(WORDS) if field.type == FieldDescriptor.TYPE_STRING else self.packed_bytes()
            )
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return self.rng.choice((0, 1, 2, 3, 4, 5, 77))
        return self._whole(kind)

    def _whole(self, kind: int) -> int:
        number = self.rng.choice(EDGES) if self.rng.random() < 0.7 else self.rng.randrange(50)
        if kind == FieldDescriptor.CPPTYPE_INT32:
            return min(number, 2**31 - 1) * self.rng.choice((1, 1, -1))
        if kind == FieldDescriptor.CPPTYPE_INT64:
            return number - (1 << 64) if number >= 1 << 63 else number
        return number & (0xFFFFFFFF if kind == FieldDescriptor.CPPTYPE_UINT32 else (1 << 64) - 1)

    def packed_bytes(self) -> bytes:
        """What a field of bytes may hold: ids, owners, compressed numbers, or none of them."""
        rng = self.rng
        match rng.randrange(8):
            case 0:
                return b""
            case 1:
                return (
                    np.unique([rng.randrange(45) for _ in range(1 + rng.randrange(12))])
                    .astype("<u4")
                    .tobytes()
                )
            case 2:
                return rng.randbytes(rng.randrange(20))
            case 3:
                numbers = [
                    rng.choice((0, 1, 3, 10, 30, 40, 2**63 - 1, -2, -1)) for _ in range(rng.randrange(6))
                ]
                return zlib.compress(np.array(numbers, "<i8").tobytes())
            case 4:
                count = rng.choice((40, 5, 4, 10))
                return np.array([rng.choice((0, 1, 2, 65535)) for _ in range(count)], "<u2").tobytes()
            case 5:
                return zlib.compress(rng.randbytes(rng.randrange(64)))
            case 6:
                return BOMB if rng.random() < 0.02 else np.arange(3, dtype="<u4").tobytes()
        return np.arange(rng.choice((40, 4, 5)), dtype="<u4").tobytes()

    # --- text

    def mutate_json(self, data: bytes) -> bytes:
        """One value anywhere, or the bytes."""
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            return self.mutate_bytes(data)
        match self.rng.randrange(8):
            case 0 | 1:
                return self.mutate_bytes(data)
            case 2 if self.rng.random() < 0.02:
                return b"[" * NESTED
        return json.dumps(self._other_json(found)).encode()

    def _other_json(self, found: Any) -> Any:
        keys = (
            list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
        )
        if not keys or self.rng.random() < 0.1:
            return self.rng.choice(JSON_VALUES)
        key = self.rng.choice(list(keys))
        if self.rng.random() < 0.15:
            del found[key]
        else:
            found[key] = (
                self._other_json(found[key]) if self.rng.random() < 0.7 else self.rng.choice(JSON_VALUES)
            )
        return found

    def mutate_text(self, data: bytes) -> bytes:
        """Words, signs and pieces of the text, in other places."""
        if self.rng.random() < 0.3:
            return self.mutate_bytes(data)
        text = data.decode(errors="replace")
        for _ in range(self.rng.randrange(1, 4)):
            at = self.rng.randrange(len(text) + 1)
            start = self.rng.randrange(len(text) + 1)
            piece = self.rng.choice(
                (self.rng.choice(WORDS), text[start : start + 8], self.rng.choice("+@/~:-.0 \n"))
            )
            text = text[:at] + piece + text[at + self.rng.randrange(4) :]
        return text.encode(errors="replace")
