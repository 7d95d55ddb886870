"""Clients that are slow, silent or gone cost nobody else an answer, and never keep the server from its end."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from ppsim.show.server import connections
from tests.clock import HANG_S
from tests.commands import SOURCE

ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POSTED = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"
HALF = (b"", ASKED[:9], POSTED)
LARGE = 1 << 23  # bytes, more than the system holds of an answer that is not read


async def settle() -> None:
    """Let the loop do what is under way, in turns and not in time."""
    for _ in range(100):
        await asyncio.sleep(0)


async def serve_and_ask(*before: bytes, body: bytes = b"ok") -> tuple[bytes, list[bool]]:
    """Ask after others that sent ``before``, in this order: the answer, and which of the others are still open."""
    import uvicorn
    from uvicorn.server import ServerState

    let_go, state = asyncio.Event(), ServerState()

    async def app(scope, receive, send):
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        if scope["path"] == "/slow":
            await let_go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, log_level="critical", lifespan="off")
    config.load()
    loop = asyncio.get_running_loop()
    protocol: Any = connections.make_protocol()
    received: list[bytes] = []

    class Noting(protocol):  # type: ignore[misc]
        def data_received(self, data: bytes) -> None:
            received.append(data)
            super().data_received(data)

    made = {"config": config, "server_state": state, "app_state": {}}
    server = await loop.create_server(lambda: Noting(**made), "127.0.0.1", 0)
    others = []
    for sent in (*before, ASKED):
        others.append(await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1 << 10))
        others[-1][1].write(sent)
        while len(b"".join(received)) < sum(map(len, (*before, ASKED)[: len(others)])):
            await asyncio.sleep(0)
        await settle()
    answer = await asyncio.wait_for(others[-1][0].read(15), 20)
    let_go.set()
    await settle()
    peers = {each.transport.get_extra_info("peername") for each in state.connections}
    still_open = [writer.get_extra_info("sockname") in peers for _, writer in others[:-1]]
    server.close()
    for each in list(state.connections):
        each.transport.abort()
    for _, writer in others:
        writer.transport.abort()
    await settle()
    return answer, still_open


def test_the_oldest_connections_give_way_and_newcomers_are_answered(monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    answer, still_open = asyncio.run(serve_and_ask(*HALF * 3))
    assert answer == b"HTTP/1.1 200 OK"
    assert still_open == [False] * 6 + [True] * 3


def test_a_connection_whose_answer_is_being_made_stays(monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    slow = ASKED.replace(b"/ ", b"/slow ", 1)
    answer, still_open = asyncio.run(serve_and_ask(slow, *HALF))
    assert answer == b"HTTP/1.1 200 OK"
    assert still_open == [True, False, False, True]


def test_answers_that_nobody_takes_are_dropped_beyond_a_few(monkeypatch):
    monkeypatch.setattr(connections, "MOST_UNREAD", 2)
    answer, still_open = asyncio.run(serve_and_ask(*[ASKED] * 5, body=bytes(LARGE)))
    assert answer == b"HTTP/1.1 200 OK"
    assert still_open == [False] * 3 + [True] * 2


class Served:
    """``ppsim serve`` in a process of its own, and what connections to it are open."""

    def __init__(self, held: ExitStack) -> None:
        words = [sys.executable, "-m", "ppsim", "serve", "--port", "0", "--no-open"]
        pipe = subprocess.PIPE
        self.process = held.enter_context(subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=SOURCE))
        held.callback(self.process.kill)
        assert self.process.stdout
        self.host = self.process.stdout.readline().strip().removeprefix("http://").rstrip("/")
        self.held = held

    def send(self, head: str, body: str = "") -> socket.socket:
        """Open a connection that stays, and send the begin of a request."""
        name, _, port = self.host.partition(":")
        opened = self.held.enter_context(socket.create_connection((name, int(port)), timeout=HANG_S))
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.sendall(f"{head} HTTP/1.1\r\nHost: {self.host}\r\n{body}".encode())
        return opened

    def view(self, **fields: object) -> int:
        """Ask for fields as the page does: the status."""
        asked = http.client.HTTPConnection(self.host, timeout=HANG_S)
        asked.request("POST", "/view", json.dumps(fields))
        status = asked.getresponse().status
        asked.close()
        return status


SMALL = {"names": ["1f1b"], "devices": 2, "mb": 2}
LARGE_FIELDS = json.dumps({"names": ["1f1b", "gpipe"], "devices": 64, "mb": 400})
LARGE_ASKED = ("POST /view", f"Content-Length: {len(LARGE_FIELDS)}\r\n\r\n{LARGE_FIELDS}")
DROPPED = "Content-Length: 100\r\n\r\nabc"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)])
def test_one_signal_ends_the_server_whatever_its_clients_do(number):
    """An answer that is not read, requests half sent, and simulations under way."""
    with ExitStack() as held:
        served = Served(held)
        assert served.view(**SMALL) == 200
        assert served.send(*LARGE_ASKED).recv(10)
        served.send("POST /drop?name=a.csv", DROPPED)
        served.send("GET /")
        for _ in range(5):
            served.send(*LARGE_ASKED)
        served.process.send_signal(number)
        _, errors = served.process.communicate(timeout=HANG_S)
    said = "Interrupted." if number == signal.SIGINT else f"Ended by {signal.Signals(number).name}."
    assert (served.process.returncode, errors.split("\n")) == (128 + number, ["Ctrl-C ends it", "", said, ""])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_half_open_connections_and_rubbish_keep_nobody_out_and_print_nothing():
    with ExitStack() as held:
        served = Served(held)
        for number in range(200):
            served.send(*[("GET /",), ("POST /drop?name=a.csv", DROPPED), ("\x1b[31m\x00",)][number % 3])
        assert served.view(**SMALL) == 200
        assert served.view(**SMALL, help=True) == 422
        assert served.view(**SMALL, title="\x1b[31m") == 422
        served.process.send_signal(signal.SIGINT)
        out, errors = served.process.communicate(timeout=HANG_S)
    assert (out, errors.split("\n")) == ("", ["Ctrl-C ends it", "", "Interrupted.", ""])
