"""A map of tasks over Dask distributed: a cluster started here, or the scheduler at an address."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from ppsim.base.signals import without_interrupts
from ppsim.base.spawning import without_script
from ppsim.errors import InputError, MissingDependency, PpsimError
from ppsim.version import INSTALL_DASK, VERSION

LOCAL = "local"
CONNECT_S = 5
WORKERS_S = 10
# The number of workers that may be lost while they run a batch, before the batch fails.
MOST_LOSSES = 10
# An expression of the version of ppsim and a digest of its code. It is text, as a worker's ppsim
# may lack a function of this module; glob follows the links of a source tree.
CODE = (
    "(__import__('ppsim.version', fromlist=['version']).VERSION, "
    "__import__('hashlib').sha256(b''.join("
    "__import__('pathlib').Path(path).read_bytes() for path in sorted(__import__('glob').glob("
    "__import__('os').path.dirname(__import__('ppsim').__file__) + '/**/*.py', "
    "recursive=True)))).hexdigest())"
)


@dataclass(frozen=True)
class Connection:
    """A client of a scheduler, and the number of tasks that its workers run at once."""

    client: Any
    threads: int


@contextmanager
def connect(address: str) -> Iterator[Connection]:
    """Connect to the scheduler at an address, or start one on this machine for ``local``.

    Its workers must have the same code of ppsim.

    Raises:
        InputError: no scheduler at the address.
        MissingDependency: Dask is not installed, the cluster has no workers, or they have another
            ppsim.
    """
    with _connected(address) as client:
        yield Connection(client, _check_workers(client, address))


def run_on(
    cluster: Connection,
    run: Callable[[Any], tuple[int, list[Any]]],
    batches: Sequence[tuple[int, Sequence[Any]]],
) -> Iterator[tuple[int, list[Any]]]:
    """Run batches of tasks; yield the index of each batch's first task and all its results, once.

    Raises:
        MissingDependency: a worker that joined later has another ppsim.
        PpsimError: a batch ends every worker that runs it, or the scheduler is lost.
    """
    from concurrent.futures import CancelledError

    from distributed import KilledWorker, as_completed
    from distributed.comm import CommClosedError

    client, left = cluster.client, {batch[0] for batch in batches}
    # As a future, the function is sent to each worker once, and survives the loss of a worker.
    function = client.submit(_same_function, run, pure=False)
    futures = client.map(_run_batch, list(batches), code=_own_code(), run=function, pure=False)
    try:
        for done in as_completed(futures, loop=client.loop).batches():
            for first, results in client.gather(done):
                if first in left:
                    left.remove(first)
                    yield first, results
    except KilledWorker as error:
        message = f"workers were lost repeatedly while they ran the same tasks: {error}"
        raise PpsimError(message, "give the workers more memory") from error
    except (CancelledError, CommClosedError) as error:
        hint = "start it again, and the same command; --results FILE keeps what is finished"
        raise PpsimError("the connection to the Dask scheduler was lost", hint) from error
    finally:
        with suppress(Exception):
            client.cancel(futures, force=True)


def _same_function(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return run


def _run_batch(batch: tuple[int, Sequence[Any]], code: object, run: Callable[[Any], Any]) -> Any:
    _compare_code([code])  # this worker may have joined after the check of all workers
    return run(batch)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Connect to the scheduler, or start one on this machine with a worker for each core."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingDependency(
            f"--dask needs Dask, which cannot be imported: {error}", INSTALL_DASK
        ) from error
    # Dask sets the level of the client's logger separately
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        stack.enter_context(
            dask.config.set({"distributed.scheduler.allowed-failures": MOST_LOSSES})
        )
        target: Any = address
        if address == LOCAL:
            target = stack.enter_context(_start_cluster(LocalCluster))
        else:
            _find_scheduler(address)
        with warnings.catch_warnings():
            # Dask warns about different versions of its dependencies
            warnings.simplefilter("ignore")
            client = Client(target, timeout=CONNECT_S, set_as_default=False)
        stack.enter_context(client)
        yield client


def _start_cluster(cluster: Callable[..., Any], retry: bool = True) -> Any:
    """Start a scheduler and a worker for each core.

    An interrupt waits until they can be closed.

    Raises:
        PpsimError: a worker was lost at its start, twice.
    """

    def start() -> Any:
        # Workers inherit the blocked interrupt from the thread that starts them, now or later. They
        # do not import the user's script, as its functions are sent to them.
        with without_interrupts(), without_script():
            return cluster(
                threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
            )

    with ThreadPoolExecutor(1) as thread:
        starting = thread.submit(start)
        try:
            return starting.result()
        except KeyboardInterrupt:
            with suppress(Exception):
                starting.result().close()
            raise
        except RuntimeError as error:
            if not retry:
                hint = "try again, or leave out --dask: all cores are used without it too"
                raise PpsimError(f"no Dask cluster started here: {error}", hint) from error
    return _start_cluster(cluster, retry=False)


def _find_scheduler(address: str) -> None:
    """Raise InputError if no scheduler answers at an address, which a client would try for long."""
    import asyncio

    from distributed import rpc

    async def ask() -> object:
        async with rpc(address, timeout=CONNECT_S) as there:
            return await there.identity()

    try:
        asyncio.run(asyncio.wait_for(ask(), CONNECT_S))
    except Exception as error:
        hint = (
            "the address that dask scheduler prints, such as tcp://10.0.0.1:8786; or --dask local"
        )
        raise InputError(f"no Dask scheduler answers at '{address}'", hint) from error


def _check_workers(client: Any, where: str) -> int:
    """Return the number of threads of all workers, after a check that they have this ppsim."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError as error:
        hint = "start some: dask worker " + ("ADDRESS" if where == LOCAL else where)
        raise MissingDependency(f"the Dask scheduler at '{where}' has no workers", hint) from error
    found = client.run(eval, CODE, on_error="return")
    try:
        found["scheduler"] = client.run_on_scheduler(eval, CODE)
    except ImportError as error:
        found["scheduler"] = error
    # an OSError is that of a worker that was just lost
    _compare_code(code for code in found.values() if not isinstance(code, OSError))
    return sum(client.nthreads().values())


@cache
def _own_code() -> object:
    return eval(CODE)


def _compare_code(others: Iterable[object]) -> None:
    """Raise MissingDependency for another version of ppsim, none, or the same with other code."""
    found = {
        code[0] if isinstance(code, tuple) else "none" for code in others if code != _own_code()
    }
    if found:
        what = "other code of that version" if found == {VERSION} else ", ".join(sorted(found))
        raise MissingDependency(
            f"this is ppsim {VERSION}, and the Dask scheduler or some of its workers have {what}",
            "install the same in the environment of the scheduler and of every worker, and start "
            "them again",
        )
