"""Serve one file to Perfetto's viewer, which reads traces from 127.0.0.1:9001 only."""

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
    """Server that stops after its one file has been fetched."""

    request_queue_size = 128
    content: bytes  # the file
    name: str  # its name in the address

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name, which can take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, *request: object) -> None:
        """Print nothing if a client disconnects before the response."""


def viewer_address(name: str, port: int = PORT) -> str:
    """Return the URL that opens the served file in Perfetto's viewer."""
    return f"{VIEWER}/#!/?url=http://{HOST}:{port}/{quote(name)}"


def serve_once(
    content: bytes, name: str, *, ready: Callable[[str], None], port: int = PORT
) -> None:
    """Serve a trace to Perfetto's viewer until it has been fetched once.

    Gzipped ``content`` is decompressed first. ``ready`` is called with the viewer's URL once the
    file can be fetched. The viewer's security policy allows port 9001 only.

    Raises:
        InputError: another program uses the port.
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
    timeout = 2  # seconds to wait for bytes of a request; sending the response may take longer

    def do_GET(self) -> None:
        """Send the file, to the viewer's page only."""
        if self.path != f"/{quote(self.server.name)}":
            return self.send_error(404)
        # Pages of other origins and requests to other host names get nothing.
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
        """Answer a browser's preflight request: the viewer may read from this machine."""
        self.send_response(204)
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
