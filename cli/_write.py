"""Files that commands write: their targets, what they embed, and documents."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ppsim.cli._given import suffixes_of
from ppsim.cli._options import FigureOptions, OutputOptions
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.analysis.heat import HeatMap
    from ppsim.analysis.idle import Idle
    from ppsim.analysis.tradeoff import Point
    from ppsim.core.costs import Costs
    from ppsim.core.timeline import Timeline
    from ppsim.files.document import Document

# Where output goes: no part of how to make the numbers or the picture again.
OUTPUT = ("output", "format", "as_json", "quiet", "gantt", "only_check", "dask", "results")
Written = list[tuple["Document", str, str]]
Writers = Sequence[tuple[str, Callable[[], None]]]  # targets, each with what writes it


def inputs_of(ctx: click.Context, costs: Costs) -> dict[str, Any]:
    """Tell how to make a file again: version, command, resolved costs. No date, no output paths."""
    import numpy as np

    from ppsim.core.ops import COMPUTE, Kind

    rows = {
        kind.name: row[:1].tolist() if np.ptp(row) == 0 else row.tolist()
        for kind, row in zip(COMPUTE, costs.time, strict=True)
        if kind != Kind.R
        or (row.any() and not np.array_equal(row, costs.time[Kind.F]))  # by default R costs what F does
    }
    return {
        "ppsim": VERSION,
        "command": command_line(ctx),
        "costs": {**rows, "comm": np.asarray(costs.comm).tolist(), "unit": costs.unit},
    }


def command_line(ctx: click.Context) -> str:
    """Write the command as the user gave it, without where its output goes; it repeats the run exactly."""
    words = ["ppsim", ctx.info_name or ""]
    for param in ctx.command.params:
        name = param.name or ""
        if name in OUTPUT or not param.expose_value or ctx.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        value = ctx.params[name]
        if isinstance(param, click.Argument):
            words += [str(v) for v in (value if isinstance(value, list | tuple) else [value])]
        elif isinstance(value, bool):
            words.append(param.opts[0] if value else param.secondary_opts[0])
        elif isinstance(value, tuple):
            words += [word for each in value for word in (param.opts[0], str(each))]
        else:
            words += [param.opts[0], _text(value, param)]
    return shlex.join(words)


def _text(value: Any, param: click.Parameter) -> str:
    """Write a value so that it is read back as the same, to the last bit."""
    from ppsim.cli._types import Share

    if isinstance(value, list):
        return ",".join(str(v).removesuffix(".0") for v in value)
    if isinstance(param.type, Share) and value > 1:
        return f"{value * 100!r}%"
    return str(value)


def find_targets(output: OutputOptions, *, tables: bool = False) -> list[tuple[str, str]]:
    """Find every -o with its format's suffix.

    Raises:
        InputError: an unknown format, a file that cannot be written, or the same one twice.
    """
    from ppsim.base.atomic_file import rehearse
    from ppsim.errors import InputError

    for target in output.output:
        rehearse(target)
    places = ["-" if target == "-" else os.path.realpath(target) for target in output.output]
    for target, place in zip(output.output, places, strict=True):
        if places.count(place) > 1:
            one = "there is one standard output" if target == "-" else "the second would replace the first"
            raise InputError(f"-o {target} is given twice, and {one}", "leave one of them out")
    return list(zip(output.output, suffixes_of(output.output, output.format, tables=tables), strict=True))


def make_documents(
    timelines: Sequence[Timeline],
    titles: Sequence[str],
    inputs: Mapping[str, Any],
    output: FigureOptions,
    idles: Sequence[Idle] = (),
) -> Written:
    """Make the document of every -o, with where it goes and its format; ``idles`` colour bubbles by their cause."""
    wanted = find_targets(output)
    if not wanted:
        return []
    from ppsim.files.document import Document, style_of

    document = Document(
        tuple(timelines), tuple(titles), inputs, width=output.width, idles=tuple(idles), look=output.look
    )
    return [(replace(document, style=style_of(suffix, output.style)), target, suffix) for target, suffix in wanted]


@contextmanager
def write_around(written: Written) -> Iterator[None]:
    """Write every document, print the result in the block, then put the files in place; a refusal prints nothing."""
    if not written:
        yield
        return
    from ppsim.files.document import save

    with _write_around([(target, partial(save, document, target, suffix)) for document, target, suffix in written]):
        yield


def write_all(written: Written) -> None:
    """Write every document, as :func:`write_files` does."""
    with write_around(written):
        pass


def write_files(writers: Writers) -> None:
    """Write every target by its function, saying so on stderr; where one cannot be written, none takes its place."""
    with _write_around(writers):
        pass


@contextmanager
def _write_around(writers: Writers) -> Iterator[None]:
    from ppsim.base.atomic_file import place_together
    from ppsim.base.long_work import long_work

    def write(to_stdout: bool) -> None:
        for target, save in writers:
            if (target == "-") == to_stdout:
                with long_work(f"writing {target}"):
                    save()

    quiet_matplotlib()
    with place_together():
        write(to_stdout=False)
        yield
        write(to_stdout=True)  # last, as it cannot be taken back
    for target, _ in writers:
        if target != "-":
            click.echo(f"wrote {target}", err=True)


def quiet_matplotlib() -> None:
    """Keep matplotlib from saying where it keeps its fonts if a home folder is read-only; it works all the same."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def write_tradeoff(
    points: Iterable[Point],
    time: str,
    inputs: Mapping[str, Any],
    output: OutputOptions,
    table: Callable[[str, str], None] | None = None,
    memory: str = "peak activations (of a device's 1/P share)",
    heat: HeatMap | None = None,
    figure: Callable[[str, str], None] | None = None,
) -> None:
    """Write every -o as the trade-off of time against memory, saying so on stderr.

    ``table`` writes the targets that are tables, ``figure`` those that are figures; a page has the ``heat`` maps.
    """
    from ppsim.analysis.tradeoff import tradeoff
    from ppsim.base.tables import TABLES
    from ppsim.files.tradeoff import save_tradeoff

    found = tradeoff(list(points))
    save = partial(save_tradeoff, found, time=time, memory=memory, width=output.width, inputs=inputs, heat=heat)
    targets = find_targets(output, tables=table is not None)

    def writer(suffix: str) -> Callable[[str, str], None]:
        if table and suffix in TABLES:
            return table
        return figure if figure and suffix != ".html" else save

    write_files([(target, partial(writer(suffix), target, suffix)) for target, suffix in targets])
