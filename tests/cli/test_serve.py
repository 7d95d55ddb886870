"""``ppsim serve`` says why it cannot serve, and lets no other machine in unless asked to."""

import errno
import logging
import os
import socket
import time
from threading import Event

import pytest

from ppsim.base import interruptible, notes
from ppsim.errors import InputError
from ppsim.questions.across import view
from tests.clock import HANG_S
from tests.commands import invoke


def refusal(*words):
    found = invoke("serve", "--no-open", *words).exception
    assert isinstance(found, InputError)
    return str(found), found.hint


def test_a_port_in_use_is_told_once_with_a_way_out():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = refusal("--port", str(port))
    assert found == (
        f"cannot serve on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}",
        "--port 0 for any free one",
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.com"])
def test_another_address_needs_public(host):
    assert "--public" in refusal("--host", host, "--port", "0")[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "::1", "[::1]"])
def test_an_address_of_this_machine_alone_needs_none(monkeypatch, host):
    def refuse(*args, **kwargs):
        raise OSError(errno.EADDRNOTAVAIL, "none here")

    monkeypatch.setattr(socket, "create_server", refuse)
    assert refusal("--host", host) == (
        f"cannot serve on {host.strip('[]')}:8765: none here",
        "--host 127.0.0.1",
    )


def test_the_end_waits_for_the_kernels_that_are_compiled(monkeypatch):
    """A process that ends while they are is aborted by the compiler."""
    begun, ended, loaded = Event(), Event(), []

    def load() -> None:
        begun.set()
        ended.wait(HANG_S)
        time.sleep(0.5)
        loaded.append(True)

    def serve(work, stop) -> None:
        begun.wait(HANG_S)
        ended.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(notes.shown, "note", None, raising=False)
    monkeypatch.setattr(view, "load_kernels", load)
    monkeypatch.setattr(interruptible, "run_interruptibly", serve)
    disabled = logging.root.manager.disable
    invoke("serve", "--no-open", "--port", "0")
    logging.disable(disabled)
    assert loaded == [True]


def test_a_host_that_is_none_is_told(monkeypatch):
    def refuse(*args, **kwargs):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_server", refuse)
    found = refusal("--host", "nowhere.invalid", "--public", "--port", "0")
    assert found == (
        "cannot serve on nowhere.invalid:0: Name or service not known",
        "--host 127.0.0.1",
    )


def test_an_answer_in_two_pieces_waits_for_no_receipt():
    """Its head and its body are two packets; the second one would wait until the browser has said
    that it has one.
    """
    from ppsim.cli.serve import _listen

    listening, _, _ = _listen("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()):
        taken, _ = listening.accept()
        with taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
