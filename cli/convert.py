"""Convert between csv, json, traces, Mermaid and pictures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from ppsim.cli._build import build_costs, check_used
from ppsim.cli._given import COSTS, LAYER_TIMES, Given
from ppsim.cli._options import CostOptions, FigureOptions, cost_options, figure_options, make_command
from ppsim.cli._stated import iteration_option, read_draft
from ppsim.cli._write import command_line, find_targets, inputs_of, write_files
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.core.draft import Draft


@make_command("convert")
@click.argument("file", type=click.Path(allow_dash=True))
@figure_options
@cost_options
@iteration_option("median")
@click.option("--lossy", is_flag=True, help="Write even what a format cannot carry whole.")
@click.option("--merge-bw", is_flag=True, help="Write I and W of a microbatch, where W follows its I, as one B.")
@click.option("--split-bw", is_flag=True, help="Write every B as I and W, one after the other.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: str,
    output: FigureOptions,
    costs: CostOptions,
    iteration: str,
    lossy: bool,
    merge_bw: bool,
    split_bw: bool,
) -> None:
    """Convert a schedule: torch's CSV, JSON, traces, Mermaid text and real runs are read, all formats are written.

    A file without times is timed by the costs given. A format that cannot carry all that the file states is refused;
    so are --merge-bw and --split-bw of a file with times, which say nothing of the new ops.

    \b
      ppsim convert schedule.csv -o schedule.svg --tf 1 --tb 2
      ppsim convert run.json -o schedule.csv --lossy
      ppsim convert zb.csv -o merged.csv --merge-bw
      ppsim convert run/ -o run.html --iteration 7
    """
    from ppsim.cli._print import title_of
    from ppsim.errors import InputError
    from ppsim.files.convert import convert
    from ppsim.files.document import style_of
    from ppsim.files.read import require_sound

    written = find_targets(output)
    if not written:
        raise InputError("nothing to write", "-o FILE, with a suffix such as .csv, .json, .svg or .mmd")
    _keep_input(file, [target for target, _ in written])
    draft = require_sound(read_draft(file, iteration, chosen=Given(ctx).has("iteration")))
    if merge_bw or split_bw:
        draft = _with_other_backwards(draft, merge_bw, lossy)
    schedule = draft.schedule()
    if draft.start is not None and (given := Given(ctx).spellings((*COSTS, *LAYER_TIMES, "layout", "profile"))):
        raise InputError(f"{draft.source} holds its own times, so it takes no {', '.join(given)}", "leave it out")
    check_used([schedule], costs)
    prices = None if draft.start is not None else build_costs(schedule, costs)
    made = {"ppsim": VERSION, "command": command_line(ctx), "converted from": file}

    def write(target: str, suffix: str) -> None:
        convert(
            draft,
            target,
            suffix,
            title=title_of(schedule),
            costs=prices,
            lossy=lossy,
            inputs=inputs_of(ctx, prices) if prices else made,
            style=style_of(suffix, output.style),
            width=output.width,
            look=output.look,
        )

    write_files([(target, partial(write, target, suffix)) for target, suffix in written])


def _with_other_backwards(draft: Draft, merge: bool, lossy: bool) -> Draft:
    """Merge I and W into B, or split B; times are dropped where losses are allowed, else refused."""
    from ppsim.core.draft import Draft
    from ppsim.core.split_backward import merge_backwards, split_backwards
    from ppsim.errors import InputError

    if draft.start is not None and not lossy:
        raise InputError(
            f"{draft.source} holds times, which say nothing of the ops that --{'merge' if merge else 'split'}-bw makes",
            "--lossy leaves them out",
        )
    made = (merge_backwards if merge else split_backwards)(draft.whole_schedule())
    return replace(Draft.from_schedule(made, draft.source), name=draft.name, idle=draft.idle)


def _keep_input(file: str, targets: list[str]) -> None:
    """Refuse to write over the file that is read, by whatever name."""
    from os.path import realpath

    from ppsim.errors import InputError

    for target in targets:
        if "-" not in (file, target) and realpath(target) == realpath(file):
            raise InputError(f"'{target}' is the file that is read", "write to another file")
