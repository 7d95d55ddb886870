"""Serve a live page on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.options import Request, common, flag
from ppsim.ask.types import WholeRange
from ppsim.cli._command import Question
from ppsim.errors import InputError, MissingDependency

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from ppsim.questions.across.view_model import Planner

LOCAL = "127.0.0.1"
NAMES = (LOCAL, "localhost", "[::1]")  # names of this machine in addresses of the page
MOST_CONNECTIONS = 512  # connections at a time; further ones get the answer "busy"
FIRST: dict[str, Any] = {"names": ["1f1b", "zb-1p"], "devices": 4, "mb": 8}


@dataclass(frozen=True, kw_only=True)
class ServeRequest(Request):
    """Serve a live page on this machine.

    Controls set schedules, shape, a model on a cluster or costs, and messages. The chart, the
    numbers, the causes of idle time and the advice follow every change.

    The page reads only files that are dropped on it and the file of --watch, and runs no code of
    yours. Ctrl-C ends it.

    \b
      ppsim serve
      ppsim serve --port 9000 --no-open
      ppsim serve --watch mine.csv
    """

    question: ClassVar[str] = "serve"
    place: ClassVar[tuple[str, int]] = ("Schedules, and a live page", 2)
    port: int = common(
        "--port",
        type=WholeRange(0, 65535),
        default=8765,
        help="Port of the page; 0 chooses a free one.",
    )
    host: str = common(
        "--host",
        default=LOCAL,
        help="Address of the page; one that other machines can reach needs --public.",
    )
    public: bool = flag(
        "--public",
        help="Allow other machines: everyone who can reach the port can use the page.",
        common=True,
    )
    no_open: bool = flag("--no-open", help="Open no browser.", common=True)
    watched: str | None = common(
        "--watch",
        type=click.Path(),
        metavar="FILE",
        help="Show this file of ops, and show it again whenever it changes.",
    )


def _serve(ctx: click.Context, asked: ServeRequest) -> None:
    """Serve the live page until Ctrl-C."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from ppsim.questions.across.view import explain_first, plan_request, view
    from ppsim.questions.across.view_model import Planner
    from ppsim.show.server.app import make_app
    from ppsim.show.server.page import watch

    _require_server()
    host, watched = asked.host.strip("[]"), asked.watched
    if not (_is_local(host) or asked.public):
        raise InputError(
            f"--host {host} would let other machines in",
            "add --public if that is meant, or leave it out",
        )
    with TemporaryDirectory(prefix="ppsim-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        changes = watch(Path(watched), folder) if watched else None
        page = _first_page(watched, folder)
        listening, shown_host, is_everywhere = _listen(host, asked.port)
        port = listening.getsockname()[1]
        planner = Planner()
        app = make_app(
            page,
            view,
            folder,
            _host_headers(shown_host, port),
            explain=explain_first,
            plan=lambda fields: planner.page(plan_request(fields)),
            any_address=is_everywhere,
            changes=changes,
        )
        _announce(f"http://{shown_host}:{port}/", opens=not asked.no_open)
        _run_server(app, listening, planner)


def _require_server() -> None:
    """Raise MissingDependency if the packages of the live page are not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            f"the live page needs {error.name}", "pip install 'ppsim-pipeline[serve]'"
        ) from error


def _first_page(watched: str | None, folder: Path) -> bytes:
    """Return the live page as it opens: with the watched file, or with two schedules."""
    from pathlib import Path

    from ppsim.questions.across.view import view
    from ppsim.questions.across.view_model import library_names
    from ppsim.schedules import families, takes_chunks
    from ppsim.show.server.app import DROPPED
    from ppsim.show.server.page import live_page

    fields: dict[str, Any] = {"names": [f"{DROPPED}{Path(watched).name}"]} if watched else FIRST
    document = view(fields, folder)
    schedule = document.timelines[0].schedule
    fields = {**fields, "devices": schedule.n_devices, "mb": schedule.n_microbatches}
    names = [family.name for family in families()]
    searched = [
        name
        for family in families()
        if family.uses_costs
        for name in (family.name, *family.aliases)
    ]
    chunked = [family.name for family in families() if takes_chunks(family)]
    models, clusters = library_names()
    return live_page(
        document, fields, names, searched, models, clusters, chunked, watches=bool(watched)
    )


def _host_headers(shown_host: str, port: int) -> frozenset[str]:
    """Return the Host headers of requests for the page; browsers leave out port 80."""
    ports = (f":{port}", "") if port == 80 else (f":{port}",)
    return frozenset(f"{name}{suffix}" for name in (*NAMES, shown_host) for suffix in ports)


def _announce(address: str, *, opens: bool) -> None:
    """Print the address of the page, and open it in the browser if ``opens``."""
    import webbrowser

    click.echo(address)
    click.echo("Ctrl-C ends it", err=True)
    if opens:
        webbrowser.open(address)


def _run_server(app: Any, listening: socket.socket, planner: Planner) -> None:
    """Answer requests until Ctrl-C; machine code is loaded at the same time."""
    import logging
    from functools import partial
    from threading import Thread

    import uvicorn

    from ppsim.base import notes
    from ppsim.base.interruptible import run_interruptibly
    from ppsim.questions.across.view import load_kernels

    logging.disable()  # requests of clients are not news
    notes.shown.note = lambda text: None
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=0,
        proxy_headers=False,
        access_log=False,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    loading = Thread(target=load_kernels, daemon=True)
    loading.start()
    try:
        run_interruptibly(
            partial(server.run, [listening]), partial(setattr, server, "should_exit", True)
        )
    finally:
        planner.close()
        loading.join()  # a process that ends while it compiles would be aborted


def _listen(host: str, port: int) -> tuple[socket.socket, str, bool]:
    """Return a socket on the port, the host name for its address, and True if it listens on all
    addresses of this machine.
    """
    import errno
    import socket
    from ipaddress import ip_address

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, reuse_port=False)
        # else the end of an answer waits 40 ms for an acknowledgement
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]  # the address is already there
        is_taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        hint = "--port 0 for any free one" if is_taken else f"--host {LOCAL}"
        raise InputError(f"cannot serve on {host}:{port}: {reason}", hint) from error
    if ip_address(listening.getsockname()[0]).is_unspecified:
        return listening, socket.gethostname(), True
    return listening, f"[{host}]" if ":" in host else host, False


def _is_local(host: str) -> bool:
    """Return True if an address can only be reached from this machine."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


command = Question(ServeRequest, _serve)
