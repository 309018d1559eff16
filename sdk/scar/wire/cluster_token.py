"""The token of a cluster on one machine: whoever can read its file is the cluster's operator, and carries it
in every call. Other users of the machine cannot read it.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc

from scar.errors import ConfigError

TOKEN_FILE = "SCAR_TOKEN_FILE"
HEADER = "authorization"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,512}")


def read_token(file: Path) -> str:
    """Raises :class:`ConfigError` for a file that holds no token, or that others can read."""
    try:
        with file.open(encoding="ascii") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            token = opened.read(1024).strip()
    except (OSError, ValueError) as error:
        raise _unusable(file, str(error)) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _unusable(file, f"other users may read or write it (mode {mode & 0o777:o}); run chmod 600")
    if not _TOKEN.fullmatch(token):
        raise _unusable(file, "it does not hold 32 or more letters, digits, - and _")
    return token


def token_metadata(token: str) -> tuple[tuple[str, str], ...]:
    """What a call carries."""
    return ((HEADER, f"Bearer {token}"),)


def carries_token(metadata: Iterable[tuple[str, str | bytes]], token: str) -> bool:
    """Whether a call with this metadata comes from somebody who has the token."""
    ((_, wanted),) = token_metadata(token)
    shown = next((value for key, value in metadata if key == HEADER), "")
    return hmac.compare_digest(shown if isinstance(shown, bytes) else shown.encode(), wanted.encode())


class TokenChannel(grpc.Channel):  # type: ignore[misc]  # grpc has no types
    """Adds the token to every call. gRPC's own interceptors do so, too, at three times the cost."""

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = token_metadata(token)

    def unary_unary(self, *how: Any, **more: Any) -> Any:
        return _TokenMethod(self._channel.unary_unary(*how, **more), self._metadata)

    def unary_stream(self, *how: Any, **more: Any) -> Any:
        return _TokenMethod(self._channel.unary_stream(*how, **more), self._metadata)

    def stream_unary(self, *how: Any, **more: Any) -> Any:
        return _TokenMethod(self._channel.stream_unary(*how, **more), self._metadata)

    def stream_stream(self, *how: Any, **more: Any) -> Any:
        return _TokenMethod(self._channel.stream_stream(*how, **more), self._metadata)

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        self._channel.unsubscribe(callback)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> TokenChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _TokenMethod:
    """One method of a service, with metadata for all of its calls."""

    def __init__(self, method: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self._method = method
        self._metadata = metadata

    def __call__(self, *request: Any, **options: Any) -> Any:
        return self._method(*request, metadata=self._metadata, **options)

    def future(self, *request: Any, **options: Any) -> Any:
        return self._method.future(*request, metadata=self._metadata, **options)


def _unusable(file: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"the token file {file} cannot be used: {reason}",
        f"Set {TOKEN_FILE} to the file `token` in the folder of the cluster, .scar/local by default",
    )
