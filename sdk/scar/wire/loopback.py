"""Which addresses are this machine's alone."""

from __future__ import annotations


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` is this machine by its own name for itself; a tunnel to another one may look
    the same.
    """
    host = address.rpartition(":")[0].strip("[]")
    return host == "localhost" or host.startswith("127.") or host == "::1"
