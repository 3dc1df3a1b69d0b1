"""What the server of the page answers at all: the page itself, to a browser of this machine.

A browser lets any website send requests to 127.0.0.1, and lets a website whose name is made to
point there (DNS rebinding) read the answers. So requests must name this machine, come from the page
itself, and be for one of its few paths; their bodies are small. gradio's other routes, which store
uploads, serve files or fetch addresses, are not reached.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["MOST_BYTES", "Gate"]

#: What the page needs of gradio.
PAGES = (
    "/",
    "/config",
    "/theme.css",
    "/favicon.ico",
    "/manifest.json",
    "/gradio_api/startup-events",
)
FOLDERS = ("/assets/", "/static/")
ANSWERS = ("/gradio_api/run/predict",)
HOSTS = ("127.0.0.1", "localhost")
#: Bytes of a request: a drawing has some thousand.
MOST_BYTES = 2**17
HEADERS = {
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gate:
    """An ASGI application in front of another, which gets what is allowed."""

    def __init__(self, app: Callable[[Any, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        status = _refusal(scope)
        body = None if status else await _read_body(receive)
        if body is None:
            return await _refuse(send, status or 413)

        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_encoded(HEADERS)]
            await send(message)

        await self.app(scope, replay, add_headers)


def _refusal(scope: Any) -> int:
    """Return the status of a refusal, 0 where there is none."""
    hosts, origins = (
        [value.decode("latin1").lower() for key, value in scope["headers"] if key == name]
        for name in (b"host", b"origin")
    )
    if len(hosts) != 1 or hosts[0].partition(":")[0] not in HOSTS:
        return 421  # misdirected: it is meant for another machine
    if any(origin != f"http://{hosts[0]}" for origin in origins):
        return 403
    path = scope["path"]
    if scope["method"] in ("GET", "HEAD"):
        return 0 if path in PAGES or path.startswith(FOLDERS) else 404
    if scope["method"] == "POST":
        return 0 if path in ANSWERS else 404
    return 405


async def _read_body(receive: Receive) -> bytes | None:
    """Return the body of a request, None where it is too long."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            return None
        if not message.get("more_body"):
            return body


async def _refuse(send: Send, status: int) -> None:
    headers = _encoded({"content-type": "text/plain", "connection": "close", **HEADERS})
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send(
        {"type": "http.response.body", "body": b"This page is for one person and machine.\n"}
    )


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(key.encode(), value.encode()) for key, value in headers.items()]
