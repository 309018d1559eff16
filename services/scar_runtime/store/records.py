"""Records: small protocol messages in the store (job, epochs, manifests, ledger), readable by people and
checked by a CRC.

    create_record(store, epoch_key(7), epoch)       # AlreadyExists: somebody else was first
    epoch = get_record(store, epoch_key(newest(store, EPOCHS)), types_pb2.Epoch)

A record is one line ``scar2 <kind> <crc32>`` and one line of JSON; ``kind`` is the message's name. Where
the store has a key, the first line goes on with a signature (``signatures.py``), and what has none or a wrong
one is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import zlib
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from prometheus_client import Counter

from scar.errors import CorruptCheckpoint, ForgedRecord, StoreError
from scar_runtime.store import Store
from scar_runtime.store.layout import folder
from scar_runtime.store.signatures import StoreKey

FORGED = Counter("scar_store_forged", "Records in the store that this cluster's key has not signed")

_log = logging.getLogger(__name__)

VERSION = 2  # 1: manifests named no digests
OWNER_BEAT_SECONDS = 1.5  # between two writes of ``owner-beat`` by the cluster that trains the job

OLDER_FORMAT = "Finish this job with the version of SCAR that began it, or begin it anew under another name"

_HEAD = re.compile(
    rb"(scar([0-9]{1,9}) (?P<kind>[A-Za-z]{1,64}) (?P<crc>[0-9a-f]{8}))(?: (?P<signature>[0-9a-f]{64}))?"
)

Record = TypeVar("Record", bound=Message)
Result = TypeVar("Result")


def encode_record(message: Message, place: str = "", key: StoreKey | None = None) -> bytes:
    """The record's bytes, signed by this key for this place in the store."""
    body = json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True).encode()
    head = b"scar%d %s %08x" % (VERSION, message.DESCRIPTOR.name.encode(), zlib.crc32(body))
    if key is not None:
        head += b" " + key.sign(place, head, body)
    return b"%s\n%s\n" % (head, body)


def decode_record(cls: type[Record], data: bytes, name: str = "record") -> Record:
    """The message, whoever has written it. ``name`` is used in errors. Raises :class:`CorruptCheckpoint`;
    :class:`StoreError` for a newer format.
    """
    return _parse_body(cls, _split_record(data, name), name)


class _Parts(NamedTuple):
    head: bytes
    kind: str
    signature: bytes
    body: bytes


def _split_record(data: bytes, name: str) -> _Parts:
    """What is whole and of our format."""
    line, _, rest = data.partition(b"\n")
    found = _HEAD.fullmatch(line)
    body = rest[:-1]
    if found is None or rest[-1:] != b"\n" or int(found["crc"], 16) != zlib.crc32(body):
        raise CorruptCheckpoint(f"{name} is damaged: its checksum does not fit")
    if int(found[2]) > VERSION:
        raise _newer_format(name)
    if int(found[2]) < VERSION:
        raise CorruptCheckpoint(f"{name} is of format {int(found[2])}, of an older SCAR", OLDER_FORMAT)
    return _Parts(found[1], found["kind"].decode(), found["signature"] or b"", body)


def _parse_body(cls: type[Record], record: _Parts, name: str) -> Record:
    if record.kind != cls.DESCRIPTOR.name:
        raise CorruptCheckpoint(f"{name} is no {cls.DESCRIPTOR.name} but {record.head[:80].decode()!r}")
    message = cls()
    try:
        return json_format.Parse(record.body, message)
    except json_format.ParseError as error:
        raise _newer_format(name) from error
    except (ValueError, RecursionError) as error:  # its text is no UTF-8, or nested without end
        raise CorruptCheckpoint(f"{name} cannot be read: {error}") from error


def put_record(store: Store, key: str, message: Message) -> None:
    """Write or replace."""
    store.put(key, encode_record(message, store.place_of(key), store.signing_key))


def create_record(store: Store, key: str, message: Message) -> None:
    """Write what must not exist yet. Raises :class:`scar.errors.AlreadyExists`."""
    store.create(key, encode_record(message, store.place_of(key), store.signing_key))


def get_record(store: Store, key: str, cls: type[Record]) -> Record:
    """Raises :class:`scar.errors.ObjectNotFound`, what :func:`decode_record` raises, and
    :class:`scar.errors.ForgedRecord` for one that the store's key has not signed.
    """
    record = _split_record(store.get(key), key)
    if store.signing_key is not None:
        _check_signature(record, store.place_of(key), store.signing_key)
    return _parse_body(cls, record, key)


def _check_signature(record: _Parts, place: str, key: StoreKey) -> None:
    if hmac.compare_digest(key.sign(place, record.head, record.body), record.signature):
        return
    _log.error("record.forged", extra={"key": place})
    FORGED.inc()
    raise ForgedRecord(f"{place} is not signed by this cluster's key")


def message_digest(message: Message) -> bytes:
    """SHA-256 by which one side tells the other which record it means; the same for whoever has read it."""
    return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()


def reread(read: Callable[[], Result]) -> Result:
    """``read``, and once more when it finds damage: what is garbled on its way is whole in the store."""
    try:
        return read()
    except CorruptCheckpoint:
        return read()


def numbers(store: Store, prefix: str) -> list[int]:
    """Numbers of the records below ``prefix``, ascending."""
    found = (key.rpartition("/")[2] for key in store.list(folder(prefix)))
    return sorted(int(name) for name in found if name.isdecimal())


def newest(store: Store, prefix: str) -> int:
    """The highest number below ``prefix``; 0: there is none."""
    return max(numbers(store, prefix), default=0)


def _newer_format(name: str) -> StoreError:
    return StoreError(
        f"{name} was written by a newer SCAR", "Upgrade this service to the version that wrote it"
    )
