"""Work made of many tasks: options, files to send to other machines, and the results file."""

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
    """The workers of tasks, and the file that keeps their results."""

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
        help="Keep finished work in a .parquet or .csv file, and continue from it.",
    )


@dataclass(frozen=True)
class SentFile:
    """A file of the user with its content, for machines that may not have it."""

    path: str
    content: bytes

    def place(self) -> str:
        """Return the path of the file on this machine; write it first if the machine lacks it.

        Raises:
            PpsimError: the folder for it belongs to another user, or others may write it.
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
    """Return the content of the paths that are files, by path."""
    named = [path for path in paths if path and os.path.isfile(path)]
    return {path: SentFile(path, Path(path).read_bytes()) for path in named}


@contextmanager
def open_tasks(
    options: TaskOptions, inputs: object, processes: int = 1, *, is_sound: IsSound
) -> Iterator[Map]:
    """Open the results file and the workers, and yield a function that runs tasks.

    The function yields the rows of tasks by key, first those that the file has. ``inputs`` are the
    inputs of all rows, ``processes`` is the number of workers on this machine without Dask, and
    ``is_sound`` returns True if a row of the file can be one of these tasks. Errors are those of
    :func:`open_results` and ``open_workers``.
    """
    with open_results(options, inputs, is_sound) as results, ExitStack() as stack:

        @cache  # workers start with the first task that the results file lacks
        def opened(address: str, count: int) -> Workers:
            return stack.enter_context(open_workers(address, count))

        def run(
            function: Callable[[Task], Row], tasks: Mapping[str, Task], local: Collection[str] = ()
        ) -> Iterator[tuple[str, Row]]:
            yield from ((key, results.rows[key]) for key in tasks if key in results.rows)
            missing = [key for key in tasks if key not in results.rows]
            in_process = [key for key in missing if key in local]
            on_workers = [key for key in missing if key not in local]
            for keys, address, count in (
                (in_process, "", 1),
                (on_workers, options.dask or "", processes),
            ):
                if not keys:
                    continue
                workers = opened(address, count)
                for index, row in workers.run(function, [tasks[key] for key in keys]):
                    results.add(keys[index], row)
                    yield keys[index], row
                    raise_swallowed()

        yield run


@contextmanager
def open_results(options: TaskOptions, inputs: object, is_sound: IsSound) -> Iterator[Results]:
    """Open the results file, if one is named; note the number of its rows, also after Ctrl-C.

    ``inputs`` are the inputs of all rows, without their keys; ``is_sound`` returns True if a row of
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
    """Write the rows after Ctrl-C, and note their number if there are any."""
    if results.path and results.rows:
        results.write()
        kept = _count_and_verb(len(results.rows))
        note(f"{kept} kept in {results.path}: the same command continues from it")


def _count_and_verb(count: int) -> str:
    return f"{count:,} {'is' if count == 1 else 'are'}"


def finish_tasks(
    function: Callable[[Task], Row],
    tasks: Mapping[str, Task],
    options: TaskOptions,
    inputs: object,
    report: Callable[[float, str], None],
    local: Collection[str] = (),
    *,
    is_sound: IsSound,
) -> Mapping[str, Row]:
    """Run the tasks that the results file lacks, and return the rows of all tasks by key.

    Args:
        function: returns the row of a task; see :class:`ppsim.base.workers.Workers`.
        tasks: the tasks, by the key of their rows in the results file.
        options: the workers and the results file.
        inputs: the inputs of all rows, without their keys.
        report: is called with the share of finished tasks and the key of the last one.
        local: the keys of tasks that must run in this process.
        is_sound: returns True if a row of the file can be the row of a key.

    Raises:
        InputError: the results file is of other inputs, or an error of ``open_workers``.
    """
    rows = {}
    report(0.0, next(iter(tasks), ""))
    with open_tasks(options, inputs, is_sound=is_sound) as run:
        for key, row in run(function, tasks, local):
            rows[key] = row
            report(len(rows) / len(tasks), key)
    return rows
