"""Convert between csv, json, traces, Mermaid and pictures."""

from __future__ import annotations

from typing import Any

import click

from ppsim.cli._options import COSTS, cost_options, costs_of, inputs_of, output_options, targets


@click.command("convert")
@click.argument("file", type=click.Path(allow_dash=True))
@output_options
@cost_options
@click.option("--lossy", is_flag=True, help="Write even what a format cannot carry whole.")
@click.pass_context
def command(ctx: click.Context, /, file: str, lossy: bool, **options: Any) -> None:
    """Convert a schedule: torch's CSV, JSON, traces and Mermaid text are read, all formats are written.

    A file without times is timed by the costs given. A format that cannot carry all that the file states is refused.

    \b
      ppsim convert schedule.csv -o schedule.svg --tf 1 --tb 2
      ppsim convert run.json -o schedule.csv --lossy
    """
    from ppsim.cli._print import title_of
    from ppsim.errors import InputError
    from ppsim.files.convert import convert
    from ppsim.files.read import read, sound

    written = targets({**options, "as_json": False})
    if not written:
        raise InputError("nothing to write", "-o FILE, with a suffix such as .csv, .json, .svg or .mmd")
    _keep_input(file, [target for target, _ in written])
    draft = sound(read(file))
    schedule = draft.schedule()
    given = ["--cost-per" if key == "per" else f"--{key}" for key in COSTS if options[key] is not None]
    if draft.start is not None and given:
        raise InputError(f"{draft.source} holds its own times, so it takes no {', '.join(given)}", "leave it out")
    costs = None if draft.start is not None else costs_of(schedule, options)
    for target, suffix in written:
        convert(
            draft,
            target,
            suffix,
            title=title_of(schedule),
            costs=costs,
            lossy=lossy,
            inputs=inputs_of(ctx, costs) if costs else {"converted from": file},
            style=options["style"] or ("paper" if suffix == ".pdf" else "screen"),
            width=options["width"],
        )
        if target != "-":
            click.echo(f"wrote {target}", err=True)


def _keep_input(file: str, targets: list[str]) -> None:
    """Refuse to write over the file that is read, by whatever name."""
    from pathlib import Path

    from ppsim.errors import InputError

    for target in targets:
        if "-" not in (file, target) and Path(target).resolve() == Path(file).resolve():
            raise InputError(f"'{target}' is the file that is read", "write to another file")
