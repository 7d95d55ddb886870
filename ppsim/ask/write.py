"""Files that commands write: targets, embedded inputs, documents and tables."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ppsim.ask.given import TypedOptions, suffixes_of
from ppsim.ask.groups import FigureOptions, OutputOptions
from ppsim.ask.options import Option
from ppsim.ask.types import Share
from ppsim.base.notes import long_work
from ppsim.errors import InputError
from ppsim.version import VERSION

if TYPE_CHECKING:
    from ppsim.analysis.heat import HeatMap
    from ppsim.analysis.idle import Idle
    from ppsim.analysis.tradeoff import Point
    from ppsim.core.costs import Costs
    from ppsim.core.timeline import Timeline
    from ppsim.show.files.document import Document

# Options of output and of workers, which a command that repeats the run does not need.
OUTPUT = ("output", "format", "as_json", "quiet", "gantt", "dask", "results")
Writers = Sequence[tuple[str, Callable[[], None]]]  # targets, each with its writer


def inputs_of(given: TypedOptions, costs: Costs | None = None) -> dict[str, Any]:
    """Return the inputs that repeat an answer: version, command, and the costs if given.

    There is no date and no output path, and no command if Python gave an object.
    """
    inputs: dict[str, Any] = {"ppsim": VERSION}
    if not any(option.is_object for option in given.typed):
        inputs["command"] = command_line(given)
    if costs is None:
        return inputs
    import numpy as np

    from ppsim.core.ops import COMPUTE, Kind

    rows = {
        kind.name: row[:1].tolist() if np.ptp(row) == 0 else row.tolist()
        for kind, row in zip(COMPUTE, costs.time, strict=True)
        if kind != Kind.R
        # by default R costs what F does
        or (row.any() and not np.array_equal(row, costs.time[Kind.F]))
    }
    rows |= {
        kind.name: row[:1].tolist() if np.ptp(row) == 0 else row.tolist()
        for kind, row in costs.others.items()
    }
    return inputs | {"costs": {**rows, "comm": np.asarray(costs.comm).tolist(), "unit": costs.unit}}


def command_line(given: TypedOptions) -> str:
    """Return a request as a command that repeats it exactly, without its options of output."""
    words = ["ppsim", given.command]
    for option in given.typed:
        if option.name in OUTPUT:
            continue
        value = given.values[option.name]
        yes, _, no = option.spellings[0].partition("/") if option.spellings else ("", "", "")
        if option.is_argument:
            words += [str(v) for v in (value if isinstance(value, list | tuple) else [value])]
        elif isinstance(value, bool):
            words += [yes if value else no] if value or no else []
        elif option.many:
            words += [word for each in value for word in (yes, str(each))]
        else:
            words += [yes, _value_text(value, option)]
    return shlex.join(words)


def _value_text(value: Any, option: Option) -> str:
    """Return a value as text that is read back as exactly the same value."""
    if isinstance(value, list):
        return ",".join(str(v).removesuffix(".0") for v in value)
    if isinstance(option.type, Share) and value > 1:
        return f"{value * 100!r}%"
    return str(value)


def find_targets(output: OutputOptions, *, tables: bool = False) -> list[tuple[str, str]]:
    """Return every -o with the suffix of its format.

    Raises:
        InputError: a format is unknown, a file is given twice, or a file cannot be written.
    """
    if not output.output:
        return []
    from ppsim.base.atomic_file import rehearse

    for target in output.output:
        rehearse(target)
    places = ["-" if target == "-" else os.path.realpath(target) for target in output.output]
    for target, place in zip(output.output, places, strict=True):
        if places.count(place) > 1:
            reason = "the second would replace the first"
            if target == "-":
                reason = "there is one standard output"
            raise InputError(f"-o {target} is given twice, and {reason}", "leave one of them out")
    suffixes = suffixes_of(output.output, output.format, tables=tables)
    return list(zip(output.output, suffixes, strict=True))


def document_writers(
    timelines: Sequence[Timeline],
    titles: Sequence[str],
    inputs: Mapping[str, Any],
    output: FigureOptions,
    idles: Sequence[Idle] = (),
    complete: Callable[[Document, str], Document] = lambda document, suffix: document,
    *,
    verdict: str = "",
) -> Writers:
    """Return the writer of each -o as a document.

    ``complete`` adds further content that the format of a suffix can show, ``idles`` colour bubbles
    by cause, and the ``verdict`` comes first on pages and in JSON.
    """
    wanted = find_targets(output)
    if not wanted:
        return []
    from ppsim.show.files.document import Document, save, style_of

    document = Document(
        tuple(timelines),
        tuple(titles),
        inputs,
        width=output.width,
        idles=tuple(idles),
        look=output.look,
        verdict=verdict,
    )
    writers: list[tuple[str, Callable[[], None]]] = []
    for target, suffix in wanted:
        styled = replace(document, style=style_of(suffix, output.style))
        writers.append((target, partial(save, complete(styled, suffix), target, suffix)))
    return writers


@contextmanager
def write_with(writers: Writers) -> Iterator[None]:
    """Write all files, run the block, then put the files in place.

    If a file cannot be written, the block does not run, so that nothing is printed.
    """
    if not writers:
        yield
        return
    from ppsim.base.atomic_file import place_together

    def write(to_stdout: bool) -> None:
        for target, save in writers:
            if (target == "-") == to_stdout:
                with long_work(f"writing {target}"):
                    save()

    # Matplotlib warns about a read-only home folder, but works in another one.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with place_together():
        write(to_stdout=False)
        yield
        write(to_stdout=True)  # last, because it cannot be undone


def tradeoff_writers(
    points: Iterable[Point],
    time: str,
    inputs: Mapping[str, Any],
    output: OutputOptions,
    table: Callable[[str, str], None] | None = None,
    memory: str = "peak activations (of a device's 1/P share)",
    heat: HeatMap | None = None,
    figure: Callable[[str, str], None] | None = None,
    page: Callable[[str, str], None] | None = None,
    verdict: str = "",
) -> Writers:
    """Return the writer of each -o as a picture of time against memory.

    ``table``, ``figure`` and ``page`` write tables, figures and pages, if given. A page without
    ``page`` begins with the ``verdict``, and has the ``heat`` maps too.
    """
    from ppsim.analysis.tradeoff import tradeoff
    from ppsim.base.tables import TABLES
    from ppsim.show.files.tradeoff import save_tradeoff

    found = tradeoff(list(points))
    save = partial(
        save_tradeoff,
        found,
        time=time,
        memory=memory,
        width=output.width,
        inputs=inputs,
        heat=heat,
        verdict=verdict,
    )
    targets = find_targets(output, tables=table is not None)

    def writer(suffix: str) -> Callable[[str, str], None]:
        if table and suffix in TABLES:
            return table
        return (page if suffix == ".html" else figure) or save

    return [(target, partial(writer(suffix), target, suffix)) for target, suffix in targets]


def write_table(
    rows: Sequence[Mapping[str, Any]],
    whole: Callable[[], Mapping[str, Any]],
    inputs: Mapping[str, Any],
    target: str,
    suffix: str,
) -> None:
    """Write rows as a table; as JSON, write the ``whole`` object of the answer."""
    if suffix != ".json":
        from ppsim.base.tables import save_table

        save_table(rows, target, suffix, inputs)
        return
    from ppsim.base.atomic_file import open_atomically
    from ppsim.base.json_output import dump_json

    with open_atomically(target) as out:
        out.write(dump_json(whole(), end=b"\n"))
