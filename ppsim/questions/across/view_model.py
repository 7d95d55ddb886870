"""The live page's model on a cluster: the costs of its stages, and a page of plans."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.given import TypedOptions
from ppsim.ask.options import Request, option
from ppsim.ask.write import command_line
from ppsim.base.deadline import check_time
from ppsim.errors import InputError, PpsimError
from ppsim.prices.trained import TrainedModel, TrainedOptions

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.workload.hardware.hardware import Machine

MOST_GPUS, MOST_SEQUENCES = 4096, 1 << 16
PLAN_S = 120.0  # seconds that a search for plans may take
POLL_S = 0.1


@dataclass(frozen=True)
class ModelOptions:
    """The model that gives the page times of stages, on the cluster of the messages, and bytes."""

    model: str | None = option("--model", help="A model of the library.")
    tp: int | None = option("--tp", type=click.IntRange(1, 1024), help="Tensor-parallel ranks (1).")
    ep: int | None = option(
        "--ep", type=click.IntRange(1, 1024), help="Expert-parallel ranks, inside dp x tp (1)."
    )
    dp: int | None = option(
        "--dp", type=click.IntRange(1, 1 << 16), help="Replicas, which share the optimizer (1)."
    )
    mbs: int | None = option(
        "--mbs", type=click.IntRange(1, 1024), help="Sequences in a microbatch (1)."
    )

    @property
    def trained(self) -> TrainedModel | None:
        """The model and its training, as ``ppsim memory --model`` uses them; None without one."""
        sizes = TrainedOptions(tp=self.tp, ep=self.ep, dp=self.dp, mbs=self.mbs)
        return TrainedModel(self.model, sizes) if self.model else None


@dataclass(frozen=True, kw_only=True)
class PlanPageRequest(Request):
    """The options of ``ppsim plan`` that a page may set."""

    question: ClassVar[str] = "plan"
    model: str | None = option("--model")
    cluster: str | None = option("--cluster")
    gpus: int | None = option("--gpus", type=click.IntRange(1, MOST_GPUS))
    gbs: int | None = option("--gbs", type=click.IntRange(1, MOST_SEQUENCES))


def library_names() -> tuple[list[str], list[str]]:
    """Return the names of the library's models and clusters."""
    from ppsim.workload.hardware.hardware import machines
    from ppsim.workload.model.model import library

    return sorted(library()), sorted(machines())


def price_of(trained: TrainedModel, machine: Machine) -> Callable[[Schedule], Costs]:
    """Return a function that returns the costs of a schedule of the model, in ms.

    Raises:
        InputError: there is no such model. The function raises it for more stages than the model
            has layers, and for sizes that do not divide.
    """
    from ppsim.workload.cost.costs import stage_costs
    from ppsim.workload.model.model import read_trained

    model = read_trained(trained.spec)

    def price(schedule: Schedule) -> Costs:
        whole = schedule.whole_microbatches
        parallel = replace(trained.parallel(schedule), microbatches=whole, slices=schedule.n_slices)
        return stage_costs(model, machine, parallel).costs

    return price


class Planner:
    """Makes pages of plans, in processes of ``ppsim plan`` that end with this object."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()

    def page(self, request: PlanPageRequest) -> bytes:
        """Search for plans, and return the bytes of their page.

        Raises:
            InputError: an option is missing, or the search takes too long.
            PpsimError: no plan fits.
        """
        if missing := [
            name for name in ("model", "cluster", "gpus", "gbs") if getattr(request, name) is None
        ]:
            raise InputError(f"a plan needs {', '.join(missing)}", "choose a model and a cluster")
        line = command_line(TypedOptions.from_request(request))
        with TemporaryDirectory(prefix="ppsim-plan-") as folder:
            target = Path(folder) / "plan.html"
            # the new process finds ppsim where this one did, and not in its current folder
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            words = [
                sys.executable,
                "-P",
                "-m",
                "ppsim",
                *shlex.split(line)[1:],
                "--front",
                "-q",
                "-o",
                str(target),
            ]
            log = Path(folder) / "log"
            with (
                open(log, "w+b") as out,
                subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
                ) as process,
            ):
                self._running.add(process)
                try:
                    _await(process, line)
                finally:
                    process.terminate()
                    self._running.discard(process)
            if process.returncode or not target.exists():
                text = log.read_text(errors="replace").strip()[:2000]
                message, _, hint = text.removeprefix("Error: ").partition("\n  try: ")
                raise PpsimError(message, hint)
            return target.read_bytes()

    def close(self) -> None:
        """End all running searches."""
        for process in tuple(self._running):
            process.terminate()


def _await(process: subprocess.Popen[bytes], line: str) -> None:
    """Wait until a process ends (InputError: it takes too long)."""
    until = time.monotonic() + PLAN_S
    while process.poll() is None:
        check_time()
        if time.monotonic() > until:
            raise InputError(f"no plan within {PLAN_S:.0f} s", line)
        time.sleep(POLL_S)
