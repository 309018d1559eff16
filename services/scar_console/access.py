"""Who may see the page: who knows its URL, in a browser of this machine that no other site directs.

The token is in the page's URL, as Jupyter has it, and in no cookie: a browser would send cookies to every
port of this machine, whoever listens there.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("127.0.0.1", "localhost")  # by which a browser may ask; another one is a name that was rebound to us
PUBLIC = "/static/"  # scripts and styles, the same for everybody
TOKEN_HEADER = "x-scar-token"  # no other site can send it unasked, nor knows what to send
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageAccess:
    """Refuses with 403 before ``app`` sees a request; gives every answer :data:`HEADERS`."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self.refusal(Request(scope))
        answer = PlainTextResponse(f"{refusal}\n", 403) if refusal else self._app
        await answer(scope, receive, send_with_headers)

    def refusal(self, request: Request) -> str:
        """Why this request is refused, and what to do; empty: it is not."""
        host = request.headers.get("host", "")
        if host.rpartition(":")[0] not in NAMES:
            return "The page answers only by the name 127.0.0.1 or localhost: open the URL that was printed."
        if request.headers.get("origin", f"http://{host}") != f"http://{host}":
            return "Another site sent this request: open the URL that was printed."
        if request.method == "GET" and request.url.path.startswith(PUBLIC):
            return ""
        given = (
            request.query_params.get("token", "")
            if request.method == "GET"
            else request.headers.get(TOKEN_HEADER, "")
        )
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return "This needs the token of the page: open the whole URL that `scar console` printed."
        return ""
