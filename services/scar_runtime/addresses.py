"""Who stands behind an address, and who only stands in between."""

from __future__ import annotations

import socket


def parted(address: str) -> tuple[str, str]:
    """(host, port) of "host:port" or "[host]:port"."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


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
