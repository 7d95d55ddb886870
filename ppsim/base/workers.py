"""One map of independent tasks: in this process, over processes of this machine, or over a Dask cluster.

A task is a value that can be pickled, and its result depends on nothing else; so a task of a lost worker is run again,
and results are the same wherever they are computed.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, TypeVar

from ppsim.base.signals import without_interrupts
from ppsim.errors import PpsimError

Task = TypeVar("Task")
Result = TypeVar("Result")
Batch = tuple[int, Sequence[Any]]
MOST_PER_BATCH = 256
BATCHES_PER_WORKER = 32  # enough that the last ones of all workers end nearly together
MOST_LOSSES = 5


def map_tasks(
    function: Callable[[Task], Result], tasks: Sequence[Task], where: str = "", processes: int = 1
) -> Iterator[tuple[int, Result]]:
    """Run a function on every task, and give each result once, with its task's index, as soon as it is there.

    Args:
        function: of a module, or a partial of one; it is pickled unless all runs in this process.
        tasks: values that can be pickled.
        where: empty for this machine; ``local`` for a Dask cluster started here; or the address of a Dask scheduler.
        processes: how many of this machine, 1 for this process itself.

    Raises:
        InputError: no scheduler at the address.
        MissingDependency: Dask is not installed, or the cluster has no workers.
        PpsimError: workers have another version of ppsim, or the tasks end every worker that runs them.
    """
    if where:
        from ppsim.base.dask_cluster import run_on_dask

        yield from _split(run_on_dask(partial(run_batch, function), tasks, where, batches_of))
    elif processes > 1 and len(tasks) > 1:
        yield from _split(_run_on_processes(function, batches_of(tasks, processes), processes))
    else:
        for index, task in enumerate(tasks):
            yield index, function(task)


def batches_of(tasks: Sequence[Any], workers: int) -> list[Batch]:
    """Cut tasks into batches for so many workers, each with the index of its first task."""
    size = min(MOST_PER_BATCH, max(1, len(tasks) // (max(1, workers) * BATCHES_PER_WORKER)))
    return [(first, tasks[first : first + size]) for first in range(0, len(tasks), size)]


def run_batch(function: Callable[[Any], Any], batch: Batch) -> tuple[int, list[Any]]:
    """Run a batch's tasks, and return the index of the first and all results."""
    first, tasks = batch
    return first, [function(task) for task in tasks]


def count_cores() -> int:
    """Count the processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _split(batches: Iterator[tuple[int, list[Any]]]) -> Iterator[tuple[int, Any]]:
    for first, results in batches:
        yield from enumerate(results, first)


def _run_on_processes(
    function: Callable[[Any], Any], batches: Sequence[Batch], processes: int
) -> Iterator[tuple[int, list[Any]]]:
    """Run batches in new processes; those of processes that were lost are run again."""
    left = {batch[0]: batch for batch in batches}
    losses = 0
    while left:
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
        try:
            with without_interrupts():  # a terminal's Ctrl-C is this process's affair
                waiting = {pool.submit(run_batch, function, batch) for batch in left.values()}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for first, results in map(Future.result, done):
                    del left[first]
                    yield first, results
        except BrokenProcessPool as error:
            losses += 1
            if losses == MOST_LOSSES:
                raise PpsimError(f"{losses} processes were ended from outside, maybe for want of memory") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
