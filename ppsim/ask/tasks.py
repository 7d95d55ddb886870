"""Work of many tasks: its options, the files that it sends to other machines, and the results file
it goes on from.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import click

from ppsim.ask.options import option
from ppsim.base.notes import note
from ppsim.base.results import IsSound, Results
from ppsim.base.signals import raise_swallowed
from ppsim.base.workers import Workers, open_workers
from ppsim.errors import PpsimError

Task = TypeVar("Task")
Row = Mapping[str, Any]
Map = Callable[..., Iterator[tuple[str, Row]]]


@dataclass(frozen=True)
class TaskOptions:
    """The place of tasks (this machine or a cluster), and the file of their results."""

    dask: str | None = option(
        "--dask",
        metavar="ADDRESS|local",
        help="Run on the workers of a Dask scheduler (dask scheduler, dask worker ADDRESS); local "
        "starts both here.",
    )
    results: str | None = option(
        "--results",
        type=click.Path(),
        metavar="FILE",
        help="Keep finished work in a .parquet or .csv file, and continue from its rows.",
    )


@dataclass(frozen=True)
class SentFile:
    """A file of the user's by content, for machines that may not have it."""

    path: str
    content: bytes

    def place(self) -> str:
        """Return the path of the file where tasks run, written first where it is missing or
        another.

        Raises:
            PpsimError: the folder for it is another user's, or others may write it.
        """
        path = Path(self.path)
        if path.is_file() and path.read_bytes() == self.content:
            return self.path
        from ppsim.base.compiled import private_folder

        digest = hashlib.sha256(self.content).hexdigest()[:16]
        named = Path(tempfile.gettempdir()) / f"ppsim-{os.getuid()}-{digest}"
        folder = private_folder(str(named))
        if folder is None:
            raise PpsimError(
                f"'{named}' can be written by others",
                "remove it, or TMPDIR=FOLDER for another place",
            )
        placed = folder / path.name
        if not placed.is_file() or placed.read_bytes() != self.content:
            whole = placed.with_name(f".{os.getpid()}")
            whole.write_bytes(self.content)
            whole.replace(placed)
        return str(placed)


def send_files(paths: Iterable[str | None]) -> dict[str, SentFile]:
    """Read the files among these paths, by path; other words are left out."""
    named = [path for path in paths if path and Path(path).is_file()]
    return {path: SentFile(path, Path(path).read_bytes()) for path in named}


@contextmanager
def open_tasks(
    options: TaskOptions, inputs: object, processes: int = 1, *, is_sound: IsSound
) -> Iterator[Map]:
    """Open the results file and the workers; gives a map that runs the tasks that the file lacks,
    by key.

    ``inputs`` is all that every row depends on; ``processes`` counts the workers on this machine
    without Dask; ``is_sound`` says whether a row of the file can be one of these tasks'. It raises
    what :func:`open_results` and ``open_workers`` raise.
    """
    with open_results(options, inputs, is_sound) as results, ExitStack() as stack:

        @cache  # what a file of results has needs none
        def opened(where: str, count: int) -> Workers:
            return stack.enter_context(open_workers(where, count))

        def run(
            function: Callable[[Task], Row], tasks: Mapping[str, Task], local: Collection[str] = ()
        ) -> Iterator[tuple[str, Row]]:
            yield from ((key, results.rows[key]) for key in tasks if key in results.rows)
            left = [key for key in tasks if key not in results.rows]
            near, far = (
                [key for key in left if key in local],
                [key for key in left if key not in local],
            )
            for keys, where in ((near, ("", 1)), (far, (options.dask or "", processes))):
                for index, row in (
                    opened(*where).run(function, [tasks[key] for key in keys]) if keys else ()
                ):
                    results.add(keys[index], row)
                    yield keys[index], row
                    raise_swallowed()

        yield run


@contextmanager
def open_results(options: TaskOptions, inputs: object, is_sound: IsSound) -> Iterator[Results]:
    """Open the results file, if one is named, and say how much it has and, after Ctrl-C, how much
    it keeps.

    ``inputs`` is all that every row depends on, except its key; ``is_sound`` says whether a row of
    the file can be one of them.

    Raises:
        InputError: the file cannot be read or written, is of other inputs, or has a row that is not
            sound.
        MissingDependency: pyarrow is not installed.
    """
    with Results(options.results, inputs, is_sound) as results:
        old = len(results.rows)
        if results.cut:
            note(f"the last row of {options.results} is cut short and computed again")
        if old:
            note(f"{_count_and_verb(old)} in {options.results} already")
        try:
            yield results
        except KeyboardInterrupt:
            report_kept(results)
            raise


def report_kept(results: Results) -> None:
    """Write the rows after Ctrl-C, and say how many the file keeps, if any."""
    if results.path and results.rows:
        results.write()
        kept = _count_and_verb(len(results.rows))
        note(f"{kept} kept in {results.path}: the same command goes on from it")


def _count_and_verb(count: int) -> str:
    return f"{count:,} {'is' if count == 1 else 'are'}"


def finish_tasks(
    function: Callable[[Task], Row],  # gives a task's row; see :class:`ppsim.base.workers.Workers`
    tasks: Mapping[str, Task],  # by the key under which their rows are kept
    options: TaskOptions,  # of the command line
    inputs: object,  # all that every row depends on, except its key
    report: Callable[[float, str], None],  # called with the share done and a key
    local: Collection[str] = (),  # keys of tasks that run in this process in any case
    *,
    is_sound: IsSound,  # whether a row of the file can be that of a key
) -> Mapping[str, Row]:
    """Run the tasks that the results file lacks, and return the rows of all tasks by key.

    Raises:
        InputError: the results file is of other inputs; and what ``open_workers`` raises.
    """
    rows = {}
    report(0.0, next(iter(tasks), ""))
    with open_tasks(options, inputs, is_sound=is_sound) as run:
        for key, row in run(function, tasks, local):
            rows[key] = row
            report(len(rows) / len(tasks), key)
    return rows
