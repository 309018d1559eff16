"""What stands between calls and their connections: nothing, unless a process asks for it (traces do)."""

from __future__ import annotations

from collections.abc import Callable

import grpc

Intercept = Callable[[grpc.Channel], grpc.Channel]
_intercept: Intercept | None = None


def intercept_channels(intercept: Intercept | None) -> None:
    """For channels that this process opens from now on."""
    global _intercept
    _intercept = intercept


def intercepted(channel: grpc.Channel) -> grpc.Channel:
    return channel if _intercept is None else _intercept(channel)
