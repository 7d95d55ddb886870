"""Serve a live page on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.options import Request, common, flag
from ppsim.cli._command import Question
from ppsim.errors import InputError, MissingDependency

if TYPE_CHECKING:
    import socket

LOCAL = "127.0.0.1"
NAMES = (LOCAL, "localhost", "[::1]")  # of this machine, in every address of its page
MOST_CONNECTIONS = 512  # at a time; more are answered that the server is busy
FIRST: dict[str, Any] = {"names": ["1f1b", "zb-1p"], "devices": 4, "mb": 8}


@dataclass(frozen=True, kw_only=True)
class ServeRequest(Request):
    """Serve a live page on this machine.

    Controls set schedules, shape, a model on a cluster or costs, and messages; chart, numbers,
    reasons and what to try next follow.

    The page reads no files but those dropped on it and that of --watch, and runs no code of yours.
    Ctrl-C ends it.

    \b
      ppsim serve
      ppsim serve --port 9000 --no-open
      ppsim serve --watch mine.csv
    """

    question: ClassVar[str] = "serve"
    place: ClassVar[tuple[str, int]] = ("What schedules there are", 2)
    port: int = common(
        "--port",
        type=click.IntRange(0, 65535),
        default=8765,
        help="Port of the page; 0 takes any free one.",
    )
    host: str = common(
        "--host", default=LOCAL, help="Address of the page; one that others reach needs --public."
    )
    public: bool = flag(
        "--public",
        help="Let other machines in: whoever reaches the port can use the page.",
        common=True,
    )
    no_open: bool = flag("--no-open", help="Open no browser.", common=True)
    watched: str | None = common(
        "--watch",
        type=click.Path(),
        metavar="FILE",
        help="Show this file of ops, again whenever it changes.",
    )


def _serve(ctx: click.Context, asked: ServeRequest) -> None:
    import logging
    import webbrowser
    from functools import partial
    from pathlib import Path
    from tempfile import TemporaryDirectory
    from threading import Thread

    from ppsim.base import notes
    from ppsim.base.interruptible import run_interruptibly
    from ppsim.questions.across.view import explain_first, load_kernels, plan_request, view
    from ppsim.questions.across.view_model import Planner, library_names
    from ppsim.schedules import families, takes_chunks
    from ppsim.show.server.app import DROPPED, make_app
    from ppsim.show.server.page import live_page, watch

    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingDependency(
            f"the live page needs {error.name}", "pip install 'ppsim-pipeline[serve]'"
        ) from error
    host, port, watched = asked.host.strip("[]"), asked.port, asked.watched
    if not (_is_local(host) or asked.public):
        raise InputError(
            f"--host {host} would let other machines in",
            "add --public if that is meant, or leave it out",
        )
    with TemporaryDirectory(prefix="ppsim-", ignore_cleanup_errors=True) as folder:
        changes = watch(Path(watched), Path(folder)) if watched else None
        first: dict[str, Any] = {"names": [f"{DROPPED}{Path(watched).name}"]} if watched else FIRST
        shown_first = view(first, Path(folder))
        own = shown_first.timelines[0].schedule
        first = {**first, "devices": own.n_devices, "mb": own.n_microbatches}
        names = [family.name for family in families()]
        searched = [
            name for each in families() if each.uses_costs for name in (each.name, *each.aliases)
        ]
        chunked = [family.name for family in families() if takes_chunks(family)]
        models, clusters = library_names()
        page = live_page(
            shown_first, first, names, searched, models, clusters, chunked, watches=bool(watched)
        )
        listening, shown, everywhere = _listen(host, port)
        port = listening.getsockname()[1]
        ports = (f":{port}", "")[: 1 + (port == 80)]  # which browsers leave out
        hosts = frozenset(f"{name}{port}" for name in (*NAMES, shown) for port in ports)
        planner = Planner()
        app = make_app(
            page,
            view,
            Path(folder),
            hosts,
            explain=explain_first,
            plan=lambda fields: planner.page(plan_request(fields)),
            any_address=everywhere,
            changes=changes,
        )
        address = f"http://{shown}:{port}/"
        click.echo(address)
        click.echo("Ctrl-C ends it", err=True)
        if not asked.no_open:
            webbrowser.open(address)
        loading = Thread(target=load_kernels, daemon=True)
        logging.disable()  # what is noted of a client's doings is not a news
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
        loading.start()
        try:
            run_interruptibly(
                partial(server.run, [listening]), partial(setattr, server, "should_exit", True)
            )
        finally:
            planner.close()
            loading.join()  # a process that ends while its kernels are compiled is aborted


def _listen(host: str, port: int) -> tuple[socket.socket, str, bool]:
    """Open the port: its socket, the name to ask for it by, and whether it is that of every address
    here.
    """
    import errno
    import socket
    from ipaddress import ip_address

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, reuse_port=False)
        # or an answer's end waits 40 ms for a receipt
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0]  # without the address once more
        hint = (
            "--port 0 for any free one"
            if error.errno in (errno.EADDRINUSE, errno.EACCES)
            else f"--host {LOCAL}"
        )
        raise InputError(f"cannot serve on {host}:{port}: {reason}", hint) from error
    everywhere = ip_address(listening.getsockname()[0]).is_unspecified
    return (
        listening,
        socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host,
        everywhere,
    )


def _is_local(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


command = Question(ServeRequest, _serve)
