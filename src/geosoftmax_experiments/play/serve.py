"""Open the page on this machine, and on no other."""

from __future__ import annotations

import html
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources

from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.play import page
from geosoftmax_experiments.play.gate import HEADERS, MOST_BYTES, refusal

__all__ = ["HOST", "open_page", "run"]

HOST = "127.0.0.1"
#: Seconds after which a browser that sends nothing is left.
PATIENCE = 20


class Handler(BaseHTTPRequestHandler):
    """Answers one browser."""

    timeout = PATIENCE
    server_version, sys_version = "geosoftmax", ""
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        """As inherited; a browser that leaves in the middle is no error."""
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self) -> None:
        """Send the page, or one of its files."""
        if self._refused():
            return
        name = self.path.removeprefix("/")
        if name in page.FILES:
            files = resources.files("geosoftmax_experiments.play")
            self._send(200, files.joinpath(name).read_text(encoding="utf8"), page.FILES[name])
        else:
            self._send(200, page.render(), "text/html")

    def do_HEAD(self) -> None:
        """Send the headers of the page, or of one of its files."""
        self.do_GET()

    def do_POST(self) -> None:
        """Send the answer to what the page asks."""
        if self._refused():
            return
        body = self.rfile.read(min(int(self.headers["Content-Length"]), MOST_BYTES))
        try:
            words = page.answer(json.loads(body))
        except (UserError, ValueError, RecursionError) as error:
            words = f'<p role="alert" class="g-alert">{html.escape(str(error)[:200])}</p>'
        self._send(200, words, "text/html")

    def _refused(self) -> bool:
        status = refusal(
            self.command,
            self.path,
            self.headers.get_all("Host", []),
            self.headers.get_all("Origin", []),
            self.headers.get("Content-Length"),
        )
        if status:
            self.close_connection = True  # what else was sent is not read
            self._send(status, "This page is for one person and machine.\n", "text/plain")
        return bool(status)

    def _send(self, status: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class Server(ThreadingHTTPServer):
    """A server whose threads end with the process."""

    daemon_threads = True


def open_page(port: int) -> tuple[Server, str]:
    """Serve the page in threads of this process; return the server and its address.

    ``shutdown()`` and ``server_close()`` end it. Torch is imported meanwhile, so that the first
    answer does not wait for it.
    """
    try:
        server = Server((HOST, port), Handler)
    except OSError as error:
        raise UserError(
            f"Port {port} cannot be used: {error.strerror}.", "Choose another with --port."
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=_import_tabs, daemon=True).start()
    return server, f"http://{HOST}:{server.server_port}/"


def _import_tabs() -> None:
    for tab in page.TABS:
        tab.show()


def run(port: int, browser: bool, console: Console) -> None:
    """Serve the page until it is stopped by Ctrl-C."""
    server, address = open_page(port)
    console.print(f"The page is at {address} (Ctrl-C ends it).", soft_wrap=True)
    if browser:
        import webbrowser

        webbrowser.open(address)
    try:
        threading.Event().wait()
    finally:
        server.shutdown()
        server.server_close()
