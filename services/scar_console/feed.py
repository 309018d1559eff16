"""Gives the newest look to any number of viewers, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from scar_console.page_update import PageUpdate


class Feed:
    """For one event loop. A slow viewer misses looks and then gets a whole one: nothing is kept for it."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._newest: PageUpdate | None = None
        self._number = 0
        self._closed = False

    async def publish(self, update: PageUpdate) -> None:
        async with self._changed:
            self._newest = update
            self._number += 1
            self._changed.notify_all()

    async def close(self) -> None:
        """Viewers get what they have not seen, then their streams end."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def follow(self) -> AsyncIterator[bytes]:
        """Events for one viewer: the whole page first, then what changes."""
        seen = 0
        while True:
            async with self._changed:
                while self._number == seen and not self._closed:
                    await self._changed.wait()
                update = self._newest
                number = self._number
            if update is None or number == seen:
                return
            follows = seen > 0 and number == seen + 1
            yield b"data: " + (update.step if follows else update.whole) + b"\n\n"
            seen = number
