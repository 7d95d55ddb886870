"""The task of a search for plans, its findings, and the outcomes of candidates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ppsim.workload.cost.kinds import kinds_of_devices
from ppsim.workload.cost.memory import Bytes
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.space import BY_SPEED, Axes, Candidate

# share of a GPU's memory for its driver, communicators, workspaces and gaps between tensors
RESERVE = 0.06
# Largest error of a predicted peak among twelve measured settings, as a share (SimuMax's runs in
# gallery/measurements.md).
MISS = 0.031
REFUSED = "the schedule refuses the shape"
LACKED = "the software's launch flags refuse the plan"
STATES = "weights, gradients and optimizer do not fit"
HELD = "activations do not fit"
WORK = "cannot win: work, fill and drain"
STAGES = "cannot win: work and fill of its slowest device"
SIMULATED = "simulated"
OUTCOMES = (REFUSED, LACKED, STATES, HELD, WORK, STAGES, SIMULATED)
ROUNDING = 1e-9

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The task of a search for plans.

    Attributes:
        model: the model.
        machine: the cluster and its GPUs.
        gpus: number of GPUs.
        gbs: sequences in a step.
        axes: the choices.
        cap: bytes that a plan may use on a GPU; on a GPU of a mixed cluster at most its usable
            bytes.
        keep: number of plans wanted.
        front: whether slower plans that need less memory are wanted too.
        known: seconds of a possible step; groups that cannot beat it are left out and not counted.
        near: relative difference from the fastest step up to which all plans are simulated, so that
            the best is chosen among all plans that may tie.
        launch: name of the launcher that must support every plan, or ''.
    """

    model: Model
    machine: Machine
    gpus: int
    gbs: int
    axes: Axes
    cap: float
    keep: int = 10
    front: bool = False
    known: float = float("inf")
    near: float = 0.0
    launch: str = ""

    def machine_of(self, layout: str) -> Machine:
        """Return the machine with its kinds of nodes in the order of a layout's ranks."""
        return self.machine.reversed if layout == BY_SPEED[1] else self.machine

    def caps(self, machine: Machine, parallel: Parallel) -> float | Bytes:
        """Return the bytes that a plan may use on each pipeline device.

        It is one number; for a mixed cluster it has shape (devices,).
        """
        if not machine.kinds:
            return self.cap
        each = np.array([min(self.cap, usable_bytes(kind.machine)) for kind in machine.kinds])
        return np.where(kinds_of_devices(machine, parallel), each, np.inf).min(axis=1)


@dataclass
class Findings:
    """The findings of a search so far.

    Attributes:
        rows: the wanted plans, best first, and with ``Task.front`` the whole Pareto front.
        simulated: all simulated plans in the order of simulation.
        counts: number of candidates by outcome.
        total: number of candidates.
        least_memory: the fewest bytes of a candidate (a bound if it was not evaluated), and that
            candidate.
        barely: candidates that miss the usable memory by at most ``MISS``, each with a lower bound
            on its seconds.
        near_miss: the fastest plan of these that is clearly faster than the best; None if none is.
        complete: whether the search has ended.
    """

    rows: list[Row] = field(default_factory=list)
    simulated: list[Row] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    total: int = 0
    least_memory: tuple[float, Candidate] | None = None
    barely: list[tuple[float, Candidate]] = field(default_factory=list)
    near_miss: Row | None = None
    complete: bool = False


def usable_bytes(machine: Machine) -> float:
    """Return the bytes of the largest GPU that training can use (see ``RESERVE``)."""
    return machine.memory_bytes * (1 - RESERVE)
