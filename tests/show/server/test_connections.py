"""Clients that are slow, silent or gone cost nobody else an answer, and never keep the server from
its end.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.clock import HANG_S
from tests.commands import SOURCE


class Served:
    """``ppsim serve`` in a process of its own, and what connections to it are open."""

    def __init__(self, held: ExitStack) -> None:
        words = [sys.executable, "-m", "ppsim", "serve", "--port", "0", "--no-open"]
        pipe = subprocess.PIPE
        self.process = held.enter_context(
            subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=SOURCE)
        )
        held.callback(self.process.kill)
        assert self.process.stdout
        self.host = self.process.stdout.readline().strip().removeprefix("http://").rstrip("/")
        self.held = held

    def send(self, head: str, body: str = "") -> socket.socket:
        """Open a connection that stays, and send the begin of a request."""
        name, _, port = self.host.partition(":")
        opened = self.held.enter_context(
            socket.create_connection((name, int(port)), timeout=HANG_S)
        )
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
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]
)
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
    assert (served.process.returncode, errors.split("\n")) == (
        128 + number,
        ["Ctrl-C ends it", "", said, ""],
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
def test_half_open_connections_and_rubbish_keep_nobody_out_and_print_nothing():
    with ExitStack() as held:
        served = Served(held)
        for number in range(200):
            served.send(
                *[("GET /",), ("POST /drop?name=a.csv", DROPPED), ("\x1b[31m\x00",)][number % 3]
            )
        assert served.view(**SMALL) == 200
        assert served.view(**SMALL, help=True) == 422
        assert served.view(**SMALL, title="\x1b[31m") == 422
        served.process.send_signal(signal.SIGINT)
        out, errors = served.process.communicate(timeout=HANG_S)
    assert (out, errors.split("\n")) == ("", ["Ctrl-C ends it", "", "Interrupted.", ""])
