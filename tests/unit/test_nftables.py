"""What is said to nftables, read again by the layout of its messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from scar_kube.nftables import _read_answers, drop_messages


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, flags, and what follows the header of nfnetlink, which has a family and a resource."""
    while data:
        length, kind, flags = struct.unpack_from("=IHH", data)
        yield kind, flags, data[16:length]
        data = data[(length + 3) & ~3 :]


def attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while data:
        length, kind = struct.unpack_from("=HH", data)
        found[kind] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def test_one_transaction_makes_an_owned_table_and_two_chains_that_drop() -> None:
    begin, table, come, go, end = messages(drop_messages())
    assert (begin[0], end[0]) == (16, 17)
    assert begin[2] == end[2] == b"\0\0\0\x0a", "to the subsystem of nftables"
    assert [kind for kind, _, _ in (table, come, go)] == [0xA00, 0xA03, 0xA03]
    assert all(body[0] == 1 for _, _, body in (table, come, go)), "IPv4 and IPv6"
    made = attributes(table[2][4:])
    assert made[2] == b"\0\0\0\x02", "it goes with its owner"
    for (_, _, body), hook in ((come, b"\0\0\0\x01"), (go, b"\0\0\0\x03")):
        chain = attributes(body[4:])
        assert chain[1] == made[1]
        assert attributes(chain[0x8004])[1] == hook
        assert chain[5] == b"\0\0\0\0", "the policy: drop"


def answer(code: int) -> bytes:
    return struct.pack("=IHHIIi", 20, 2, 0, 0, 0, code)


def test_a_refusal_is_an_error_and_an_acknowledgement_is_none() -> None:
    assert len(list(_read_answers(answer(0) + answer(0)))) == 2
    with pytest.raises(PermissionError):
        list(_read_answers(answer(0) + answer(-1)))
