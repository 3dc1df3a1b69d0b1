"""What the server of the page answers at all: the page itself, to a browser of this machine.

A browser lets any website send requests to 127.0.0.1, and lets a website whose name is made to
point there (DNS rebinding) read the answers. So requests must name this machine, come from the page
itself, and be for one of its few paths; their bodies are small.
"""

from __future__ import annotations

from collections.abc import Sequence

from geosoftmax_experiments.play.page import FILES

__all__ = ["ANSWER", "HEADERS", "MOST_BYTES", "refusal"]

ANSWER = "/answer"
PAGES = ("/", *(f"/{name}" for name in FILES))
HOSTS = ("127.0.0.1", "localhost")
#: Bytes of a request: a drawing has some thousand.
MOST_BYTES = 2**17
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def refusal(
    method: str, path: str, hosts: Sequence[str], origins: Sequence[str], length: str | None
) -> int:
    """Return the status of a refusal, 0 where there is none.

    `hosts` and `origins` are the values of these headers, `length` is that of the body's length.
    """
    if len(hosts) != 1 or hosts[0].lower().partition(":")[0] not in HOSTS:
        return 421  # misdirected: it is meant for another machine
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
        return 403
    if method in ("GET", "HEAD"):
        return 0 if path in PAGES else 404
    if method != "POST":
        return 405
    if path != ANSWER:
        return 404
    if length is None or not length.isascii() or not length.isdigit():
        return 411
    return 413 if len(length) > 9 or int(length) > MOST_BYTES else 0
