"""Serve a live page on this machine."""

from __future__ import annotations

import click

from ppsim.cli._options import make_command

LOCAL = "127.0.0.1"
HOSTS = (LOCAL, "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::")  # every address of this machine
FIRST = "1f1b zb-1p --devices 4 --mb 8"


@make_command("serve")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Port of the page; 0 takes any free one.",
)
@click.option(
    "--host",
    default=LOCAL,
    show_default=True,
    help="Address of the page; one that other machines reach needs --public.",
)
@click.option("--public", is_flag=True, help="Let other machines in: whoever reaches the port can use the page.")
@click.option("--no-open", is_flag=True, help="Open no browser.")
def command(port: int, host: str, public: bool, no_open: bool) -> None:
    """Serve a live page on this machine.

    Controls set schedules, shape, costs and messages; chart and numbers follow.

    The page reads no files but those dropped on it, and runs no code of yours. Ctrl-C ends it.

    \b
      ppsim serve
      ppsim serve --port 9000 --no-open
    """
    import socket
    import webbrowser
    from pathlib import Path
    from tempfile import TemporaryDirectory
    from threading import Thread

    from ppsim.cli._live import show_line
    from ppsim.errors import InputError, MissingDependency
    from ppsim.schedules import families
    from ppsim.server.app import make_app
    from ppsim.server.page import live_page
    from ppsim.server.patience import MOST_CONNECTIONS, make_protocol

    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise MissingDependency(f"the live page needs {error.name}", "pip install 'ppsim-pipeline[serve]'") from error
    if host not in HOSTS and not public:
        raise InputError(f"--host {host} would let other machines in", "add --public if that is meant, or leave it out")
    with TemporaryDirectory(prefix="ppsim-") as folder:
        page = live_page(show_line(FIRST, Path(folder)), FIRST, [family.name for family in families()])
        try:
            listening = socket.create_server((host.strip("[]"), port), family=_family(host), reuse_port=False)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (")[0]  # without the address once more
            hint = f"--host {LOCAL}" if isinstance(error, socket.gaierror) else "--port 0 for any free one"
            raise InputError(f"cannot serve on {host}:{port}: {reason}", hint) from error
        port = listening.getsockname()[1]
        everywhere = host.strip("[]") in EVERYWHERE
        shown = (
            socket.gethostname() if everywhere else f"[{host}]" if ":" in host.strip("[]") and host[0] != "[" else host
        )
        hosts = frozenset(f"{name}:{port}" for name in (*HOSTS, shown))
        app = make_app(page, show_line, Path(folder), hosts, any_address=everywhere)
        address = f"http://{shown}:{port}/"
        click.echo(address)
        click.echo("Ctrl-C ends it", err=True)
        if not no_open:
            webbrowser.open(address)
        Thread(target=_prepare, daemon=True).start()
        config = uvicorn.Config(
            app,
            http=make_protocol(),
            limit_concurrency=MOST_CONNECTIONS,
            log_level="error",
            access_log=False,
            lifespan="off",
        )
        uvicorn.Server(config).run(sockets=[listening])


def _prepare() -> None:
    """Load the compiled simulation beside the server, which somebody's hundredth change would wait for otherwise."""
    from ppsim.core.costs import costs_for
    from ppsim.schedules import generate
    from ppsim.simulation.longest_path import compile_now

    schedule = generate("1f1b", devices=2, microbatches=2)
    compile_now(schedule, costs_for(schedule))


def _family(host: str) -> int:
    import socket

    return socket.AF_INET6 if ":" in host else socket.AF_INET
