"""Serves a page on 127.0.0.1 until it is told to stop, or the cluster that it shows ends."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import uvicorn

from scar.errors import ConfigError
from scar_console.app import make_app
from scar_console.feed import Feed
from scar_console.page_update import PageView
from scar_console.run_view import WatchedCluster, live_view

TOKEN_BYTES = 32
BESIDE_SECONDS = 1.0  # between two looks at the store, and at the logs
CLOSE_SECONDS = 10  # for a look that is under way, and viewers to take the last one


OpenView = Callable[[], AbstractContextManager[PageView]]


class ConsoleServer:
    """``open_view``: makes what is shown. ``stop``: ends it when it is set. ``port`` 0: any that is free.
    ``interval``: seconds between looks. ``breaks``: see :func:`scar_console.app.make_app`. ``token``: who has
    it sees the page; empty: one is made.
    """

    def __init__(
        self,
        open_view: OpenView,
        stop: threading.Event,
        port: int = 0,
        interval: float = 0.5,
        breaks: Mapping[str, Callable[[str], str]] | None = None,
        token: str = "",
    ) -> None:
        self._open_view = open_view
        self._stop = stop
        self._interval = interval
        self._token = token or secrets.token_urlsafe(TOKEN_BYTES)
        self._feed = Feed()
        self._socket = _listen_on(port)
        app = make_app(self._feed, self._token, breaks or {})
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,  # it would hold the token
                lifespan="off",
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=CLOSE_SECONDS,
            )
        )

    @property
    def url(self) -> str:
        """With the token: whoever has it sees the page, and may break what it lets break."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/?token={self._token}"

    def run(self) -> None:
        """Returns after Ctrl-C or SIGTERM, when it was told to stop, or when the cluster has ended."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        looking = asyncio.create_task(self._look_until_the_end())
        await self._server.serve(sockets=[self._socket])
        await looking

    async def _look_until_the_end(self) -> None:
        """One look for all viewers. Ends the server when the cluster has ended."""
        try:
            with self._open_view() as view:
                beside = [asyncio.create_task(_read_on(read)) for read in (view.read_saved, view.read_logs)]
                while not (self._server.should_exit or self._stop.is_set()):
                    update = await asyncio.to_thread(view.look)
                    await self._feed.publish(update)
                    if update.ended:
                        break
                    await asyncio.sleep(self._interval)
                for reading in beside:
                    reading.cancel()
        finally:
            await self._feed.close()
            self._server.should_exit = True


@contextmanager
def served_beside(server: ConsoleServer, stop: threading.Event) -> Iterator[None]:
    """In a thread of its own. ``stop``: the server's. What it shows has ended when the block does: viewers
    are told so.
    """
    thread = threading.Thread(target=server.run, name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(CLOSE_SECONDS)
        stop.set()  # if it has not seen the end
        thread.join()


async def _read_on(read: Callable[[], None]) -> None:
    while True:
        await asyncio.to_thread(read)
        await asyncio.sleep(BESIDE_SECONDS)


def serve_cluster(
    cluster: WatchedCluster, stop: threading.Event, port: int = 0, interval: float = 0.5, token: str = ""
) -> ConsoleServer:
    """The page of a cluster that can be looked at now."""
    breaks = {how: partial(cluster.break_member, how) for how in cluster.can_break}
    return ConsoleServer(partial(live_view, cluster), stop, port, interval, breaks, token)


def _listen_on(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(
            f"port {port} cannot be listened at: {error.strerror}", "Choose another one by --port"
        ) from error
