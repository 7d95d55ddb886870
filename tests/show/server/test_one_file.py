"""A trace is handed to Perfetto's viewer once, and to nobody else."""

from __future__ import annotations

import gzip
import http.client
import socket
import struct
import threading
from contextlib import closing

import pytest

from ppsim.errors import InputError
from ppsim.show.server.one_file import VIEWER, serve_once
from tests.clock import HANG_S

TRACE = b'{"traceEvents":[]}'


@pytest.fixture
def served():
    """The port of a server that hands over a gzipped trace, and its thread."""
    found, ready = list[str](), threading.Event()

    def note(address: str) -> None:
        found.append(address)
        ready.set()

    thread = threading.Thread(
        target=serve_once,
        args=(gzip.compress(TRACE), "a b.trace.json.gz"),
        kwargs={"ready": note, "port": 0},
        daemon=True,
    )
    thread.start()
    assert ready.wait(HANG_S)
    return int(found[0].rpartition(":")[2].partition("/")[0]), thread, found[0]


def ask(
    port: int, path: str, method: str = "GET", timeout: float = HANG_S, **headers: str
) -> tuple[int, bytes, str | None]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers["Access-Control-Allow-Origin"]


def test_the_viewer_gets_the_file_and_the_server_ends(served):
    port, thread, address = served
    assert address == f"{VIEWER}/#!/?url=http://127.0.0.1:{port}/a%20b.trace.json.gz"
    assert ask(port, "/a%20b.trace.json.gz", "OPTIONS")[0] == 204
    assert ask(port, "/a%20b.trace.json.gz", Origin=VIEWER) == (200, TRACE, VIEWER)
    thread.join(10)
    assert not thread.is_alive()


def test_other_pages_names_and_paths_get_nothing(served):
    port, thread, _ = served
    assert ask(port, "/a%20b.trace.json.gz", Origin="https://elsewhere.example")[0] == 403
    assert ask(port, "/a%20b.trace.json.gz", Host="elsewhere.example")[0] == 403
    assert ask(port, "/../pyproject.toml")[0] == 404
    assert thread.is_alive()
    ask(port, "/a%20b.trace.json.gz")
    thread.join(10)
    assert not thread.is_alive()


def test_who_says_nothing_or_leaves_holds_nobody_up(served, capfd):
    """Browsers open connections ahead; a reset one raises in the server."""
    port, thread, _ = served
    with (
        socket.create_connection(("127.0.0.1", port)),
        socket.create_connection(("127.0.0.1", port)) as reset,
    ):
        reset.sendall(b"GET /")
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        assert ask(port, "/a%20b.trace.json.gz")[1] == TRACE
    thread.join(10)
    assert not thread.is_alive()
    assert capfd.readouterr() == ("", "")


def test_a_port_in_use_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} is taken"):
            serve_once(TRACE, "x.trace.json", ready=print, port=port)
