"""Connections of services to each other: the SDK's, so that limits and timing agree on both ends."""

from scar.transport import connect

__all__ = ["connect"]
