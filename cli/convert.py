"""Convert between csv, json, traces, Mermaid and pictures."""

from __future__ import annotations

from functools import partial

import click

from ppsim.cli._build import build_costs, check_used
from ppsim.cli._options import CostOptions, OutputOptions, cost_options, make_command, output_options
from ppsim.cli._rules import COSTS, Given
from ppsim.cli._write import find_targets, inputs_of, write_files


@make_command("convert")
@click.argument("file", type=click.Path(allow_dash=True))
@output_options
@cost_options
@click.option("--lossy", is_flag=True, help="Write even what a format cannot carry whole.")
@click.pass_context
def command(ctx: click.Context, /, file: str, output: OutputOptions, costs: CostOptions, lossy: bool) -> None:
    """Convert a schedule: torch's CSV, JSON, traces and Mermaid text are read, all formats are written.

    A file without times is timed by the costs given. A format that cannot carry all that the file states is refused.

    \b
      ppsim convert schedule.csv -o schedule.svg --tf 1 --tb 2
      ppsim convert run.json -o schedule.csv --lossy
    """
    from ppsim.cli._print import title_of
    from ppsim.errors import InputError
    from ppsim.files.convert import convert
    from ppsim.files.document import style_of
    from ppsim.files.read import read, require_sound

    written = find_targets(output)
    if not written:
        raise InputError("nothing to write", "-o FILE, with a suffix such as .csv, .json, .svg or .mmd")
    _keep_input(file, [target for target, _ in written])
    draft = require_sound(read(file))
    schedule = draft.schedule()
    if draft.start is not None and (given := Given(ctx).spellings((*COSTS, "profile"))):
        raise InputError(f"{draft.source} holds its own times, so it takes no {', '.join(given)}", "leave it out")
    check_used([schedule], costs)
    prices = None if draft.start is not None else build_costs(schedule, costs)

    def write(target: str, suffix: str) -> None:
        convert(
            draft,
            target,
            suffix,
            title=title_of(schedule),
            costs=prices,
            lossy=lossy,
            inputs=inputs_of(ctx, prices) if prices else {"converted from": file},
            style=style_of(suffix, output.style),
            width=output.width,
        )

    write_files([(target, partial(write, target, suffix)) for target, suffix in written])


def _keep_input(file: str, targets: list[str]) -> None:
    """Refuse to write over the file that is read, by whatever name."""
    from os.path import realpath

    from ppsim.errors import InputError

    for target in targets:
        if "-" not in (file, target) and realpath(target) == realpath(file):
            raise InputError(f"'{target}' is the file that is read", "write to another file")
