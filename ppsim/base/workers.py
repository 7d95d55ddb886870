"""Map a function over independent tasks: in this process, in several, or on a Dask cluster.

A task is a value that can be pickled, and its result depends only on it. So tasks of a lost worker
run again, and results do not depend on the place of computation.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ppsim.base.signals import without_interrupts
from ppsim.base.spawning import without_script
from ppsim.errors import PpsimError

Task = TypeVar("Task")
Result = TypeVar("Result")
Batch = tuple[int, Sequence[Any]]
Map = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[int, Any]]]
MOST_PER_BATCH = 256
BATCHES_PER_WORKER = 32  # enough for all workers to end at nearly the same time
MOST_LOSSES = 5


@dataclass(frozen=True)
class Workers:
    """Workers that are ready."""

    # called with a function of a module (or a partial of one) and tasks that can be pickled; yields
    # each result once, with the index of its task, as soon as it is computed (errors as in
    # :func:`open_workers`)
    run: Map
    count: int  # the number of tasks that run at once


@contextmanager
def open_workers(where: str = "", processes: int = 1) -> Iterator[Workers]:
    """Start workers, or connect to them; yields a map for several calls.

    Args:
        where: empty for this machine; ``local`` for a new Dask cluster on this machine; or the
            address of a Dask scheduler.
        processes: the number of processes on this machine; 1 for this process.

    Raises:
        InputError: there is no scheduler at the address.
        MissingDependency: Dask is not installed, the cluster has no workers, or they have another
            ppsim. The map also raises this, and PpsimError if tasks end every worker that runs
            them.
    """
    if where:
        from ppsim.base.dask_cluster import connect, run_on

        with connect(where) as cluster:
            yield Workers(
                lambda function, tasks: _split(
                    run_on(
                        cluster, partial(run_batch, function), batches_of(tasks, cluster.threads)
                    )
                ),
                cluster.threads,
            )
    elif processes > 1:
        pool, ended = _Pool(processes), False
        try:
            yield Workers(
                lambda function, tasks: _split(pool.run(function, batches_of(tasks, processes))),
                processes,
            )
            ended = True
        finally:
            pool.close(wait=ended)
    else:
        yield Workers(
            lambda function, tasks: ((index, function(task)) for index, task in enumerate(tasks)), 1
        )


def batches_of(tasks: Sequence[Any], workers: int) -> list[Batch]:
    """Return batches of tasks for a number of workers, each with the index of its first task."""
    size = min(MOST_PER_BATCH, max(1, len(tasks) // (max(1, workers) * BATCHES_PER_WORKER)))
    return [(first, tasks[first : first + size]) for first in range(0, len(tasks), size)]


def run_batch(function: Callable[[Any], Any], batch: Batch) -> tuple[int, list[Any]]:
    """Run the tasks of a batch, and return the index of the first task and all results."""
    first, tasks = batch
    return first, [function(task) for task in tasks]


@contextmanager
def map_in_threads(
    function: Callable[[Task], Result], tasks: Iterable[Task]
) -> Iterator[Iterator[Result]]:
    """Run a function on every task in a thread for each core; yields results in order.

    If an exception ends the block, tasks that have not begun are not run.
    """
    pool = ThreadPoolExecutor(count_cores())
    try:
        yield pool.map(function, tasks)
    finally:
        pool.shutdown(cancel_futures=True)


def count_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _split(batches: Iterator[tuple[int, list[Any]]]) -> Iterator[tuple[int, Any]]:
    for first, results in batches:
        yield from enumerate(results, first)


class _Pool:
    """Processes on this machine; if one is lost, all end and are replaced."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.pool: ProcessPoolExecutor | None = None

    def run(
        self, function: Callable[[Any], Any], batches: Sequence[Batch]
    ) -> Iterator[tuple[int, list[Any]]]:
        """Run batches; the batches of a lost process run again."""
        left = {batch[0]: batch for batch in batches}
        losses = 0
        while left:
            try:
                pickled = pickle.dumps((function, list(left.values())))
                # only this process handles Ctrl-C
                with without_interrupts(), without_script(pickled):
                    self.pool = self.pool or ProcessPoolExecutor(
                        self.processes, multiprocessing.get_context("spawn")
                    )
                    waiting = {
                        self.pool.submit(run_batch, function, batch) for batch in left.values()
                    }
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for first, results in map(Future.result, done):
                        del left[first]
                        yield first, results
            except BrokenProcessPool as error:
                self.close()
                losses += 1
                if losses == MOST_LOSSES:
                    raise PpsimError(
                        f"{losses} processes were killed, maybe because memory ran out"
                    ) from error

    def close(self, *, wait: bool = False) -> None:
        """End the processes; ``wait`` for them if they are idle, so that no thread of the pool
        outlives the interpreter.
        """
        if self.pool:
            self.pool.shutdown(wait=wait, cancel_futures=True)
            self.pool = None
