"""Hand one file to a page of another origin: Perfetto's viewer reads traces from 127.0.0.1:9001
only.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from urllib.parse import quote

from ppsim.base.unpack.gzipped import unzip
from ppsim.base.unpack.limits import size_limit
from ppsim.errors import InputError

VIEWER = "https://ui.perfetto.dev"
HOST, PORT = "127.0.0.1", 9001
POLL_S = 0.1


class _Server(ThreadingHTTPServer):
    """A server that ends when its one file has been taken."""

    request_queue_size = 128
    content: bytes  # the file
    name: str  # its name in the address

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, which can take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, *request: object) -> None:
        """Print nothing where somebody leaves before the answer."""


def viewer_address(name: str, port: int = PORT) -> str:
    """Return the address that opens Perfetto's viewer on the file served under a name."""
    return f"{VIEWER}/#!/?url=http://{HOST}:{port}/{quote(name)}"


def serve_once(
    content: bytes, name: str, *, ready: Callable[[str], None], port: int = PORT
) -> None:
    """Serve a trace to Perfetto's viewer until it has been taken once (InputError: something else
    uses the port).

    The browser decompresses gzipped ``content``; ``ready`` is called with the viewer's address when
    the file can be taken. The viewer's own rules allow port 9001 only.
    """
    try:
        server = _Server((HOST, port), _Handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise InputError(
            f"port {port} is taken, and Perfetto's viewer reads from no other",
            f"end what uses it, or open the file at {VIEWER} by hand",
        ) from error
    with server:
        server.content = unzip(content, f"'{name}'", size_limit())
        server.name = name
        ready(viewer_address(name, server.server_port))
        server.serve_forever(POLL_S)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 2  # seconds without a word of a request; its answer may take longer

    def do_GET(self) -> None:
        """Send the file to the viewer's page, and nothing to any other."""
        if self.path != f"/{quote(self.server.name)}":
            return self.send_error(404)
        # A page that asks from elsewhere, or under another name of this machine, gets nothing.
        asking, host = self.headers.get("Origin"), self.headers.get("Host")
        if asking not in (None, VIEWER) or host != f"{HOST}:{self.server.server_port}":
            return self.send_error(403)
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.connection.settimeout(None)
        self.wfile.write(self.server.content)
        self.server.shutdown()
        return None

    def do_OPTIONS(self) -> None:
        """Allow the viewer to read from this machine, for browsers that ask beforehand."""
        self.send_response(204)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
