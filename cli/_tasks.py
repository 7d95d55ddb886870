"""Work of many tasks: its options, the files that it sends to other machines, and the results file it goes on from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ppsim.cli._options import group_options

Task = TypeVar("Task")


@dataclass(frozen=True)
class TaskOptions:
    """Where tasks run, and where their results are kept."""

    dask: str | None = None
    results: str | None = None


task_options = group_options(
    "tasks",
    TaskOptions,
    click.option(
        "--dask",
        metavar="ADDRESS|local",
        help="Run on the workers of a Dask scheduler (dask scheduler, dask worker ADDRESS); local starts both here.",
    ),
    click.option(
        "--results",
        type=click.Path(),
        metavar="FILE",
        help="Keep finished work in a .parquet or .csv file, and go on from what it has.",
    ),
)


@dataclass(frozen=True)
class SentFile:
    """A file of the user's by content, for machines that may not have it."""

    path: str
    content: bytes

    def place(self) -> str:
        """Find the file where tasks run, writing it first if it is not there or another; return its path."""
        path = Path(self.path)
        if path.is_file() and path.read_bytes() == self.content:
            return self.path
        digest = hashlib.sha256(self.content).hexdigest()[:16]
        placed = Path(tempfile.gettempdir()) / f"ppsim-{os.getuid()}-{digest}" / path.name
        if not placed.is_file():
            placed.parent.mkdir(mode=0o700, exist_ok=True)
            whole = placed.with_name(f".{os.getpid()}")
            whole.write_bytes(self.content)
            whole.replace(placed)
        return str(placed)


def send_files(paths: Iterable[str | None]) -> dict[str, SentFile]:
    """Read the files among these paths, by path; what is no file is left to whoever reads it to complain about."""
    named = [path for path in paths if path and Path(path).is_file()]
    return {path: SentFile(path, Path(path).read_bytes()) for path in named}


def finish_tasks(
    function: Callable[[Task], Mapping[str, Any]],
    tasks: Mapping[str, Task],
    options: TaskOptions,
    inputs: object,
    report: Callable[[float, str], None],
    here: Sequence[str] = (),
) -> Mapping[str, Mapping[str, Any]]:
    """Run the tasks whose rows the results file has not, and return the rows of all by key.

    Args:
        function: gives a task's row; see :func:`ppsim.base.workers.map_tasks`.
        tasks: by the key under which their rows are kept.
        options: of the command line.
        inputs: what all rows depend on, beside their keys.
        report: called with the share done and a key.
        here: keys of tasks that run in this process in any case.

    Raises:
        InputError: the results file is of other inputs; and what ``map_tasks`` raises.
    """
    from ppsim.base.results import Results
    from ppsim.base.workers import map_tasks

    with Results(options.results, inputs) as results:
        left = [key for key in tasks if key not in results.rows]
        done = len(tasks) - len(left)
        if options.results and done:
            click.echo(f"{done:,} of {len(tasks):,} are in {options.results} already", err=True)
        near = [key for key in left if not options.dask or key in here]
        far = [key for key in left if options.dask and key not in here]
        try:
            for keys, where in ((near, ""), (far, options.dask or "")):
                if keys:
                    report(done / len(tasks), keys[0])
                for index, row in map_tasks(function, [tasks[key] for key in keys], where) if keys else ():
                    results.add(keys[index], row)
                    done += 1
                    report(done / len(tasks), keys[index])
        except KeyboardInterrupt:
            if options.results:
                results.write()
                click.echo(
                    f"{done:,} of {len(tasks):,} are kept in {options.results}: the same command goes on from it",
                    err=True,
                )
            raise
        return results.rows
