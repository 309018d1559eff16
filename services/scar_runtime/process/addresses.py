"""Who stands behind an address, who only stands in between, and what a process tells others of its own."""

from __future__ import annotations

import ipaddress
import re
import socket
from functools import lru_cache
from urllib.parse import unquote

from scar.wire.loopback import is_loopback

# what gRPC takes for a kind of target instead of a host
SCHEMES = ("dns", "unix", "unix-abstract", "ipv4", "ipv6", "vsock", "xds", "google-c2p")
_HOST = r"\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"


def split_address(address: str) -> tuple[str, str]:
    """(host, port) of "host:port" or "[host]:port"."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def is_local_peer(peer: str) -> bool:
    """Whether a caller is on this machine. gRPC names it "ipv4:127.0.0.1:4711" or "ipv6:%5B::1%5D:4711"."""
    kind, _, address = peer.partition(":")
    return kind == "unix" or is_loopback(unquote(address))


def is_ours(host: str) -> bool:
    """Is this an address of this machine, so that a refused connection can only be its own kernel's word?

    For any other address it may be a firewall's or a network policy's, which reject in the same way.
    """
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            trial.bind((host, 0))
    except OSError:
        return False
    return True


@lru_cache(1024)
def is_address(text: str) -> bool:
    """Whether it is host:port, and nothing else to gRPC, which would also dial "unix:/run/socket:1"."""
    if not re.fullmatch(rf"(?:{_HOST}):[0-9]{{1,5}}", text):
        return False
    host, port = split_address(text)
    return host.lower() not in SCHEMES and 0 < int(port) < 1 << 16


@lru_cache(1024)  # asked at every call
def caller_host(peer: str) -> str:
    """The IP of what gRPC calls a peer. Empty: a socket of this machine, behind which may be a proxy or a
    forwarded port.
    """
    kind, _, address = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    ip = ipaddress.ip_address(split_address(unquote(address))[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return "" if ip.is_loopback else str(ip)


def is_host_of(address: str, ip: str) -> bool:
    """Whether this address is on the machine with this IP."""
    host, _ = split_address(address)
    known = _ip_of(host)
    asked = _ip_of(ip)
    if known is not None and asked is not None:
        return known == asked
    try:
        return _resolves_to(host, ip)
    except (OSError, UnicodeError):
        return False


@lru_cache(1024)  # asked whenever a member calls
def _ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None: it is a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@lru_cache(1024)
def _resolves_to(name: str, ip: str) -> bool:
    """Raises OSError if not, which is not remembered: names change."""
    if ip not in {str(found[4][0]) for found in socket.getaddrinfo(name, None)}:
        raise OSError(f"{name} is not {ip}")
    return True


def advertised_address(advertise: str, bound: str) -> str:
    """What others dial. A wildcard is no address, so this host's own name stands in for it."""
    host, _, port = bound.rpartition(":")
    if advertise:
        return advertise if ":" in advertise.rpartition("]")[2] else f"{advertise}:{port}"
    return f"{socket.gethostname() if host in ('0.0.0.0', '[::]') else host}:{port}"
