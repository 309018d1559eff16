"""Records: small protocol messages in the store (job, epochs, manifests, ledger), readable by people and checked by a CRC.

    create_record(store, numbered("epochs", 7), epoch)       # AlreadyExists: somebody else was first
    epoch = get_record(store, numbered("epochs", newest(store, "epochs")), types_pb2.Epoch)

A record is one line ``scar1 <kind> <crc32>`` and one line of JSON; ``kind`` is the message's name.
"""

from __future__ import annotations

import re
import zlib
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from scar.errors import CorruptCheckpoint, StoreError
from scar_runtime.store import Store

VERSION = 1
DIGITS = 8

_HEAD = re.compile(rb"scar([0-9]{1,9}) ([A-Za-z]{1,64}) ([0-9a-f]{8})")

Record = TypeVar("Record", bound=Message)


def encode_record(message: Message) -> bytes:
    """The record's bytes."""
    body = json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True).encode()
    return b"scar%d %s %08x\n%s\n" % (VERSION, message.DESCRIPTOR.name.encode(), zlib.crc32(body), body)


def decode_record(cls: type[Record], data: bytes, name: str = "record") -> Record:
    """The message. ``name`` is used in errors. Raises :class:`CorruptCheckpoint`; :class:`StoreError` for a newer format."""
    head, _, rest = data.partition(b"\n")
    found = _HEAD.fullmatch(head)
    body = rest[:-1]
    if found is None or rest[-1:] != b"\n" or int(found[3], 16) != zlib.crc32(body):
        raise CorruptCheckpoint(f"{name} is damaged: its checksum does not fit")
    if int(found[1]) > VERSION:
        raise _newer(name)
    if found[2].decode() != cls.DESCRIPTOR.name or int(found[1]) != VERSION:
        raise CorruptCheckpoint(f"{name} is no {cls.DESCRIPTOR.name} but {head[:80].decode()!r}")
    message = cls()
    try:
        return json_format.Parse(body, message)
    except json_format.ParseError as error:
        raise _newer(name) from error


def put_record(store: Store, key: str, message: Message) -> None:
    """Write or replace."""
    store.put(key, encode_record(message))


def create_record(store: Store, key: str, message: Message) -> None:
    """Write what must not exist yet. Raises :class:`scar.errors.AlreadyExists`."""
    store.create(key, encode_record(message))


def get_record(store: Store, key: str, cls: type[Record]) -> Record:
    """Raises :class:`scar.errors.ObjectNotFound` and what :func:`decode_record` raises."""
    return decode_record(cls, store.get(key), key)


def numbered(prefix: str, number: int) -> str:
    """Key of a numbered record: ``numbered("epochs", 7) == "epochs/00000007"``."""
    return f"{prefix}/{number:0{DIGITS}d}"


def numbers(store: Store, prefix: str) -> list[int]:
    """Numbers of the records below ``prefix``, ascending."""
    found = (key.rpartition("/")[2] for key in store.list(f"{prefix}/"))
    return sorted(int(name) for name in found if name.isdecimal())


def newest(store: Store, prefix: str) -> int:
    """The highest number below ``prefix``; 0: there is none."""
    return max(numbers(store, prefix), default=0)


def _newer(name: str) -> StoreError:
    return StoreError(f"{name} was written by a newer SCAR", "Upgrade this service to the version that wrote it")
