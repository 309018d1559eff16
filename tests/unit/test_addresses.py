"""Addresses: which ones are this machine's."""

from __future__ import annotations

import pytest

from scar_runtime.addresses import is_ours, parted


@pytest.mark.parametrize(
    ("address", "host", "port"), [("10.0.0.7:7070", "10.0.0.7", "7070"), ("[::1]:1", "::1", "1"), ("", "", ""), ("x", "", "x")]
)
def test_an_address_falls_into_host_and_port(address: str, host: str, port: str) -> None:
    assert parted(address) == (host, port)


def test_what_can_be_bound_is_ours() -> None:
    assert is_ours("127.0.0.1")
    assert is_ours("localhost")
    assert not is_ours("192.0.2.1"), "reserved for documentation: nobody has it"
    assert not is_ours("2001:db8::1")
    assert not is_ours("no.such.host.invalid")
