"""What the live page asks for: a command line into a document, within limits and without files of this machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ppsim.cli._build import add_memory, build, measure_with_bound
from ppsim.cli._given import COSTS, DETAILED, LAYER_TIMES, UNEVEN, Given
from ppsim.cli._network import time_ops
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
from ppsim.cli._several import options_taken
from ppsim.errors import InputError
from ppsim.server.app import DROPPED
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.analysis.idle import Idle
    from ppsim.cli._stated import Stated
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
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
    """Show the schedules on the same devices, with what the devices hold and why they are idle.

    A dropped file that states times is shown with them, and the rest simulated with their medians, unless the line has
    costs or messages of its own: then all are simulated, the file's ops in its order.
    """
    from ppsim.files.document import Document

    _refuse_files(costs, network)
    sources = [_found(spec, ctx.obj) for spec in specs]
    _refuse_work(sources, shape)
    typed = Given(ctx).spellings((*COSTS, *LAYER_TIMES, "layout", *UNEVEN, *DETAILED, "recompute"))
    stated = {source: run for source in sources if (run := _read_times(source, shape))}
    taken = next(iter(stated.items()), None) if not typed else None
    runs: list[_Run] = []
    for source in sources:
        if source in stated and not typed:
            runs.append(_take_times(source, stated[source]))
        else:
            runs.append(_simulate(source, shape, costs, network, taken))
        if source in stated and typed:
            runs[-1] = replace(runs[-1], title=f"{stated[source].title} (order of {Path(source).name})")
        schedules = [run.idle.timeline.schedule for run in runs]
        _refuse_cells(sum(schedule.n_stages * schedule.n_microbatches for schedule in schedules), MOST_CELLS)
    executions = tuple(run.execution for run in runs if run.execution)
    document = Document(
        tuple(run.idle.timeline for run in runs),
        tuple(run.title for run in runs),
        _inputs(ctx, runs[0].prices, bool(taken)),
        idles=tuple(run.idle for run in runs),
        executions=executions if len(executions) == len(runs) else (),
        bounds=tuple(run.bound for run in runs),
    )
    return add_memory(document, [run.prices for run in runs], costs, asked=False)


@dataclass(frozen=True)
class _Run:
    """One schedule as the page shows it: its title, costs, idle time and bound."""

    title: str
    prices: Costs
    idle: Idle
    bound: float
    execution: Execution | None = None


def _read_times(source: str, shape: ShapeOptions) -> Stated | None:
    """Read the times of a dropped file; None where it has none, and for a schedule's name.

    Raises:
        InputError: the shape asked for is not the file's.
    """
    from ppsim.cli._stated import read_stated
    from ppsim.schedules import family_of

    if family_of(source) is not None:
        return None
    stated = read_stated(source)
    if stated is None:
        return None
    schedule = stated.found.timeline.schedule
    for word, asked, own in (
        ("devices", shape.devices, schedule.n_devices),
        ("microbatches", shape.microbatches, schedule.n_microbatches),
    ):
        if asked not in (None, own):
            raise InputError(
                f"{Path(source).name} has {own} {word}, not {asked}", f"{word}: {own}, or leave out the file"
            )
    return stated


def _take_times(source: str, stated: Stated) -> _Run:
    """A dropped run with its own times, of which no bound is known."""
    from ppsim.analysis.idle import explain_idle

    idle = explain_idle(stated.found.timeline, stated.found.arrival)
    return _Run(f"{stated.title} (times of {Path(source).name})", stated.found.costs, idle, float("nan"))


def _simulate(
    source: str,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    taken: tuple[str, Stated] | None,
) -> _Run:
    """Simulate a schedule with the costs of the options, or with the median times of a run that was dropped."""
    from ppsim.analysis.changes import adapt_costs
    from ppsim.analysis.idle import explain_run

    schedule, prices = build(source, options_taken(source, shape), costs, network)
    title = title_of(schedule)
    if taken:
        prices = adapt_costs(taken[1].found.costs, schedule)
        title += f" (median times of {Path(taken[0]).name})"
    timeline, execution = time_ops(schedule, prices, network, costs.links)
    idle = explain_run(timeline, prices.latencies(schedule), execution)
    return _Run(title, prices, idle, measure_with_bound(timeline, prices).bound, execution)


def _inputs(ctx: click.Context, prices: Costs, stated: bool) -> dict[str, Any]:
    """What makes the page again; no command where a dropped file's times are compared with more than one schedule."""
    from ppsim.cli._write import command_line, inputs_of

    words = shlex.split(command_line(ctx).replace(DROPPED, ""))
    count = len(ctx.params["names"]) + len(ctx.params["schedule"])
    words[1] = ("explain", "diff", "")[min(count, 3) - 1] if stated else "run" if count == 1 else "compare"
    if stated:  # whose shape is the file's
        options = [place for place, word in enumerate(words) if word in ("--devices", "--stages", "--mb")]
        words = [word for place, word in enumerate(words) if not {place, place - 1} & {*options}]
    command = {"command": shlex.join(words)} if words[1] else {}
    kept = {name: value for name, value in inputs_of(ctx, prices).items() if name != "command"}
    return {**kept, "ppsim": VERSION, **command}


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
