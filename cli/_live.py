"""What the live page asks for: a command line into a document, within limits and without files of this machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ppsim.cli._build import add_memory, build, measure_with_bound
from ppsim.cli._network import execute_messages
from ppsim.cli._options import (
    CostOptions,
    NetworkOptions,
    ShapeOptions,
    cost_options,
    make_command,
    network_options,
    several_schedules,
    shape_options,
)
from ppsim.cli._print import title_of
from ppsim.errors import InputError
from ppsim.server.app import DROPPED
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.timeline import Timeline
    from ppsim.files.document import Document

MOST_WORDS, MOST_LETTERS = 80, 4_000
MOST_SCHEDULES = 8
MOST_CELLS = 65_536  # stages x microbatches of all schedules together: about 200,000 ops
MOST_SEARCHED = 4_096  # of one schedule whose order is searched anew for every cost
FROM_FILES = ("profile", "cluster")


def show_line(line: str, folder: Path) -> Document:
    """Simulate what a line such as ``1f1b zb-1p --devices 4 --mb 8`` asks for, as one document.

    Args:
        line: schedules and options as ``ppsim compare`` takes them; ``dropped:NAME`` is a file that was dropped.
        folder: where dropped files are.

    Raises:
        InputError: an option or a shape that is refused, too much work for a live page, or a file of this machine.
    """
    if len(line) > MOST_LETTERS:
        raise InputError(f"the line has {len(line):,} letters", f"{MOST_LETTERS:,} at most")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"the line cannot be read: {error}", "close its quotes") from None
    if len(words) > MOST_WORDS:
        raise InputError(f"the line has {len(words)} words", f"{MOST_WORDS} at most")
    try:
        with _view.make_context("view", words, obj=folder) as ctx:
            return cast("Document", _view.invoke(ctx))
    except click.ClickException as error:
        raise InputError(error.format_message()) from None
    except click.exceptions.Exit:
        raise InputError("--help is not part of a line", "ppsim compare --help") from None


@make_command("view")
@several_schedules()
@shape_options
@cost_options
@network_options
@click.pass_context
def _view(
    ctx: click.Context,
    /,
    specs: tuple[str, ...],
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
) -> Document:
    """Simulate the schedules on the same devices, with what the devices hold and why they are idle."""
    from ppsim.analysis.idle import explain_run
    from ppsim.cli._several import options_taken
    from ppsim.files.document import Document
    from ppsim.simulation.longest_path import simulate

    _refuse_files(costs, network)
    sources = [_found(spec, ctx.obj) for spec in specs]
    _refuse_work(sources, shape)
    timelines, prices, executions, idles, titles, bounds, cells = [], [], [], [], [], [], 0
    for source in sources:
        schedule, price = build(source, options_taken(source, shape), costs, network)
        cells += schedule.n_stages * schedule.n_microbatches
        _refuse_cells(cells, MOST_CELLS)
        execution = execute_messages(schedule, price, network, costs.links)
        timeline: Timeline = execution.compute if execution else simulate(schedule, price)
        timelines.append(timeline)
        prices.append(price)
        idles.append(explain_run(timeline, price.latencies(schedule), execution))
        bounds.append(measure_with_bound(timeline, price).bound)
        titles.append(title_of(schedule))
        if execution:
            executions.append(execution)
    document = Document(
        tuple(timelines),
        tuple(titles),
        _inputs(ctx, prices[0]),
        idles=tuple(idles),
        executions=tuple(executions),
        bounds=tuple(bounds),
    )
    return add_memory(document, prices, costs, asked=False)


def _inputs(ctx: click.Context, prices: Costs) -> dict[str, Any]:
    from ppsim.cli._write import command_line, inputs_of

    words = command_line(ctx).split(" ")
    words[1] = "run" if len(ctx.params["names"]) + len(ctx.params["schedule"]) == 1 else "compare"
    return {**inputs_of(ctx, prices), "ppsim": VERSION, "command": " ".join(words).replace(DROPPED, "")}


def _refuse_files(costs: CostOptions, network: NetworkOptions) -> None:
    """Refuse options that name a file: a page must not read this machine's."""
    for name in FROM_FILES:
        if getattr(costs, name, None) or getattr(network, name, None):
            raise InputError(f"the live page reads no files: --{name}", "ppsim run in a terminal takes it")


def _found(spec: str, folder: Path) -> str:
    """The schedule a word names: one of the list, or the path of a dropped file."""
    from ppsim.files.read import readable
    from ppsim.schedules import find, split_chunks

    if not spec.startswith(DROPPED):
        find(split_chunks(spec)[0])
        return spec
    name = spec.removeprefix(DROPPED)
    path = folder / name
    if Path(name).name != name or not path.is_file():
        raise InputError(f"no file '{name}' was dropped here", "drop it on the page again")
    if path.suffix == ".py":
        raise InputError(f"'{name}' is code, which a page does not run", "ppsim run in a terminal takes it")
    if not path.suffix:
        raise InputError(f"'{name}' has no ending to tell what it is", "one of .toml " + " ".join(readable()))
    return str(path)


def _refuse_work(specs: Sequence[str], shape: ShapeOptions) -> None:
    """Refuse more than a page can show while somebody drags a control."""
    from ppsim.schedules import family_of, split_chunks

    if len(specs) > MOST_SCHEDULES:
        raise InputError(f"{len(specs)} schedules are too many for one page", f"{MOST_SCHEDULES} at most")
    cells = 0
    for spec in specs:
        family = family_of(spec)
        if family is None:  # a file of ops, whose size is known once it is read
            continue
        chunks = split_chunks(spec)[1] or shape.chunks or family.chunks
        own = (shape.stages or (shape.devices or 1) * chunks) * (shape.microbatches or 1) * (shape.slices or 1)
        _refuse_cells(own, MOST_SEARCHED if family.uses_costs else MOST_CELLS, family.name)
        cells += own
    _refuse_cells(cells, MOST_CELLS)


def _refuse_cells(cells: int, most: int, name: str = "") -> None:
    if cells > most:
        raise InputError(
            f"{name + ': ' if name else ''}{cells:,} stages x microbatches are too much work for a live page"
            f" ({most:,} at most)",
            "fewer schedules, devices or microbatches, or ppsim run in a terminal",
        )
