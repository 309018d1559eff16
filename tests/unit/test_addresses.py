"""Addresses: which ones are this machine's."""

from __future__ import annotations

import pytest

from scar.errors import InvalidRequest
from scar.placement import Role
from scar.v1 import types_pb2
from scar_runtime.process import addresses
from scar_runtime.process.addresses import (
    caller_host,
    is_address,
    is_host_of,
    is_local_peer,
    is_ours,
    split_address,
)
from scar_runtime.process.claims import ClaimCheck


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("10.0.0.7:7070", "10.0.0.7", "7070"), ("[::1]:1", "::1", "1"), ("", "", ""), ("x", "", "x")],
)
def test_an_address_falls_into_host_and_port(address: str, host: str, port: str) -> None:
    assert split_address(address) == (host, port)


def test_what_can_be_bound_is_ours() -> None:
    assert is_ours("127.0.0.1")
    assert is_ours("localhost")
    assert not is_ours("192.0.2.1"), "reserved for documentation: nobody has it"
    assert not is_ours("2001:db8::1")
    assert not is_ours("no.such.host.invalid")


@pytest.mark.parametrize("peer", ["ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711", "ipv6:[::1]:4711", "unix:"])
def test_callers_on_this_machine_are_local(peer: str) -> None:
    assert is_local_peer(peer)


@pytest.mark.parametrize(
    "peer", ["ipv4:10.0.0.1:4711", "ipv6:%5B2001:db8::1%5D:4711", "ipv4:1.127.0.0:1", "", "vsock:1:1"]
)
def test_callers_elsewhere_are_not(peer: str) -> None:
    assert not is_local_peer(peer)


@pytest.mark.parametrize(
    "text", ["10.0.0.7:7070", "[2001:db8::1]:7070", "localhost:1", "ps-0.scar_ps.ml.svc.:65535", "x:1"]
)
def test_an_address_is_host_and_port(text: str) -> None:
    assert is_address(text) is not text.endswith(".:65535")


@pytest.mark.parametrize(
    "text",
    [
        *("", "10.0.0.7", "10.0.0.7:", ":7070", "10.0.0.7:0", "10.0.0.7:65536", "a b:1", "a:1\n", "a/b:1"),
        *("unix:/run/x:1", "unix:1", "dns:80", "dns://10.0.0.7/x:1", "ipv4:10.0.0.7:1", "IPv6:1", "vsock:1"),
        *("[::1:1", "2001:db8::1:7070", "-a:1", "\u0661:1", "a:\u0661", "a" * 300 + ":1"),
    ],
)
def test_what_grpc_would_take_for_something_else_is_no_address(text: str) -> None:
    assert not is_address(text)


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("ipv4:127.0.0.6:4711", ""),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::1"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::1"),
        ("ipv6:[::ffff:10.0.0.7]:4711", "10.0.0.7"),
        ("ipv6:[::1]:4711", ""),
        ("unix:", ""),
    ],
)
def test_who_calls_from_another_machine_is_known_by_its_ip(peer: str, host: str) -> None:
    assert caller_host(peer) == host


def test_a_name_is_its_ip_as_long_as_it_resolves_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(name: str, _port: None) -> list[tuple[object, ...]]:
        if name != "known":
            raise OSError("no such name")
        return [(2, 1, 6, "", (found, 0)) for found in now]

    now = ["10.0.0.6"]
    monkeypatch.setattr(addresses.socket, "getaddrinfo", resolve)
    assert not is_host_of("known:1", "10.0.0.7")
    now.append("10.0.0.7")
    assert is_host_of("known:1", "10.0.0.7")
    assert not is_host_of("strange:1", "10.0.0.7")
    assert is_host_of("[2001:DB8:0::1]:1", "2001:db8::1")


class PlainCall:
    """A call's context, without TLS."""

    def __init__(self, peer: str) -> None:
        self.peer = lambda: peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}


@pytest.mark.parametrize("any_address", [False, True])
def test_a_member_is_where_it_calls_from(any_address: bool) -> None:
    def read(address: str, peer: str) -> str:
        claim = types_pb2.Member(role=1, name="ps-0", incarnation="a" * 12, address=address)
        return ClaimCheck(any_address).read_member(claim, PlainCall(peer)).address  # type: ignore[arg-type]

    assert read("10.0.0.7:1", "ipv4:10.0.0.7:2") == "10.0.0.7:1"
    assert read("10.0.0.7:1", "ipv4:127.0.0.1:2") == "10.0.0.7:1"
    assert read("", "ipv4:10.0.0.7:2") == ""
    with pytest.raises(InvalidRequest, match="host:port"):
        read("unix:1", "unix:")
    if any_address:
        assert read("10.0.0.8:1", "ipv4:10.0.0.7:2") == "10.0.0.8:1"
    else:
        with pytest.raises(InvalidRequest, match=r"at 10\.0\.0\.8:1, but calls from 10\.0\.0\.7"):
            read("10.0.0.8:1", "ipv4:10.0.0.7:2")


@pytest.mark.parametrize(
    ("name", "incarnation"), [("", "a" * 12), ("a" * 64, "a" * 12), ("ps/0", "a" * 12), ("ps-0", "x")]
)
def test_names_and_incarnations_have_a_form(name: str, incarnation: str) -> None:
    claim = types_pb2.Member(role=int(Role.WORKER), name=name, incarnation=incarnation)
    with pytest.raises(InvalidRequest):
        ClaimCheck().read_member(claim, PlainCall("unix:"))  # type: ignore[arg-type]
