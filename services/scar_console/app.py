"""The routes of the page: itself, its stream of looks, its files, and what breaks a member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
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


def make_app(feed: Feed, token: str, breaks: Mapping[str, Callable[[str], str]]) -> PageAccess:
    """``breaks``: what may be done to a shard or a worker by its name, each returns what was done; empty: it
    only looks.
    """

    async def send_page(_request: Request) -> FileResponse:
        return FileResponse(PAGE / "index.html")

    async def stream_looks(_request: Request) -> StreamingResponse:
        return StreamingResponse(feed.follow(), media_type="text/event-stream")

    routes = [
        Route("/", send_page, methods=["GET"]),
        Route("/events", stream_looks, methods=["GET"]),
        Mount("/static", StaticFiles(directory=PAGE / "static")),
    ]
    for how, break_member in breaks.items():
        routes.append(Route(f"/{how}/{{name}}", _break_route(break_member), methods=["POST"]))
    return PageAccess(Starlette(routes=routes), token)


def _break_route(break_member: Callable[[str], str]) -> Callable[..., object]:
    async def break_named(request: Request) -> JSONResponse:
        try:
            done = await asyncio.to_thread(break_member, request.path_params["name"])
        except ScarError as error:
            return JSONResponse({"error": error.message, "next": error.next_step}, 409)
        return JSONResponse({"done": done})

    return break_named
