"""The routes of the page: itself, its stream of looks, its files, and a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from scar.errors import ScarError
from scar_console.access import PageAccess
from scar_console.feed import Feed

PAGE = Path(__file__).parent / "page"


def make_app(feed: Feed, token: str, kill: Callable[[str], str] | None) -> PageAccess:
    """``kill``: a shard or a worker by its name, returns what was done; None: this page only looks."""

    async def send_page(_request: Request) -> FileResponse:
        return FileResponse(PAGE / "index.html")

    async def stream_looks(_request: Request) -> StreamingResponse:
        return StreamingResponse(feed.follow(), media_type="text/event-stream")

    routes = [
        Route("/", send_page, methods=["GET"]),
        Route("/events", stream_looks, methods=["GET"]),
        Mount("/static", StaticFiles(directory=PAGE / "static")),
    ]
    if kill is not None:
        routes.append(Route("/kill/{name}", _kill_route(kill), methods=["POST"]))
    return PageAccess(Starlette(routes=routes), token)


def _kill_route(kill: Callable[[str], str]) -> Callable[..., object]:
    async def kill_member(request: Request) -> JSONResponse:
        try:
            done = await asyncio.to_thread(kill, request.path_params["name"])
        except ScarError as error:
            return JSONResponse({"error": error.message, "next": error.next_step}, 409)
        return JSONResponse({"done": done})

    return kill_member
