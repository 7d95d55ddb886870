"""Open a file in the browser; a trace in Perfetto's viewer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import click

from ppsim.ask.options import Request, flag, option
from ppsim.base.source import read_bytes
from ppsim.cli._command import Question
from ppsim.errors import InputError

PAGES = (".html", ".svg", ".png", ".pdf")
TRACES = (
    ".trace.json",
    ".trace.json.gz",
    ".pt.trace.json",
    ".pt.trace.json.gz",
    ".perfetto-trace",
    ".pftrace",
)


@dataclass(frozen=True, kw_only=True)
class OpenRequest(Request):
    """Open a page or a figure in the browser, and a trace in Perfetto's viewer.

    A trace is served to the viewer once, from port 9001 of this machine, and sent nowhere else.

    \b
      ppsim run -s zb-1p --stages 4 --mb 8 -o zb.trace.json && ppsim open zb.trace.json
      ppsim open report.html
    """

    question: ClassVar[str] = "open"
    file: str = option(metavar="FILE", type=click.Path(), required=True)
    print_url: bool = flag(
        "--print-url", help="Print the address instead of opening a browser.", common=True
    )


def _open(ctx: click.Context, asked: OpenRequest) -> None:
    """Open a page or a figure in the browser, or serve a trace to Perfetto's viewer once."""
    import webbrowser

    def show(address: str) -> None:
        click.echo(address)
        if not asked.print_url and not webbrowser.open(address):
            click.echo("no browser was found; open the address by hand", err=True)

    file, path = asked.file, Path(asked.file)
    content = read_bytes(file)
    if path.name.lower().endswith(PAGES):
        return show(path.resolve().as_uri())
    if not path.name.lower().endswith(TRACES):
        raise InputError(
            f"not a page, a figure or a trace: '{file}'",
            f"one of {' '.join((*PAGES, *TRACES))}",
        )
    from ppsim.show.server.one_file import serve_once

    def ready(address: str) -> None:
        show(address)
        click.echo("waiting for the viewer to load the file (Ctrl-C ends it)", err=True)

    return serve_once(content, path.name, ready=ready)


command = Question(OpenRequest, _open)
